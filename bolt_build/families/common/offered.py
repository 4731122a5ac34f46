"""Which candidates a family takes that offers each of its own, or as a variant of one that it offers."""

from __future__ import annotations

from bolt_build.families.base import Candidate, Family, KernelProblem
from bolt_build.targets import Target


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
