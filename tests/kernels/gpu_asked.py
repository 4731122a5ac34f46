"""Of which layers trials are asked for: a run of the tests needs a few hundred of many thousand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from families_harness import Layer

_begins: list[tuple[str, ...]] = []


@contextmanager
def asked_for(labels: Sequence[str]) -> Iterator[None]:
    """Within, `asked` leaves out layers none of whose trials has a label that begins with one of `labels`."""
    _begins.append(tuple(labels))
    try:
        yield
    finally:
        _begins.pop()


def asked(layers: Iterable[Layer]) -> list[Layer]:
    """Those of the layers that trials are asked for of: it takes long to find the candidates of all."""
    if not _begins:
        return list(layers)
    return [each for each in layers if any(_share_beginning(f"{each.label}-", label) for label in _begins[-1])]


def _share_beginning(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
