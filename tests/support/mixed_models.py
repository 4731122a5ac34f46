"""Seeded random ONNX models of whatever operators the importer knows, in whatever order: `mixed_model(seed)`.

Up to some twenty nodes over small tensors of one to five axes: floating-point numbers, whole numbers and booleans;
constants as initializers or nodes, a first axis that is symbolic or is not, outputs that other nodes read. onnxruntime
runs each; `test_mixed_models.py` asks that engines agree with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from mixed_graphs import REFUSALS, Array, Growing, Value, ran, type_of
from mixed_moves import move
from mixed_nodes import NODES
from onnx import helper

from bolt_build.graph.ir import Graph
from bolt_build.graph.onnx_import import load_model

_ADDED = (*NODES, *[move] * 9)
_NUDGE, _SENSITIVE = 1e-6, 3e-5
_ANOTHER = 1_000_003


@dataclass(frozen=True)
class Mixed:
    """A model, inputs, and what onnxruntime makes of them; `known` are the outputs that hardly change where the inputs
    hardly do, so that every right engine agrees about them."""

    proto: onnx.ModelProto
    batch: int
    inputs: dict[str, Array]
    outputs: dict[str, Array]
    known: tuple[str, ...]

    def graph(self, folder: Path) -> Graph:
        """Raises BoltError where the model is refused."""
        path = folder / "mixed.onnx"
        onnx.save(self.proto, path)
        return load_model(path).bind(self.batch)


def mixed_model(seed: int, nodes: int = 18) -> Mixed:
    """The model of `seed`, of at least one node."""
    while (found := _drawn(seed, nodes)) is None:
        seed += _ANOTHER
    return found


def _drawn(seed: int, nodes: int) -> Mixed | None:
    """None where onnxruntime runs each node but not all together: it infers shapes that some operators do not make."""
    g = Growing(seed)
    for _ in range(6 * nodes):
        if len(g.nodes) < nodes or not g.unread():
            g.attempt(g.choose(*_ADDED))
    inputs = {value.name: value.array for value in g.inputs}
    proto = _proto(g, seed)
    try:
        outputs = ran(proto, inputs)
        nudged = ran(proto, {name: _nudged(array) for name, array in inputs.items()})
    except REFUSALS:
        return None
    known = tuple(name for name, array in outputs.items() if differs(nudged[name], array, _SENSITIVE) is None)
    return Mixed(proto, g.inputs[0].shape[0], inputs, outputs, known)


def _proto(g: Growing, seed: int) -> onnx.ModelProto:
    outputs = g.unread()
    inner = [value for value in g.values if value not in g.inputs and value not in outputs]
    if inner and g.chance(0.35):
        outputs += g.random.sample(inner, min(len(inner), g.integer(1, 3)))
    g.random.shuffle(outputs)
    written = [g.chance(0.5) for _ in g.constants] if g.chance(0.3) else [False] * len(g.constants)
    constants = [
        helper.make_node("Constant", [], [each.name], f"constant/{each.name}", value=each)
        for each, node in zip(g.constants, written, strict=True)
        if node
    ]
    initializers = [each for each, node in zip(g.constants, written, strict=True) if not node]
    symbolic, batch = g.chance(0.4), g.inputs[0].shape[0]

    def shape(value: Value) -> list[int | str]:
        first = "N" if symbolic and value.shape[0] == batch else value.shape[0]
        return [first, *value.shape[1:]]

    graph = helper.make_graph(
        [*constants, *g.nodes], f"mixed {seed}", [type_of(value, shape(value)) for value in g.inputs],
        [type_of(value, None) for value in outputs], initializers,
    )  # fmt: skip
    opset = helper.make_opsetid("", g.opset)
    return helper.make_model(graph, ir_version=g.choose(8, 9, 10), opset_imports=[opset])


def _nudged(array: Array) -> Array:
    if array.dtype != np.float32:
        return array
    return (array * (1 + _NUDGE * np.random.RandomState(0).normal(size=array.shape))).astype(np.float32)


def differs(found: Array, wanted: Array, tolerance: float) -> str | None:
    """How two tensors differ: floating-point numbers by more than `tolerance` of the largest, all others at all."""
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return f"{found.dtype}{list(found.shape)} is no {wanted.dtype}{list(wanted.shape)}"
    if found.dtype.kind != "f":
        count = int((found != wanted).sum())
        return f"{count} of {found.size} elements differ" if count else None
    apart, scale = np.abs(found.astype(np.float64) - wanted), max(1.0, float(np.abs(wanted).max(initial=0)))
    off = float(apart.max(initial=0)) / scale
    return None if off <= tolerance else f"off by {off:.1e} of the largest"
