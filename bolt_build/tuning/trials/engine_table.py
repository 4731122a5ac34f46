"""An engine's plan for one batch as a table of launches: what it takes to play it without the engine.

Kernels are left open: a table names problems, and whoever plays it says which candidate solves each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from bolt_build.digest import UNSAID, digest
from bolt_build.families.base import Family
from bolt_build.planner.engine_plan import BatchPlan, Location
from bolt_build.planner.plan_engine import PlannedEngine, planned_batch
from bolt_build.planner.selection import ChosenCover, Selection
from bolt_build.planner.space import SearchSpace
from bolt_build.sizes import Dims, Sizes, sizes_of
from bolt_build.targets import Target
from bolt_build.tuning.trials.leading_covers import leading_covers


@dataclass(frozen=True)
class TableStep:
    """One launch: the digest of its problem, and where its operands lie, in the problem's order."""

    name: str
    problem: str
    inputs: tuple[Location, ...]
    outputs: tuple[Location, ...]


@dataclass(frozen=True)
class EngineTable:
    """The launches of one batch in the order of the engine's queue; views, which launch nothing, are left out.

    `graph` is the digest of the optimised graph's structure. Constants are counted in the order in which steps read
    them, so that a batch's table does not depend on which others its engine has.
    """

    target: str
    graph: str
    batch: int
    steps: tuple[TableStep, ...]
    dims: Dims = field(default=(), metadata=UNSAID)

    @cached_property
    def digest(self) -> str:
        """What a measurement of the engine is kept by: another order or place of a tensor is another engine. What
        other extents a dimension has is no matter."""
        return digest(replace(self, dims=()))

    @cached_property
    def problems(self) -> tuple[str, ...]:
        """Digests of the problems, each once, in the order of their first steps."""
        return tuple(dict.fromkeys(step.problem for step in self.steps))


@dataclass(frozen=True)
class EngineLineup:
    """The plans of one batch, each as a table and as the cover that it comes from: first that of the problems' winners,
    then others whose kernels take nearly as little."""

    plans: tuple[tuple[EngineTable, ChosenCover], ...]

    @property
    def table(self) -> EngineTable:
        """The first plan's, by whose digest the engine is called."""
        return self.plans[0][0]

    @property
    def tables(self) -> tuple[EngineTable, ...]:
        return tuple(table for table, _ in self.plans)

    @property
    def batch(self) -> int:
        return self.table.batch

    @property
    def sizes(self) -> Sizes:
        """What its plans are for, of all that the engine has plans for."""
        return sizes_of(self.table)

    @property
    def problems(self) -> tuple[str, ...]:
        """Digests of the problems of all plans, each once."""
        return problems_of_tables(self.tables)

    def plan(self, digest: str) -> tuple[EngineTable, ChosenCover] | None:
        """The plan whose table has this digest."""
        return next((each for each in self.plans if each[0].digest == digest), None)

    def kept(self, tables: Collection[EngineTable]) -> EngineLineup:
        """With these plans alone; the first is always kept."""
        first, *others = self.plans
        return EngineLineup((first, *(each for each in others if each[0] in tables)))


def engine_tables(engine: PlannedEngine) -> tuple[EngineTable, ...]:
    """A table for each batch of the engine, in its order."""
    plans = zip(engine.plan.plans, engine.covers, strict=True)
    return tuple(_table(engine.plan.target, cover.graph, plan) for plan, cover in plans)


def lineup(space: SearchSpace, selection: Selection, target: Target, families: Sequence[Family]) -> EngineLineup:
    """The plans of one batch that lead with the selection's winners. Raises BoltError."""
    found = []
    for leading in leading_covers(space, selection, target, families):
        plan, cover = planned_batch(space, replace(selection, covers=(leading,), engines=()), target, families)
        found.append((_table(target.name, cover.graph, plan), cover))
    return EngineLineup(tuple({table.digest: (table, cover) for table, cover in reversed(found)}.values())[::-1])


def problems_of_tables(tables: Iterable[EngineTable]) -> tuple[str, ...]:
    """Digests of the problems of all tables, each once."""
    return tuple(dict.fromkeys(problem for table in tables for problem in table.problems))


def _table(target: str, graph: str, plan: BatchPlan) -> EngineTable:
    weights: dict[int, int] = {}

    def place(location: Location) -> Location:
        if location.kind != "weight":
            return location
        return replace(location, at=weights.setdefault(location.at, len(weights)))

    steps = (
        TableStep(
            step.name, step.problem.digest, tuple(place(tensor.location) for tensor in step.inputs),
            tuple(place(tensor.location) for tensor in step.outputs),
        )
        for step in plan.steps
        if not step.view
    )  # fmt: skip
    return EngineTable(target, graph, plan.batch, tuple(steps), plan.dims)
