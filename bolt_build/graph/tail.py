"""What is known of the elements of a tensor that stand behind its real part, where an input is padded with zeros.

A tensor that has the padded dimension has it as an axis, as a part of one (rows of all images in one axis), or several
times (scores of queries and keys). `Tails` tells each by its *stride*: how many elements of the row-major tensor lie
between one position and the next. That does not change where a tensor is reshaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan, prod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

HIDDEN = -1000.0
"""A score as far below zero takes no part in a softmax: the power of the difference is zero in fp32 unless scores are
hundreds. Exporters write the least number, minus infinity or -10000."""


@dataclass(frozen=True)
class Tail:
    """`value`: every element of it is this, or no number where it is NaN. `below`: each is so far below zero that a
    softmax makes zero of it. With neither, elements are some number. Where a tensor has the dimension several times,
    this is said of elements whose other positions are real: nobody reads the rest."""

    value: float | None = None
    below: bool = False

    @property
    def lost(self) -> bool:
        """Whether it is no number, which zeros and masks do not hide: zero times NaN is NaN."""
        return self.value is not None and isnan(self.value)

    @property
    def hidden(self) -> bool:
        return self.below or (self.value is not None and self.value <= HIDDEN)


ANYTHING, LOST = Tail(), Tail(nan)


class PaddingReaches(Exception):
    """Padding reaches what is not padded, or nobody knows: the text is what a step does with the dimension ("adds up
    from its end")."""


Tails = Mapping[int, Tail]
"""By stride; empty for a tensor that is the same however much is padded."""


class Padded(Protocol):
    """What an operator may ask of the values around its node, by their names. Of two graphs that differ in one extent
    it is the larger one that answers."""

    def shape(self, name: str) -> tuple[int, ...]: ...

    def tails(self, name: str) -> Tails:
        """What is known of a value: of a constant, how it differs between the two graphs."""

    def axis(self, name: str, step: int) -> int:
        """The axis of a value that holds the positions of a tail. Raises PaddingReaches."""

    def moved(self, name: str, step: int, shape: tuple[int, ...], axis: int) -> int:
        """The stride of a tail once the axis that holds it is `axis` of `shape`."""

    def differing(self, name: str) -> tuple[int, ...]:
        """The axes of a value whose extents differ between the graphs. Raises PaddingReaches."""

    def constant(self, name: str) -> npt.NDArray[Any] | None: ...

    def uniform(self, name: str) -> float | None:
        """The number that a constant holds everywhere."""

    def counts(self, node: str, positions: int) -> bool:
        """Whether a node that goes through so many positions can be told how many of them are real; then it is."""

    def kind(self, name: str) -> np.dtype[np.generic]:
        """The element type that NumPy holds a value in."""


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
