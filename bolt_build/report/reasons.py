"""Many reasons that differ in their numbers alone, as one with ranges."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_VALUE = r"\d+(?:\.\d+)?"
_NUMBER = re.compile(rf"{_VALUE}(?:\.\.{_VALUE})?")


@dataclass(frozen=True)
class Counted:
    """A reason and how many things it holds for."""

    reason: str
    count: int


def counted(reasons: Iterable[str]) -> tuple[Counted, ...]:
    """Most frequent first, equal counts in the order of arrival. Numbers that differ become `least..greatest`."""
    return summed(Counted(reason, 1) for reason in reasons)


def summed(parts: Iterable[Counted]) -> tuple[Counted, ...]:
    """The same of what was counted before, ranges included."""
    groups: dict[str, list[Counted]] = {}
    for part in parts:
        groups.setdefault(_NUMBER.sub("#", part.reason), []).append(part)
    found = [Counted(_merged([part.reason for part in same]), sum(part.count for part in same))
             for same in groups.values()]  # fmt: skip
    return tuple(sorted(found, key=lambda each: -each.count))


def _merged(same: list[str]) -> str:
    numbers = iter([_range(column) for column in zip(*map(_NUMBER.findall, same), strict=True)])
    return _NUMBER.sub(lambda _: next(numbers), same[0])


def _range(numbers: tuple[str, ...]) -> str:
    ends = [end for number in numbers for end in number.split("..")]
    least, greatest = min(ends, key=float), max(ends, key=float)
    return least if float(least) == float(greatest) else f"{least}..{greatest}"
