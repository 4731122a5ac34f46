"""What is known of an engine and of its kernels: the plan as a build would make it, what is worth measuring, the lock,
and the records of this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bolt_build.build.builder import BuildOptions
from bolt_build.build.planning.engine_from_model import graphs_of
from bolt_build.build.planning.preparing import Preparer
from bolt_build.build.planning.target_lock import target_lock
from bolt_build.families import load
from bolt_build.families.base import Family
from bolt_build.lockfile.contents import LockedTarget
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine, search_spaces
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.targets import Target, target_named
from bolt_build.tuning.records.counting import Measurement
from bolt_build.tuning.records.database import Records
from bolt_build.tuning.trials.tuning_set import TuningSet, tuning_set


@dataclass(frozen=True)
class Evidence:
    """`source` is what the engine's kernels were chosen from: "predictions" or the name of a lock, whose part for the
    target is `lock`. `records` are measurements of `problems` on the target's GPU, of any fingerprint."""

    engine: PlannedEngine
    target: Target
    families: tuple[Family, ...]
    problems: TuningSet
    source: str
    lock: LockedTarget | None = None
    records: tuple[Measurement, ...] = ()


def gather(recipe: Recipe, spec: TargetSpec, options: BuildOptions, say: Callable[[str], None]) -> Evidence:
    """Plans one target anew, as a build does, and reads what was measured for it. Changes nothing but the zoo's model.

    Raises BoltError for what is wrong with the model, the lock or the records.
    """
    target = target_named(spec.name)
    lock = target_lock(recipe, spec, target)
    model = Preparer(recipe, options.directory(recipe), say).parsed
    say(f"planning {recipe.name} for {spec.name}")
    graphs = graphs_of(model, recipe, spec)
    families, selection = load(target), lock.selection
    engine = plan_engine(graphs, recipe, spec, target, families, selection)
    spaces = search_spaces(graphs, recipe, spec, target, families)
    problems = tuning_set(spaces, families, target, recipe.tuning.candidates)
    records = _records(recipe, target, problems, options) if target.tuned else ()
    return Evidence(engine, target, families, problems, selection.source, lock.part, records)


def _records(recipe: Recipe, target: Target, problems: TuningSet, options: BuildOptions) -> tuple[Measurement, ...]:
    path = options.local_cache.directory / "tuning" / "records.sqlite"
    if not path.exists():
        return ()
    with Records(path) as records:
        found = records.all(each.problem.digest for each in problems.problems)
    foreign = recipe.tuning.foreign
    return tuple(pair for pair in found if foreign or target.is_device(pair[0].device.name))
