"""Runner programs of two small engines, built once for all workers of a run of tests, and how they are called."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from shared_folders import entered
from tiny_engine import build_engine, build_runner, operand, ports_plan, tiny_constants, tiny_plan

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array, Layout
from bolt_build.planner.engine_plan import EnginePlan
from bolt_build.runtime import names

X = np.random.RandomState(0).standard_normal((4, 3, 5)).astype(np.float32)
"""Inputs of the engine of `tiny_plan`."""

PORTS = (
    ("f32", operand((2, 3, 4))), ("f16", operand((2, 64), DType.F16)), ("bf16", operand((2, 64), DType.BF16)),
    ("f64", operand((2,), DType.F64)), ("i64", operand((2, 3), DType.I64)), ("i32", operand((2, 3), DType.I32)),
    ("i8", operand((2, 3), DType.I8)), ("u8", operand((2, 3), DType.U8)), ("bool", operand((2, 3), DType.BOOL)),
    ("nhwc", operand((2, 3, 4, 5), layout=Layout.CHANNELS_LAST)), ("none", operand((2, 0))),
)  # fmt: skip
"""Those of the engine that copies them."""


def tiny_runner() -> Path:
    """The runner of `tiny_plan`, engine and weights beside it."""
    return _built("tiny", tiny_plan(), tiny_constants())


def ports_runner() -> Path:
    """The runner of an engine that copies ports of every element type."""
    return _built("ports", ports_plan(PORTS), ())


def _built(name: str, plan: EnginePlan, constants: Sequence[Array]) -> Path:
    with entered(f"runner-{name}") as folder:
        program = folder / names.runner(plan.name)
        return program if program.exists() else build_runner(build_engine(folder, plan, constants), plan)


def run(program: Path, *arguments: object, cwd: Path | None = None) -> tuple[int, str, str]:
    """Exit code, and what it says on both streams."""
    words = [str(program), *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=cwd)
    return done.returncode, done.stdout, done.stderr
