"""Evaluates a graph with NumPy, one node after another: the meaning of the IR, for folding and tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bolt_build.graph.arrays import narrowed, numpy_dtype, type_of
from bolt_build.graph.ir import Array, Graph, Node


def evaluate_node(node: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """The node's outputs, its epilogue applied to the first, for arrays in the order of `node.inputs`. Of several
    operators whose first one's results are stored too, the epilogue is the last one's."""
    at = -1 if node.op.keeps else 0
    operands = {stage.operand for stage in node.epilogue}
    outputs = list(node.op.evaluate([array for index, array in enumerate(inputs) if index not in operands]))
    for stage in node.epilogue:
        if stage.operand is None:
            (outputs[at],) = stage.op.evaluate([outputs[at]])
            continue
        sides = [outputs[at], inputs[stage.operand]]
        (outputs[at],) = stage.op.evaluate(sides[::-1] if stage.swapped else sides)
    return tuple(outputs)


def evaluate(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every value of the graph by name, for one array a graph input.

    Raises ValueError where an input is missing, unknown or not of the graph's element type and shape.
    """
    if set(inputs) != set(graph.inputs):
        raise ValueError(f"the graph takes {sorted(graph.inputs)}, not {sorted(inputs)}")
    found: dict[str, Array] = {
        v.name: narrowed(v.constant.array, numpy_dtype(v.type.dtype)) for v in graph.values if v.constant is not None
    }
    for name, array in inputs.items():
        given, wanted = type_of(np.asarray(array)), graph.type(name)
        if (given.dtype, given.shape) != (wanted.dtype, wanted.shape):
            takes, got = f"{wanted.dtype.value}{list(wanted.shape)}", f"{given.dtype.value}{list(given.shape)}"
            raise ValueError(f"input '{name}' is {takes}, not {got}")
        found[name] = np.asarray(array)
    for node in graph.nodes:
        found.update(zip(node.outputs, evaluate_node(node, [found[name] for name in node.inputs]), strict=True))
    return found
