"""Between which numbers integers and booleans of a graph lie, whatever its inputs are.

For example places along an axis lie between 0 and its extent. What is not known has no range.
"""

from __future__ import annotations

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Ask, Compare, Logic, Where
from bolt_build.graph.ops.lines.lines import Places
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.gather import Gather, GatherElements, GatherND
from bolt_build.graph.ops.moves.shape import Cast, Concat, Identity, Reshape, Slice, Transpose

Range = tuple[int, int]
"""The least and the greatest number; booleans are 0 and 1."""

_TAKES = (Expand, Gather, GatherElements, GatherND, Identity, Reshape, Slice, Transpose)
"""Operators whose result has elements of input 0 alone."""
_LARGEST = 1 << 16
"""Elements of a constant that is looked through."""


def ranges(graph: Graph) -> dict[str, Range]:
    """Of every integer and boolean value of the graph that has one."""
    found: dict[str, Range] = {}
    for value in graph.values:
        array = None if value.constant is None else value.constant.array
        if array is not None and not value.type.dtype.is_float and 0 < array.size <= _LARGEST:
            found[value.name] = (int(array.min()), int(array.max()))
        elif value.type.dtype is DType.BOOL:
            found[value.name] = (0, 1)
    for node in graph.nodes:
        if node.epilogue or graph.type(node.outputs[0]).dtype.is_float or graph.constant(node.outputs[0]) is not None:
            continue
        made = _range(graph, node, [found.get(name) for name in node.inputs])
        if made is not None and _holds(graph.type(node.outputs[0]).dtype, made):
            found[node.outputs[0]] = made
    return found


def _holds(dtype: DType, range_: Range) -> bool:
    """Whether the element type has all numbers of the range, so that none wraps around."""
    if dtype is DType.BOOL:
        return range_[0] >= 0 and range_[1] <= 1
    info = np.iinfo(numpy_dtype(dtype))
    return int(info.min) <= range_[0] and range_[1] <= int(info.max)


def _range(graph: Graph, node: Node, given: list[Range | None]) -> Range | None:
    op = node.op
    if isinstance(op, Places):
        return 0, graph.type(node.inputs[0]).shape[op.axis] - 1
    if isinstance(op, _TAKES):
        return given[0]
    if isinstance(op, Concat | Where):
        sides = given if isinstance(op, Concat) else given[1:]
        known = [each for each in sides if each is not None]
        return (min(a for a, _ in known), max(b for _, b in known)) if known and len(known) == len(sides) else None
    if isinstance(op, Ask):
        first = given[0]
        return None if op.question != "not" or first is None else (1 - first[1], 1 - first[0])
    known = [each for each in given if each is not None]
    if len(known) < len(given):
        return None
    match op:
        case Cast(DType.BOOL):
            return _truth(known[0])
        case Cast():
            return known[0]
        case Compare(question):
            return _compared(question, *known)
        case Logic(function):
            return _combined(function, *known)
        case Binary(function):
            return _computed(function, *known)
    return None


def _truth(given: Range) -> Range:
    low, high = given
    if low > 0 or high < 0:
        return 1, 1
    return (0, 0) if low == high == 0 else (0, 1)


def _compared(question: str, a: Range, b: Range) -> Range:
    if question in ("greater", "greater_equal"):
        a, b, question = b, a, {"greater": "less", "greater_equal": "less_equal"}[question]
    if question == "equal":
        if a[1] < b[0] or b[1] < a[0]:
            return 0, 0
        return (1, 1) if a[0] == a[1] == b[0] == b[1] else (0, 1)
    apart = 1 if question == "less" else 0  # the least difference for which it holds
    if a[1] + apart <= b[0]:
        return 1, 1
    return (0, 0) if a[0] + apart > b[1] else (0, 1)


def _combined(function: str, a: Range, b: Range) -> Range | None:
    match function:
        case "and":
            return min(a[0], b[0]), min(a[1], b[1])
        case "or":
            return max(a[0], b[0]), max(a[1], b[1])
    return None


def _computed(function: str, a: Range, b: Range) -> Range | None:
    match function:
        case "add":
            return a[0] + b[0], a[1] + b[1]
        case "sub":
            return a[0] - b[1], a[1] - b[0]
        case "mul":
            corners = [x * y for x in a for y in b]
            return min(corners), max(corners)
        case "div" if b[0] > 0 and a[0] >= 0:
            return a[0] // b[1], a[1] // b[0]
        case "mod" if b[0] > 0:
            return (a[0], a[1]) if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)
        case "max":
            return max(a[0], b[0]), max(a[1], b[1])
        case "min":
            return min(a[0], b[0]), min(a[1], b[1])
    return None
