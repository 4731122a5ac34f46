"""From a recipe to what is worth measuring for one of its targets, and back from a selection to the engine's plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bolt_build.build.layout import RecipeDirectory
from bolt_build.build.planning.engine_from_model import graphs_of
from bolt_build.build.planning.model_file import ModelFile
from bolt_build.build.planning.preparing import Preparer
from bolt_build.families import load
from bolt_build.families.base import Candidate, Family
from bolt_build.graph.ir import Graph
from bolt_build.lockfile.reading import load_lock
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine, search_spaces
from bolt_build.planner.selection import Selection
from bolt_build.planner.space import SearchSpace
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.targets import Target
from bolt_build.tuning.trials.engine_table import EngineLineup, lineup
from bolt_build.tuning.trials.tuning_set import TuningSet, tuning_set

EVERY_CANDIDATE = 1 << 30
"""A limit that leaves none out."""


@dataclass(frozen=True)
class Agenda:
    """One target of a recipe with the graphs of its batches, their search spaces, and the problems that are worth
    measuring."""

    recipe: Recipe
    spec: TargetSpec
    target: Target
    families: tuple[Family, ...]
    model: ModelFile
    graphs: tuple[Graph, ...]
    spaces: tuple[SearchSpace, ...]
    problems: TuningSet

    @cached_property
    def by_name(self) -> dict[str, Family]:
        return {family.name: family for family in self.families}

    def engine(self, selection: Selection) -> PlannedEngine:
        """The engine that a selection gives. Raises BoltError."""
        return plan_engine(self.graphs, self.recipe, self.spec, self.target, self.families, selection)

    def lineups(self, selection: Selection) -> tuple[EngineLineup, ...]:
        """The leading plans of every batch. Raises BoltError."""
        return tuple(lineup(space, selection, self.target, self.families) for space in self.spaces)


def agenda_of(
    recipe: Recipe,
    spec: TargetSpec,
    target: Target,
    directory: RecipeDirectory,
    say: Callable[[str], None],
    limit: int | None,
) -> Agenda:
    """Plan what to measure; `limit` None is the recipe's `tuning.candidates`. Raises BoltError for what is wrong with
    the model."""
    preparer = Preparer(recipe, directory, say)
    model = preparer.model
    say(f"planning the tuning of {recipe.name} for {spec.name}")
    graphs = graphs_of(preparer.parsed, recipe, spec)
    families = load(target)
    spaces = search_spaces(graphs, recipe, spec, target, families)
    wanted = recipe.tuning.candidates if limit is None else limit
    found = tuning_set(spaces, families, target, wanted, _locked(recipe, spec))
    return Agenda(recipe, spec, target, families, model, graphs, tuple(spaces), found)


def _locked(recipe: Recipe, spec: TargetSpec) -> dict[str, Candidate]:
    """The kernels of the recipe's lock by their problems' digests; none where there is no lock yet. Raises BoltError
    where the file is none."""
    if recipe.tuning.lock is None or not Path(recipe.tuning.lock).exists():
        return {}
    part = load_lock(Path(recipe.tuning.lock)).target(spec.name)
    return {} if part is None else {entry.problem: entry.winner for entry in part.entries}
