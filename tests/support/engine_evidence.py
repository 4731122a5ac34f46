"""Measurements of whole engines made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tune_sets import FIRST, SECOND

from bolt_build.families.base import Candidate
from bolt_build.planner.engine_plan import Location
from bolt_build.planner.selection import ChosenAlternative, ChosenCover
from bolt_build.tuning.records.engine_record import EngineRecord, Gain, TriedPlan, TriedSwap
from bolt_build.tuning.records.kernel_record import Statistics, Status
from bolt_build.tuning.trials.engine_table import EngineLineup, EngineTable, TableStep

GRAPH = "ab" * 32
ARENA, INPUT, OUTPUT = Location("arena", 64), Location("input", 0), Location("output", 0, 128)
TABLE = EngineTable(
    "a100", GRAPH, 1,
    (
        TableStep("conv64", FIRST.problem.digest, (INPUT, Location("weight", 0), Location("weight", 1)), (ARENA,)),
        TableStep("again\t64", FIRST.problem.digest, (ARENA, Location("weight", 2), Location("weight", 3)), (INPUT,)),
        TableStep("conv128", SECOND.problem.digest, (ARENA, Location("weight", 4), Location("weight", 5)), (OUTPUT,)),
    ),
)  # fmt: skip


OTHER = EngineTable("a100", GRAPH, 1, TABLE.steps[:1])
"""Another plan: the first convolution does it all."""


def cover_of(table: EngineTable) -> ChosenCover:
    return ChosenCover(
        table.graph, table.batch, tuple(ChosenAlternative((s.name,), "cutlass", (s.problem,)) for s in table.steps)
    )


LINEUP = EngineLineup(((TABLE, cover_of(TABLE)),))
LINEUP_OF_TWO = EngineLineup(((TABLE, cover_of(TABLE)), (OTHER, cover_of(OTHER))))


def times(median: float) -> Statistics:
    return Statistics(median, median * 0.99, median * 1.02, 0.002, 12, 1)


def played(
    base: Mapping[str, Candidate],
    swaps: Mapping[str, Candidate],
    *,
    before: float = 100.0,
    after: float = 90.0,
    table: EngineTable = TABLE,
    tried: Sequence[TriedSwap] = (),
    plan: EngineTable | None = None,
    plans: Sequence[TriedPlan] = (),
    status: Status = Status.OK,
) -> EngineRecord:
    """What came of an engine that began with `base` and ended with `swaps` in it."""
    gain = (before - after) / before
    ok = status is Status.OK
    return EngineRecord(
        table.digest, table.batch, tuple(sorted(base.items())), tuple(sorted({**base, **swaps}.items())), status,
        "" if ok else "why", times(before) if ok else None, times(after) if ok else None,
        Gain(gain, gain - 0.001, gain + 0.001, 12) if ok else None, 0.003, tuple(tried), True,
        (plan or table).digest, tuple(plans),
    )  # fmt: skip


def swapped(problem: str, candidate: Candidate, *, before: float = 100.0, after: float = 90.0) -> TriedSwap:
    """A swap that was kept."""
    gain = (before - after) / before
    return TriedSwap(
        problem, candidate, Status.OK, "", before, after, Gain(gain, gain - 0.001, gain + 0.001, 12), kept=True
    )  # fmt: skip
