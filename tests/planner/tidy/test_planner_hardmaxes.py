"""A large Hardmax is a comparison with the place of the greatest element."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.tidy.hardmaxes import COMPARE_HARDMAXES


def hardmax(shape: str, axis: int) -> Graph:
    return graph(f"""
        graph g batch=2 (%x: f32[{shape}]) -> (%y) {{
          %y = line(%x) function=hardmax axis={axis} // "y"
        }}""")


@pytest.mark.parametrize(("shape", "axis"), [("2,64,512", 2), ("2,64,512", 1), ("2,21,64,64", 1)])
def test_places_are_compared(shape: str, axis: int) -> None:
    before = hardmax(shape, axis)
    result = run(COMPARE_HARDMAXES, before)
    reason = f"each number along axis {axis} with the place of the greatest element"
    assert said(result) == [("y", "compared", reason)]
    assert [line.split(" = ")[1].split("(")[0] for line in body(result.graph).splitlines() if " = " in line][-3:] == [
        "places", "compare", "where",
    ]  # fmt: skip
    x = np.random.default_rng(5).integers(-3, 4, [int(n) for n in shape.split(",")]).astype(np.float32)
    np.testing.assert_array_equal(evaluate(result.graph, {"x": x})["y"], evaluate(before, {"x": x})["y"])


def test_a_small_one_stays() -> None:
    result = run(COMPARE_HARDMAXES, hardmax("2,5,7", 2))
    assert said(result) == [("y", "declined", "70 elements are no two steps, 65536 are")]
