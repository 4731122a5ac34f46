"""Vision transformers: torchvision's ViT-B/16, and the image tower of CLIP ViT-B/32 as transformers has it.

Patches are a convolution whose stride is its window; a class token stands before them, and the model's result is made
of what becomes of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper

from bolt_build.graph.zoo.builder import CLASSES, IMAGE
from bolt_build.graph.zoo.encoder import ATTENDED, EncoderBuilder, tempers
from bolt_build.graph.zoo.seeded import Seeded, Spread

PLACES, CLASS_TOKEN = Spread(0.2), Spread(0.1)


@dataclass(frozen=True)
class Vit:
    """Sizes of a vision transformer: `image` rows and columns of pixels, cut in patches of `patch`."""

    patch: int
    layers: int
    hidden: int
    heads: int
    inner: int
    outputs: int
    image: int = IMAGE[1]

    @property
    def tokens(self) -> int:
        """Patches and the class token."""
        return (self.image // self.patch) ** 2 + 1


def build_b16() -> Seeded:
    """ViT-B/16: input "input" f32 [N,3,224,224], output "logits" f32 [N,1000]."""
    return build_vit("vit_b16", Vit(16, 12, 768, 12, 3072, CLASSES))


def build_clip() -> Seeded:
    """CLIP's image tower: input "pixel_values" f32 [N,3,224,224], output "image_embeds" f32 [N,512]."""
    return build_clip_vision("clip_vision", Vit(32, 12, 768, 12, 3072, 512))


def build_vit(name: str, size: Vit) -> Seeded:
    """torchvision's vision transformer of any size."""
    b = EncoderBuilder()
    x = _patches(b, "input", "/conv_proj", size, bias=True)
    token = b.weight("/", "class_token", (1, 1, size.hidden), CLASS_TOKEN)
    x = _with_token(b, x, token, "")
    places = b.weight("/encoder", "pos_embedding", (1, size.tokens, size.hidden), PLACES)
    x = b.node("Add", "/encoder", [x, places])
    for layer in range(size.layers):
        scope = f"/encoder/layers/encoder_layer_{layer}"
        y = _packed_attention(b, b.norm(x, f"{scope}/ln_1", size.hidden, 1e-6), f"{scope}/self_attention", size)
        x = b.node("Add", scope, [y, x])
        y = b.norm(x, f"{scope}/ln_2", size.hidden, 1e-6)
        y = b.feed_forward(y, (f"{scope}/mlp/0", f"{scope}/mlp/1", f"{scope}/mlp/3"), (size.hidden, size.inner))
        x = b.node("Add", f"{scope}/1", [x, y])
    x = _first(b, b.norm(x, "/encoder/ln", size.hidden, 1e-6), "")
    b.classifier(x, "/heads/head", (size.hidden, size.outputs), "logits")
    return _model(b, name, size, "input", "logits")


def build_clip_vision(name: str, size: Vit) -> Seeded:
    """CLIP's image tower of any size, with its projection."""
    b = EncoderBuilder()
    top = "/vision_model"
    x = _patches(b, "pixel_values", f"{top}/embeddings/patch_embedding", size, bias=False)
    token = b.weight(f"{top}/embeddings", "class_embedding", (1, 1, size.hidden), CLASS_TOKEN)
    x = _with_token(b, x, token, f"{top}/embeddings")
    places = b.weight(f"{top}/embeddings/position_embedding", "weight", (size.tokens, size.hidden), PLACES)
    order = b.array(f"{top}/embeddings", "position_ids", np.arange(size.tokens, dtype=np.int64)[None])
    placed = b.node("Gather", f"{top}/embeddings/position_embedding", [places, order], axis=0)
    x = b.norm(b.node("Add", f"{top}/embeddings", [x, placed]), f"{top}/pre_layrnorm", size.hidden, 1e-5)
    for layer in range(size.layers):
        scope = f"{top}/encoder/layers/{layer}"
        y = b.norm(x, f"{scope}/layer_norm1", size.hidden, 1e-5)
        names = ("q_proj", "k_proj", "v_proj")
        y = b.attention(y, f"{scope}/self_attn", names, size.hidden, size.heads, scale="both")
        x = b.node("Add", scope, [x, b.attended(y, f"{scope}/self_attn/out_proj", size.hidden)])
        scopes = (f"{scope}/mlp/fc1", f"{scope}/mlp/activation_fn", f"{scope}/mlp/fc2")
        y = b.norm(x, f"{scope}/layer_norm2", size.hidden, 1e-5)
        x = b.node("Add", f"{scope}/1", [x, b.feed_forward(y, scopes, (size.hidden, size.inner), quick=True)])
    x = b.norm(_first(b, x, top), f"{top}/post_layernorm", size.hidden, 1e-5)
    b.classifier(x, "/visual_projection", (size.hidden, size.outputs), "image_embeds", bias=False)
    return _model(b, name, size, "pixel_values", "image_embeds")


def _patches(b: EncoderBuilder, x: str, scope: str, size: Vit, *, bias: bool) -> str:
    """An image as [N, patches, hidden]."""
    window = (size.hidden, IMAGE[0], size.patch, size.patch)
    inputs = [x, b.weight(scope, "weight", window, Spread((IMAGE[0] * size.patch**2) ** -0.5))]
    if bias:
        inputs.append(b.weight(scope, "bias", (size.hidden,), Spread(0.05)))
    x = b.node(
        "Conv", scope, inputs, kernel_shape=[size.patch] * 2, strides=[size.patch] * 2, pads=[0] * 4,
        dilations=[1, 1], group=1,
    )  # fmt: skip
    x = b.node("Reshape", scope, [x, b.constant(scope, "Constant", 0, size.hidden, -1)])
    return b.node("Transpose", scope, [x], perm=[0, 2, 1])


def _with_token(b: EncoderBuilder, x: str, token: str, scope: str) -> str:
    """x [N, patches, hidden] behind the class token, of which each image gets a copy."""
    shape = b.node("Shape", scope, [x])
    images = b.node("Slice", f"{scope}/images", [shape, *(b.constant(scope, f"Bound_{k}", k) for k in (0, 1))])
    last = b.constant(scope, "Extents", -1, -1)
    extents = b.node("Concat", f"{scope}/extents", [images, last], axis=0)
    ones = b.node("ConstantOfShape", f"{scope}/ones", [b.constant(scope, "Rank", 3)], value=_one())
    kept = b.node("Equal", f"{scope}/kept", [extents, b.constant(scope, "Kept", -1)])
    extents = b.node("Where", f"{scope}/kept", [kept, ones, extents])
    return b.node("Concat", scope, [b.node("Expand", scope, [token, extents]), x], axis=1)


def _one() -> TensorProto:
    return helper.make_tensor("value", TensorProto.INT64, [1], [1])


def _packed_attention(b: EncoderBuilder, x: str, scope: str, size: Vit) -> str:
    """torch's MultiheadAttention over x [N, S, hidden], as its exporter writes it: sequences first, one product for
    queries, keys and values, batch and heads as one axis."""
    hidden, heads, width = size.hidden, size.heads, size.hidden // size.heads
    x = b.node("Transpose", scope, [x], perm=[1, 0, 2])
    gains = (*tempers(heads), *(1.0,) * (2 * heads))
    qkv = b.dense(x, f"{scope}/in_proj", (hidden, 3 * hidden), gains=gains)
    qkv = b.node("Reshape", scope, [qkv, b.constant(scope, "Constant", 0, 0, 3, hidden)])
    qkv = b.node("Unsqueeze", scope, [qkv, b.constant(scope, "Constant_1", 0)])
    qkv = b.node("Transpose", f"{scope}/1", [qkv], perm=[3, 1, 2, 0, 4])
    qkv = b.node("Squeeze", scope, [qkv, b.constant(scope, "Constant_2", 3)])
    parts = []
    for index, part in enumerate("qkv"):
        at = f"{scope}/{part}"
        y = b.node("Gather", at, [qkv, b.array(at, "Constant", np.array(index, np.int64))], axis=0)
        y = b.node("Reshape", at, [y, b.constant(at, "Constant_1", size.tokens, -1, width)])
        y = b.node("Transpose", at, [y], perm=[1, 0, 2])
        y = b.node("Reshape", f"{at}/1", [y, b.constant(at, "Constant_2", -1, heads, size.tokens, width)])
        parts.append(y)
    q, k, v = parts
    k = b.node("Transpose", f"{scope}/k/1", [k], perm=[0, 1, 3, 2])
    q = b.node("Mul", f"{scope}/q", [q, b.scalar(f"{scope}/q", "Scale", width**-0.25)])
    k = b.node("Mul", f"{scope}/k", [k, b.scalar(f"{scope}/k", "Scale", width**-0.25)])
    weights = b.node("Softmax", scope, [b.node("MatMul", scope, [q, k])], axis=-1)
    y = b.node("MatMul", f"{scope}/values", [weights, v])
    y = b.node("Transpose", f"{scope}/values", [y], perm=[2, 0, 1, 3])
    y = b.node("Reshape", f"{scope}/values", [y, b.constant(scope, "Constant_3", -1, hidden)])
    weight = b.weight(f"{scope}/out_proj", "weight", (hidden, hidden), Spread(ATTENDED / hidden**0.5))
    y = b.node(
        "Gemm",
        f"{scope}/out_proj",
        [y, weight, b.weight(f"{scope}/out_proj", "bias", (hidden,), Spread(0.05))],
        transB=1,
    )
    y = b.node("Reshape", f"{scope}/out_proj", [y, b.constant(scope, "Constant_4", size.tokens, -1, hidden)])
    return b.node("Transpose", f"{scope}/out_proj", [y], perm=[1, 0, 2])


def _first(b: EncoderBuilder, x: str, scope: str) -> str:
    """The class token's place of x [N, S, hidden]."""
    return b.node("Gather", f"{scope}/first", [x, b.array(f"{scope}/first", "Constant", np.array(0, np.int64))], axis=1)


def _model(b: EncoderBuilder, name: str, size: Vit, source: str, output: str) -> Seeded:
    return b.seeded(
        name,
        [helper.make_tensor_value_info(source, TensorProto.FLOAT, ["N", IMAGE[0], size.image, size.image])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", size.outputs])],
    )
