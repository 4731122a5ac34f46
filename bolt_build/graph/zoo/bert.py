"""BERT-base and BERT-large without their pooler, and DistilBERT, as transformers has them: token ids in, the last
hidden state out.

Every token is of type 0, and positions count from 0. There is no padding mask but in the model that is called after it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper

from bolt_build.graph.ir import Array
from bolt_build.graph.zoo.encoder import EncoderBuilder
from bolt_build.graph.zoo.seeded import Seeded, Spread

EPSILON = 1e-12
OUTPUT = "last_hidden_state"
WORDS, POSITIONS, TYPES = Spread(0.05), Spread(0.02), Spread(0.02)
"""As in trained models: the normalisation behind them enlarges them."""


@dataclass(frozen=True)
class Bert:
    """Sizes of a BERT. `typed`: it has an embedding for types of tokens, which all are 0 here. `masked`: it takes a
    padding mask."""

    layers: int
    hidden: int
    heads: int
    inner: int
    vocabulary: int = 30522
    positions: int = 512
    typed: bool = True
    masked: bool = False


def build_base() -> Seeded:
    """BERT-base: input "input_ids" int64 [N,sequence], output "last_hidden_state" f32 [N,sequence,768]."""
    return build("bert_base", Bert(12, 768, 12, 3072))


def build_base_masked() -> Seeded:
    """BERT-base with another input, "attention_mask" int64 [N,sequence]: 1 for each token, 0 where there is none."""
    return build("bert_base_masked", Bert(12, 768, 12, 3072, masked=True))


def build_large() -> Seeded:
    """BERT-large: as `build_base`, with 24 layers of 1024 channels."""
    return build("bert_large", Bert(24, 1024, 16, 4096))


def build_distil() -> Seeded:
    """DistilBERT: as `build_base`, with 6 layers and without types of tokens."""
    return build("distilbert", Bert(6, 768, 12, 3072, typed=False))


def build(name: str, size: Bert) -> Seeded:
    """A BERT of any size."""
    b = EncoderBuilder()
    x = b.norm(_embedded(b, size), "/embeddings/LayerNorm", size.hidden, EPSILON)
    bias = _hidden(b) if size.masked else None
    for layer in range(size.layers):
        last = OUTPUT if layer == size.layers - 1 else None
        x = _layer(b, x, layer, size, last, bias) if size.typed else _distilled(b, x, layer, size, last)
    return b.seeded(
        name,
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["N", "sequence"])
            for name in ("input_ids", *(("attention_mask",) if size.masked else ()))
        ],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["N", "sequence", size.hidden])],
    )


def _embedded(b: EncoderBuilder, size: Bert) -> str:
    """The sum of each token's embeddings. Positions and types are the first ones of a stored vector, as many as the
    input has tokens."""
    scope = "/embeddings"
    words = b.weight(f"{scope}/word_embeddings", "weight", (size.vocabulary, size.hidden), WORDS)
    places = b.weight(f"{scope}/position_embeddings", "weight", (size.positions, size.hidden), POSITIONS)
    x = b.node("Gather", f"{scope}/word_embeddings", [words, "input_ids"], axis=0)
    shape = b.node("Shape", scope, ["input_ids"])
    length = b.node("Gather", f"{scope}/length", [shape, b.constant(f"{scope}/length", "Constant", 1)], axis=0)

    def first(name: str, stored: Array) -> str:
        inputs = [
            b.array(f"{scope}/{name}", "Constant", stored), b.constant(f"{scope}/{name}", "Constant_1", 0), length,
            b.constant(f"{scope}/{name}", "Constant_2", 1),
        ]  # fmt: skip
        return b.node("Slice", f"{scope}/{name}", inputs)

    counted = first("position_ids", np.arange(size.positions, dtype=np.int64)[None])
    if size.typed:
        types = b.weight(f"{scope}/token_type_embeddings", "weight", (2, size.hidden), TYPES)
        kinds = first("token_type_ids", np.zeros((1, size.positions), np.int64))
        kinds = b.node("Expand", f"{scope}/token_type_ids", [kinds, shape])
        typed = b.node("Gather", f"{scope}/token_type_embeddings", [types, kinds], axis=0)
        x = b.node("Add", scope, [x, typed])
    placed = b.node("Gather", f"{scope}/position_embeddings", [places, counted], axis=0)
    return b.node("Add", f"{scope}/1", [x, placed])


def _hidden(b: EncoderBuilder) -> str:
    """What is added to the scores of each token: 0, or the least number of fp32 where the mask has none."""
    kept = b.node("Cast", "/mask", ["attention_mask"], to=TensorProto.FLOAT)
    rows = b.node("Unsqueeze", "/mask", [kept, b.constant("/mask", "Constant", 1, 2)])
    none = b.node("Sub", "/mask", [b.scalar("/mask", "One", 1.0), rows])
    return b.node("Mul", "/mask", [none, b.scalar("/mask", "Least", float(np.finfo(np.float32).min))])


def _layer(b: EncoderBuilder, x: str, layer: int, size: Bert, output: str | None, bias: str | None) -> str:
    """Attention and feed-forward products, each added to its input and normalised behind that."""
    scope = f"/encoder/layer/{layer}"
    y = b.attention(x, f"{scope}/attention/self", ("query", "key", "value"), size.hidden, size.heads, bias=bias)
    y = b.attended(y, f"{scope}/attention/output/dense", size.hidden)
    y = b.node("Add", f"{scope}/attention/output", [y, x])
    x = b.norm(y, f"{scope}/attention/output/LayerNorm", size.hidden, EPSILON)
    scopes = (f"{scope}/intermediate/dense", f"{scope}/intermediate/intermediate_act_fn", f"{scope}/output/dense")
    y = b.feed_forward(x, scopes, (size.hidden, size.inner))
    y = b.node("Add", f"{scope}/output", [y, x])
    return b.norm(y, f"{scope}/output/LayerNorm", size.hidden, EPSILON, output)


def _distilled(b: EncoderBuilder, x: str, layer: int, size: Bert, output: str | None) -> str:
    """The same under DistilBERT's names; its queries are scaled before they meet keys."""
    scope = f"/transformer/layer/{layer}"
    y = b.attention(x, f"{scope}/attention", ("q_lin", "k_lin", "v_lin"), size.hidden, size.heads, scale="queries")
    y = b.attended(y, f"{scope}/attention/out_lin", size.hidden)
    x = b.norm(b.node("Add", f"{scope}/1", [y, x]), f"{scope}/sa_layer_norm", size.hidden, EPSILON)
    scopes = (f"{scope}/ffn/lin1", f"{scope}/ffn/activation", f"{scope}/ffn/lin2")
    y = b.feed_forward(x, scopes, (size.hidden, size.inner))
    return b.norm(b.node("Add", f"{scope}/2", [y, x]), f"{scope}/output_layer_norm", size.hidden, EPSILON, output)
