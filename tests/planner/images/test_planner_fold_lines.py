"""Long windows over images of one channel become windows over blocks of eight places."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.images import fold_lines
from bolt_build.planner.passes.images.fold_lines import FOLD_LINES
from bolt_build.targets import target_named


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_lines, "_FEW", 1)


def long(
    kernel: str = "1,16", x: str = "2,1,3,32", pads: str = "0,8", ends: str = "", behind: str = "", **sides: str
) -> Graph:
    words = " ".join(f"{name}=[{value}]" for name, value in sides.items())
    return graph(f"""
        graph g batch=2 (%x: f32[{x}]) -> (%y) {{
          const %w: f32[5,1,{kernel}] #
          const %b: f32[5] #
          %y = conv(%x, %w, %b) {words} pads_begin=[{pads}] pads_end=[{ends or pads}] {behind} // "c"
        }}""")


def agrees(before: Graph, after: Graph) -> None:
    random = np.random.default_rng(1)
    x = {name: random.standard_normal(before.type(name).shape).astype(np.float32) for name in before.inputs}
    np.testing.assert_allclose(evaluate(after, x)["y"], evaluate(before, x)["y"], rtol=1e-5, atol=1e-5)


def test_neighbours_become_channels_of_an_image_whose_channels_come_last() -> None:
    before = long(ends="0,7", behind="| relu")
    result = run(FOLD_LINES, before)
    assert body(result.graph) == (
        "%'c.blocks = reshape(%x) shape=[2,3,4,8]\n"
        "%'c.turned1 = transpose(%'c.blocks) perm=[0,3,1,2]\n"
        "%'c.wide = conv(%'c.turned1, %'w.lines, %'b.lines) strides=[1,1] pads_begin=[0,1] pads_end=[0,1] "
        'dilations=[1,1] | relu @c.wide  // "c"\n'
        "%'c.last3 = transpose(%'c.wide) perm=[0,2,3,1]\n"
        "%'c.lines4 = reshape(%'c.last3) shape=[2,3,32,5]\n"
        "%y = transpose(%'c.lines4) perm=[0,3,1,2] @c"
    )
    assert said(result) == [("c", "made channels of neighbours", "a window of 16 places is one of 3 blocks of 8")]
    agrees(before, result.graph)


@pytest.mark.parametrize(
    ("before", "kinds"),
    [
        (long(), "reshape transpose conv transpose reshape transpose slice"),
        (long(x="2,1,3,30"), "pad reshape transpose conv transpose reshape transpose slice"),
        (long("3,21", "2,1,6,40", "1,10", strides="2,1"), "reshape transpose conv transpose reshape transpose"),
        (long("1,17", "1,1,2,64", "0,16", dilations="1,2"), "reshape transpose conv transpose reshape transpose"),
        (long("33", "2,1,48", "16"), "reshape transpose conv transpose reshape transpose"),
        (long("33", "2,1,48", "0"), "reshape transpose conv transpose reshape transpose"),
        (long("32", "2,1,120", "0", strides="8"), "reshape transpose conv"),
        (long("40", "2,1,100", "20", strides="16"), "pad reshape transpose conv"),
        (long("24", "2,1,103", "3", strides="3"), "pad reshape transpose conv transpose reshape transpose slice"),
        (long("16", "2,1,61", "0", strides="16"), "slice reshape transpose conv"),
        (long("20,3", "2,1,32,7", "10,1"), "rearrange conv rearrange slice"),
        (long("20,3", "2,1,34,7", "10,1", strides="16,2"), "pad rearrange conv"),
        (long("20,3", "2,1,30,7", "0,0"), "pad rearrange conv rearrange slice"),
    ],
)
def test_windows_of_many_kinds(before: Graph, kinds: str) -> None:
    result = run(FOLD_LINES, before)
    assert " ".join(node.op.kind for node in result.graph.nodes) == kinds
    assert result.graph.nodes[-1].name == "c"
    agrees(before, result.graph)


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (long("1,15", pads="0,7"), None),
        (long("16", "2,1,32", "0", strides="2"), "its window moves by 2, and these phases are channels already"),
        (long("16", "2,1,64", "0", strides="7"), "its blocks of 56 places would be zeros for the most part"),
        (long("3,15", pads="1,7"), None),
        (long("16", "2,1,10", "100", "0", strides="128"), "its windows read zeros around the image alone"),
    ],
)
def test_what_stays(before: Graph, reason: str | None) -> None:
    result = run(FOLD_LINES, before)
    assert result.graph == before
    assert [line[2] for line in said(result)] == ([] if reason is None else [reason])


def test_few_results_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_lines, "_FEW", 1 << 18)
    result = run(FOLD_LINES, long())
    assert said(result) == [("c", "declined", "it leaves 990 results, 262144 at least are worth it")]


@given(
    st.integers(16, 40), st.integers(20, 70), st.integers(0, 20), st.integers(0, 20), st.integers(1, 2),
    st.sampled_from([1, 1, 3, 5, 6, 8, 12, 16, 24]),
)  # fmt: skip
@settings(max_examples=40)
def test_any_window_of_any_line(taps: int, places: int, before: int, behind: int, gap: int, step: int) -> None:
    assume(places + before + behind > (taps - 1) * gap)
    given_graph = long(str(taps), f"1,1,{places}", str(before), str(behind), dilations=str(gap), strides=str(step))
    agrees(given_graph, run(FOLD_LINES, given_graph).graph)


def test_it_pays_on_tensor_cores() -> None:
    pays = FOLD_LINES.pays_on
    assert pays is not None
    kinds = [("h200", "fp16"), ("a100", "bf16"), ("t4", "fp16"), ("h200", "fp32"), ("host", "fp32")]
    assert [pays(target_named(name), precision) for name, precision in kinds] == [True, True, True, False, False]
