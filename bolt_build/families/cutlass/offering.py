"""What the kinds of kernels offer for a problem, in the order of candidates, and why there is no more."""

from __future__ import annotations

import functools

from bolt_build.families.base import Candidate, KernelProblem, Refusal
from bolt_build.families.common.tensor_cores import refuse_target
from bolt_build.families.cutlass.kinds.kind import FAMILY, Kind, Offer
from bolt_build.families.cutlass.ranking import ranked
from bolt_build.families.cutlass.registry import kind_of, kinds_for
from bolt_build.targets import Target

_TRIED = 6
"""Among so many first kernels for one operator there is one of each group."""


def refusal_of(problem: KernelProblem, target: Target) -> Refusal | None:
    """Why no kind is asked about the problem, None where some are."""
    what = problem.op.kind
    if not kinds_for(problem):
        return Refusal(FAMILY, what, f"{what} is left to other families")
    reason = refuse_target(problem, target)
    return None if reason is None else Refusal(FAMILY, what, reason)


def offered(problem: KernelProblem, target: Target) -> tuple[tuple[Offer, ...], tuple[Refusal, ...]]:
    """What all kinds offer, in the order of candidates; and why there is no more."""
    return _found(problem, target)[:2]


def reads_apart(problem: KernelProblem, target: Target) -> tuple[int, ...]:
    """Inputs whose rows every kind reads wherever they lie that offers something for the problem."""
    return _found(problem, target)[2]


@functools.lru_cache(maxsize=1024)
def _found(problem: KernelProblem, target: Target) -> tuple[tuple[Offer, ...], tuple[Refusal, ...], tuple[int, ...]]:
    """What both tell. Every node asks, and networks repeat their layers: the answer for a problem is remembered."""
    if (refusal := refusal_of(problem, target)) is not None:
        return (), (refusal,), ()
    offers = [kind.offers(problem, target) for kind in kinds_for(problem)]
    reasons = dict.fromkeys(reason for each in offers for reason in each.none)
    whole = (Refusal(FAMILY, problem.op.kind, reason) for reason in reasons)
    first = _TRIED if len(problem.op.sequence) == 1 else 0
    found = ranked([offer for each in offers for offer in each.found], first)
    offering = [kind for kind, each in zip(kinds_for(problem), offers, strict=True) if each.found]
    apart = [set(kind.reads_apart(problem)) for kind in offering]
    read = tuple(sorted(set.intersection(*apart))) if apart else ()
    return tuple(found), (*whole, *(refusal for each in offers for refusal in each.refusals)), read


def kind_for(problem: KernelProblem, candidate: Candidate) -> Kind:
    """The kind of a candidate that is one for the problem."""
    kind = kind_of(problem, candidate)
    assert kind is not None, f"{candidate} is no kernel for {problem.op.kind}"
    return kind
