"""Activations that models spell out in arithmetic, in every order of factors that exporters write."""

from __future__ import annotations

import re

import numpy as np
import pytest
from planner_checks import body, graph, random_inputs, run, said

from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.recognise.activations import RECOGNISE_ACTIVATIONS

NUMBERS = {
    "half": 0.5, "one": 1.0, "three": 3.0, "six": 6.0, "sixth": 1 / 6, "root": 2**0.5, "inverse": 0.5**0.5,
    "scale": (2 / 3.141592653589793) ** 0.5, "cubic": 0.044715, "zero": 0.0, "tenth": 0.1,
    "both": 0.044715 * (2 / 3.141592653589793) ** 0.5, "minus": -1.0, "quarter": 0.25, "threequarters": 0.75,
}  # fmt: skip

HARD_SWISH = "x * clip(x + 3, 0, 6) / 6"
GELU = "x * (1 + erf(x / sqrt(2))) / 2"
GELU_TANH = "x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))) / 2"
RELU6 = "%a = add(%x, %three); %b = clip(%a) alpha=0.0 beta=6.0; "
HALVED = "; %c = add(%e, %one); %d = mul(%x, %c); %y = mul(%d, %half)"
ERF = "%a = div(%x, %root); %b = erf(%a); %c = add(%b, %one); "
CUBE = "%a = pow(%x, %three); %b = mul(%a, %cubic); %c = add(%x, %b); %d = mul(%c, %scale); %e = tanh(%d); "
POWER = "%p = mul(%x, %x); %q = mul(%p, %x); %b = mul(%cubic, %q)" + CUBE.partition("%b = mul(%a, %cubic)")[2]
FACTORED = "%a = mul(%x, %cubic); %b = mul(%a, %x); %c = add(%b, %one); %s = mul(%x, %scale); %d = mul(%s, %c); "
SUMMED = "%a = mul(%x, %scale); %p = pow(%x, %three); %b = mul(%p, %both); %d = add(%a, %b); %e = tanh(%d); "
ABOVE = "%p = relu(%x); "
SLOPE = "max(x, 0) + 0.5 * min(x, 0)"

SPELLINGS = [
    (RELU6 + "%c = mul(%x, %b); %y = div(%c, %six)", "hard_swish", HARD_SWISH),
    (RELU6 + "%c = div(%b, %six); %y = mul(%c, %x)", "hard_swish", HARD_SWISH),
    (RELU6 + "%c = mul(%b, %sixth); %y = mul(%x, %c)", "hard_swish", HARD_SWISH),
    ("%a = hard_sigmoid(%x) alpha=0.16666667 beta=0.5; %y = mul(%x, %a)", "hard_swish", HARD_SWISH),
    ("%a = sigmoid(%x); %y = mul(%x, %a)", "silu", "x * sigmoid(x)"),
    ("%a = sigmoid(%x); %y = mul(%a, %x)", "silu", "x * sigmoid(x)"),
    ("%b = mul(%x, %tenth); %a = sigmoid(%b); %y = mul(%x, %a)", "swish alpha=0.10000000149011612",
     "x * sigmoid(0.1 x)"),
    ("%a = softplus(%x); %b = tanh(%a); %y = mul(%x, %b)", "mish", "x * tanh(softplus(x))"),
    (ERF + "%d = mul(%x, %c); %y = mul(%d, %half)", "gelu", GELU),
    (ERF + "%d = mul(%half, %c); %y = mul(%d, %x)", "gelu", GELU),
    (ERF + "%d = mul(%x, %half); %y = mul(%c, %d)", "gelu", GELU),
    ("%a = mul(%x, %inverse); %b = erf(%a); %c = mul(%b, %half); %d = add(%half, %c); %y = mul(%x, %d)", "gelu", GELU),
    (CUBE + "%f = add(%one, %e); %g = mul(%x, %f); %y = mul(%g, %half)", "gelu_tanh", GELU_TANH),
    (POWER + "%f = add(%e, %one); %h = mul(%half, %x); %y = mul(%h, %f)", "gelu_tanh", GELU_TANH),
    (FACTORED + "%e = tanh(%d); %f = add(%one, %e); %h = mul(%x, %half); %y = mul(%h, %f)", "gelu_tanh", GELU_TANH),
    (SUMMED + "%f = add(%e, %one); %h = mul(%half, %x); %y = mul(%h, %f)", "gelu_tanh", GELU_TANH),
    (RELU6 + "%y = div(%b, %six)", "hard_sigmoid alpha=0.16666666666666666 beta=0.5", "clip(0.166667 * x + 0.5, 0, 1)"),
    ("%y = max(%x, %zero)", "relu", "max(x, 0)"),
    ("%y = max(%zero, %x)", "relu", "max(x, 0)"),
    ("%y = clip(%x) alpha=0.0 beta=inf", "relu", "max(x, 0)"),
    ("%a = max(%x, %zero); %y = min(%a, %six)", "clip beta=6.0", "min(max(x, 0), 6)"),
    ("%a = relu(%x); %y = min(%six, %a)", "clip beta=6.0", "min(max(x, 0), 6)"),
    ("%a = mul(%x, %tenth); %y = max(%x, %a)", "leaky_relu alpha=0.10000000149011612", "max(x, 0.1 * x)"),
    ("%y = prelu(%x, %tenth)", "leaky_relu alpha=0.10000000149011612", "one slope for all x"),
    ("%n = neg(%x); %e = exp(%n); %a = add(%one, %e); %y = div(%one, %a)", "sigmoid", "1 / (1 + exp(-x))"),
    ("%n = mul(%x, %minus); %e = exp(%n); %a = add(%e, %one); %y = reciprocal(%a)", "sigmoid", "1 / (1 + exp(-x))"),
    ("%n = neg(%x); %e = exp(%n); %a = add(%one, %e); %y = div(%x, %a)", "silu", "x / (1 + exp(-1 x))"),
    ("%n = mul(%x, %half); %m = neg(%n); %e = exp(%m); %a = add(%one, %e); %y = div(%x, %a)", "swish alpha=0.5",
     "x / (1 + exp(-0.5 x))"),
    ("%n = neg(%x); %e = exp(%n); %a = add(%one, %e); %s = div(%one, %a); %y = mul(%s, %x)", "silu", "x * sigmoid(x)"),
    ("%a = mul(%x, %half); %e = tanh(%a)" + HALVED, "silu", "x * (1 + tanh(0.5 x)) / 2"),
    ("%e = tanh(%x)" + HALVED, "swish alpha=2.0", "x * (1 + tanh(1 x)) / 2"),
    ("%e = exp(%x); %a = add(%e, %one); %y = log(%a)", "softplus", "log(1 + exp(x))"),
    ("%e = exp(%x); %a = add(%one, %e); %s = log(%a); %t = tanh(%s); %y = mul(%t, %x)", "mish",
     "x * tanh(softplus(x))"),
    ("%y = clip(%x) alpha=0.0 beta=3.4028234663852886e+38", "relu", "max(x, 0)"),
    (ABOVE + "%n = neg(%x); %q = relu(%n); %b = mul(%q, %half); %y = sub(%p, %b)", "leaky_relu alpha=0.5", SLOPE),
    (ABOVE + "%n = neg(%x); %q = relu(%n); %b = mul(%minus, %q); %c = mul(%b, %half); %y = add(%p, %c)",
     "leaky_relu alpha=0.5", SLOPE),
    (ABOVE + "%q = min(%x, %zero); %b = mul(%half, %q); %y = add(%b, %p)", "leaky_relu alpha=0.5", SLOPE),
    (ABOVE + "%q = abs(%x); %d = sub(%x, %q); %b = mul(%d, %quarter); %y = add(%p, %b)", "leaky_relu alpha=0.5", SLOPE),
    ("%a = mul(%x, %threequarters); %q = abs(%x); %b = mul(%q, %quarter); %y = add(%a, %b)", "leaky_relu alpha=0.5",
     "0.75 * x + 0.25 * abs(x)"),
]  # fmt: skip


def spelled(statements: str, outputs: str = "%y") -> str:
    """The statements, separated by semicolons, as a graph of %x with the numbers that they use."""
    named = set(re.findall(r"%(\w+)", statements))
    used = [f"const %{name}: f32[] {{{value}}}" for name, value in NUMBERS.items() if name in named]
    lines = [f'{line.strip()} // "{line.strip()[1]}"' for line in statements.split(";")]
    return "\n".join([f"graph g batch=1 (%x: f32[2,3,4]) -> ({outputs}) {{", *used, *lines, "}"])


@pytest.mark.parametrize(("statements", "activation", "formula"), SPELLINGS)
def test_a_spelled_out_activation_becomes_one_node(statements: str, activation: str, formula: str) -> None:
    result = run(RECOGNISE_ACTIVATIONS, graph(spelled(statements)))
    function, _, attributes = activation.partition(" ")
    (line,) = body(result.graph).splitlines()
    assert line.startswith(f"%y = {function}(%x) {attributes}".rstrip())
    assert said(result)[-1] == ("y", f"recognised {function}", formula)


def test_the_node_covers_all_that_it_replaced() -> None:
    result = run(RECOGNISE_ACTIVATIONS, graph(spelled(SPELLINGS[0][0])))
    (node,) = result.graph.nodes
    assert node.covers == ("a", "b", "c", "y")


@pytest.mark.parametrize(
    "statements",
    [
        "%a = sigmoid(%x); %b = tanh(%x); %y = mul(%b, %a)",
        "%a = add(%x, %one); %b = clip(%a) alpha=0.0 beta=6.0; %c = mul(%x, %b); %y = div(%c, %six)",
        RELU6 + "%c = mul(%x, %b); %y = mul(%c, %half)",
        "%a = mul(%x, %half); %b = erf(%a); %c = add(%b, %one); %d = mul(%x, %c); %y = mul(%d, %half)",
        "%a = min(%x, %zero); %y = max(%a, %six)",
        "%y = max(%x, %six)",
        "%a = clip(%x) alpha=0.0 beta=-6.0; %b = div(%a, %six); %y = neg(%b)",
        "%a = mul(%x, %zero); %b = mul(%a, %a); %e = tanh(%b)" + HALVED,
        "%n = neg(%x); %e = exp(%n); %a = add(%half, %e); %y = div(%x, %a)",
        "%n = neg(%x); %e = exp(%n); %a = add(%one, %e); %t = tanh(%x); %y = div(%t, %a)",
        "%n = neg(%x); %e = exp(%n); %a = add(%one, %e); %y = div(%half, %a)",
        "%e = exp(%x); %a = add(%e, %half); %y = log(%a)",
        ABOVE + "%t = tanh(%x); %n = neg(%t); %q = relu(%n); %b = mul(%q, %half); %y = sub(%p, %b)",
        ABOVE + "%q = relu(%x); %b = mul(%q, %half); %y = sub(%p, %b)",
        "%a = mul(%x, %threequarters); %q = abs(%x); %b = mul(%q, %half); %y = add(%a, %b)",
    ],
)
def test_what_only_looks_alike_stays(statements: str) -> None:
    before = graph(spelled(statements))
    result = run(RECOGNISE_ACTIVATIONS, before)
    kept = {node.op for node in before.nodes}
    assert all(node.op in kept or node.op.kind == "activation" for node in result.graph.nodes)
    assert not any(action.endswith(("swish", "silu", "gelu")) for _, action, _ in said(result))


NEGATIVE, UNBOUNDED = "%q = clip(%x) alpha=-inf beta=0.0", "%q = clip(%x) alpha=-3.4028234663852886e+38 beta=0.0"
SLOPES = [
    "%p = relu(%x); %n = neg(%x); %q = relu(%n); %b = mul(%s, %q); %y = sub(%p, %b)",
    f"%p = relu(%x); {NEGATIVE}; %b = mul(%q, %s); %y = add(%p, %b)",
    f"%p = clip(%x) alpha=0.0 beta=3.4028234663852886e+38; {UNBOUNDED}; %b = mul(%q, %s); %y = add(%b, %p)",
]


@pytest.mark.parametrize("statements", SLOPES)
def test_slopes_of_channels_that_a_model_spells_out_are_those_of_prelu(statements: str) -> None:
    lines = "\n".join(f'{line.strip()} // "{line.strip()[1]}"' for line in statements.split(";"))
    before = graph(
        f"graph g batch=1 (%x: f32[2,3,4,4]) -> (%y) {{\nconst %s: f32[3,1,1] {{0.5, 0.25, -1}}\n{lines}\n}}"
    )
    result = run(RECOGNISE_ACTIVATIONS, before)
    assert body(result.graph).startswith("%y = prelu(%x, %s)")
    inputs = random_inputs(before, 1)
    np.testing.assert_allclose(evaluate(result.graph, inputs)["y"], evaluate(before, inputs)["y"], rtol=1e-6)


def test_twice_the_slope_below_zero_is_a_constant_of_its_own() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[2,3,4,4]) -> (%y) {
          const %s: f32[3,1,1] {0.5, 0.25, -1}
          %p = relu(%x) // "p"
          %a = abs(%x) // "a"
          %d = sub(%x, %a) // "d"
          %b = mul(%s, %d) // "b"
          %y = add(%p, %b) // "y"
        }""")
    result = run(RECOGNISE_ACTIVATIONS, before)
    (node,) = result.graph.nodes
    inputs = random_inputs(before, 1)
    assert node.op == Binary("prelu")
    np.testing.assert_allclose(evaluate(result.graph, inputs)["y"], evaluate(before, inputs)["y"], rtol=1e-6)


def test_slopes_that_would_make_the_tensor_larger_are_none() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,3]) -> (%y) {
          const %s: f32[2,3] {0.5, 0.25, -1, 1, 2, 3}
          %p = relu(%x) // "p"
          %n = neg(%x) // "n"
          %q = relu(%n) // "q"
          %b = mul(%s, %q) // "b"
          %y = sub(%p, %b) // "y"
        }""")
    assert run(RECOGNISE_ACTIVATIONS, before).graph == before


def test_an_inner_value_that_is_read_elsewhere_survives() -> None:
    before = graph(spelled(RELU6 + "%c = mul(%x, %b); %y = div(%c, %six); %z = tanh(%c)", "%y, %z"))
    result = run(RECOGNISE_ACTIVATIONS, before)
    assert body(result.graph).splitlines()[-1].startswith("%z = tanh(%c)")


def test_bounds_of_integers_are_no_activation() -> None:
    before = graph("""
        graph g batch=1 (%x: i64[2]) -> (%y) {
          const %c: i64[] {0}
          %y = max(%x, %c) // "y"
        }""")
    result = run(RECOGNISE_ACTIVATIONS, before)
    assert result.graph == before


def test_a_gate_of_another_tensor_is_no_activation() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[2,3,4,4], %s: f32[2,3,1,1]) -> (%y) {
          %a = sigmoid(%s) // "a"
          %y = mul(%x, %a) // "y"
        }""")
    result = run(RECOGNISE_ACTIVATIONS, before)
    assert result.graph == before


@pytest.mark.parametrize(("length", "found"), [(50, ["y"]), (70, [])])
def test_a_product_is_followed_so_far_and_no_farther(length: int, found: list[str]) -> None:
    """Each value of a long chain would be followed to its end."""
    chain = "\n".join(f'%a{i + 1} = mul(%a{i}, %{"half" if i % 2 else "two"}) // "a{i + 1}"' for i in range(length))
    text = f"""
        graph g batch=1 (%x: f32[1,4]) -> (%y) {{
          const %half: f32[] {{0.5}}
          const %two: f32[] {{2}}
          %a0 = sigmoid(%x) // "a0"
          {chain}
          %y = mul(%x, %a{length}) // "y"
        }}"""
    result = run(RECOGNISE_ACTIVATIONS, graph(text))
    assert [name for name, action, _ in said(result) if action == "recognised silu"] == found
