"""Which steps of a plan leave most of the hardware unused, and why: so that no engine is slow without a word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bolt_build.families.base import Family, Refusal, bound
from bolt_build.planner.engine_plan import SlowSteps
from bolt_build.planner.schedule import ScheduledStep
from bolt_build.planner.selected_space import Winners
from bolt_build.planner.space import SearchSpace
from bolt_build.targets import Target

SHARE = 0.1
"""Of an engine's time: what takes less is not worth a line."""

REACHED = 0.25
"""Of the bound: a kernel that reaches more is no stranger to the hardware."""

CLIFF, CLIFF_SHARE = 0.05, 0.01
"""Of the bound, and of an engine's time: kernels that reach as little are worth a line sooner, for a larger model or
batch has more of them."""


@dataclass(frozen=True)
class _Timed:
    step: str
    kernel: str
    reasons: tuple[str, ...]
    seconds: float
    bound: float
    measured: bool


def slow_steps(
    space: SearchSpace, steps: Sequence[ScheduledStep], winners: Winners, target: Target, families: Sequence[Family]
) -> tuple[SlowSteps, ...]:
    """The steps of a batch at under a quarter of their bound, together where kernel and reasons are the same, if that
    is over a tenth of the batch's time; and those at under a twentieth, if that is over a hundredth. What takes most
    comes first.

    Steps count together because a network repeats its layers: sixteen of six percent are as slow as one of them all.
    """
    refusals: dict[str, list[Refusal]] = {}
    for refusal in space.refusals:
        refusals.setdefault(refusal.what, []).append(refusal)
    timed = [_timed(step, refusals.get(step.name, []), winners, target, families) for step in steps if not step.view]
    total = sum(each.seconds for each in timed)
    groups: dict[tuple[str, tuple[str, ...]], list[_Timed]] = {}
    for each in timed:
        if each.bound < REACHED * each.seconds:
            groups.setdefault((each.kernel, each.reasons), []).append(each)
    found = []
    for (kernel, reasons), group in groups.items():
        seconds, share = sum(each.seconds for each in group), SHARE
        if seconds <= SHARE * total:
            group, share = [each for each in group if each.bound < CLIFF * each.seconds], CLIFF_SHARE
            seconds = sum(each.seconds for each in group)
        if seconds > share * total:
            group.sort(key=lambda each: -each.seconds)
            found.append(
                SlowSteps(
                    space.graph.batch, tuple(each.step for each in group), kernel, reasons, seconds / total, seconds,
                    sum(each.bound for each in group), all(each.measured for each in group), space.graph.dims,
                )
            )  # fmt: skip
    return tuple(sorted(found, key=lambda each: -each.seconds))


def _timed(
    step: ScheduledStep, refusals: Sequence[Refusal], winners: Winners, target: Target, families: Sequence[Family]
) -> _Timed:
    """`refusals`: those about the step's node."""
    winner = winners.get(step.problem)
    measured = winner is not None and winner.candidate == step.candidate
    if winner is not None and measured:
        seconds = winner.seconds
    else:
        family = next(family for family in families if family.name == step.candidate.family)
        seconds = family.predict(step.problem, step.candidate, target)
    others = (each for each in refusals if each.family != step.candidate.family)
    reasons = tuple(dict.fromkeys(f"{each.family}: {each.reason}" for each in others))
    return _Timed(step.name, str(step.candidate), reasons, seconds, bound(step.problem, target), measured)
