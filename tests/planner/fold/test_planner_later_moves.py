"""Arithmetic behind the transpose that makes channels the second axis, done before it, where a product can do it."""

from __future__ import annotations

import pytest
from planner_checks import body, compare, graph, random_inputs, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.fold.later_moves import MOVE_LATER


def behind(*lines: str, outputs: str = "(%z)", residual: str = "conv(%x, %w)") -> Graph:
    """A product of %h, whose 6 columns a transpose makes channels, and these nodes behind it."""
    made = "\n".join(f'{line} // "{line.split()[0][1:]}"' for line in lines)
    return graph(f"""
        graph g batch=2 (%h: f32[2,4,5,8], %x: f32[2,3,4,5], %r: f32[2,6,4,5]) -> {outputs} {{
          const %u: f32[8,6]
          const %w: f32[6,3,1,1]
          const %s: f32[6,1,1]
          const %two: f32[]
          const %rows: f32[4,1]
          %c = {residual} // "c"
          %m = matmul(%h, %u) // "m"
          %t = transpose(%m) perm=[0,3,1,2] // "t"
          {made}
        }}""")


BEFORE = "the transpose 't', where a product can do it"
BLOCK = ("%y = mul(%s, %t)", "%z = add(%y, %c)")


def test_a_factor_a_channel_and_the_residual_are_computed_where_the_product_left_its_rows() -> None:
    result = run(MOVE_LATER, behind(*BLOCK))
    assert body(result.graph).splitlines()[-4:] == [
        """%'y.before = mul(%'s.before, %m)  // "y\"""",
        """%'c.before = transpose(%c) perm=[0,2,3,1] @z.residual""",
        """%'z.before = add(%'y.before, %'c.before)  // "z\"""",
        """%z = transpose(%'z.before) perm=[0,3,1,2]  // "t\"""",
    ]
    assert said(result) == [("y", "computed before", BEFORE), ("z", "computed before", BEFORE)]


@pytest.mark.parametrize(
    "lines",
    [
        BLOCK, ("%z = sub(%t, %s)",), ("%z = div(%rows, %t)",), ("%z = add(%two, %t)",),
        ("%y = sub(%c, %t)", "%v = mul(%y, %s)", "%z = tanh(%v)"),
    ],
)  # fmt: skip
def test_results_are_the_same(lines: tuple[str, ...]) -> None:
    before = behind(*lines)
    result = run(MOVE_LATER, before)
    assert result.graph != before
    inputs = random_inputs(before, 0)
    compare({"z": evaluate(result.graph, inputs)["z"]}, evaluate(before, inputs), 1e-5)


@pytest.mark.parametrize(
    ("lines", "outputs", "why"),
    [
        (("%z = add(%t, %r)",), "(%z)", "'r' is neither a convolution's result nor moved likewise"),
        (("%z = softmax(%t) axis=1",), "(%z)", None),
    ],
)
def test_what_gains_nothing_stays(lines: tuple[str, ...], outputs: str, why: str | None) -> None:
    before = behind(*lines, outputs=outputs)
    result = run(MOVE_LATER, before)
    assert result.graph == before
    expected = [] if why is None else [("z", "declined", f"behind the transpose 't': {why}")]
    assert said(result) == expected


@pytest.mark.parametrize(
    ("line", "outputs", "why"),
    [
        ("%z = add(%t, %t)", "(%z)", "'z' reads 't' twice"),
        ("%z = add(%t, %c)", "(%z, %t)", "'t' is a graph output"),
        ("%z = add(%t, %c)", "(%z, %m)", "'m' is a graph output"),
    ],
)
def test_what_others_read_keeps_arithmetic_behind_the_transpose(line: str, outputs: str, why: str) -> None:
    before = behind(line, outputs=outputs)
    result = run(MOVE_LATER, before)
    assert result.graph == before
    assert said(result) == [("t", "declined", f"what follows it stays behind it: {why}")]


FIRST = "what moves channels, where 'm' can do it"


def test_an_activation_is_computed_where_the_product_left_its_rows() -> None:
    result = run(MOVE_LATER, behind("%z = tanh(%t)"))
    assert body(result.graph).splitlines()[-2:] == [
        """%'z.before = tanh(%m)  // "z\"""",
        """%z = transpose(%'z.before) perm=[0,3,1,2]  // "t\"""",
    ]
    assert said(result) == [("z", "computed before", FIRST)]


NORMED = """
    graph g batch=2 (%h: f32[2,20,8]) -> (%z) {
      const %s: f32[8]
      const %b: f32[8]
      %m = norm(%h, %s, %b) statistic=variance axes=[2] epsilon=1e-05 // "m"
      %t = transpose(%m) perm=[0,2,1] // "t"
      %r = reshape(%t) shape=[2,8,4,5] // "r"
      %z = MADE // "z"
    }"""


@pytest.mark.parametrize("activation", ["relu(%r)", "gelu(%r)", "clip(%r) alpha=0.0 beta=6.0"])
def test_an_activation_goes_in_front_of_all_that_moves_what_a_normalisation_leaves(activation: str) -> None:
    before = graph(NORMED.replace("MADE", activation))
    result = run(MOVE_LATER, before)
    assert [node.op.kind for node in result.graph.nodes] == ["norm", "activation", "transpose", "reshape"]
    assert said(result) == [("z", "computed before", FIRST)]
    inputs = random_inputs(before, 0)
    compare({"z": evaluate(result.graph, inputs)["z"]}, evaluate(before, inputs), 1e-5)


@pytest.mark.parametrize(("line", "outputs"), [("%z = relu(%t)", "(%z, %t)"), ("%z = relu(%t)", "(%z, %m)")])
def test_an_activation_stays_behind_what_others_read(line: str, outputs: str) -> None:
    before = behind(line, outputs=outputs)
    assert run(MOVE_LATER, before).graph == before


def test_an_activation_behind_moves_of_an_input_stays() -> None:
    before = graph("""
        graph g batch=2 (%h: f32[2,4,5,8]) -> (%z) {
          %t = transpose(%h) perm=[0,3,1,2] // "t"
          %z = relu(%t) // "z"
        }""")
    assert run(MOVE_LATER, before).graph == before
