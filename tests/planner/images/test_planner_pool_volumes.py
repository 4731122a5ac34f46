"""Poolings over three axes become ones over two, where kernels let windows share what they read."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.images.pool_volumes import POOL_VOLUMES

APART = ["fold-depth", "pool", "unfold-depth", "reshape", "pool", "reshape"]


def pooled(kernel: str, strides: str, pads: str, mode: str = "max", more: str = "") -> Graph:
    sides = f"pads_begin=[{pads}] pads_end=[{pads}]"
    return graph(f"""
        graph g batch=2 (%x: f32[2,3,6,9,7]) -> (%y) {{
          %y = pool(%x) mode={mode} kernel=[{kernel}] strides=[{strides}] {sides} {more} // "p"
        }}""")


@pytest.mark.parametrize(
    ("before", "left", "what"),
    [
        (pooled("1,3,3", "1,2,2", "0,1,1"), ["fold-depth", "pool", "unfold-depth"], "flattened"),
        (
            pooled("1,3,2", "1,1,2", "0,1,1", "average", "count_include_pad=true"),
            ["fold-depth", "pool", "unfold-depth"], "flattened",
        ),
        (pooled("3,3,3", "1,1,1", "1,1,1"), APART, "taken apart"),
        (pooled("3,3,3", "2,2,2", "1,1,0", more="ceil_mode=true"), APART, "taken apart"),
        (pooled("2,3,3", "1,2,1", "1,0,1", more="dilations=[2,1,3]"), APART, "taken apart"),
    ],
)  # fmt: skip
def test_volumes_are_pooled_as_images(before: Graph, left: list[str], what: str) -> None:
    result = run(POOL_VOLUMES, before)
    assert [node.op.kind for node in result.graph.nodes] == left
    assert [action for _, action, _ in said(result)] == [what]
    x = {"x": np.random.default_rng(1).standard_normal(before.type("x").shape).astype(np.float32)}
    np.testing.assert_array_equal(evaluate(result.graph, x)["y"], evaluate(before, x)["y"])


@pytest.mark.parametrize(
    "before",
    [
        pooled("2,2,2", "2,2,2", "0,0,0"),
        pooled("3,1,1", "1,1,1", "1,0,0"),
        pooled("3,3,3", "1,1,1", "1,1,1", "average"),
        pooled("1,3,3", "2,1,1", "0,1,1"),
    ],
)
def test_others_stay(before: Graph) -> None:
    """Windows that hardly overlap, over one axis, of means, and of each second depth."""
    assert run(POOL_VOLUMES, before).graph == before
