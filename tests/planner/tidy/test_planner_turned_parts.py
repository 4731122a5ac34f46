"""What is transposed only to be concatenated, and back, is concatenated along another axis."""

from __future__ import annotations

import pytest
from planner_checks import body, compare, graph, random_inputs, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.tidy.turned_parts import TURN_PARTS


def assigned(perm: str = "3,1,2,0", back: str = "3,1,2,0", more: str = "", outputs: str = "%y") -> Graph:
    """The first elements of a row, and the last of another one, as exporters assign them."""
    return graph(f"""
        graph g batch=2 (%a: f32[2,3,5,4], %b: f32[2,3,5,7]) -> ({outputs}) {{
          %ta = transpose(%a) perm=[{perm}] // "ta"
          %tb = transpose(%b) perm=[{perm}] // "tb"
          %rest = slice(%tb) begin=[4,0,0,0] count=[3,3,5,2] step=[1,1,1,1] // "rest"
          %c = concat(%ta, %rest) axis=0 // "c"
          {more}
          %y = transpose(%c) perm=[{back}] // "y"
        }}""")


def test_transposes_that_undo_each_other_are_gone() -> None:
    result = run(TURN_PARTS, assigned())
    assert said(result) == [("y", "made a concatenation", "transposes around 'c' undo each other")]
    assert [line.split("  //")[0].split(" @")[0] for line in body(result.graph).splitlines()] == [
        "%'rest.turned = slice(%b) begin=[0,0,0,4] count=[2,3,5,3] step=[1,1,1,1]",
        "%y = concat(%a, %'rest.turned) axis=3",
    ]


@pytest.mark.parametrize("zeros", ["%z", "%cut"])
def test_constants_beside_them_are_turned(zeros: str) -> None:
    """A volume of costs is zeros, and behind them what an image has shifted."""
    before = graph(f"""
        graph g batch=2 (%a: f32[2,3,5,4]) -> (%y) {{
          const %z: f32[4,3,5,2] {{{", ".join(str(n) for n in range(120))}}}
          %t = transpose(%a) perm=[3,1,2,0] // "t"
          %cut = slice(%z) begin=[1,0,0,0] count=[2,3,5,2] step=[1,1,1,1] // "cut"
          %c = concat({zeros}, %t) axis=0 // "c"
          %y = transpose(%c) perm=[3,1,2,0] // "y"
        }}""")
    result = run(TURN_PARTS, before)
    assert body(result.graph).splitlines()[-1].startswith(f"%y = concat(%'{zeros[1:]}.turned, %a) axis=3")
    inputs = random_inputs(before, 0)
    compare({"y": evaluate(result.graph, inputs)["y"]}, evaluate(before, inputs), 1e-6)


@pytest.mark.parametrize(
    "before", [assigned(back="3,2,1,0"), assigned(more='%z = neg(%c) // "z"', outputs="%y, %z")],
    ids=["another order", "another reader"],
)  # fmt: skip
def test_others_stay(before: Graph) -> None:
    assert run(TURN_PARTS, before).graph is before
