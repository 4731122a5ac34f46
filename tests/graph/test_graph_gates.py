"""Gated products are found in a graph however they were written, and what keeps one kernel from them has a reason."""

from __future__ import annotations

import pytest
from planner_checks import graph

from bolt_build.graph.ir import EpilogueOp, Graph
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.patterns.gates import GatedProducts, gated_in
from bolt_build.planner.pipeline import optimize
from bolt_build.schema.recipe import Policy

TWO = """
    const %w: f32[16,24] #
    const %v: f32[16,24] #
    const %b: f32[24] #
"""
ONE = """
    const %w: f32[16,48] #
    const %b: f32[48] #
    %p = matmul(%x, %w, %b) // "/p"
    %l = slice(%p) begin=[0,0,0] count=[2,5,24] step=[1,1,1] // "/l"
    %r = slice(%p) begin=[0,0,24] count=[2,5,24] step=[1,1,1] // "/r"
"""


def text(body: str, x: str = "f32[2,5,16]", outputs: str = "%y") -> Graph:
    return graph(f"graph g batch=2 (%x: {x}) -> ({outputs}) {{\n{body}\n}}")


def found_in(given: Graph) -> GatedProducts:
    (found,) = gated_in(optimize(given, Policy()).graph)
    return found


def words(stages: tuple[EpilogueOp, ...]) -> list[str]:
    return [stage.op.function for stage in stages if isinstance(stage.op, Activation)]


def summary(found: GatedProducts) -> tuple[int, list[str], list[str], bool, str | None]:
    """How many products, the functions of either side, whether columns are neighbours, and what is against it."""
    return len(found.products), words(found.first.stages), words(found.second.stages), found.neighbours, found.obstacle


WRITTEN = {
    "gate first": (TWO + "%g = matmul(%x, %w)\n%s = silu(%g)\n%u = matmul(%x, %v)\n%y = mul(%s, %u)", 2, ["silu"], []),
    "gate last": (TWO + "%u = matmul(%x, %v)\n%g = matmul(%x, %w)\n%s = silu(%g)\n%y = mul(%u, %s)", 2, ["silu"], []),
    "sigmoid times itself": (
        TWO + "%g = matmul(%x, %w)\n%q = sigmoid(%g)\n%s = mul(%g, %q)\n%u = matmul(%x, %v)\n%y = mul(%s, %u)",
        2, ["silu"], [],
    ),
    "a bias of one side": (
        TWO + "%g = matmul(%x, %w)\n%s = gelu_tanh(%g)\n%t = matmul(%x, %v)\n%u = add(%t, %b)\n%y = mul(%s, %u)",
        2, ["gelu_tanh"], [],
    ),
    "a function of either side": (
        TWO + "%g = matmul(%x, %w)\n%s = tanh(%g)\n%t = matmul(%x, %v)\n%u = sigmoid(%t)\n%y = mul(%s, %u)",
        2, ["sigmoid"], ["tanh"],
    ),
    "no function": (TWO + "%g = matmul(%x, %w)\n%u = matmul(%x, %v)\n%y = mul(%g, %u)", 2, [], []),
    "halves, the gate first": (ONE + "%s = gelu(%l)\n%y = mul(%s, %r)", 1, ["gelu"], []),
    "halves, the gate last": (ONE + "%s = gelu(%r)\n%y = mul(%l, %s)", 1, [], ["gelu"]),
    "halves, a function of all": (
        ONE.replace("%p =", "%q =").replace("%l =", "%p = relu(%q)\n%l =") + "%y = mul(%l, %r)",
        1, ["relu"], ["relu"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", WRITTEN)
def test_a_gated_product_is_found_however_it_is_written(form: str) -> None:
    body, products, first, second = WRITTEN[form]
    assert summary(found_in(text(body))) == (products, first, second, False, None)


def test_columns_that_alternate_are_neighbours() -> None:
    """Where the planner's passes have not taken them apart."""
    body = ONE.replace("begin=[0,0,24]", "begin=[0,0,1]").replace("step=[1,1,1]", "step=[1,1,2]")
    given = text(body + "%s = sigmoid(%r)\n%y = mul(%l, %s)")
    (found,) = gated_in(given)
    assert summary(found) == (1, [], ["sigmoid"], True, None)
    assert summary(found_in(given)) == (1, [], ["sigmoid"], False, None)


CONV = """
    const %w: f32[32,16,1,1] #
    %p = conv(%x, %w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
    %l = slice(%p) begin=[0,0,0,0] count=[2,16,7,7] step=[1,1,1,1]
    %r = slice(%p) begin=[0,16,0,0] count=[2,16,7,7] step=[1,1,1,1]
    %s = sigmoid(%r)
    %y = mul(%l, %s)"""


def test_channels_of_a_convolution_are_split_along_their_axis() -> None:
    assert summary(found_in(text(CONV, "f32[2,16,7,7]"))) == (1, [], ["sigmoid"], False, None)


def test_rows_of_an_image_are_no_sides() -> None:
    body = CONV.replace(
        "%r = slice(%p) begin=[0,16,0,0] count=[2,16,7,7]", "%r = slice(%p) begin=[0,0,7,0] count=[2,32,7,7]"
    )
    body = body.replace(
        "%l = slice(%p) begin=[0,0,0,0] count=[2,16,7,7]", "%l = slice(%p) begin=[0,0,0,0] count=[2,32,7,7]"
    )
    assert gated_in(optimize(text(body, "f32[2,16,14,7]"), Policy()).graph) == ()


def test_what_follows_the_gate_is_part_of_it() -> None:
    body = ONE + "%s = silu(%l)\n%g = mul(%s, %r)\n%t = relu(%g)\n%y = add(%t, %z)"
    found = found_in(graph(f"graph g batch=2 (%x: f32[2,5,16], %z: f32[2,5,24]) -> (%y) {{\n{body}\n}}"))
    assert [stage.op.kind for stage in found.after] == ["activation", "binary"]
    assert [node.name for node in found.nodes][-1] == found.last.name


@pytest.mark.parametrize(
    ("body", "outputs", "reason"),
    [
        (ONE + "%s = silu(%l)\n%y = mul(%s, %r)\n%z = exp(%p)", "%y, %z", "'z' reads 'p' as well"),
        (ONE + "%s = silu(%l)\n%y = mul(%s, %r)", "%y, %r", "'r' is an output of the graph"),
        (
            TWO + "const %n: f32[24,16] #\n%g = matmul(%x, %w)\n%s = silu(%g)\n%u = matmul(%x, %n) transpose_b=true\n"
            "%y = mul(%s, %u)",
            "%y",
            "the sides of the gate are multiplied in different ways",
        ),
    ],
)  # fmt: skip
def test_what_is_against_one_kernel_is_said(body: str, outputs: str, reason: str) -> None:
    obstacle = found_in(text(body, outputs=outputs)).obstacle
    assert obstacle is not None
    assert reason.split("'")[-1] in obstacle


@pytest.mark.parametrize(
    "body",
    [
        TWO + "%g = matmul(%x, %w)\n%s = silu(%g)\n%t = exp(%x)\n%u = matmul(%t, %v)\n%y = mul(%s, %u)",
        ONE.replace("begin=[0,0,24]", "begin=[0,0,20]") + "%s = silu(%l)\n%y = mul(%s, %r)",
        "const %w: f32[16,24] #\n%g = matmul(%x, %w)\n%s = sigmoid(%g)\n%y = add(%s, %g)",
        "const %w: f32[16,24] #\n%g = matmul(%x, %w)\n%y = mul(%g, %g)",
    ],
    ids=["other A operands", "no halves", "no product of both", "a square"],
)
def test_other_products_are_no_gates(body: str) -> None:
    assert gated_in(optimize(text(body), Policy()).graph) == ()
