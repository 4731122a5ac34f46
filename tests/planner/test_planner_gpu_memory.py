"""Engines that are too large for the memory of their GPU are refused when they are planned, not when they run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planner_checks import graph
from planner_fakes import recipe

from bolt_build.errors import BoltError
from bolt_build.families import load
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import CUDA, Target, target_named


@pytest.mark.parametrize("row", CUDA, ids=lambda row: row.name)
def test_every_row_says_how_much_memory_it_has(row: Target) -> None:
    assert row.gpu is not None
    assert row.gpu.memory >= 16 << 30


def test_an_engine_beyond_the_memory_of_its_gpu_is_refused_for_each_size() -> None:
    row = target_named("t4")
    assert row.gpu is not None
    small = replace(row, gpu=replace(row.gpu, memory=3 << 20))
    graphs = [
        graph(f"""
        graph g batch={batch} (%x: f16[{batch},1024]) -> (%y) {{
          const %w: f16[1024,1024]
          %h = matmul(%x, %w) // "h"
          %r = relu(%h) // "r"
          %y = matmul(%r, %w) // "y"
        }}""")
        for batch in (8, 256, 4096)
    ]
    with pytest.raises(BoltError) as raised:
        plan_engine(graphs, recipe(), TargetSpec("t4", "fp16"), small, load(small))
    needed = [
        "batch 256 needs 3.5 MiB of memory (weights 2.0 MiB, arena 0.5 MiB, inputs and outputs 1.0 MiB)",
        "batch 4096 needs 26.0 MiB of memory (weights 2.0 MiB, arena 8.0 MiB, inputs and outputs 16.0 MiB)",
    ]
    hint = "bind a smaller batch or smaller dimensions, or take a target with more memory"
    assert [(each.code, each.message, each.hint) for each in raised.value.diagnostics] == [
        ("gpu-memory", f"{each}, and 't4' has 3.0 MiB at most", hint) for each in needed
    ]
    for enough in (32 << 20, 0):
        large = replace(row, gpu=replace(row.gpu, memory=enough))
        assert plan_engine(graphs, recipe(), TargetSpec("t4", "fp16"), large, load(large)).plan.plans
