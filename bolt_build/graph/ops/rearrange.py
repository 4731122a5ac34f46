"""Elements of an image that change places between its axes: channel shuffles, pixel shuffles, patches as channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.operands import expect_count

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Rearrange(Op):
    """A reshape to `split`, a transpose by `perm` and a reshape to `whole`, of which `shape` begins at channel `begin`:
    as one movement, that reads and writes either layout.

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

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        (x,) = inputs
        if sorted(self.perm) != list(range(len(self.split))) or prod(self.split) != x.elements:
            raise ShapeError(f"{list(x.shape)} cannot become {list(self.split)} in the order {list(self.perm)}")
        if axes_of(x.shape, self.split) is None or self.joined is None:
            raise ShapeError(f"{list(self.split)} neither cuts axes of {list(x.shape)} nor makes {list(self.whole)}")
        fits = 0 <= self.begin <= self.whole[1] - self.shape[1]
        if not fits or (self.shape[0], *self.shape[2:]) != (self.whole[0], *self.whole[2:]):
            raise ShapeError(f"{list(self.shape)} from channel {self.begin} on is no part of {list(self.whole)}")
        return (TensorType(x.dtype, self.shape),)

    @property
    def joined(self) -> Groups | None:
        """Of each axis of `whole`: the axes of `split` that it is made of, outermost first; None where it is not."""
        found = axes_of(self.whole, tuple(self.split[axis] for axis in self.perm))
        return None if found is None else tuple(tuple(self.perm[at] for at in group) for group in found)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        moved = inputs[0].reshape(self.split).transpose(self.perm).reshape(self.whole)
        return (np.ascontiguousarray(moved[:, self.begin : self.begin + self.shape[1]]),)

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
