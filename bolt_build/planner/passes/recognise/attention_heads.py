"""What is done to each head of queries or keys in front of an attention, as one operator on its rows: a normalisation,
a scale, rotary embedding. A model does so before or behind heads are moved: elements of a head are the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bolt_build.dtypes import PRECISIONS, DType
from bolt_build.graph.ir import Array, Node
from bolt_build.graph.ops.attention.heads import HeadRows, Rotary
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.planner.views import Axis, extent, uncut


@dataclass(frozen=True)
class Done:
    """What is done to a tensor whose axes are `axes`, views of another one, the last of them the elements of a head."""

    op: Norm | Rotary | Binary
    operands: tuple[str, ...]
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class Factor:
    """An operand that broadcasts to heads: a constant as [images, rows, heads, elements], 1 where it is the same; or
    the value that becomes one by a reshape."""

    array: Array | None = None
    value: str = ""
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class Heads:
    """All that is done to the heads of one operand of an attention."""

    op: HeadRows
    scale: Array | None = None
    bias: Array | None = None
    angles: tuple[Factor, ...] = ()

    def __eq__(self, other: object) -> bool:
        """Whether the same is done but for scale and bias: their numbers are weights. Angles are none."""
        if not isinstance(other, Heads):
            return NotImplemented
        same = len(self.angles) == len(other.angles) and all(
            (a.value, a.shape) == (b.value, b.shape) and np.array_equal(np.asarray(a.array), np.asarray(b.array))
            for a, b in zip(self.angles, other.angles, strict=True)
        )
        own, others = (replace(each.op, heads=1, scaled=False, shifted=False) for each in (self, other))
        return same and own == others


def head_operator(editor: GraphEditor, node: Node) -> tuple[Norm | Rotary | Binary, tuple[str, ...], str] | None:
    """What the node does to each head, its operands and the value that it does it to; None where it does another
    thing. A product's other factor is a constant that broadcasts."""
    if node.epilogue or editor.type(node.outputs[0]).dtype not in PRECISIONS.values():
        return None
    last = editor.type(node.outputs[0]).rank - 1
    match node.op:
        case Norm(statistic, axes, _, 1) if axes == (last,) and statistic != "deviation":
            constant = all(editor.is_constant(name) for name in node.inputs[1:])
            return (node.op, node.inputs[1:], node.inputs[0]) if constant else None
        case Rotary():
            return node.op, node.inputs[1:], node.inputs[0]
        case Binary("mul"):
            for value, other in (node.inputs, node.inputs[::-1]):
                if editor.is_constant(other) and editor.type(value) == editor.type(node.outputs[0]):
                    return node.op, (other,), value
    return None


def heads_done(
    editor: GraphEditor, done: Sequence[Done], groups: tuple[Axis, Axis, Axis], elements: Axis, depth: int
) -> Heads | str:
    """All that is done, one behind the other, to heads of `depth` elements, which are `groups` (images, rows and heads)
    and `elements` of the source; or why it is no operator on their rows."""
    found = Heads(HeadRows(1))
    for each in done:
        if uncut(each.axes[-1]) != uncut(elements):
            return "more or less than a head is normalised or turned at once"
        factors = [_factor(editor, name, each.axes, groups) for name in each.operands]
        if any(isinstance(factor, str) for factor in factors):
            return next(factor for factor in factors if isinstance(factor, str))
        made = _with(found, each.op, [factor for factor in factors if isinstance(factor, Factor)], depth)
        if isinstance(made, str):
            return made
        found = made
    return found


def _with(found: Heads, op: Norm | Rotary | Binary, factors: list[Factor], depth: int) -> Heads | str:
    """`found` and then `op`."""
    if isinstance(op, Rotary):
        if found.op.rotary:
            return "heads are turned twice"
        made = replace(found.op, rotary=True, interleaved=op.interleaved, passed=op.passed)
        return replace(found, op=made, angles=tuple(factors))
    arrays = [factor.array for factor in factors]
    if any(array is None for array in arrays):
        return "heads are scaled by what is no constant"
    if isinstance(op, Norm):
        scale, bias = (*map(_of_depth(depth), arrays), None, None)[:2]
        if found.op.rotary:
            return _normed_first(found, op, scale, depth)
        if found.op != HeadRows(1):
            return "heads are normalised behind something else"
        made = HeadRows(1, op.statistic, op.epsilon, scale is not None, bias is not None)
        return Heads(made, scale, bias)
    (factor,) = arrays
    assert factor is not None
    if found.op.rotary and factor.shape[-1] != 1:
        return "elements of turned heads are scaled each by itself"
    scale = factor if found.scale is None else found.scale * factor
    bias = None if found.bias is None else found.bias * factor
    each = _of_depth(depth)
    return replace(
        found, op=replace(found.op, scaled=True), scale=each(scale), bias=None if bias is None else each(bias)
    )


def _normed_first(found: Heads, op: Norm, scale: Array | None, depth: int) -> Heads | str:
    """Turned heads are as long as they were, so they are normalised in front of that. Their elements' own scales are
    part of the angles: Hunyuan's and NanoChat's heads are turned before they are normalised."""
    if found.op.statistic or found.op.scaled or op.statistic not in ("rms", "l2"):
        return "heads are normalised behind something else"
    cos, sin = (factor.array for factor in found.angles)
    if cos is None or sin is None:
        return "heads that are normalised behind their turn have angles that are no constants"
    if cos.shape[-1] != depth:
        return "heads are normalised behind the turn of a part of them"
    if not np.allclose(cos * cos + sin * sin, 1.0, atol=1e-3) or not _one_angle_a_pair(found.op, cos, sin):
        return "heads that are normalised behind something else, which is no turn alone"
    angles = found.angles
    if scale is not None:
        angles = tuple(Factor(np.asarray(array * scale, np.float32)) for array in (cos, sin))
    return Heads(replace(found.op, statistic=op.statistic, epsilon=op.epsilon), angles=angles)


def _one_angle_a_pair(op: HeadRows, *tables: Array) -> bool:
    """Whether both elements of each pair are turned by one angle."""
    half = tables[0].shape[-1] // 2
    sides = [(t[..., ::2], t[..., 1::2]) if op.interleaved else (t[..., :half], t[..., half:]) for t in tables]
    return all(np.array_equal(*side) for side in sides)


class _of_depth:
    """Gives an array all elements of a head along its last axis."""

    def __init__(self, depth: int) -> None:
        self._depth = depth

    def __call__(self, array: Array | None) -> Array:
        assert array is not None
        return np.ascontiguousarray(np.broadcast_to(array, (*array.shape[:-1], self._depth)))


_RUNS = ((0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2))
"""Which of images, rows and heads one axis may be made of: encoders of packed images have all rows along one."""


def _factor(editor: GraphEditor, name: str, axes: tuple[Axis, ...], groups: tuple[Axis, Axis, Axis]) -> Factor | str:
    """An operand of what is done to a tensor of these axes, as one that broadcasts to images, rows, heads, elements."""
    shape = editor.type(name).shape
    own = (1,) * (len(axes) - len(shape)) + shape
    places: list[int] = []
    extents: list[int] = []
    for size, axis in zip(own[:-1], axes[:-1], strict=True):
        if size == 1:
            continue
        run = next(
            (run for run in _RUNS if uncut(tuple(each for at in run for each in groups[at])) == uncut(axis)), None
        )
        if run is None or set(run) & set(places):
            return f"'{name}' has numbers along what is neither images nor rows nor heads"
        places += run
        extents += [extent(groups[at]) for at in run]
    wide = [1, 1, 1]
    for place, size in zip(places, extents, strict=True):
        wide[place] = size
    array = editor.constant(name)
    if array is not None:
        order = sorted(range(len(places)), key=places.__getitem__)
        moved = array.reshape(*extents, own[-1]).transpose(*order, len(order))
        return Factor(np.ascontiguousarray(moved.reshape(*wide, own[-1])))
    if places != sorted(places):
        return f"'{name}' would have to be transposed"
    return Factor(value=name, shape=(*wide, own[-1]))


def joined_heads(first: Heads, second: Heads, counts: tuple[int, int]) -> Heads:
    """What does both to heads side by side, so many of each."""

    def both(a: Array | None, b: Array | None, nothing: float) -> Array | None:
        if a is None and b is None:
            return None
        first, second = (np.full((1, 1, 1, 1), nothing) if each is None else each for each in (a, b))
        one = [(*each.shape[:2], 1, each.shape[3]) for each in (first, second)]  # heads have their own, or all one
        extents = np.broadcast_shapes(*one)
        sides = [
            np.broadcast_to(each, (*extents[:2], count, extents[3]))
            for each, count in zip((first, second), counts, strict=True)
        ]
        return np.concatenate(sides, axis=2)

    scale, bias = both(first.scale, second.scale, 1.0), both(first.bias, second.bias, 0.0)
    op = replace(first.op, scaled=scale is not None, shifted=bias is not None)
    return replace(first, op=op, scale=scale, bias=bias)


def operands_of(
    editor: GraphEditor, heads: Heads, label: str, reshaped: Callable[[Reshape, str], str]
) -> list[str]:  # fmt: skip
    """The operands of the operator behind its rows, as values that `reshaped` makes where they have other axes."""
    found = list[str]()
    for what, array in (("scale", heads.scale), ("bias", heads.bias)):
        if array is not None:
            found.append(_constant(editor, f"{label}.{what}", array))
    for what, factor in zip(("cosines", "sines"), heads.angles, strict=False):
        if factor.array is not None:
            found.append(_constant(editor, f"{label}.{what}", factor.array))
        elif editor.type(factor.value).shape == factor.shape:
            found.append(factor.value)
        else:
            found.append(reshaped(Reshape(factor.shape), factor.value))
    return found


def _constant(editor: GraphEditor, name: str, array: Array) -> str:
    return editor.new_constant(name, np.ascontiguousarray(array, dtype=np.float32), DType.F32)
