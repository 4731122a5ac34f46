"""Kernels that were chosen in the whole engine, in place of those that are fastest alone: as data and as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bolt_build.digest import UNSAID
from bolt_build.families.base import Candidate
from bolt_build.lockfile.contents import LockedEngine, LockedTarget
from bolt_build.planner.engine_plan import BatchPlan
from bolt_build.planner.kernel_sources import Declined
from bolt_build.sizes import Dims, sizes_of
from bolt_build.tuning.choice.engines import EngineEvidence


@dataclass(frozen=True)
class Swapped:
    """`kernel` runs in the steps `places` though `winner` is the fastest alone; both with microseconds of one launch
    alone, None where they are not known."""

    problem: str
    places: tuple[str, ...]
    kernel: str
    alone: float | None
    winner: str
    winner_alone: float | None


@dataclass(frozen=True)
class WholeEngine:
    """Microseconds of one batch's engine, `before` with the kernels that are fastest alone and `after` with those that
    took their places, which save `gain` of the time (the median of pairs of replays in turns); of `tried` swaps and
    `plans` other plans. `other_plan`: other steps than those whose kernels take least alone. `cut_short`: the time was
    over before all was tried; a lock does not keep that."""

    batch: int
    before: float
    after: float
    gain: float
    tried: int
    plans: int
    other_plan: bool
    swapped: tuple[Swapped, ...]
    cut_short: bool = False
    dims: Dims = field(default=(), metadata=UNSAID)


def of_evidence(found: EngineEvidence, winners: Mapping[str, tuple[Candidate, float]]) -> WholeEngine:
    """What a tuning found; `winners` are by problem, with their microseconds."""
    places: dict[str, list[str]] = {}
    for step in found.table.steps:
        places.setdefault(step.problem, []).append(step.name)
    swapped = tuple(
        Swapped(problem, tuple(places[problem]), str(candidate), alone, str(winners[problem][0]), winners[problem][1])
        for problem, candidate, alone in found.swaps
    )
    return WholeEngine(
        found.table.batch, found.before.median, found.after.median, found.gain, len(found.record.tried),
        len(found.record.plans), found.other_plan, swapped, not found.record.complete, found.table.dims,
    )  # fmt: skip


def of_plan(plan: BatchPlan, graph: str, lock: LockedTarget | None, declined: Iterable[Declined]) -> WholeEngine | None:
    """What the lock says of a planned batch; None where it says nothing, or where planning `declined` its cover or its
    choice of kernels."""
    if any(sizes_of(each) == plan.sizes for each in declined):
        return None
    engines: Sequence[LockedEngine] = () if lock is None else lock.engines
    engine = next((each for each in engines if (each.batch, each.graph) == (plan.batch, graph)), None)
    if engine is None or lock is None:
        return None
    used = {(step.problem.digest, step.candidate) for step in plan.steps}
    if any((problem, candidate) not in used for problem, candidate, _ in engine.swaps):
        return None
    winners = {entry.problem: entry for entry in lock.entries}
    swapped = tuple(
        Swapped(
            problem, tuple(step.name for step in plan.steps if step.problem.digest == problem), str(candidate), alone,
            str(winners[problem].winner), winners[problem].median,
        )
        for problem, candidate, alone in engine.swaps
        if problem in winners
    )  # fmt: skip
    return WholeEngine(
        plan.batch, engine.before, engine.after, engine.gain, engine.tried, engine.plans,
        engine.in_place_of is not None, swapped, dims=plan.dims,
    )  # fmt: skip


def engine_lines(engine: WholeEngine) -> list[str]:
    """The times, and a line for each kernel that is not the fastest alone."""
    tried = f"{engine.tried} swap{'' if engine.tried == 1 else 's'} tried"
    if engine.plans:
        tried += f", {engine.plans} other plan{'' if engine.plans == 1 else 's'}"
    if engine.cut_short:
        tried += "; not all were tried: the time was over"
    head = f"whole engine of {sizes_of(engine)}: {engine.before:.1f} us with the kernels that are fastest alone"
    if not engine.swapped and not engine.other_plan:
        return [f"{head}, none faster ({tried})"]
    what = ["with another plan"] if engine.other_plan else []
    what += [f"with {len(engine.swapped)} of them replaced"] if engine.swapped else []
    lines = [f"{head}, {engine.after:.1f} us ({-engine.gain:+.2%}) {' and '.join(what)} ({tried})"]
    for each in engine.swapped:
        first, *others = each.places
        place = f"{first} (+{len(others)})" if others else first
        lines.append(f"  {place}: {_timed(each.kernel, each.alone)} for {_timed(each.winner, each.winner_alone)}")
    return lines


def all_lines(engines: Iterable[WholeEngine]) -> list[str]:
    """The lines of several."""
    return [line for engine in engines for line in engine_lines(engine)]


def _timed(kernel: str, alone: float | None) -> str:
    return kernel if alone is None else f"{kernel} ({alone:.2f} us alone)"
