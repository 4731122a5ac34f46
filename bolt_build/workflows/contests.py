"""What of a built engine is measured, alone or against peers."""

from __future__ import annotations

import os
from collections.abc import Sequence

from bolt_build.bench.contest import Contest
from bolt_build.bench.contestant import Effort
from bolt_build.build.planning.engine_file import read_engine
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.schema.recipe import Recipe
from bolt_build.sizes import Dims, Sizes
from bolt_build.targets import target_named
from bolt_build.workflows.built import BuiltEngine


def plans_of(engine: BuiltEngine, wanted: Sequence[int] | None, only: Dims = ()) -> tuple[Sizes, ...]:
    """What the engine's plans are for: all, or those of the batches, and of the extents, that are wanted. Raises
    BoltError where that is none."""
    have = engine.plan.engine.plans
    found = tuple(each for each in have if (wanted is None or each.batch in wanted) and each.has(only))
    if not found and only:
        hint = f"it has: {'; '.join(map(str, have))}"
        said = ", ".join(f"{name} {extent}" for name, extent in only)
        wrong = Diagnostic("unknown-extent", f"{engine.plan.graph.recipe} has no plan for {said}", hint=hint)
        raise BoltError([wrong], ExitCode.USAGE)
    if not found:
        hint = f"it has: {', '.join(map(str, engine.plan.engine.batches))}"
        wrong = Diagnostic("unknown-batch", f"{engine.plan.graph.recipe} has none of these batches", hint=hint)
        raise BoltError([wrong], ExitCode.USAGE)
    return found


def threads_of(engine: BuiltEngine, wanted: Sequence[int] | None) -> tuple[int | None, ...]:
    """Numbers of CPU threads to measure with: those wanted, else one and all; None alone where runs take none."""
    if not target_named(engine.target).runs_on_threads:
        return (None,)
    return tuple(wanted or sorted({1, len(os.sched_getaffinity(0))}))


def contests_of(
    recipe: Recipe, engine: BuiltEngine, peers: Sequence[str], batches: Sequence[int] | None,
    threads: Sequence[int] | None, effort: Effort, only: Dims = (),
) -> tuple[Contest, ...]:  # fmt: skip
    """One contest for each number of threads that is wanted, else one with as many as the process may use.

    Raises BoltError for batches that the engine does not have.
    """
    chosen = tuple(dict.fromkeys(each.batch for each in plans_of(engine, batches, only)))
    plan = read_engine(engine.directory.engine.read_text(encoding="utf-8"))
    counts = (threads or (0,)) if target_named(engine.target).runs_on_threads else (0,)
    return tuple(
        Contest(
            plan=plan,
            library=engine.library,
            weights=engine.weights,
            model=engine.model,
            dims=recipe.model.dims,
            seed=recipe.verify.seed,
            peers=tuple(peers),
            batches=chosen,
            threads=count,
            effort=effort,
            only=only,
        )
        for count in counts
    )
