"""Angles that follow from inputs are kept in fp32: positions of rotary embeddings, time steps of diffusion models.

Half precision has no digits behind the point from 1024 on, and bf16 none from 128 on: sines and cosines of such angles
would be of other angles. What is computed from layers' results is as exact as these, and stays as it is.

Places at which images are sampled are kept in fp32, too: in half precision a place near the edge of 1024 pixels is off
by an eighth of one. Flows that layers leave are added to places in fp32, and are as exact as they are.
"""

from __future__ import annotations

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.graph.ops.images.grid_sample import GridSample
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Cast, Concat, Identity, Reshape, Slice, Transpose
from bolt_build.graph.ops.products.matmul import MatMul

_PATH = (Activation, Binary, Cast, Concat, Expand, Gather, Identity, Reshape, Slice, Transpose, Where)
"""Operators between an input and an angle."""
_DEEPEST = 4
"""Of products: coordinates times frequencies."""
_LARGER = 4
"""Times the elements of places that a tensor may have from which they are taken."""


def angles(graph: Graph) -> frozenset[str]:
    """The nodes that compute sines and cosines of what follows from inputs and constants alone, and those in front of
    them."""
    found: dict[str, frozenset[str] | None] = dict.fromkeys(graph.inputs, frozenset[str]())
    for node in graph.nodes:
        ways = [found.get(name, frozenset[str]()) for name in node.inputs if graph.constant(name) is None]
        known = [way for way in ways if way is not None]
        way = frozenset({node.name}).union(*known) if len(known) == len(ways) and _passes(graph, node) else None
        found.update(dict.fromkeys(node.outputs, way))
    turned = (found[node.outputs[0]] for node in graph.nodes if _is_turned(node))
    return frozenset[str]().union(*(way for way in turned if way is not None))


def places(graph: Graph) -> frozenset[str]:
    """The nodes that compute places at which images are sampled, back to what layers and inputs give. What is much
    larger than the places of an image is no place."""
    found = set[str]()
    for node in graph.nodes:
        if not isinstance(node.op, GridSample):
            continue
        most, waiting = _LARGER * graph.type(node.inputs[1]).elements, [node.inputs[1]]
        while waiting:
            made = graph.producer(waiting.pop())
            if made is None or made.name in found or not isinstance(made.op, _PATH):
                continue
            given = [name for name in made.inputs if graph.constant(name) is None]
            if all(graph.type(name).elements <= most for name in (*given, *made.outputs)):
                found.add(made.name)
                waiting += given
    return frozenset(found)


def _passes(graph: Graph, node: Node) -> bool:
    if isinstance(node.op, MatMul):
        rows = graph.type(node.inputs[0]).shape
        return rows[-2 if node.op.transpose_a else -1] <= _DEEPEST
    return isinstance(node.op, _PATH)


def _is_turned(node: Node) -> bool:
    stages = (node.op, *(stage.op for stage in node.epilogue))
    return any(isinstance(op, Activation) and op.function in ("sin", "cos") for op in stages)
