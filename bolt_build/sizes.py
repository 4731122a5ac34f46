"""What a graph, its plan and its context are made for: a batch, and one extent of each dimension that has several."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

Dims = tuple[tuple[str, int], ...]
"""Extents of symbolic dimensions by name."""
Lengths = tuple[tuple[str, tuple[int, ...]], ...]
"""Dimensions with the several extents that an engine is built for, ascending."""


@dataclass(frozen=True, order=True)
class Sizes:
    """A batch, and the extents of dimensions of which an engine has several (no others), in the recipe's order."""

    batch: int
    dims: Dims = ()

    def __str__(self) -> str:
        return f"batch {self.words}"

    def has(self, dims: Dims) -> bool:
        """True where each of these dimensions has one of the extents that are given for it."""
        own, wanted = dict(self.dims), dict[str, set[int]]()
        for name, extent in dims:
            wanted.setdefault(name, set()).add(extent)
        return all(own.get(name) in extents for name, extents in wanted.items())

    def is_of(self, batch: int | None, dims: Dims) -> bool:
        """True where it is of this batch, if one is given, and has these dimensions."""
        return batch in (None, self.batch) and self.has(dims)

    @property
    def words(self) -> str:
        """As a cell of a column for batches: "32", or "32, sequence 128"."""
        return ", ".join([str(self.batch), *(f"{name} {extent}" for name, extent in self.dims)])

    @property
    def numbers(self) -> tuple[int, ...]:
        """The batch and the extents, as the engine's ABI lists them."""
        return (self.batch, *(extent for _, extent in self.dims))

    @property
    def key(self) -> str:
        """The numbers as a part of names: "32", or "32_128"."""
        return "_".join(map(str, self.numbers))


class Sized(Protocol):
    """Whatever is of one batch, and of one extent of each dimension that has several."""

    @property
    def batch(self) -> int: ...

    @property
    def dims(self) -> Dims: ...


def sizes_of(each: Sized) -> Sizes:
    """Its batch and extents, which no other plan of the engine has."""
    return Sizes(each.batch, each.dims)


def all_sizes(batches: Iterable[int], lengths: Lengths) -> tuple[Sizes, ...]:
    """Every batch with every extent of every dimension, the last dimension's in turn first."""
    found = [Sizes(batch) for batch in batches]
    for name, extents in lengths:
        found = [Sizes(each.batch, (*each.dims, (name, extent))) for each in found for extent in extents]
    return tuple(found)
