"""Numbers of which each image and channel has one: gates of squeeze and excitation, and what time embeddings add."""

from __future__ import annotations

from typing import Protocol

from bolt_build.graph.ir import Array, Node, TensorType
from bolt_build.graph.ops.elementwise.arithmetic import Binary

_FUNCTIONS = ("add", "mul", "sub")


class Values(Protocol):
    """A graph, or what edits one."""

    def type(self, value: str, /) -> TensorType: ...
    def constant(self, value: str, /) -> Array | None: ...


def numbers_of(graph: Values, node: Node, value: str, channel: int) -> int | None:
    """Of a node that combines `value`, with its channels along an axis, with one number of each image and channel,
    where the numbers stand in its inputs; None of another node."""
    if not isinstance(node.op, Binary) or node.op.function not in _FUNCTIONS or node.inputs.count(value) != 1:
        return None
    if value not in node.inputs[:2] or graph.type(node.outputs[0]) != graph.type(value):
        return None
    at = 1 - node.inputs.index(value)
    given = graph.type(node.inputs[at]).shape
    if graph.constant(node.inputs[at]) is not None or not are_of_images(given, graph.type(value).shape, channel):
        return None
    return at


def are_of_images(shape: tuple[int, ...], whole: tuple[int, ...], channel: int) -> bool:
    """Whether a tensor of `shape` has one number of each image and channel of a `whole` one of several positions."""
    kept = (0, channel)
    wanted = tuple(extent if axis in kept else 1 for axis, extent in enumerate(whole))
    return len(whole) > 2 and shape == wanted != whole
