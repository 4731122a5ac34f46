"""Small integers are put in order as integers of 8 bits."""

from __future__ import annotations

from planner_checks import body, graph, run, said, same_values

from bolt_build.dtypes import DType
from bolt_build.planner.passes.rows.narrow_places import NARROW_PLACES
from bolt_build.targets import target_named

SORTED = """
    graph g batch=1 (%x: f32[{rows},{extent}]) -> (%v, %p) {{
      %e = places(%x) axis=1 count=1 // "e"
      %r = reshape(%e) shape=[{rows}] // "r"
      %p = places(%r) axis=0 count={rows} greatest=false // "p"
      %v = gather_elements(%r, %p) axis=0 // "v"
    }}"""


def test_numbers_of_experts_are_sorted_in_8_bits() -> None:
    before = graph(SORTED.format(rows=200, extent=16))
    result = run(NARROW_PLACES, before)
    same_values(before, result.graph)
    assert said(result) == [("p", "ordered in 8 bits", "its elements lie between 0 and 15")]
    (places,) = [node for node in result.graph.nodes if node.name == "p"]
    assert result.graph.type(places.inputs[0]).dtype is DType.U8
    (taken,) = [node for node in result.graph.nodes if node.name == "v"]
    assert taken.inputs == (places.inputs[0], "p")
    assert body(result.graph).count("cast") == 2


def test_few_or_larger_numbers_stay() -> None:
    for rows, extent in ((100, 16), (200, 300)):
        assert run(NARROW_PLACES, graph(SORTED.format(rows=rows, extent=extent))).decisions == ()


def test_it_is_for_gpus() -> None:
    assert NARROW_PLACES.pays_on is not None
    assert NARROW_PLACES.pays_on(target_named("t4"), "fp32")
    assert not NARROW_PLACES.pays_on(target_named("host"), "fp32")
