"""Refusals that families make alike: of nodes without a candidate, and of candidates that no family offers."""

from __future__ import annotations

from collections.abc import Iterable

from bolt_build.families.base import Candidate, Family, KernelProblem, Refusal
from bolt_build.targets import Target


def refused(family: str, region: tuple[str, ...], refusals: Iterable[Refusal]) -> tuple[Refusal, ...]:
    """Each reason once, about all nodes of a region: candidates of one problem often share theirs."""
    what = ", ".join(region)
    return tuple(Refusal(family, what, reason) for reason in dict.fromkeys(each.reason for each in refusals))


def refuse_unoffered(family: Family, problem: KernelProblem, candidate: Candidate, target: Target) -> str | None:
    """Why the family does not take the candidate, None where `Family.candidates` or `Family.variants` name it.

    For families in which neither depends on a prediction, but for the order.
    """
    offered, refusals = family.candidates(problem, target)
    if not offered:
        return refusals[0].reason
    kernels = (each for each in offered if each.compiled == candidate.compiled)
    if candidate in offered or any(candidate in family.variants(problem, each, target) for each in kernels):
        return None
    return f"{candidate} is none of its candidates"
