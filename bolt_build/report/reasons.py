"""Many reasons that differ in their numbers alone, as one with ranges: what a reader is spared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bolt_build.families.reason import Reason
from bolt_build.wording import many

_SHOWN = 8
"""Reasons of refusals that are listed before the rest is counted together."""


@dataclass(frozen=True)
class Counted:
    """A reason and how many things it holds for."""

    reason: str
    count: int


def counted(reasons: Iterable[str]) -> tuple[Counted, ...]:
    """Most frequent first, equal counts in the order of arrival. Of reasons of one form the numbers that differ become
    `least..greatest`; plain strings are one where they are equal."""
    groups: dict[str, list[tuple[float, ...]]] = {}
    for reason in reasons:
        form, numbers = (reason.form, reason.numbers) if isinstance(reason, Reason) else (reason, ())
        groups.setdefault(form, []).append(numbers)
    found = [Counted(_merged(form, same), len(same)) for form, same in groups.items()]
    return tuple(sorted(found, key=lambda each: -each.count))


def all_of(reasons: tuple[Counted, ...]) -> int:
    """Of how many things there are reasons."""
    return sum(each.count for each in reasons)


def listed(title: str, reasons: tuple[Counted, ...]) -> list[str]:
    """A line for each of the first reasons, and one for all others where these are several; none without reasons."""
    if not reasons:
        return []
    shown = len(reasons) if len(reasons) <= _SHOWN + 1 else _SHOWN
    lines, rest = [f"  {each.count} {each.reason}" for each in reasons[:shown]], reasons[shown:]
    return [f"{title}:", *lines, *([f"  {all_of(rest)} for {many(len(rest), 'other reason')}"] if rest else [])]


def _merged(form: str, same: list[tuple[float, ...]]) -> str:
    return form.format(*map(_range, zip(*same, strict=True))) if same[0] else form


def _range(numbers: tuple[float, ...]) -> str:
    least, greatest = min(numbers), max(numbers)
    return f"{least}" if least == greatest else f"{least}..{greatest}"
