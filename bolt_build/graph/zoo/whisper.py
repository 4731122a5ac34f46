"""The encoder of Whisper-tiny, as transformers has it: a log-mel spectrogram in, the last hidden state out."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import TensorProto, helper

from bolt_build.graph.zoo.encoder import EncoderBuilder
from bolt_build.graph.zoo.seeded import Seeded, Spread

OUTPUT = "last_hidden_state"
EPSILON = 1e-5
PLACES = Spread(0.5)


@dataclass(frozen=True)
class Whisper:
    """Sizes of an encoder: `mels` bands, and `positions` behind the convolution that halves time."""

    mels: int
    positions: int
    layers: int
    hidden: int
    heads: int
    inner: int


def build_tiny() -> Seeded:
    """Whisper-tiny: input "input_features" f32 [N,80,3000], output "last_hidden_state" f32 [N,1500,384]."""
    return build("whisper_tiny_encoder", Whisper(80, 1500, 4, 384, 6, 1536))


def build(name: str, size: Whisper) -> Seeded:
    """An encoder of any size."""
    b = EncoderBuilder()
    x = "input_features"
    for index, (channels, stride) in enumerate(((size.mels, 1), (size.hidden, 2)), start=1):
        x = b.gelu(_conv(b, x, f"/conv{index}", (channels, size.hidden), stride), f"/gelu{index}")
    x = b.node("Transpose", "", [x], perm=[0, 2, 1])
    x = b.node("Add", "", [x, b.weight("/embed_positions", "weight", (size.positions, size.hidden), PLACES)])
    for layer in range(size.layers):
        scope = f"/layers/{layer}"
        y = b.norm(x, f"{scope}/self_attn_layer_norm", size.hidden, EPSILON)
        names = ("q_proj", "k_proj", "v_proj")
        y = b.attention(y, f"{scope}/self_attn", names, size.hidden, size.heads, key_bias=False, scale="queries")
        x = b.node("Add", scope, [x, b.attended(y, f"{scope}/self_attn/out_proj", size.hidden)])
        y = b.norm(x, f"{scope}/final_layer_norm", size.hidden, EPSILON)
        scopes = (f"{scope}/fc1", f"{scope}/activation_fn", f"{scope}/fc2")
        x = b.node("Add", f"{scope}/1", [x, b.feed_forward(y, scopes, (size.hidden, size.inner))])
    b.norm(x, "/layer_norm", size.hidden, EPSILON, OUTPUT)
    return b.seeded(
        name,
        [helper.make_tensor_value_info("input_features", TensorProto.FLOAT, ["N", size.mels, 2 * size.positions])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["N", size.positions, size.hidden])],
    )


def _conv(b: EncoderBuilder, x: str, scope: str, fan: tuple[int, int], stride: int) -> str:
    """A convolution over time, in windows of three."""
    weight = b.weight(
        scope, "weight", (fan[1], fan[0], 3), Spread((fan[0] * 3) ** -0.5 * (1.0 if stride == 1 else 1.5))
    )
    return b.node(
        "Conv", scope, [x, weight, b.weight(scope, "bias", (fan[1],), Spread(0.05))],
        kernel_shape=[3], strides=[stride], pads=[1, 1], dilations=[1], group=1,
    )  # fmt: skip
