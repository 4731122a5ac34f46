"""Windows of few filters compute eight neighbours at once, on GPUs whose tiles have many columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.images import fold_results
from bolt_build.planner.passes.images.fold_results import FOLD_RESULTS, gain
from bolt_build.targets import target_named


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_results, "_FEW", 1)


def few(filters: int = 3, kernel: str = "3,3", x: str = "2,8,4,16", pads: str = "1,1,1,1", **sides: str) -> Graph:
    top, left, bottom, right = pads.split(",")
    words = " ".join(f"{name}=[{value}]" for name, value in sides.items())
    return graph(f"""
        graph g batch=2 (%x: f32[{x}]) -> (%y) {{
          const %w: f32[{filters},{x.split(",")[1]},{kernel}] #
          const %b: f32[{filters}] #
          %y = conv(%x, %w, %b) {words} pads_begin=[{top},{left}] pads_end=[{bottom},{right}] | tanh // "c"
        }}""")


def agrees(before: Graph, after: Graph) -> None:
    x = {"x": np.random.default_rng(1).standard_normal(before.type("x").shape).astype(np.float32)}
    np.testing.assert_allclose(evaluate(after, x)["y"], evaluate(before, x)["y"], rtol=1e-4, atol=1e-5)


def test_filters_of_neighbours_are_shifted_and_the_window_moves_by_eight() -> None:
    before = few()
    result = run(FOLD_RESULTS, before)
    assert body(result.graph) == (
        "%'c.wide = conv(%x, %'w.neighbours, %'b.neighbours) strides=[1,8] pads_begin=[1,1] pads_end=[1,1] "
        'dilations=[1,1] | tanh @c.wide  // "c"\n'
        "%y = rearrange(%'c.wide) split=[2,8,3,4,2] perm=[0,2,3,4,1] whole=[2,3,4,16] begin=0 shape=[2,3,4,16] @c"
    )
    assert said(result) == [
        ("c", "made channels of the results of 8 columns", "3 filters leave most columns of a tile idle"),
    ]
    agrees(before, result.graph)


@given(
    st.integers(1, 4), st.integers(1, 3), st.integers(3, 9), st.integers(9, 30), st.integers(0, 4), st.integers(0, 4)
)
@settings(max_examples=25)
def test_any_window_of_any_image(filters: int, high: int, wide: int, columns: int, left: int, right: int) -> None:
    before = few(filters, f"{high},{wide}", f"1,8,5,{columns}", f"0,{left},0,{right}", strides="2,1")
    result = run(FOLD_RESULTS, before)
    assert result.graph != before
    agrees(before, result.graph)


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (few(kernel="1,1", pads="0,0,0,0"), None),
        (few(filters=16), None),
        (few(x="2,4,4,16"), None),
        (few(strides="1,2"), "its windows move by several columns, or leave some out"),
        (few(dilations="1,2"), "its windows move by several columns, or leave some out"),
    ],
)
def test_what_stays(before: Graph, reason: str | None) -> None:
    result = run(FOLD_RESULTS, before)
    assert result.graph == before
    assert said(result) == ([] if reason is None else [("c", "declined", reason)])


def test_few_results_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_results, "_FEW", 1 << 18)
    assert said(run(FOLD_RESULTS, few())) == [
        ("c", "declined", "it leaves 384 results, 262144 at least are worth it"),
    ]


@pytest.mark.parametrize(
    ("filters", "taps", "times"), [(3, 9, 4.5), (1, 3, 2.4), (4, 5, 10 / 3), (8, 9, 2.25), (5, 3, 1.2), (3, 1, 1.0)]
)
def test_columns_that_are_multiplied_become_fewer(filters: int, taps: int, times: float) -> None:
    assert gain(filters, taps) == pytest.approx(times)


def test_it_pays_where_tiles_have_many_columns() -> None:
    pays = FOLD_RESULTS.pays_on
    assert pays is not None
    kinds = [("h200", "fp16"), ("a100", "bf16"), ("t4", "fp16"), ("a100", "fp32"), ("host", "fp32")]
    assert [pays(target_named(name), precision) for name, precision in kinds] == [False, True, True, False, False]
