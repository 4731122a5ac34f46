"""Makes the operator of a recurrence from the body of one step: which axes are the same, and functions of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bolt_build.graph.ir import Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Compare, Logic, Where
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Cast, Reshape, Slice, Transpose
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.recurrent.state_scan import SUM, WHERE, StateScan
from bolt_build.planner.passes.recognise.scan_steps import Body, Ref
from bolt_build.planner.rewrite import GraphEditor

STEPS = -1
"""In the place of an axis' name: it is the one along which steps go."""
MOST_INPUTS, MOST_TERMS = 12, 40
"""Tensors that a recurrence reads, and functions that it has."""
MOST_FOLDED = 512
"""Elements that are added up in a step: threads of a warp keep their numbers in registers."""

_LOGIC = {"and": "mul", "or": "max"}

Axis = int | None
"""The name of an axis of the space; None of one that stands still at where the input begins."""


class Unlike(Exception):
    """Why steps are no recurrence that a kernel goes through."""


@dataclass(frozen=True)
class Read:
    """A tensor, the name of each of its axes, and where the space begins along it."""

    value: str
    axes: tuple[Axis, ...]
    begin: tuple[int, ...]
    backward: bool = False


@dataclass(frozen=True)
class Number:
    """A number of a step: its reference, and the name of each axis of the tensor that it stands for."""

    ref: Ref
    axes: tuple[Axis, ...]


@dataclass
class Terms:
    """Functions of a step as they are found. Axes that have to be one get one name."""

    editor: GraphEditor
    extents: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    operands: list[tuple[Ref, ...]] = field(default_factory=list)
    numbers: list[tuple[float, ...]] = field(default_factory=list)
    folded: list[int] = field(default_factory=list)

    def named(self, shape: Sequence[int]) -> tuple[Axis, ...]:
        """New names for axes of a tensor; one of extent 1 stands still."""
        return tuple(self.name(extent) if extent != 1 else None for extent in shape)

    def name(self, extent: int) -> int:
        self.extents.append(extent)
        self.parent.append(len(self.parent))
        return len(self.parent) - 1

    def root(self, axis: int) -> int:
        while self.parent[axis] != axis:
            axis = self.parent[axis]
        return axis

    def join(self, a: Axis, b: Axis) -> Axis:
        """One axis of both, of which either may stand still."""
        if a is None or b is None:
            return b if a is None else a
        first, second = self.root(a), self.root(b)
        if self.extents[first] != self.extents[second]:
            raise Unlike("axes of one step have other extents")
        self.parent[second] = first
        return first

    def joined(self, a: Sequence[Axis], b: Sequence[Axis]) -> tuple[Axis, ...]:
        """Axes of what NumPy broadcasts two tensors to."""
        rank = max(len(a), len(b))
        none: tuple[Axis, ...] = (None,)
        first, second = (none * (rank - len(each)) + tuple(each) for each in (a, b))
        return tuple(self.join(x, y) for x, y in zip(first, second, strict=True))

    def add(self, function: str, operands: tuple[Ref, ...], numbers: tuple[float, ...] = ()) -> Ref:
        self.functions.append(function)
        self.operands.append(operands)
        self.numbers.append(numbers)
        return ("term", len(self.functions) - 1)

    def sum(self, of: Ref, axis: int) -> Ref:
        self.folded.append(axis)
        return self.add(SUM, (of,))

    def of_node(self, node: Node, read: list[Number]) -> Number:
        op, first = node.op, read[0]
        shape = self.editor.type(node.outputs[0]).shape
        if isinstance(op, Activation):
            return Number(self.add(op.function, (first.ref,), (op.alpha, op.beta)), first.axes)
        if isinstance(op, Binary):
            axes = self.joined(first.axes, read[1].axes)
            return Number(self.add(op.function, (first.ref, read[1].ref)), axes)
        if isinstance(op, Compare | Logic | Where):
            axes = first.axes
            for each in read[1:]:
                axes = self.joined(axes, each.axes)
            function = WHERE
            if not isinstance(op, Where):
                function = op.question if isinstance(op, Compare) else _LOGIC[op.function]
            return Number(self.add(function, tuple(each.ref for each in read)), axes)
        if isinstance(op, Cast):
            return first  # of booleans, which are 1 and 0
        if isinstance(op, Reshape):
            return Number(first.ref, self.spread(first.axes, shape))
        if isinstance(op, Transpose):
            return Number(first.ref, tuple(first.axes[axis] for axis in op.perm))
        if isinstance(op, Gather):
            return Number(first.ref, self.spread(first.axes, shape))
        if isinstance(op, Expand):
            had = [None] * (len(shape) - len(first.axes)) + list(first.axes)
            grown = [self.name(extent) if axis is None and extent != 1 else axis
                     for axis, extent in zip(had, shape, strict=True)]  # fmt: skip
            return Number(first.ref, tuple(grown))
        if isinstance(op, Reduce):
            return self._reduced(op, first)
        assert isinstance(op, MatMul)
        return self._product(op, first, read[1])

    def spread(self, axes: Sequence[Axis], shape: Sequence[int]) -> tuple[Axis, ...]:
        """Axes of a shape with the same extents but for those of one."""
        left = iter(axis for axis in axes if axis is not None)
        return tuple(None if extent == 1 else next(left) for extent in shape)

    def _reduced(self, op: Reduce, of: Number) -> Number:
        ref = of.ref
        for axis in op.axes:
            if (name := of.axes[axis]) is not None:
                ref = self.sum(ref, name)
        axes = [None if place in op.axes else axis for place, axis in enumerate(of.axes)]
        if not op.keepdims:
            axes = [axis for place, axis in enumerate(axes) if place not in op.axes]
        return Number(ref, tuple(axes))

    def _product(self, op: MatMul, a: Number, b: Number) -> Number:
        row, depth_a = (a.axes[-1], a.axes[-2]) if op.transpose_a else (a.axes[-2], a.axes[-1])
        depth_b, column = (b.axes[-1], b.axes[-2]) if op.transpose_b else (b.axes[-2], b.axes[-1])
        batch = self.joined(a.axes[:-2], b.axes[:-2])
        inner = self.join(depth_a, depth_b)
        ref = self.add("mul", (a.ref, b.ref))
        if inner is not None:
            ref = self.sum(ref, inner)
        return Number(ref, (*batch, row, column))

    def operator(
        self, steps: int, reads: Sequence[Read], states: Sequence[Read], carried: Sequence[Number], result: Number,
        place: int, backward: bool,
    ) -> StateScan:  # fmt: skip
        """The operator. Steps stand in front of axis `place` of the result. Raises Unlike."""
        stored = [self.root(axis) for axis in result.axes if axis is not None]
        folded = set(map(self.root, self.folded))
        if len(folded) > 1:
            raise Unlike("adds up along more than one axis")
        dims = [*dict.fromkeys(stored)]
        dims += [axis for axis in folded if axis not in dims]
        named = {axis: 1 + at for at, axis in enumerate(dims)}
        if len(dims) < len(stored) + len(folded - set(stored)):
            raise Unlike("reads a diagonal")
        if any(self.extents[axis] > MOST_FOLDED for axis in folded):
            raise Unlike(f"adds up more than {MOST_FOLDED} elements in a step")
        over = []
        for read in (*reads, *states):
            own = [STEPS if axis == STEPS else None if axis is None else self.root(axis) for axis in read.axes]
            if any(axis not in named for axis in own if axis is not None and axis != STEPS):
                raise Unlike("has axes that its result has not")
            if len({axis for axis in own if axis is not None}) < sum(axis is not None for axis in own):
                raise Unlike("reads a diagonal")
            over.append(tuple(own.index(axis) if axis in own else -1 for axis in (STEPS, *dims)))
        counts = {"leaf": 0, "slot": len(reads), "term": len(reads) + len(states)}
        at = [named[self.root(axis)] if axis is not None else None for axis in result.axes]
        order = [axis for axis in (*at[:place], 0, *at[place:]) if axis is not None]
        return StateScan(
            extents=(steps, *(self.extents[axis] for axis in dims)),
            axes=tuple(over),
            begins=tuple(read.begin for read in (*reads, *states)),
            backward=(*(read.backward for read in (*reads, *states)), backward),
            functions=tuple(self.functions),
            operands=tuple(tuple(counts[kind] + at for kind, at in refs) for refs in self.operands),
            numbers=tuple(self.numbers),
            carried=tuple(counts[kind] + at for kind, at in (each.ref for each in carried)),
            result=counts[result.ref[0]] + result.ref[1],
            order=tuple(order),
            fold=named[next(iter(folded))] if folded else 0,
        )


def looked_through(editor: GraphEditor, read: Read) -> Read:
    """What the tensor is a transpose, a slice or another rank of, where steps read that as well."""
    while True:
        node = editor.producer(read.value)
        if node is None or node.epilogue:
            return read
        shape = editor.type(node.inputs[0]).shape
        if isinstance(node.op, Transpose):
            axes: list[Axis] = [None] * len(shape)
            begin = [0] * len(shape)
            for place, axis in enumerate(node.op.perm):
                axes[axis], begin[axis] = read.axes[place], read.begin[place]
            read = Read(node.inputs[0], tuple(axes), tuple(begin), read.backward)
        elif isinstance(node.op, Slice) and all(step == 1 for step in node.op.step):
            begin = [a + b for a, b in zip(read.begin, node.op.begin, strict=True)]
            read = Read(node.inputs[0], read.axes, tuple(begin), read.backward)
        elif isinstance(node.op, Reshape) and _only_ones(node.op.shape, shape):
            places = iter([place for place, extent in enumerate(node.op.shape) if extent != 1])
            at = [None if extent == 1 else next(places) for extent in shape]
            axes = [None if place is None else read.axes[place] for place in at]
            begin = [0 if place is None else read.begin[place] for place in at]
            read = Read(node.inputs[0], tuple(axes), tuple(begin), read.backward)
        else:
            return read


def _only_ones(a: Sequence[int], b: Sequence[int]) -> bool:
    return [extent for extent in a if extent != 1] == [extent for extent in b if extent != 1]


def terms_of(body: Body, terms: Terms, leaves: Sequence[Number], slots: Sequence[Number]) -> list[Number]:
    """Numbers of the body's terms."""
    made: list[Number] = []
    for node, (_, refs) in zip(body.nodes, body.terms, strict=True):
        held = {"leaf": leaves, "slot": slots, "term": made}
        made.append(terms.of_node(node, [held[kind][at] for kind, at in refs]))
    return made
