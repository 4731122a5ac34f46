"""Whole numbers that a model computes in floating point are kept in fp32: indices, counts, buckets of positions.

Half precision holds whole numbers up to 2048, and bf16 up to 256. Behind them a count of rows or keys, or a number that
becomes an index, would be another one. For example mixtures of experts count the rows of each expert, T5 takes the
logarithm of a distance for its bucket, and encoders ask whether a mask hides all keys. What is computed from layers'
results is as exact as these, and stays as it is.
"""

from __future__ import annotations

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Compare, Where
from bolt_build.graph.ops.lines.lines import CumSum
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.scatter import ScatterElements, ScatterND
from bolt_build.graph.ops.moves.shape import Cast, Concat, Identity, Reshape, Slice, Transpose

_PATH = (
    Activation, Binary, Cast, Concat, CumSum, Expand, Gather, Identity, Reduce, Reshape, ScatterElements, ScatterND,
    Slice, Transpose, Where,
)  # fmt: skip
"""Operators between whole numbers, or what asks about them, and a whole number."""

Way = frozenset[str]
_NONE: Way = frozenset()


def counts(graph: Graph) -> Way:
    """The nodes that compute, in floating point, integers or what a comparison asks about, of integers, booleans and
    constants alone."""
    found = dict[str, Way | None]()
    wanted = set[str]()
    for node in graph.nodes:
        floats = [name for name in node.inputs if graph.type(name).dtype.is_float and graph.constant(name) is None]
        ways = [found.get(name) for name in floats]
        known = [way for way in ways if way is not None]
        whole = len(known) == len(ways)
        result = graph.type(node.outputs[0]).dtype
        if result.is_float:
            way = _NONE.union((node.name,), *known) if whole and _passes(graph, node) else None
            found.update(dict.fromkeys(node.outputs, way))
        elif floats and whole and (isinstance(node.op, Compare) or result.is_integer):
            wanted |= _NONE.union((node.name,), *known)
    return frozenset(wanted)


def _passes(graph: Graph, node: Node) -> bool:
    return isinstance(node.op, _PATH) and any(graph.constant(name) is None for name in node.inputs)
