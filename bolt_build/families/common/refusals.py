"""Why a kernel's problem has no candidate, as a reason why the nodes that it would compute are not one step."""

from __future__ import annotations

from collections.abc import Iterable

from bolt_build.families.base import Refusal


def refused(family: str, region: tuple[str, ...], refusals: Iterable[Refusal]) -> tuple[Refusal, ...]:
    """Each reason once, about all nodes of a region: candidates of one problem often share theirs."""
    what = ", ".join(region)
    return tuple(Refusal(family, what, reason) for reason in dict.fromkeys(each.reason for each in refusals))
