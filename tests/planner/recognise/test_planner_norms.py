"""Normalisations that models spell out in arithmetic, as exporters write them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.planner.passes.recognise.norms import RECOGNISE_NORMS

CONSTANTS = {
    "eps": "f32[] {1e-05}", "two": "f32[] {2}", "zero": "f32[] {0}", "one": "f32[] {1}", "three": "f32[] {3}",
    "four": "f32[] {4}", "half": "f32[] {0.5}", "less": "f32[] {-0.5}",
    "deep": "f32[1,1,1,1] {1e-05}", "w": "f32[4] positive", "b": "f32[4]", "wide": "f32[5,2,3,4]",
}  # fmt: skip

CENTRED = "%m = reduce(%x) mode=mean axes=[2]; %d = sub(%x, %m); "
SQUARE = "%p = pow(%d, %two); "
PRODUCT = "%p = mul(%d, %d); "
ROOT = "%v = reduce(%p) mode=mean axes=[2]; %a = add(%v, %eps); %s = sqrt(%a); "
ROOT_OF_X = "%p = pow(%x, %two); " + ROOT
MOMENTS = CENTRED + "%p = mul(%x, %x); %e = reduce(%p) mode=mean axes=[2]; %q = mul(%m, %m); %v = sub(%e, %q); "
AFFINE = "; %z = mul(%n, %w); %y = add(%z, %b)"

SUMMED = "%v = reduce(%p) mode=sum axes=[2] keepdims=false; %u = reshape(%v) shape=[2,3,1]; %t = div(%u, %four); "
TWICE = (
    CENTRED + PRODUCT + "%e = reduce(%x) mode=sum axes=[2] keepdims=false; %f = reshape(%e) shape=[2,3,1]; "
    "%h = div(%f, %four); %g = sub(%x, %h); "
)
"""As torch.var_mean is exported: the mean in the variance is not the one that is taken off."""

DEVIATION = "x / sqrt(mean((x - mean(x)) ** 2) + epsilon)"
LESS = CENTRED + SQUARE + "%v = reduce(%p) mode=mean axes=[2]; %u = mul(%v, %four); %t = div(%u, %three); "
LAYER = "(x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + epsilon)"
RMS = "x / sqrt(mean(x ** 2) + epsilon)"


def spelled(statements: str, outputs: str = "%y") -> str:
    """The statements, separated by semicolons, as a graph of %x with the constants that they use."""
    named = set(re.findall(r"%(\w+)", statements))
    used = [f"const %{name}: {what}" for name, what in CONSTANTS.items() if name in named]
    lines = [f'{line.strip()} // "{line.strip()[1]}"' for line in statements.split(";")]
    return "\n".join([f"graph g batch=1 (%x: f32[2,3,4]) -> ({outputs}) {{", *used, *lines, "}"])


@pytest.mark.parametrize(
    ("statements", "norm", "reason"),
    [
        (CENTRED + SQUARE + ROOT + "%n = div(%d, %s)" + AFFINE, "norm(%x, %w, %b) statistic=variance",
         f"{LAYER}, with scale and bias"),
        (CENTRED + PRODUCT + ROOT + "%n = div(%d, %s); %y = mul(%w, %n)", "norm(%x, %w) statistic=variance",
         f"{LAYER}, with a scale"),
        (CENTRED + SQUARE + ROOT + "%y = div(%d, %s)", "norm(%x) statistic=variance", LAYER),
        (CENTRED + SQUARE + ROOT + "%r = reciprocal(%s); %n = mul(%r, %d)" + AFFINE,
         "norm(%x, %w, %b) statistic=variance", f"{LAYER}, with scale and bias"),
        (ROOT_OF_X + "%r = div(%one, %s); %n = mul(%x, %r); %y = mul(%n, %w)", "norm(%x, %w) statistic=rms",
         f"{RMS}, with a scale"),
        (ROOT_OF_X + "%y = div(%x, %s)", "norm(%x) statistic=rms", RMS),
        (ROOT_OF_X.replace("sqrt(%a)", "pow(%a, %half)") + "%y = div(%x, %s)", "norm(%x) statistic=rms", RMS),
        (ROOT_OF_X.replace("sqrt(%a)", "pow(%a, %less)") + "%n = mul(%x, %s); %y = mul(%w, %n)",
         "norm(%x, %w) statistic=rms", f"{RMS}, with a scale"),
        (MOMENTS + "%u = max(%v, %zero); %a = add(%u, %eps); %s = sqrt(%a); %n = div(%d, %s)" + AFFINE,
         "norm(%x, %w, %b) statistic=variance", f"{LAYER}, with scale and bias"),
        (MOMENTS + "%u = relu(%v); %a = add(%u, %eps); %s = sqrt(%a); %y = div(%d, %s)",
         "norm(%x) statistic=variance", LAYER),
        (MOMENTS + "%a = add(%v, %eps); %s = sqrt(%a); %r = reciprocal(%s); %y = mul(%d, %r)",
         "norm(%x) statistic=variance", LAYER),
        (CENTRED + SQUARE + SUMMED + "%a = add(%t, %eps); %s = sqrt(%a); %n = div(%d, %s)" + AFFINE,
         "norm(%x, %w, %b) statistic=variance", f"{LAYER}, with scale and bias"),
        (TWICE + "%v = reduce(%p) mode=mean axes=[2] keepdims=false; %t = reshape(%v) shape=[2,3,1]; "
         "%a = add(%t, %eps); %s = sqrt(%a); %r = reciprocal(%s); %n = mul(%g, %r)" + AFFINE,
         "norm(%x, %w, %b) statistic=variance", f"{LAYER}, with scale and bias"),
        (CENTRED + SQUARE + ROOT + "%y = div(%x, %s)", "norm(%x) statistic=deviation", DEVIATION),
        (CENTRED + PRODUCT + ROOT + "%r = div(%one, %s); %n = mul(%x, %r)" + AFFINE,
         "norm(%x, %w, %b) statistic=deviation", f"{DEVIATION}, with scale and bias"),
    ],
)  # fmt: skip
def test_a_spelled_out_normalisation_becomes_one_node(statements: str, norm: str, reason: str) -> None:
    before = graph(spelled(statements))
    result = run(RECOGNISE_NORMS, before)
    assert re.split(" @|  //", body(result.graph))[0] == f"%y = {norm} axes=[2] epsilon=1e-05"
    names = {"variance": "layer norm", "deviation": "norm by deviation", "rms": "rms norm"}
    (name,) = (words for statistic, words in names.items() if statistic in norm)
    assert said(result) == [("y", f"recognised {name}", reason)]
    (node,) = result.graph.nodes
    assert set(node.covers) == {name for each in before.nodes for name in each.covers}


@pytest.mark.parametrize(("above", "name"), [("%x", "norm by deviation"), ("%d", "layer norm")])
def test_a_variance_of_one_element_less_is_in_the_scale(above: str, name: str) -> None:
    """timm's SimpleNorm, and normalisations by torch.var."""
    root = LESS + "%a = add(%t, %eps); %s = sqrt(%a); "
    result = run(RECOGNISE_NORMS, graph(spelled(root + f"%n = div({above}, %s); %y = mul(%n, %w)")))
    statistic = "deviation" if above == "%x" else "variance"
    assert re.split(" @|  //", body(result.graph))[0] == (
        f"%y = norm(%x, %'w.norm) statistic={statistic} axes=[2] epsilon=7.500000000000001e-06"
    )
    assert [each[:2] for each in said(result)] == [("y", f"recognised {name}")]
    unscaled = run(RECOGNISE_NORMS, graph(spelled(root + f"%y = div({above}, %s)")))
    assert re.split(" @|  //", body(unscaled.graph))[0] == (
        f"%y = norm(%x, %'y.scale) statistic={statistic} axes=[2] epsilon=7.500000000000001e-06"
    )


@pytest.mark.parametrize(
    ("statements", "becomes", "said_of"),
    [
        ("%p = pow(%x, %two); %v = reduce(%p) mode=mean axes=[2]; %s = sqrt(%v); %y = div(%x, %s)",
         "norm(%x) statistic=rms axes=[2]", ("rms norm", "x / sqrt(mean(x ** 2))")),
        (CENTRED + SQUARE + "%v = reduce(%p) mode=mean axes=[2]; %s = sqrt(%v); %n = div(%d, %s)" + AFFINE,
         "norm(%x, %w, %b) statistic=variance axes=[2]",
         ("layer norm", "(x - mean(x)) / sqrt(mean((x - mean(x)) ** 2)), with scale and bias")),
        ("%p = pow(%x, %two); %v = reduce(%p) mode=sum axes=[2]; %s = sqrt(%v); %y = div(%x, %s)",
         "norm(%x, %'y.scale) statistic=rms axes=[2]", ("rms norm", "x / sqrt(mean(x ** 2)), with a scale")),
        ("%l = reduce(%x) mode=l2 axes=[2]; %y = div(%x, %l)", "norm(%x) statistic=l2 axes=[2]",
         ("l2 norm", "x / sqrt(sum(x ** 2))")),
        ("%l = reduce(%x) mode=l1 axes=[2]; %y = div(%x, %l)", "norm(%x) statistic=l1 axes=[2]",
         ("l1 norm", "x / sum(abs(x))")),
        ("%m = abs(%x); %l = reduce(%m) mode=sum axes=[2]; %y = div(%x, %l)", "norm(%x) statistic=l1 axes=[2]",
         ("l1 norm", "x / sum(abs(x))")),
    ],
)  # fmt: skip
def test_the_epsilon_may_be_missing(statements: str, becomes: str, said_of: tuple[str, str]) -> None:
    """Rows of zeros alone are no numbers then, as the model says; squares of halves do not overflow on the way."""
    result = run(RECOGNISE_NORMS, graph(spelled(statements)))
    assert re.split(" @|  //", body(result.graph))[0] == f"%y = {becomes}"
    assert said(result) == [("y", f"recognised {said_of[0]}", said_of[1])]


def test_an_epsilon_beside_a_sum_of_squares_is_one_of_their_mean() -> None:
    text = "%p = pow(%x, %two); %v = reduce(%p) mode=sum axes=[2]; %a = add(%v, %eps); %s = sqrt(%a); %y = div(%x, %s)"
    result = run(RECOGNISE_NORMS, graph(spelled(text)))
    assert (
        re.split(" @|  //", body(result.graph))[0] == "%y = norm(%x, %'y.scale) statistic=rms axes=[2] epsilon=2.5e-06"
    )


@pytest.mark.parametrize(
    "statements",
    [
        ROOT_OF_X + "%t = mul(%x, %one); %y = div(%t, %s)",  # another numerator
        "%p = pow(%x, %three); " + ROOT + "%y = div(%x, %s)",
    ],
)
def test_what_only_looks_alike_stays(statements: str) -> None:
    before = graph(spelled(statements))
    assert run(RECOGNISE_NORMS, before).graph == before


def test_a_mean_over_other_axes_is_another_tensors() -> None:
    """What is divided is a difference then, normalised by its own root mean square."""
    other = CENTRED.replace("axes=[2]", "axes=[1]")
    result = run(RECOGNISE_NORMS, graph(spelled(other + SQUARE + ROOT + "%y = div(%d, %s)")))
    assert said(result) == [("y", "recognised rms norm", RMS)]


def test_a_root_that_is_read_elsewhere_stays_and_says_why() -> None:
    before = graph(spelled(CENTRED + SQUARE + ROOT + "%y = div(%d, %s); %z = add(%s, %one)", "%y, %z"))
    result = run(RECOGNISE_NORMS, before)
    assert result.graph == before
    assert said(result) == [("y", "declined", f"{RMS}: 's' is read by 2 nodes")]


def test_operands_that_widen_the_result_stay_apart() -> None:
    before = graph(spelled(ROOT_OF_X + "%n = div(%x, %s); %y = mul(%n, %wide)"))
    result = run(RECOGNISE_NORMS, before)
    assert [node.op.kind for node in result.graph.nodes] == ["norm", "binary"]


def test_a_bias_behind_something_else_stays_apart() -> None:
    before = graph(spelled(ROOT_OF_X + "%n = div(%x, %s); %t = tanh(%n); %y = add(%t, %b)"))
    result = run(RECOGNISE_NORMS, before)
    assert [node.op.kind for node in result.graph.nodes] == ["norm", "activation", "binary"]


@pytest.mark.parametrize(
    "statements",
    [
        # The mean of another tensor.
        MOMENTS.replace("%m = reduce(%x)", "%o = abs(%x); %m = reduce(%o)"),
        # A bound that is not zero.
        MOMENTS + "%u = max(%v, %one); ",
        # Over other axes.
        MOMENTS.replace("%e = reduce(%p) mode=mean axes=[2]", "%e = reduce(%p) mode=mean axes=[1]"),
    ],
)
def test_moments_of_something_else_are_no_variance(statements: str) -> None:
    last = "%u" if "%u" in statements else "%v"
    before = graph(spelled(f"{statements}%a = add({last}, %eps); %s = sqrt(%a); %y = div(%d, %s)"))
    assert run(RECOGNISE_NORMS, before).graph == before


FACTOR = CENTRED + PRODUCT + ROOT + "%r = reciprocal(%s); %f = mul(%r, %w); %g = mul(%x, %f); "


@pytest.mark.parametrize(
    ("statements", "inputs"),
    [
        (FACTOR + "%k = neg(%m); %l = mul(%k, %f); %h = add(%l, %b); %y = add(%g, %h)", "%x, %w, %b"),
        (FACTOR + "%l = mul(%m, %f); %h = sub(%b, %l); %y = add(%h, %g)", "%x, %w, %b"),
        (FACTOR + "%k = neg(%m); %l = mul(%k, %f); %y = add(%g, %l)", "%x, %w"),
        (CENTRED + PRODUCT + ROOT + "%r = reciprocal(%s); %g = mul(%x, %r); %k = neg(%m); %l = mul(%k, %r); "
         "%y = add(%g, %l)", "%x"),
    ],
)  # fmt: skip
def test_a_factor_and_a_shift_are_a_layer_norm(statements: str, inputs: str) -> None:
    before = graph(spelled(statements))
    result = run(RECOGNISE_NORMS, before)
    assert (
        re.split(" @|  //", body(result.graph))[0] == f"%y = norm({inputs}) statistic=variance axes=[2] epsilon=1e-05"
    )
    formula = "x * f + (bias - mean(x) * f), f = scale / sqrt(mean((x - mean(x)) ** 2) + epsilon)"
    assert said(result) == [("y", "recognised layer norm", formula)]
    (node,) = result.graph.nodes
    assert set(node.covers) == {name for each in before.nodes for name in each.covers}


@pytest.mark.parametrize(
    "statements",
    [
        # Another shift than that of the mean.
        FACTOR + "%k = neg(%s); %l = mul(%k, %f); %h = add(%l, %b); %y = add(%g, %h)",
        # Another factor of the mean.
        FACTOR + "%k = neg(%m); %l = mul(%k, %w); %h = add(%l, %b); %y = add(%g, %h)",
        # The sum where the difference is meant.
        FACTOR + "%l = mul(%m, %f); %h = add(%b, %l); %y = add(%h, %g)",
        # Somebody else reads the factor.
        FACTOR + "%k = neg(%m); %l = mul(%k, %f); %h = add(%l, %b); %u = add(%g, %h); %y = add(%u, %f)",
    ],
)
def test_another_factor_or_shift_is_none(statements: str) -> None:
    before = graph(spelled(statements))
    assert run(RECOGNISE_NORMS, before).graph == before


LENGTH = "%q = reduce(%x) mode=l2 axes=[2]; %c = clip(%q) alpha=1e-12 beta=3.4028234663852886e+38; "


@pytest.mark.parametrize(
    "statements",
    [
        LENGTH + "%n = div(%x, %c); %z = mul(%n, %half); %y = mul(%w, %z)",
        LENGTH + "%g = mul(%w, %x); %n = div(%g, %c); %y = mul(%n, %half)",
    ],
)
def test_rows_over_their_length_with_a_scale_are_a_root_mean_square(statements: str) -> None:
    """RMSNorm as x / |x| times the root of how many elements there are, which the scale has here."""
    before = graph(spelled(statements))
    result = run(RECOGNISE_NORMS, before)
    (node,) = result.graph.nodes
    assert isinstance(node.op, Norm)
    assert (node.op.statistic, node.op.axes, node.op.epsilon) == ("rms", (2,), pytest.approx(2.5e-25))
    scale, weight = result.graph.constant(node.inputs[1]), before.constant("w")
    assert scale is not None
    assert weight is not None
    assert scale.tolist() == pytest.approx((weight / 4).tolist())
    assert [action for _, action, _ in said(result)] == ["recognised l2 norm", "recognised rms norm"]


@pytest.mark.parametrize(
    "statements",
    [
        LENGTH + "%n = div(%x, %c); %y = mul(%n, %half)",
        LENGTH.replace("1e-12", "1e-05") + "%n = div(%x, %c); %y = mul(%n, %w)",
    ],
)
def test_rows_over_their_length_alone_or_over_more_than_that_stay_such(statements: str) -> None:
    """A single factor is no weight of a normalisation; and rows may be shorter than 1e-5."""
    result = run(RECOGNISE_NORMS, graph(spelled(statements)))
    assert [node.op.kind for node in result.graph.nodes] == ["norm", "binary"]
    assert [action for _, action, _ in said(result)] == ["recognised l2 norm"]


def test_scales_that_differ_by_row_are_none_of_a_root_mean_square() -> None:
    """Also where a tensor has as many rows as a row has elements."""
    before = graph("""
        graph g batch=4 (%x: f32[4,4]) -> (%y) {
          const %rows: f32[4,1] positive
          const %w: f32[4] positive
          %q = reduce(%x) mode=l2 axes=[1]
          %g = mul(%rows, %x)
          %n = div(%g, %q)
          %y = mul(%n, %w)
        }""")
    result = run(RECOGNISE_NORMS, before)
    assert [node.op.kind for node in result.graph.nodes] == ["norm", "binary"]
    assert [action for _, action, _ in said(result)] == ["recognised l2 norm"]


def test_an_epsilon_whose_square_fp32_does_not_have_still_keeps_zeros_zero() -> None:
    statements = LENGTH.replace("1e-12", "1e-30") + "%n = div(%x, %c); %y = mul(%n, %w)"
    (node,) = run(RECOGNISE_NORMS, graph(spelled(statements))).graph.nodes
    assert isinstance(node.op, Norm)
    assert np.float32(node.op.epsilon) > 0.0


@pytest.mark.parametrize(
    "statements",
    [
        "%l = reduce(%x) mode=l2 axes=[2]; %c = max(%l, %deep); %y = div(%x, %c)",
        CENTRED + PRODUCT + "%v = reduce(%p) mode=mean axes=[2]; %a = add(%v, %deep); %s = sqrt(%a); %y = div(%d, %s)",
        MOMENTS + "%a = add(%v, %deep); %s = sqrt(%a); %i = reciprocal(%s); %y = mul(%d, %i)",
    ],
)
def test_a_number_of_more_axes_makes_no_normalisation(statements: str) -> None:
    """What it is added to gets an axis more, which a normalisation would not leave."""
    before = graph(spelled(statements))
    assert run(RECOGNISE_NORMS, before).graph == before
