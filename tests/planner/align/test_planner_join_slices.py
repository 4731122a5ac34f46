"""A tensor of which a slice is concatenated is concatenated as a whole, and what was meant is a slice of that."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.align.join_slices import JOIN_SLICES
from bolt_build.targets import target_named

BLOCK = """
    graph g batch=2 (%x: f32[2,16,5,3]) -> (%y{out}) {{
      const %w: f32[{all},16,1,1]
      const %v: f32[{new},{half},3,3]
      const %u: f32[24,{both},1,1]
      %t = conv(%x, %w) | relu // "t"
      %a = slice(%t) begin=[0,{a},0,0] count=[2,{half},5,3] step=[1,1,1,1] // "a"
      %b = slice(%t) begin=[0,{b},0,0] count=[2,{half},5,3] step=[1,1,1,1] // "b"
      %c = conv(%b, %v) pads_begin=[1,1] pads_end=[1,1] // "c"
      %d = concat({parts}) axis=1 // "d"
      %y = {reads} // "y"
    }}"""


def block(**parts: object) -> Graph:
    """A cross-stage block: half of a tensor beside what is computed of the other half."""
    sizes = {"all": 16, "half": 8, "new": 24, "both": 32, "a": 0, "b": 8, "parts": "%a, %c", "out": ""}
    return graph(BLOCK.format(**sizes | {"reads": "conv(%d, %u) | relu"} | parts))


def agrees(before: Graph, after: Graph) -> None:
    x = {"x": np.random.default_rng(1).standard_normal(before.type("x").shape).astype(np.float32)}
    wanted, found = evaluate(before, x), evaluate(after, x)
    for name in before.outputs:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("parts", "concatenated", "begin"),
    [
        ({}, ("c", "t"), 0),
        ({"parts": "%c, %a"}, ("c", "t"), 0),
        ({"a": 8, "b": 0}, ("t", "c"), 8),
        ({"a": 8, "b": 0, "parts": "%c, %a"}, ("t", "c"), 8),
    ],
    ids=["first half", "first half behind", "second half", "second half behind"],
)
def test_the_whole_tensor_lies_where_its_slice_is_beside_the_others(
    parts: dict[str, object], concatenated: tuple[str, ...], begin: int
) -> None:
    before = block(**parts)
    result = run(JOIN_SLICES, before)
    assert said(result) == [("d", "joined", "with all of 't', of which it had 'a'")]
    whole, read = (node for node in result.graph.nodes if "d" in node.covers)
    assert (whole.op.kind, whole.inputs) == ("concat", concatenated)
    assert (read.op.kind, read.op.begin[1], read.op.count[1]) == ("slice", begin, 32)  # type: ignore[attr-defined]
    assert [node.name for node in result.graph.nodes if node.op.kind == "slice"] == ["b", "d"]
    agrees(before, result.graph)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"all": 20, "half": 10, "b": 10, "both": 34}, "not all of its parts begin at multiples of 8 channels"),
        ({"reads": "softmax(%d) axis=1"}, "is read by 'y', softmax"),
        ({"out": ", %t"}, "'t' is stored where others want it"),
        ({"parts": "%a, %t", "both": 24}, "has one tensor twice"),
        ({"parts": "%a, %x", "both": 24}, "'x' is stored where others want it"),
    ],
)
def test_where_it_would_have_to_be_copied_it_stays(parts: dict[str, object], reason: str) -> None:
    before = block(**parts)
    result = run(JOIN_SLICES, before)
    assert result.graph == before
    assert said(result) == [("d", "declined", f"has channels of 't', but {reason}")]


def test_a_slice_from_the_middle_stays_one() -> None:
    before = block(all=24, a=8, b=16)
    result = run(JOIN_SLICES, before)
    assert (result.graph, said(result)) == (before, [])


def test_it_pays_where_kernels_read_rows_wherever_they_lie() -> None:
    pays = JOIN_SLICES.pays_on
    assert pays is not None
    assert [pays(target_named(name), "fp16") for name in ("h200", "a100", "t4")] == [True] * 3
    assert not pays(target_named("host"), "fp32")
