"""Elements of an image that change places between its axes: channel shuffles, pixel shuffles, patches as channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from bolt_build.digest import UNSAID
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.operands import expect_count

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Rearrange(Op):
    """A reshape to `split`, a transpose by `perm` and a reshape to `whole`, of which `shape` begins at channel `begin`
    and, of the axes behind the channels, at `first` (unsaid: at their beginning, and it has them whole): as one
    movement, that reads and writes either layout.

    Each axis of the input is cut into axes of `split`, and each axis of the output joined of some of `perm`'s. No model
    has the operator; a pass makes it of the three.
    """

    kind = "rearrange"
    moves = True
    split: tuple[int, ...]
    perm: tuple[int, ...]
    whole: tuple[int, ...]
    begin: int
    shape: tuple[int, ...]
    first: tuple[int, ...] = field(default=(), metadata=UNSAID)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        (x,) = inputs
        if sorted(self.perm) != list(range(len(self.split))) or prod(self.split) != x.elements:
            raise ShapeError(f"{list(x.shape)} cannot become {list(self.split)} in the order {list(self.perm)}")
        if axes_of(x.shape, self.split) is None or self.joined is None:
            raise ShapeError(f"{list(self.split)} neither cuts axes of {list(x.shape)} nor makes {list(self.whole)}")
        fits = 0 <= self.begin <= self.whole[1] - self.shape[1] and self.shape[0] == self.whole[0]
        if self.first:
            rest = zip(self.first, self.shape[2:], self.whole[2:], strict=True)
            fits = fits and all(0 <= first <= whole - extent for first, extent, whole in rest)
        elif self.shape[2:] != self.whole[2:]:
            fits = False
        if not fits:
            raise ShapeError(f"{list(self.shape)} from channel {self.begin} on is no part of {list(self.whole)}")
        return (TensorType(x.dtype, self.shape),)

    def first_of(self, axis: int) -> int:
        """Where `shape` begins along an axis behind the channels."""
        return self.first[axis - 2] if self.first and axis > 1 else 0

    def half_of(self, axis: int) -> int:
        """Half of a step of the outermost axis that makes this one, where `shape` begins in the middle of a step; 0
        where it begins with a whole one."""
        return self.first_of(axis) % self._step_of(axis)

    def steps_whole(self, axis: int) -> bool:
        """Whether what is kept of an axis are whole steps of the outermost axis that makes it, from the beginning or
        the middle of one on: loops lead over them."""
        if self.shape[axis] == self.whole[axis]:
            return True
        step, half = self._step_of(axis), self.half_of(axis)
        parts = 0 if self.joined is None else len(self.joined[axis])
        return self.shape[axis] % step == 0 and (half == 0 or (2 * half == step and parts == 2))

    def _step_of(self, axis: int) -> int:
        joined = self.joined
        assert joined is not None
        return prod(self.split[part] for part in joined[axis][1:])

    @property
    def joined(self) -> Groups | None:
        """Of each axis of `whole`: the axes of `split` that it is made of, outermost first; None where it is not."""
        found = axes_of(self.whole, tuple(self.split[axis] for axis in self.perm))
        return None if found is None else tuple(tuple(self.perm[at] for at in group) for group in found)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        moved = inputs[0].reshape(self.split).transpose(self.perm).reshape(self.whole)
        begins = (0, self.begin, *(self.first or (0,) * (len(self.shape) - 2)))
        kept = tuple(slice(begin, begin + extent) for begin, extent in zip(begins, self.shape, strict=False))
        return (np.ascontiguousarray(moved[kept]),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 0

    def workspace(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 0

    def unread(self, inputs: Sequence[TensorType]) -> int:
        return inputs[0].elements - prod(self.shape)


def axes_of(shape: tuple[int, ...], cut: tuple[int, ...]) -> Groups | None:
    """Of each axis of `shape` the axes of `cut` that follow each other in it; None where one lies in two."""
    found, at = list[tuple[int, ...]](), 0
    for axis, extent in enumerate(shape):
        group, size = list[int](), 1
        last = axis == len(shape) - 1
        while at < len(cut) and (size < extent or last or (cut[at] == 1 == extent and not group)):
            group.append(at)
            size *= cut[at]
            at += 1
        if size != extent:
            return None
        found.append(tuple(group))
    return tuple(found) if at == len(cut) else None
