"""What is known of the elements of a tensor that stand behind its real part, where an input is padded with zeros.

A tensor that has the padded dimension has it as an axis, as a part of one (rows of all images in one axis), or several
times (scores of queries and keys). `Tails` tells each by its *stride*: how many elements of the row-major tensor lie
between one position and the next. That does not change where a tensor is reshaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

HIDDEN = -1000.0
"""A score as far below zero takes no part in a softmax: the power of the difference is zero in fp32 unless scores are
hundreds. Exporters write the least number, minus infinity or -10000."""


@dataclass(frozen=True)
class Tail:
    """`value`: every element of it is this. `below`: each is so far below zero that a softmax makes zero of it. With
    neither, elements are some number. Where a tensor has the dimension several times, this is said of elements whose
    other positions are real: nobody reads the rest."""

    value: float | None = None
    below: bool = False

    @property
    def hidden(self) -> bool:
        return self.below or (self.value is not None and self.value <= HIDDEN)


ANYTHING = Tail()

Tails = Mapping[int, Tail]
"""By stride; empty for a tensor that is the same however much is padded."""


def stride(shape: Sequence[int], axis: int) -> int:
    """Elements between one position of an axis and the next."""
    return prod(shape[axis + 1 :])


def axis_of(shape: Sequence[int], step: int, extent: int) -> int | None:
    """The axis that holds positions `step` elements apart, `extent` of them; None where they go across axes."""
    for axis, size in enumerate(shape):
        inner = stride(shape, axis)
        if size > 1 and step % inner == 0 and (inner * size) % (step * extent) == 0:
            return axis
    return None
