"""The tile that a candidate states, whatever the kind of its kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from bolt_build.families.base import Candidate
from bolt_build.families.common.text_form import Named, Reader


class Stated(Protocol):
    """A tile: `parameters` is how candidates state it."""

    @property
    def parameters(self) -> Named: ...


T = TypeVar("T", bound=Stated)


def tile_of(candidate: Candidate, read: Callable[[Reader], T]) -> T:
    """The tile that `read` finds in a candidate's parameters. Raises ValueError where it does not state them all, and
    as it writes them itself: the candidate is of another kind then."""
    reader = Reader(candidate.parameters)
    tile = read(reader)
    reader.end()
    if tile.parameters != candidate.parameters:
        raise ValueError(f"{candidate} is no kernel of this kind")
    return tile


def tile_if_any(candidate: Candidate, read: Callable[[Reader], T]) -> T | None:
    """The same, None for a candidate of another kind."""
    try:
        return tile_of(candidate, read)
    except ValueError:
        return None


def is_read(read: Callable[[Candidate], object], candidate: Candidate) -> bool:
    """True where `read` raises no ValueError."""
    try:
        read(candidate)
    except ValueError:
        return False
    return True
