"""Who takes part in contests on the host, for `bolt_build.bench.turns`: built engines, and onnxruntime on a model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from bolt_build.bench.contest import inputs_of
from bolt_build.bench.contestant import Effort, Setup
from bolt_build.bench.rounds import Round
from bolt_build.build.planning.engine_file import read_engine
from bolt_build.planner.engine_plan import EnginePlan

SEED = 7


def plan_of(directory: Path) -> EnginePlan:
    """The plan that the engine in `directory` was emitted from."""
    return read_engine((directory / "engine.json").read_text())


def write_inputs(path: Path, plan: EnginePlan, batch: int) -> Path:
    """Seeded inputs of a batch, for every contestant; returns `path`."""
    np.savez(path, *inputs_of(plan, batch, SEED))
    return path


def setups(directory: Path, model: Path, inputs: Path, batch: int, threads: int, effort: Effort) -> dict[str, Setup]:
    """The engine in `directory`, and onnxruntime on the ONNX file it was built from, by name. No threads: each its
    default."""
    plan = plan_of(directory)
    (ports,) = (each.inputs for each in plan.plans if each.batch == batch)
    return {
        name: Setup(
            contestant=name, where="cpu", precision=plan.precision, batch=batch, threads=threads, model=str(model),
            dims=(), library=str(directory / f"lib{plan.name}.so"), weights=str(directory / f"{plan.name}.weights"),
            inputs=str(inputs), input_names=tuple(port.name for port in ports), effort=effort,
        )
        for name in ("engine", "onnxruntime")
    }  # fmt: skip


def times_of(rounds: Iterable[Round]) -> list[float]:
    """Milliseconds of every timed run."""
    return [ms for each in rounds for ms in each.times_ms]
