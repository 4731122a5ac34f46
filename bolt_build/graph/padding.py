"""Whether shorter inputs, padded with zeros, give what they would give alone, for each graph as a whole.

Two graphs of one model that differ in one extent are compared. Every tensor whose shape differs is followed from the
inputs to the outputs, with what is known of its padded part (`Tail`): `Op.tails` says what steps do with it.
A step that lets padding reach the rest is a reason not to pad. For example a softmax over keys must have a mask that
hides the padded ones; a mean over positions never pads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.tail import ANYTHING, LOST, Padded, PaddingReaches, Tail, Tails, axis_of, stride


@dataclass(frozen=True)
class PaddedPorts:
    """The axes of each input and output that have the dimension, by name. `counted` are the nodes that must be told how
    many positions are real: attention whose keys no mask hides."""

    axes: tuple[tuple[str, tuple[int, ...]], ...]
    counted: tuple[str, ...] = ()


def padded_ports(small: Graph, large: Graph, *, counts: bool = False) -> PaddedPorts | str:
    """The ports of a dimension in which the two graphs differ, where shorter inputs may be padded with zeros behind;
    otherwise why not, in a sentence without its end. `counts`: nodes may be told how many positions are real."""
    try:
        return _Padding(small, large, counts=counts).ports()
    except PaddingReaches as reason:
        return str(reason)


class _Padding(Padded):
    def __init__(self, small: Graph, large: Graph, *, counts: bool) -> None:
        self._small, self._large = small, large
        self._counts, self._counted = counts, dict[str, None]()
        self._nodes = {node.name: node for node in small.nodes}
        self._tails: dict[str, Tails] = {}
        self.extent = self._extent()

    def ports(self) -> PaddedPorts:
        for name in self._large.inputs:
            shape = self.shape(name)
            self._tails[name] = {stride(shape, axis): Tail(0.0) for axis in self.differing(name)}
        for node in self._large.nodes:
            self._follow(node)
        for name in self._large.outputs:
            if any(self.shape(name)[axis] != self.extent for axis in self.differing(name)):
                raise PaddingReaches(f"'{name}' is an output that has it as a part of an axis")
        ports = (*self._large.inputs, *self._large.outputs)
        axes = tuple((name, self.differing(name)) for name in ports if self.differing(name))
        return PaddedPorts(axes, tuple(self._counted))

    # -- what operators ask ----------------------------------------------------------------------------------------

    def shape(self, name: str) -> tuple[int, ...]:
        return self._large.type(name).shape

    def tails(self, name: str) -> Tails:
        """What is known of a value: of a constant, how it differs between the two graphs."""
        if name not in self._tails:
            self._tails[name] = self._of_constant(name)
        return self._tails[name]

    def axis(self, name: str, step: int) -> int:
        """The axis of a value that holds the positions of a tail. Raises PaddingReaches."""
        found = axis_of(self.shape(name), step, self.extent)
        if found is None:
            raise PaddingReaches(f"cuts '{name}' otherwise than along it")
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

    def kind(self, name: str) -> np.dtype[np.generic]:
        return np.dtype(held_dtype(self._large.type(name).dtype))

    def differing(self, name: str) -> tuple[int, ...]:
        """The axes of a value whose extents differ between the graphs. Raises PaddingReaches."""
        large = self.shape(name)
        if not self._small.has(name) or len(self._small.type(name).shape) != len(large):
            raise PaddingReaches("makes it of another form for another extent")
        small = self._small.type(name).shape
        return tuple(axis for axis, (a, b) in enumerate(zip(small, large, strict=True)) if a != b)

    def counts(self, node: str, positions: int) -> bool:
        if self._counts and positions == self.extent:
            self._counted[node] = None
            return True
        return False

    # -- the walk --------------------------------------------------------------------------------------------------

    def _extent(self) -> int:
        found = {self.shape(name)[axis] for name in self._large.inputs for axis in self.differing(name)}
        if len(found) != 1:
            raise PaddingReaches("no input has it as an axis" if not found else "inputs have axes that differ with it")
        return found.pop()

    def _follow(self, node: Node) -> None:
        try:
            self._check(node)
            touched = any(self.tails(name) for name in node.inputs)
            if not touched and not any(self.differing(name) for name in node.outputs):
                found: Tails = {}
            elif len(node.outputs) != 1 or node.epilogue:
                raise PaddingReaches(
                    f"is {node.op.kind} with several outputs or an epilogue, through which padding is not followed"
                )
            else:
                found = self._numbers(node, node.op.tails(node, self))
            for name in node.outputs:
                self._tails[name] = found
                axes = {self.axis(name, step) for step in found}
                if axes != set(self.differing(name)):
                    raise PaddingReaches(f"leaves '{name}', whose axes do not tell where it is padded")
        except PaddingReaches as reason:
            raise PaddingReaches(f"'{node.name}' {reason}") from None

    def _numbers(self, node: Node, found: Tails) -> Tails:
        """What is made of no number is none: of `found` whatever nothing else is known of."""
        lost = any(tail.lost for name in node.inputs for tail in self.tails(name).values())
        if not lost or not self._large.type(node.outputs[0]).dtype.is_float:
            return found
        return {step: LOST if tail == ANYTHING else tail for step, tail in found.items()}

    def _check(self, node: Node) -> None:
        """Raises PaddingReaches where the node computes something else for another extent."""
        other = self._nodes.get(node.name)
        if other is None or (other.inputs, other.outputs) != (node.inputs, node.outputs):
            raise PaddingReaches("is not there for another extent")
        if other.op != node.op and not (type(other.op) is type(node.op) and node.op.shaped):
            raise PaddingReaches("computes something else for another extent")

    def _of_constant(self, name: str) -> Tails:
        large, small = self._large.constant(name), None
        if self._small.has(name):
            small = self._small.constant(name)
        if large is None or small is None:
            raise PaddingReaches(f"reads '{name}', which is constant for one extent alone")
        axes = self.differing(name)
        first = large[tuple(slice(extent) for extent in small.shape)]
        if self._large.value(name).constant != self._small.value(name).constant and not np.array_equal(
            first, small, equal_nan=large.dtype.kind == "f"
        ):
            raise PaddingReaches(f"reads '{name}', a constant that depends on it")
        return {self._constant_step(large.shape, axis): self._constant_tail(large, axes, axis) for axis in axes}

    def _constant_step(self, shape: tuple[int, ...], axis: int) -> int:
        """Elements between one position and the next. That of fewer positions is the beginning of the constant, so
        along an axis with several elements for each position these lie together, as heads of an image do."""
        several, left = divmod(shape[axis], self.extent)
        return stride(shape, axis) * (1 if left else several)

    def _constant_tail(self, array: Array, axes: tuple[int, ...], axis: int) -> Tail:
        """What a constant has behind the real part of `axis`, where it is real along the other one: of a triangle one
        number, for positions behind are those above or below the diagonal."""
        behind = array
        if len(axes) == 2:
            other = axes[0] if axis == axes[1] else axes[1]
            behind = np.moveaxis(array, (other, axis), (-2, -1))[..., *np.triu_indices(self.extent, 1)]
        first = behind.reshape(-1)[0]
        return Tail(float(first)) if bool((behind == first).all()) else ANYTHING
