"""A small encoder whose batch and length are symbolic, models that cannot be padded, and what is proven of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from graph_models import model, node, saved, tensor
from onnx import TensorProto

from bolt_build.graph.ir import Array, Graph
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.padding import PaddedPorts, padded_ports

HIDDEN, HEADS, VOCABULARY, POSITIONS = 32, 2, 50, 40
SMALL, LARGE = 12, 16
"""Lengths that the proof of padding compares."""


def _weights() -> dict[str, Array]:
    random = np.random.RandomState(0)

    def drawn(*shape: int) -> Array:
        return (random.standard_normal(shape) / np.sqrt(shape[-2])).astype(np.float32)

    found: dict[str, Array] = {
        "words": random.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32),
        "places": random.standard_normal((1, POSITIONS, HIDDEN)).astype(np.float32),
        "scale": np.asarray(np.sqrt(HIDDEN // HEADS), np.float32),
        "most": np.asarray(-3.4e38, np.float32), "unit": np.asarray(1, np.float32),
        "gamma": np.ones(HIDDEN, np.float32), "beta": np.zeros(HIDDEN, np.float32),
    }  # fmt: skip
    found |= {name: drawn(HIDDEN, HIDDEN) for name in ("wq", "wk", "wv", "wo")}
    ints = {
        "zero": [0], "one": [1], "two": [2], "mask_axes": [1, 2], "apart": [0, 0, HEADS, HIDDEN // HEADS],
        "joined": [0, 0, HIDDEN], "first": [0], "last": [1],
    }  # fmt: skip
    return found | {name: np.asarray(value, np.int64) for name, value in ints.items()}


def encoder(
    *, masked: bool = True, ending: tuple[onnx.NodeProto, ...] = (), outputs: tuple[str, ...] = ()
) -> onnx.ModelProto:
    """One layer of attention over word and position embeddings, as exporters of transformers write it.

    `input_ids` and (where `masked`) `attention_mask` are int64 [N, sequence]; outputs are `hidden` f32
    [N, sequence, 32] and `pooled` f32 [N, 32], which is its first token. `ending` are nodes behind, with `outputs`.
    """
    lines = [
        node("Shape", "input_ids", "shape"), node("Slice", "shape one two zero", "length"),
        node("Slice", "places zero length one", "positions"),
        node("Gather", "words input_ids", "looked_up"), node("Add", "looked_up positions", "x"),
    ]  # fmt: skip
    for which in "qkv":
        lines += [
            node("MatMul", f"x w{which}", f"{which}0"), node("Reshape", f"{which}0 apart", f"{which}1"),
            node("Transpose", f"{which}1", which, perm=[0, 2, 3, 1] if which == "k" else [0, 2, 1, 3]),
        ]  # fmt: skip
    lines += [node("MatMul", "q k", "products"), node("Div", "products scale", "scores")]
    if masked:
        lines += [
            node("Cast", "attention_mask", "kept", to=TensorProto.FLOAT), node("Unsqueeze", "kept mask_axes", "kept4"),
            node("Sub", "unit kept4", "left_out"), node("Mul", "left_out most", "bias"),
            node("Add", "scores bias", "added"),
        ]  # fmt: skip
    lines += [
        node("Softmax", f"{'added' if masked else 'scores'}", "weights", axis=-1), node("MatMul", "weights v", "mixed"),
        node("Transpose", "mixed", "moved", perm=[0, 2, 1, 3]), node("Reshape", "moved joined", "rows"),
        node("MatMul", "rows wo", "out"), node("Add", "out x", "summed"),
        node("LayerNormalization", "summed gamma beta", "hidden", axis=-1),
        node("Slice", "hidden zero one one", "head"), node("Squeeze", "head one", "pooled"), *ending,
    ]  # fmt: skip
    inputs = [tensor("input_ids", ["N", "sequence"], TensorProto.INT64)]
    if masked:
        inputs.append(tensor("attention_mask", ["N", "sequence"], TensorProto.INT64))
    return model(lines, inputs, outputs or ("hidden", "pooled"), _weights())


def graphs(folder: Path, proto: onnx.ModelProto, *lengths: int) -> list[Graph]:
    """The model bound to a batch of two, at each length."""
    loaded = load_model(saved(folder, proto))
    return [loaded.bind(2, (), (("sequence", length),)) for length in lengths]


def said(folder: Path, proto: onnx.ModelProto) -> PaddedPorts | str:
    """What is proven of the model: its padded ports, or why it is not padded."""
    return padded_ports(*graphs(folder, proto, SMALL, LARGE))
