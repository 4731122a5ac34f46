"""Many sentences that differ in their numbers alone, as one with ranges: what a reader is spared.

A reason is a sentence of whoever refused, a family from another package as well, and stays one. Nothing is decided by
what is found here, and nothing reads it back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Counted:
    """A reason and how many things it holds for."""

    reason: str
    count: int


def counted(reasons: Iterable[str]) -> tuple[Counted, ...]:
    """Most frequent first, equal counts in the order of arrival. Numbers that differ become `least..greatest`."""
    groups: dict[str, list[str]] = {}
    for reason in reasons:
        groups.setdefault(_NUMBER.sub("#", reason), []).append(reason)
    found = [Counted(_merged(same), len(same)) for same in groups.values()]
    return tuple(sorted(found, key=lambda each: -each.count))


def _merged(same: list[str]) -> str:
    numbers = iter([_range(column) for column in zip(*map(_NUMBER.findall, same), strict=True)])
    return _NUMBER.sub(lambda _: next(numbers), same[0])


def _range(numbers: tuple[str, ...]) -> str:
    least, greatest = min(numbers, key=float), max(numbers, key=float)
    return least if float(least) == float(greatest) else f"{least}..{greatest}"
