"""Parts of a head that rotary embedding turns: which slices, indices and sums are pairs of its elements."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bolt_build.graph.ir import Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Concat, Reshape, Slice
from bolt_build.planner.rewrite import GraphEditor


@dataclass(frozen=True)
class Part:
    """What slices take of `source`: of each axis `count` elements from `begin` on, each `step` further. If `flat`, the
    source has pairs as an axis of their own, and that shape without."""

    source: str
    begin: tuple[int, ...]
    count: tuple[int, ...]
    step: tuple[int, ...]
    flat: tuple[int, ...] = ()


@dataclass(frozen=True)
class Term:
    """A product of two values with a sign."""

    sign: int
    factors: tuple[str, str]

    def beside(self, factor: str) -> str | None:
        """The other factor, where this is one."""
        return self.factors[1 - self.factors.index(factor)] if factor in self.factors else None


def pair_parts(editor: GraphEditor, value: str) -> tuple[tuple[str, str], bool] | None:
    """The first and the second elements of all pairs, and whether these are neighbours in `value`."""
    node = editor.producer(value)
    if node is None or node.epilogue:
        return None
    if isinstance(node.op, Reshape):
        inner, shape = editor.producer(node.inputs[0]), editor.type(value).shape
        wide = editor.type(node.inputs[0]).shape
        if inner is None or inner.op != Concat(len(wide) - 1) or len(inner.inputs) != 2 or wide[-1:] != (2,):
            return None
        if len(wide) < 2 or shape[-1:] != (2 * wide[-2],):
            return None
        columns = [_plain_reshape(editor, name) for name in inner.inputs]
        return None if columns[0] is None or columns[1] is None else ((columns[0], columns[1]), True)
    if not isinstance(node.op, Concat) or len(node.inputs) != 2 or node.op.axis != editor.type(value).rank - 1:
        return None
    first, second = node.inputs
    return ((first, second), False) if editor.type(first) == editor.type(second) else None


def _plain_reshape(editor: GraphEditor, value: str) -> str | None:
    """What is reshaped to `value` by an axis of one element behind it; the value itself where it was cut with one."""
    node = editor.producer(value)
    if node is None or node.epilogue:
        return None
    cut = editor.producer(node.inputs[0]) if node.op == Activation("neg") else node
    if cut is not None and not cut.epilogue and _column(editor, cut) is not None:
        return value
    if not isinstance(node.op, Reshape):
        return None
    shape = editor.type(value).shape
    return node.inputs[0] if shape == (*editor.type(node.inputs[0]).shape, 1) else None


def taken_pair(editor: GraphEditor, names: tuple[str, str], *, columns: bool = False) -> tuple[Part, bool] | None:
    """(x, interleaved) where the two are the first and the second elements of all pairs of x's last axis. `columns`:
    they may be cut from an axis of two elements and have kept it, with one."""
    first, second = (_of_column(editor, name) if columns else part_of(editor, name) for name in names)
    if not first.count or not second.count:
        return None
    count, ahead = first.count[-1], second.begin[-1] - first.begin[-1]
    interleaved = (first.step[-1], ahead) == (2, 1)
    if not interleaved and (first.step[-1], ahead) != (1, count):
        return None
    if replace(second, begin=(*second.begin[:-1], first.begin[-1])) != first:
        return None
    whole = replace(first, count=(*first.count[:-1], 2 * count), step=(*first.step[:-1], 1))
    return whole, interleaved


def _of_column(editor: GraphEditor, value: str) -> Part:
    """The value as a part, without the axis of one element that it may have kept of pairs."""
    node = editor.producer(value)
    place = _column(editor, node) if node is not None and not node.epilogue else None
    return part_of(editor, value) if node is None or place is None else _one_place(editor, node.inputs[0], place)


def _column(editor: GraphEditor, node: Node) -> int | None:
    """Which of each two elements the slice takes, where the last axis has two; None where it does something else."""
    shape, op = editor.type(node.inputs[0]).shape, node.op
    if not isinstance(op, Slice) or len(shape) < 2 or shape[-1] != 2 or op.count != (*shape[:-1], 1):
        return None
    return op.begin[-1]


def part_of(editor: GraphEditor, value: str) -> Part:
    """The value as a part of what it is sliced from."""
    node = editor.producer(value)
    one = None if node is None or node.epilogue else _one_of_pairs(editor, node)
    if one is not None:
        return one
    if node is None or node.epilogue or not isinstance(node.op, Slice):
        shape = editor.type(value).shape
        return Part(value, (0,) * len(shape), shape, (1,) * len(shape))
    of, op = part_of(editor, node.inputs[0]), node.op
    begin = tuple(a + b * c for a, b, c in zip(of.begin, op.begin, of.step, strict=True))
    step = tuple(1 if n == 1 else a * b for a, b, n in zip(of.step, op.step, op.count, strict=True))
    return replace(of, begin=begin, count=op.count, step=step)


def _one_of_pairs(editor: GraphEditor, node: Node) -> Part | None:
    """What takes the first or the second of all pairs, which are an axis of two elements: an index along it, or a slice
    without the axis. None where the node does something else."""
    pairs, place = node.inputs[0], None
    if isinstance(node.op, Gather) and node.op.axis == editor.type(pairs).rank - 1:
        index = editor.constant(node.inputs[1])
        place = int(index) % 2 if index is not None and index.ndim == 0 else None
    elif isinstance(node.op, Reshape):
        taken = editor.producer(pairs)
        if taken is None or taken.epilogue or not isinstance(taken.op, Slice):
            return None
        pairs, place = taken.inputs[0], _column(editor, taken)
        if node.op.shape != taken.op.count[:-1]:
            return None
    shape = editor.type(pairs).shape
    return None if place is None or len(shape) < 2 or shape[-1] != 2 else _one_place(editor, pairs, place)


def _one_place(editor: GraphEditor, pairs: str, place: int) -> Part:
    """The first or the second elements of pairs, as a part of what has no axis for these."""
    shape = editor.type(pairs).shape
    flat, made = (*shape[:-2], 2 * shape[-2]), editor.producer(pairs)
    if made is not None and isinstance(made.op, Reshape) and editor.type(made.inputs[0]).shape == flat:
        of = part_of(editor, made.inputs[0])
    else:
        of = Part(pairs, (0,) * len(flat), flat, (1,) * len(flat), flat)
    ahead, step = place * of.step[-1], 2 * of.step[-1]
    return replace(
        of, begin=(*of.begin[:-1], of.begin[-1] + ahead), count=(*of.count[:-1], shape[-2]), step=(*of.step[:-1], step)
    )


def terms_of(editor: GraphEditor, value: str) -> tuple[Term, Term] | None:
    """The two products that the value is the sum or the difference of."""
    node = editor.producer(value)
    if node is None or node.epilogue or node.op not in (Binary("add"), Binary("sub")):
        return None
    found = []
    for name, sign in zip(node.inputs, (1, 1 if node.op == Binary("add") else -1), strict=True):
        factors = factors_of(editor, name)
        if factors is None:
            return None
        plain = []
        for each in factors:
            negative = made_by(editor, each, Activation("neg"))
            sign = sign if negative is None else -sign
            plain.append(each if negative is None else negative.inputs[0])
        found.append(Term(sign, (plain[0], plain[1])))
    return found[0], found[1]


def opposite(editor: GraphEditor, a: str, a_sign: int, b: str, b_sign: int) -> bool:
    """Whether two values with signs are each the other's negative: exporters fold the sign of a table into it."""
    if a == b:
        return a_sign == -b_sign
    first, second = editor.constant(a), editor.constant(b)
    return a_sign == b_sign and first is not None and second is not None and np.array_equal(first, -second)


def factors_of(editor: GraphEditor, value: str) -> tuple[str, str] | None:
    node = made_by(editor, value, Binary("mul"))
    return None if node is None else (node.inputs[0], node.inputs[1])


def made_by(editor: GraphEditor, value: str, op: Activation | Binary) -> Node | None:
    """The node that makes the value, where it is this operator and nothing else."""
    node = editor.producer(value)
    return node if node is not None and node.op == op and not node.epilogue else None
