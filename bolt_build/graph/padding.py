"""Whether shorter inputs, padded with zeros, give what they would give alone, for each graph as a whole.

Two graphs of one model that differ in one extent are compared. Every tensor whose shape differs is followed from the
inputs to the outputs, with what is known of its padded part (`Tail`): what steps may do with it stands in `_RULES`.
A step that lets padding reach the rest is a reason not to pad. For example a softmax over keys must have a mask that
hides the padded ones; a mean over positions never pads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Array, Graph, Node, ShapeError
from bolt_build.graph.ops.activation import Activation
from bolt_build.graph.ops.arithmetic import Binary
from bolt_build.graph.ops.attention import Attention
from bolt_build.graph.ops.conv import Conv
from bolt_build.graph.ops.expand import Expand
from bolt_build.graph.ops.gather import Gather
from bolt_build.graph.ops.line import Line
from bolt_build.graph.ops.lines import CumSum
from bolt_build.graph.ops.logic import Ask, Bitwise, Compare, Logic, Where
from bolt_build.graph.ops.lp_pool import LpPool
from bolt_build.graph.ops.matmul import MatMul
from bolt_build.graph.ops.norm import Norm
from bolt_build.graph.ops.normalization import BatchNorm, Lrn
from bolt_build.graph.ops.pool import Pool
from bolt_build.graph.ops.reduce import Reduce
from bolt_build.graph.ops.resize import Interpolate
from bolt_build.graph.ops.shape import Cast, Concat, Convert, Identity, Reshape, Slice, Transpose
from bolt_build.graph.ops.softmax import Softmax
from bolt_build.graph.tail import ANYTHING, Tail, Tails, axis_of, stride


class _Reaches(Exception):
    """Padding reaches what is not padded, or nobody knows; the text is what a step does with the dimension."""


@dataclass(frozen=True)
class PaddedPorts:
    """The axes of each input and output that have the dimension, by name."""

    axes: tuple[tuple[str, tuple[int, ...]], ...]


def padded_ports(small: Graph, large: Graph) -> PaddedPorts | str:
    """The ports of a dimension in which the two graphs differ, where shorter inputs may be padded with zeros behind;
    otherwise why not, in a sentence without its end."""
    try:
        return _Padding(small, large).ports()
    except _Reaches as reason:
        return str(reason)


class _Padding:
    def __init__(self, small: Graph, large: Graph) -> None:
        self._small, self._large = small, large
        self._nodes = {node.name: node for node in small.nodes}
        self._tails: dict[str, Tails] = {}
        self.extent = self._extent()

    def ports(self) -> PaddedPorts:
        for name in self._large.inputs:
            shape = self.shape(name)
            self._tails[name] = {stride(shape, axis): Tail(0.0) for axis in self.differing(name)}
        for node in self._large.nodes:
            self._follow(node)
        ports = (*self._large.inputs, *self._large.outputs)
        return PaddedPorts(tuple((name, self.differing(name)) for name in ports if self.differing(name)))

    # -- what rules ask --------------------------------------------------------------------------------------------

    def shape(self, name: str) -> tuple[int, ...]:
        return self._large.type(name).shape

    def tails(self, name: str) -> Tails:
        """What is known of a value: of a constant, how it differs between the two graphs."""
        if name not in self._tails:
            self._tails[name] = self._of_constant(name)
        return self._tails[name]

    def axis(self, name: str, step: int) -> int:
        """The axis of a value that holds the positions of a tail. Raises _Reaches."""
        found = axis_of(self.shape(name), step, self.extent)
        if found is None:
            raise _Reaches(f"cuts '{name}' otherwise than along it")
        return found

    def moved(self, name: str, step: int, shape: tuple[int, ...], axis: int) -> int:
        """The stride of a tail once the axis that holds it is `axis` of `shape`."""
        own = self.axis(name, step)
        return step // stride(self.shape(name), own) * stride(shape, axis)

    def uniform(self, name: str) -> float | None:
        """The number that a constant holds everywhere."""
        array = self._large.constant(name)
        if array is None or not array.size:
            return None
        first = array.reshape(-1)[0]
        return float(first) if array.size == 1 or bool((array == first).all()) else None

    def constant(self, name: str) -> Array | None:
        return self._large.constant(name)

    def other(self, node: Node) -> Node:
        """The same node of the other graph."""
        return self._nodes[node.name]

    def kind(self, name: str) -> np.dtype[np.generic]:
        return np.dtype(held_dtype(self._large.type(name).dtype))

    def differing(self, name: str) -> tuple[int, ...]:
        """The axes of a value whose extents differ between the graphs. Raises _Reaches."""
        large = self.shape(name)
        if not self._small.has(name) or len(self._small.type(name).shape) != len(large):
            raise _Reaches("makes it of another form for another extent")
        small = self._small.type(name).shape
        return tuple(axis for axis, (a, b) in enumerate(zip(small, large, strict=True)) if a != b)

    # -- the walk --------------------------------------------------------------------------------------------------

    def _extent(self) -> int:
        found = {self.shape(name)[axis] for name in self._large.inputs for axis in self.differing(name)}
        if len(found) != 1:
            raise _Reaches("no input has it as an axis" if not found else "inputs have axes that differ with it")
        return found.pop()

    def _follow(self, node: Node) -> None:
        try:
            self._check(node)
            rule = _RULES.get(type(node.op))
            touched = any(self.tails(name) for name in node.inputs)
            if not touched and not any(self.differing(name) for name in node.outputs):
                found: Tails = {}
            elif rule is None or len(node.outputs) != 1 or node.epilogue:
                raise _Reaches(f"is {node.op.kind}, of which nobody has said what it does with padding")
            else:
                found = rule(self, node)
            for name in node.outputs:
                self._tails[name] = found
                axes = {self.axis(name, step) for step in found}
                if axes != set(self.differing(name)):
                    raise _Reaches(f"leaves '{name}', whose axes do not tell where it is padded")
        except _Reaches as reason:
            raise _Reaches(f"'{node.name}' {reason}") from None

    def _check(self, node: Node) -> None:
        """Raises _Reaches where the node computes something else for another extent."""
        other = self._nodes.get(node.name)
        if other is None or (other.inputs, other.outputs) != (node.inputs, node.outputs):
            raise _Reaches("is not there for another extent")
        if other.op != node.op and not (type(other.op) is type(node.op) and isinstance(node.op, _SHAPED)):
            raise _Reaches("computes something else for another extent")

    def _of_constant(self, name: str) -> Tails:
        large, small = self._large.constant(name), None
        if self._small.has(name):
            small = self._small.constant(name)
        if large is None or small is None:
            raise _Reaches(f"reads '{name}', which is constant for one extent alone")
        axes = self.differing(name)
        first = large[tuple(slice(extent) for extent in small.shape)]
        if self._large.value(name).constant != self._small.value(name).constant and not np.array_equal(
            first, small, equal_nan=large.dtype.kind == "f"
        ):
            raise _Reaches(f"reads '{name}', a constant that depends on it")
        return {stride(large.shape, axis): self._constant_tail(large, axes, axis) for axis in axes}

    def _constant_tail(self, array: Array, axes: tuple[int, ...], axis: int) -> Tail:
        """What a constant has behind the real part of `axis`, where it is real along the other one: of a triangle one
        number, for positions behind are those above or below the diagonal."""
        behind = array
        if len(axes) == 2:
            other = axes[0] if axis == axes[1] else axes[1]
            behind = np.moveaxis(array, (other, axis), (-2, -1))[..., *np.triu_indices(self.extent, 1)]
        first = behind.reshape(-1)[0]
        return Tail(float(first)) if bool((behind == first).all()) else ANYTHING


# -- what steps do with a padded part ----------------------------------------------------------------------------------


def _broadcast_tails(at: _Padding, node: Node, names: tuple[str, ...]) -> dict[int, list[Tail]]:
    """Of each tail of the result, what each of the inputs, which broadcast to it, has there."""
    shape = at.shape(node.outputs[0])

    def places(name: str) -> dict[int, Tail]:
        lead = len(shape) - len(at.shape(name))
        return {at.moved(name, s, shape, at.axis(name, s) + lead): tail for s, tail in at.tails(name).items()}

    found = [places(name) for name in names]
    steps = dict.fromkeys(step for each in found for step in each)
    plain = [Tail(at.uniform(name)) for name in names]
    return {step: [each.get(step, plain[i]) for i, each in enumerate(found)] for step in steps}


def _elementwise(at: _Padding, node: Node) -> Tails:
    found = _broadcast_tails(at, node, node.inputs)
    return {step: _combined(at, node, tails) for step, tails in found.items()}


def _combined(at: _Padding, node: Node, tails: list[Tail]) -> Tail:
    values = [tail.value for tail in tails]
    if all(value is not None for value in values):
        arrays = [np.asarray(value).astype(at.kind(name)) for value, name in zip(values, node.inputs, strict=True)]
        try:
            with np.errstate(all="ignore"):
                result = float(node.op.evaluate(arrays)[0])
        except ShapeError:
            return ANYTHING
        return ANYTHING if np.isnan(result) else Tail(result)
    op, hidden = node.op, [tail.hidden for tail in tails]
    if isinstance(op, Identity | Cast | Convert):
        return tails[0]
    if isinstance(op, Where) and values[0] is not None:
        return tails[1] if values[0] else tails[2]
    if isinstance(op, Binary):
        if (op.function in ("add", "min") and any(hidden)) or (op.function == "sub" and hidden[0]):
            return Tail(below=True)
        if op.function == "mul" and 0.0 in values:
            return Tail(0.0)
    if isinstance(op, Logic) and {"and": 0.0, "or": 1.0}.get(op.function) in values:
        return Tail(float(op.function == "or"))
    return ANYTHING


def _reshape(at: _Padding, node: Node) -> Tails:
    return dict(at.tails(node.inputs[0]))


def _expand(at: _Padding, node: Node) -> Tails:
    """Axes that it adds or repeats have the dimension where they differ."""
    (name,), (result,) = node.inputs, node.outputs
    shape, lead = at.shape(result), len(at.shape(result)) - len(at.shape(name))
    found = {at.moved(name, s, shape, at.axis(name, s) + lead): tail for s, tail in at.tails(name).items()}
    added = {stride(shape, axis): Tail(at.uniform(name)) for axis in at.differing(result)}
    return {**added, **found}


def _transpose(at: _Padding, node: Node) -> Tails:
    assert isinstance(node.op, Transpose)
    (name,), shape, perm = node.inputs, at.shape(node.outputs[0]), node.op.perm
    return {at.moved(name, s, shape, perm.index(at.axis(name, s))): tail for s, tail in at.tails(name).items()}


def _slice(at: _Padding, node: Node) -> Tails:
    assert isinstance(node.op, Slice)
    (name,), shape, found = node.inputs, at.shape(node.outputs[0]), {}
    for step, tail in at.tails(name).items():
        axis = at.axis(name, step)
        begin, count = node.op.begin[axis], node.op.count[axis]
        if (begin, count, node.op.step[axis]) == (0, at.shape(name)[axis], 1):
            found[at.moved(name, step, shape, axis)] = tail
        elif (begin, count) != (0, 1) or step != stride(at.shape(name), axis):
            raise _Reaches("takes a part of it that is not its first position")
    return found


def _concat(at: _Padding, node: Node) -> Tails:
    assert isinstance(node.op, Concat)
    shape = at.shape(node.outputs[0])
    found: dict[int, list[Tail]] = {}
    for name in node.inputs:
        for step, tail in at.tails(name).items():
            axis = at.axis(name, step)
            if axis == node.op.axis:
                raise _Reaches("puts something behind it")
            found.setdefault(at.moved(name, step, shape, axis), []).append(tail)
    whole = len(node.inputs)
    return {s: tails[0] if len(tails) == whole and len(set(tails)) == 1 else ANYTHING for s, tails in found.items()}


def _gather(at: _Padding, node: Node) -> Tails:
    assert isinstance(node.op, Gather)
    (data, indices), shape, axis = node.inputs, at.shape(node.outputs[0]), node.op.axis
    found = {at.moved(indices, s, shape, at.axis(indices, s) + axis): ANYTHING for s in at.tails(indices)}
    picked = at.constant(indices)
    for step in at.tails(data):
        own = at.axis(data, step)
        if own != axis:
            place = own if own < axis else own - 1 + len(at.shape(indices))
            found[at.moved(data, step, shape, place)] = ANYTHING
        elif picked is None or picked.any() or step != stride(at.shape(data), axis):
            raise _Reaches("looks up other positions along it than the first")
    return found


def _matmul(at: _Padding, node: Node) -> Tails:
    assert isinstance(node.op, MatMul)
    a, b = node.inputs[:2]
    shape = at.shape(node.outputs[0])
    rank, found = len(shape), dict[int, Tail]()
    summed: list[dict[int, Tail]] = [{}, {}]
    for side, name in enumerate((a, b)):
        own = len(at.shape(name))
        depth = own - 1 if side == 0 else own - 2
        if node.op.transpose_a if side == 0 else node.op.transpose_b:
            depth = 2 * own - 3 - depth
        for step, tail in at.tails(name).items():
            axis = at.axis(name, step)
            if axis == depth:
                summed[side][step // stride(at.shape(name), axis)] = tail
            else:
                place = axis + rank - own if axis < own - 2 else rank - 2 + side
                found[at.moved(name, step, shape, place)] = ANYTHING
    for step in {*summed[0], *summed[1]}:
        if not any(side.get(step, ANYTHING).value == 0.0 for side in summed):
            raise _Reaches("adds up over it, and padding is not zero there")
    for name in node.inputs[2:]:
        found |= {at.moved(name, step, shape, rank - 1): ANYTHING for step in at.tails(name)}
    return found


def _softmax(at: _Padding, node: Node) -> Tails:
    assert isinstance(node.op, Softmax)
    (name,), found = node.inputs, {}
    for step, tail in at.tails(name).items():
        along = at.axis(name, step) == node.op.axis
        if along and not tail.hidden:
            raise _Reaches("is a softmax over it without a mask that an input gives")
        found[step] = Tail(0.0) if along else ANYTHING
    return found


def _norm(at: _Padding, node: Node) -> Tails:
    assert isinstance(node.op, Norm)
    if any(at.axis(node.inputs[0], step) in node.op.axes for step in at.tails(node.inputs[0])):
        raise _Reaches("normalises over it")
    return dict.fromkeys(_broadcast_tails(at, node, node.inputs), ANYTHING)


def _line(at: _Padding, node: Node) -> Tails:
    assert isinstance(node.op, Line)
    if any(at.axis(node.inputs[0], step) == node.op.axis for step in at.tails(node.inputs[0])):
        raise _Reaches(f"is {node.op.function} over it")
    return dict.fromkeys(at.tails(node.inputs[0]), ANYTHING)


def _reduce(at: _Padding, node: Node) -> Tails:
    assert isinstance(node.op, Reduce)
    (name,), shape, axes, found = node.inputs, at.shape(node.outputs[0]), node.op.axes, {}
    for step, tail in at.tails(name).items():
        axis = at.axis(name, step)
        if axis not in axes:
            place = axis if node.op.keepdims else axis - sum(each < axis for each in axes)
            found[at.moved(name, step, shape, place)] = ANYTHING
        elif node.op.mode not in ("sum", "sum_square", "l1", "l2") or tail.value != 0.0:
            raise _Reaches(f"takes the {node.op.mode} over it, and padding counts")
    return found


def _cumsum(at: _Padding, node: Node) -> Tails:
    """A sum of all in front: padding is behind."""
    assert isinstance(node.op, CumSum)
    along = [at.axis(node.inputs[0], step) == node.op.axis for step in at.tails(node.inputs[0])]
    if any(along) and node.op.reverse:
        raise _Reaches("adds up from its end")
    return dict.fromkeys(at.tails(node.inputs[0]), ANYTHING)


def _image_by_image(at: _Padding, node: Node) -> Tails:
    """Whatever is computed of one image of input 0 alone: padding may be images."""
    name, shape = node.inputs[0], at.shape(node.outputs[0])
    if any(at.tails(other) for other in node.inputs[1:]) or any(at.axis(name, step) for step in at.tails(name)):
        raise _Reaches("mixes neighbours along it")
    return {at.moved(name, step, shape, 0): ANYTHING for step in at.tails(name)}


def _attention(at: _Padding, node: Node) -> Tails:
    assert isinstance(node.op, Attention)
    op, shape, found = node.op, at.shape(node.outputs[0]), dict[int, Tail]()
    rows: list[set[int]] = []
    for name in node.inputs[: op.sources]:
        rows.append(set())
        for step in at.tails(name):
            axis = at.axis(name, step)
            if axis == 2:
                raise _Reaches("has heads along it")
            if axis == 1:
                rows[-1].add(step // stride(at.shape(name), 1))
            if axis == 0 or name == node.inputs[0]:
                found[at.moved(name, step, shape, axis)] = ANYTHING
    hidden: set[int] = set()
    for name in node.inputs[op.sources :]:
        rank = len(at.shape(name))
        for step, tail in at.tails(name).items():
            axis = at.axis(name, step)
            if axis == rank - 1 and tail.hidden:
                hidden.add(step)
    queries, keys = rows[0], set().union(*rows[-2:])
    if keys - hidden and not (op.causal and keys <= queries):
        raise _Reaches("is attention over it without a mask that an input gives")
    return found


_SHAPED = (Reshape, Expand, Slice)
"""Operators whose own numbers are shapes."""

_RULES: dict[type, Callable[[_Padding, Node], Tails]] = {
    **dict.fromkeys((Activation, Ask, Binary, Bitwise, Cast, Compare, Convert, Identity, Logic, Where), _elementwise),
    **dict.fromkeys((BatchNorm, Conv, Interpolate, Lrn, LpPool, Pool), _image_by_image),
    Attention: _attention, Concat: _concat, CumSum: _cumsum, Expand: _expand, Gather: _gather, Line: _line,
    MatMul: _matmul, Norm: _norm, Reduce: _reduce, Reshape: _reshape, Slice: _slice, Softmax: _softmax,
    Transpose: _transpose,
}  # fmt: skip
