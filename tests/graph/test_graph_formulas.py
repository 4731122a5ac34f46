"""Elementwise nodes that one kernel computes: which nodes belong together, and what is computed of what."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import graph, random_inputs

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.formula import FormulaTerm
from bolt_build.graph.patterns.formulas import FoundFormula, formulas_from
from bolt_build.graph.reference import evaluate

IMAGE = "f32[2,8,4,4]"
GATE = "f32[2,8,1,1]"


def found(text: str) -> tuple[Graph, list[FoundFormula]]:
    of = graph(text)
    return of, [each for node in of.nodes for each in formulas_from(of, node)]


def regions(text: str) -> list[tuple[str, ...]]:
    return [each.region for each in found(text)[1]]


def test_scale_shift_and_activation_of_an_image_are_one_formula() -> None:
    of, (formula,) = found(f"""
    graph g batch=2 (%x: {IMAGE}, %s: {GATE}, %b: {GATE}) -> (%y) {{
      %m = mul(%x, %s) // "m"
      %y = add(%m, %b) | silu // "y"
    }}""")
    assert (formula.region, formula.inputs) == (("m", "y"), ("x", "s", "b"))
    assert formula.op.terms == (
        FormulaTerm(Binary("mul"), (0, 1)), FormulaTerm(Binary("add"), (3, 2)), FormulaTerm(Activation("silu"), (4,)),
    )  # fmt: skip
    inputs = random_inputs(of, 0)
    (made,) = formula.op.evaluate([inputs[name] for name in formula.inputs])
    np.testing.assert_allclose(made, evaluate(of, inputs)["y"], rtol=1e-6, atol=1e-6)


def test_a_sum_of_two_products_has_all_of_them() -> None:
    assert regions(f"""
    graph g batch=2 (%a: {IMAGE}, %b: {IMAGE}, %c: {IMAGE}, %d: {IMAGE}) -> (%y) {{
      %m = mul(%a, %b) // "m"
      %n = mul(%c, %d) // "n"
      %y = sub(%n, %m) // "y"
    }}""") == [("m", "n", "y")]


def test_stages_keep_their_sides_and_constants_come_last() -> None:
    of, (formula,) = found(f"""
    graph g batch=2 (%x: {IMAGE}, %z: {IMAGE}) -> (%y) {{
      const %one: f32[1] {{1}}
      %m = sub(%one, %x) // "m"
      %y = mul(%m, %z, %x) | div(%x) swapped // "y"
    }}""")
    assert formula.inputs == ("x", "z", "one")
    assert [term.operands for term in formula.op.terms] == [(2, 0), (3, 1), (0, 4)]
    inputs = random_inputs(of, 1)
    given = {**inputs, "one": np.ones(1, np.float32)}
    (made,) = formula.op.evaluate([given[name] for name in formula.inputs])
    np.testing.assert_allclose(made, evaluate(of, inputs)["y"], rtol=1e-5, atol=1e-5)


def test_what_several_nodes_of_a_formula_read_is_computed_once() -> None:
    (formula,) = found(f"""
    graph g batch=2 (%x: {IMAGE}, %z: {IMAGE}) -> (%y) {{
      %d = sub(%x, %z) // "d"
      %t = mul(%d, %d) // "t"
      %y = add(%t, %d) // "y"
    }}""")[1]
    assert (formula.region, len(formula.op.terms)) == (("d", "t", "y"), 3)


@pytest.mark.parametrize(
    ("outputs", "behind"),
    [
        ("%y, %m", ""),
        ("%y, %r", "%r = reduce(%m) mode=mean axes=[2,3]"),
    ],
)
def test_what_others_read_stays_a_step(outputs: str, behind: str) -> None:
    assert (
        regions(f"""
    graph g batch=2 (%x: {IMAGE}, %z: {IMAGE}) -> ({outputs}) {{
      %m = mul(%x, %z) // "m"
      {behind}
      %y = tanh(%m) // "y"
    }}""")
        == []
    )


def test_a_chain_may_end_at_each_of_its_nodes() -> None:
    assert regions(f"""
    graph g batch=2 (%x: {IMAGE}, %s: {GATE}, %z: {IMAGE}) -> (%y) {{
      %a = mul(%x, %s) // "a"
      %b = add(%a, %z) // "b"
      %y = exp(%b) // "y"
    }}""") == [("a", "b"), ("a", "b", "y")]


def test_at_most_six_tensors_are_read() -> None:
    names = "abcdefgh"
    inputs = ", ".join(f"%{name}: {IMAGE}" for name in names)
    sums = "\n".join(
        f'%s{place} = {"mul" if place % 2 else "add"}(%{"s" + str(place - 1) if place else "a"}, %{name}) // "s{place}"'
        for place, name in enumerate(names[1:])
    )
    found = regions(f"graph g batch=2 ({inputs}) -> (%s6) {{\n{sums}\n}}")
    assert [len(each) for each in found] == [2, 3, 4, 5, 5, 5]
    assert found[-1] == ("s2", "s3", "s4", "s5", "s6")


def test_integers_are_no_formula() -> None:
    assert (
        regions("""
    graph g batch=2 (%x: i64[2,8], %z: i64[2,8]) -> (%y) {
      %m = mul(%x, %z) // "m"
      %y = add(%m, %z) // "y"
    }""")
        == []
    )
