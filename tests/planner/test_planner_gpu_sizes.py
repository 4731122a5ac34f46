"""Tensors and engines that are too large for a GPU are refused when they are planned, not when they run."""

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

STEPS = {
    "an activation": "%y = relu(%x)",
    "a sum of each line": '%y = reduce(%x) mode="sum" axes=[1] keepdims=false',
    "a softmax": "%y = softmax(%x) axis=1",
    "a transpose": "%y = transpose(%x) perm=[1,0]",
    "a part": "%y = slice(%x) begin=[0,0] count=[4,8] step=[1,1]",
    "a product": "const %w: f16[1024,8]\n          %y = matmul(%x, %w)",
}


def planned(rows: int, step: str, target: Target, columns: int = 1024) -> tuple[str, ...]:
    """The messages of what is refused."""
    *consts, last = (line.strip() for line in step.splitlines())
    text = "\n".join((f"graph g batch=1 (%x: f16[{rows},{columns}]) -> (%y) {{", *consts, f'{last} // "y"', "}"))
    try:
        plan_engine([graph(text)], recipe(), TargetSpec(target.name, "fp16"), target, load(target))
    except BoltError as error:
        return tuple(each.message for each in error.diagnostics)
    return ()


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("target", ["b200", "h200", "t4"])
def test_a_tensor_that_kernels_cannot_count_has_none(name: str, target: str) -> None:
    (said,) = planned(1 << 21, STEPS[name], target_named(target))
    assert said.startswith("no kernel for node 'y', ")
    assert said.endswith(
        "portable: a tensor of 2147483648 elements is more than the 2147483647 that kernels can count:"
        " bind a smaller batch or smaller dimensions"
    )


@pytest.mark.parametrize("name", STEPS)
def test_a_smaller_one_has_a_kernel(name: str) -> None:
    assert planned((1 << 21) - 8, STEPS[name], target_named("b200")) == ()


def test_what_moves_nothing_counts_nothing() -> None:
    assert planned(1 << 21, "%y = reshape(%x) shape=[1024,2097152]", target_named("h200")) == ()


def test_hosts_count_in_64_bits() -> None:
    text = 'graph g batch=1 (%x: f32[4194304,1024]) -> (%y) {\n %y = relu(%x) // "y"\n }'
    host = target_named("host")
    assert plan_engine([graph(text)], recipe(), TargetSpec("host", "fp32"), host, load(host)).plan.plans


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
