"""What of a built engine is measured, alone or against peers."""

from __future__ import annotations

import os
from collections.abc import Sequence

from bolt_build.bench.contest import Contest
from bolt_build.bench.contestant import Effort
from bolt_build.build.engine_file import read_engine
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.schema.recipe import Recipe
from bolt_build.targets import target_named
from bolt_build.workflows.built import BuiltEngine


def batches_of(engine: BuiltEngine, wanted: Sequence[int] | None) -> tuple[int, ...]:
    """The engine's batches, or those of them that are wanted. Raises BoltError where that is none."""
    have = engine.plan.engine.batches
    batches = tuple(batch for batch in have if wanted is None or batch in wanted)
    if not batches:
        hint = f"it has: {', '.join(map(str, have))}"
        wrong = Diagnostic("unknown-batch", f"{engine.plan.graph.recipe} has none of these batches", hint=hint)
        raise BoltError([wrong], ExitCode.USAGE)
    return batches


def threads_of(engine: BuiltEngine, wanted: Sequence[int] | None) -> tuple[int | None, ...]:
    """Numbers of CPU threads to measure with: those wanted, else one and all; None alone where runs take none."""
    if not target_named(engine.target).runs_on_threads:
        return (None,)
    return tuple(wanted or sorted({1, len(os.sched_getaffinity(0))}))


def contests_of(
    recipe: Recipe, engine: BuiltEngine, peers: Sequence[str], batches: Sequence[int] | None,
    threads: Sequence[int] | None, effort: Effort,
) -> tuple[Contest, ...]:  # fmt: skip
    """One contest for each number of threads that is wanted, else one with as many as the process may use.

    Raises BoltError for batches that the engine does not have.
    """
    chosen = batches_of(engine, batches)
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
        )
        for count in counts
    )
