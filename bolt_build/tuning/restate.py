"""Writes a recipe's lock of an earlier format anew, with all settings that its kernels have. The engines stay what they
are, and what was measured stands."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from bolt_build.build.builder import BuildOptions
from bolt_build.build.files import write_named
from bolt_build.build.planning.engine_from_model import graphs_of
from bolt_build.build.planning.preparing import Preparer
from bolt_build.families import load
from bolt_build.families.base import Candidate
from bolt_build.lockfile.contents import Lock, LockedEngine, LockedTarget, LockEntry
from bolt_build.lockfile.reading import load_lock, lock_text
from bolt_build.planner.plan_engine import search_spaces
from bolt_build.planner.selected_space import stated
from bolt_build.schema.recipe import Recipe
from bolt_build.targets import target_named

Offered = Mapping[tuple[str, str], tuple[Candidate, ...]]
"""Candidates by problem digest and family."""


def restated(part: LockedTarget, offered: Offered) -> LockedTarget:
    """A lock's part with every kernel's settings as its family offers them. A kernel of a problem that nothing offers
    stays as it is: no engine of the recipe has it."""

    def full(problem: str, candidate: Candidate) -> Candidate:
        return stated(candidate, offered.get((problem, candidate.family), ()))

    def entry(each: LockEntry) -> LockEntry:
        other = None if each.runner_up is None else full(each.problem, each.runner_up)
        return replace(each, winner=full(each.problem, each.winner), runner_up=other)

    def engine(each: LockedEngine) -> LockedEngine:
        swaps = ((problem, full(problem, kernel), median) for problem, kernel, median in each.swaps)
        return replace(each, swaps=tuple(swaps))

    entries, engines = tuple(map(entry, part.entries)), tuple(map(engine, part.engines))
    return replace(part, entries=entries, engines=engines, stated=True)


def offered_for(recipe: Recipe, target_name: str, options: BuildOptions, say: Callable[[str], None]) -> Offered:
    """What the families offer for every problem of the recipe's graphs. Raises BoltError."""
    target = target_named(target_name)
    (spec,) = (each for each in recipe.targets if each.name == target_name)
    graphs = graphs_of(Preparer(recipe, options.directory(recipe), say).parsed, recipe, spec)
    spaces = search_spaces(graphs, recipe, spec, target, load(target))
    return {(choice.problem.digest, choice.family): choice.candidates for space in spaces for choice in space.choices}


def restate(recipe: Recipe, options: BuildOptions, say: Callable[[str], None]) -> bool:
    """Write the recipe's lock anew where a part of it is of an earlier format; True where it was. Raises BoltError."""
    if recipe.tuning.lock is None or not Path(recipe.tuning.lock).exists():
        return False
    path = Path(os.path.relpath(recipe.tuning.lock))
    lock, names = load_lock(path), {spec.name for spec in recipe.targets}
    parts = tuple(
        part
        if part.stated or part.target not in names
        else restated(part, offered_for(recipe, part.target, options, say))
        for part in lock.targets
    )
    if parts == lock.targets:
        return False
    write_named(path, lock_text(Lock(parts)))
    return True
