"""Puts tensors between each other that a model assigns to every second, third or further element, one by one.

Models write an inverse wavelet transform, a checkerboard or rotary pairs so: `y[:, :, 0::2, 1::2] = a`. Exporters make
a scatter of each assignment, with an index for each element or, as torch.export does, one a row and transposes around
it. Where such assignments reach all elements, nothing that was there before is left: the parts are concatenated and
moved once, as a pixel shuffle moves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, prod

import numpy as np

from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.ops.moves.scatter import ScatterND
from bolt_build.graph.ops.moves.shape import Concat, Reshape, Slice, Transpose
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.passes.tidy.slice_scatters import named_indices
from bolt_build.planner.rewrite import GraphEditor, joined

_MOST = 64
"""Parts of one tensor: more are no pattern, and every assignment is compared with all before it."""


@dataclass(frozen=True)
class _Range:
    """`count` places of an axis from `begin` on, `step` apart."""

    begin: int
    step: int
    count: int

    @property
    def end(self) -> int:
        return self.begin + self.step * (self.count - 1)

    @property
    def apart(self) -> int:
        """How far apart two places are; 0 of one place alone."""
        return self.step if self.count > 1 else 0

    def holds(self, other: _Range) -> bool:
        """Whether all of the other's places are among these."""
        inside = self.begin <= other.begin and other.end <= self.end
        return inside and (other.begin - self.begin) % self.step == 0 and other.apart % self.step == 0

    def meets(self, other: _Range) -> bool:
        """Whether a place may be among both: places apart by a common step never meet from different remainders."""
        if self.end < other.begin or other.end < self.begin:
            return False
        common = gcd(self.apart, other.apart)
        return (self.begin - other.begin) % common == 0 if common else self.begin == other.begin

    def within(self, other: _Range) -> _Range:
        """The same places counted along the other's, which holds them."""
        return _Range((self.begin - other.begin) // other.step, max(1, self.step // other.step), self.count)

    def of(self, other: _Range) -> _Range:
        """The places of these places of the other."""
        return _Range(other.begin + other.step * self.begin, other.step * self.step, self.count)


@dataclass(frozen=True)
class _Part:
    """Where `source`, transposed by `perm`, lies in a tensor."""

    ranges: tuple[_Range, ...]
    source: str
    perm: tuple[int, ...]


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(INTERLEAVE_SCATTERS.name)
    known: dict[str, tuple[_Part, ...]] = {}
    done = set[str]()
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or node.epilogue or not isinstance(node.op, ScatterND | Transpose | Slice):
            continue
        parts = _parts(editor, known, node)
        if parts is None or len(parts) > _MOST:
            continue
        (made,) = node.outputs
        known[made] = parts
        if not isinstance(node.op, ScatterND) and node.inputs[0] in done:
            done.add(made)
            continue
        steps = _steps(parts, editor.type(made).shape)
        if steps is None or isinstance(node.op, Slice) or _turned_next(editor, made):
            continue
        _interleave(editor, node, parts, steps)
        done.add(made)
        along = ", ".join(f"{step} along axis {axis}" for axis, step in enumerate(steps) if step > 1)
        journal.did(node.name, "interleaved", f"assignments to all of {along} leave nothing else")
    return journal.result(editor.finish())


def _parts(editor: GraphEditor, known: dict[str, tuple[_Part, ...]], node: Node) -> tuple[_Part, ...] | None:
    """What is known to lie in the node's result, each place once; the rest is unknown. None where nothing is."""
    match node.op:
        case ScatterND("none"):
            return _assigned(editor, known, node)
        case Transpose(perm) if node.inputs[0] in known:
            turned = known[node.inputs[0]]
            return tuple(
                replace(
                    part, ranges=tuple(part.ranges[at] for at in perm), perm=tuple(part.perm[at] for at in perm)
                )
                for part in turned
            )  # fmt: skip
        case Slice() as op if node.inputs[0] in known:
            region = tuple(map(_Range, op.begin, op.step, op.count))
            if any(each.step < 1 or not each.count for each in region):
                return None
            found = []
            for part in known[node.inputs[0]]:
                if not _meet(part.ranges, region):
                    continue
                if not _hold(region, part.ranges):
                    return None
                found.append(replace(part, ranges=tuple(map(_Range.within, part.ranges, region))))
            return tuple(found)
    return None


def _assigned(editor: GraphEditor, known: dict[str, tuple[_Part, ...]], node: Node) -> tuple[_Part, ...] | None:
    data, indices, updates = node.inputs
    shape = editor.type(data).shape
    named = named_indices(editor, indices)
    region = None if named is None else _stepped(named, shape)
    if region is None or editor.type(updates).shape != tuple(each.count for each in region):
        return None
    left = []
    for part in known.get(data, ()):
        if not _meet(part.ranges, region):
            left.append(part)
        elif not _hold(region, part.ranges):
            return None
    whole = tuple(_Range(0, 1, each.count) for each in region)
    given = known.get(updates, (_Part(whole, updates, tuple(range(len(shape)))),))
    return (*left, *(replace(part, ranges=tuple(map(_Range.of, part.ranges, region))) for part in given))


def _meet(some: Sequence[_Range], others: Sequence[_Range]) -> bool:
    return all(map(_Range.meets, some, others))


def _hold(region: Sequence[_Range], some: Sequence[_Range]) -> bool:
    return all(map(_Range.holds, region, some))


def _stepped(named: list[Array], shape: tuple[int, ...]) -> tuple[_Range, ...] | None:
    """The places that indices name row by row, as ranges with steps along each axis; None where they name others."""
    places = named[0].shape
    if len(places) != len(named) or not all(places):
        return None
    found = []
    for axis, (index, extent) in enumerate(zip(named, shape, strict=False)):
        line = np.moveaxis(index, axis, 0).reshape(places[axis], -1)[:, 0].astype(np.int64)
        line = np.where(line < 0, line + extent, line)
        step = int(line[1] - line[0]) if line.size > 1 else 1
        one = _Range(int(line[0]), step, line.size)
        if step < 1 or one.begin < 0 or one.end >= extent:
            return None
        wanted = one.begin + step * np.arange(one.count)
        wanted = wanted.reshape([-1 if at == axis else 1 for at in range(len(places))])
        if not ((index == wanted) | (index == wanted - extent)).all():
            return None
        found.append(one)
    return (*found, *(_Range(0, 1, extent) for extent in shape[len(named) :]))


def _steps(parts: Sequence[_Part], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """How far apart the places of parts are along each axis, 1 where each part has all; None where parts of one size
    do not fill the tensor so."""
    if len(parts) < 2:
        return None
    first = parts[0].ranges
    steps = tuple(extent // each.count for extent, each in zip(shape, first, strict=True))
    filled = all(each.count * step == extent for extent, each, step in zip(shape, first, steps, strict=True))
    if prod(steps) != len(parts) or not filled:
        return None
    for part in parts:
        for each, step, like in zip(part.ranges, steps, first, strict=True):
            if each.count != like.count or each.begin >= step or (each.count > 1 and each.step != step):
                return None
    return steps if len({tuple(each.begin for each in part.ranges) for part in parts}) == len(parts) else None


def _turned_next(editor: GraphEditor, value: str) -> bool:
    """Whether a transpose alone reads the value: the parts are put together behind it."""
    readers = editor.readers(value)
    return len(readers) == 1 and isinstance(readers[0].op, Transpose) and not editor.is_output(value)


def _interleave(editor: GraphEditor, node: Node, parts: Sequence[_Part], steps: tuple[int, ...]) -> None:
    chain = Chain(editor, f"{node.name}.parts")
    (made,) = node.outputs
    shape = editor.type(made).shape
    values = {}
    for part in parts:
        value, plain = part.source, tuple(range(len(shape)))
        if part.perm != plain:
            value = chain.add(Transpose(part.perm), [value])
        values[tuple(each.begin for each in part.ranges)] = value
    axes = [axis for axis, step in enumerate(steps) if step > 1]
    order = [values[places] for places in product(*(range(step) for step in steps))]
    if len(axes) == 1 and axes[0] == len(shape) - 1:  # pairs beside each other, as a stack along a new axis leaves them
        small = editor.type(order[0]).shape
        stacked = [chain.add(Reshape((*small, 1)), [value]) for value in order]
        value = chain.add(Concat(len(shape)), stacked)
    else:
        along = 1 if len(shape) > 1 else 0
        value = chain.add(Concat(along), order)
        inner = tuple(extent // step for extent, step in zip(shape, steps, strict=True))
        phases = tuple(steps[axis] for axis in axes)
        value = chain.add(Reshape((*inner[:along], *phases, *inner[along:])), [value])
        perm = list[int]()
        for axis in range(len(shape)):
            perm.append(axis if axis < along else axis + len(axes))
            if axis in axes:
                perm.append(along + axes.index(axis))
        value = chain.add(Transpose(tuple(perm)), [value])
    last = Node(node.name, Reshape(shape), (value,), node.outputs, covers=node.covers)
    editor.replace(node, *chain.nodes, last)
    removed = editor.prune(node.inputs)
    editor.replace(last, replace(last, covers=joined(*(each.covers for each in removed), node.covers)))


INTERLEAVE_SCATTERS = Pass("interleave-scatters", _run)
