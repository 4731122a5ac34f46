"""Logarithms of sums of exponentials that models spell out, and logarithms of a softmax."""

from __future__ import annotations

import re

import numpy as np
import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.graph.text import format_graph
from bolt_build.planner.passes.recognise.log_sums import RECOGNISE_LOG_SUMS

GREATEST = "%m = reduce(%x) mode=max axes=[2]; "
POWERS = "%d = sub(%x, %m); %e = exp(%d); "
KEPT = "%s = reduce(%e) mode=sum axes=[2]; %l = log(%s); "
DROPPED = "%s = reduce(%e) mode=sum axes=[2] keepdims=false; %l = log(%s); "
ONE = "%l = reduce(%e) mode=log_sum axes=[2]; "
FORMULA = "log(sum(exp(x - m))) + m"


def spelled(statements: str, outputs: str = "%y") -> Graph:
    lines = [f'{line.strip()} // "{line.strip()[1]}"' for line in statements.split(";")]
    return graph("\n".join([f"graph g batch=2 (%x: f32[2,3,4], %b: f32[2,3,1]) -> ({outputs}) {{", *lines, "}"]))


def nodes(after: Graph) -> list[str]:
    lines = [line for line in format_graph(after).splitlines() if " = " in line]
    return [re.split(" @|  //", line.split("=", 1)[1].strip())[0] for line in lines]


def values(of: Graph) -> np.ndarray:
    rng = np.random.default_rng(5)
    given = {name: rng.normal(0, 3, of.type(name).shape).astype(np.float32) for name in of.inputs}
    return evaluate(of, given)["y"]


@pytest.mark.parametrize(
    "statements",
    [
        GREATEST + POWERS + KEPT + "%y = add(%l, %m)",
        GREATEST + POWERS + ONE + "%y = add(%m, %l)",
        GREATEST + "%c = clip(%m) alpha=-1 beta=1; %d = sub(%x, %c); %e = exp(%d); " + KEPT + "%y = add(%l, %c)",
        GREATEST + POWERS + DROPPED + "%n = reshape(%m) shape=[2,3]; %y = add(%l, %n)",
        GREATEST + POWERS + DROPPED + "%n = reduce(%x) mode=max axes=[2] keepdims=false; %y = add(%l, %n)",
        "%d = sub(%x, %b); %e = exp(%d); " + KEPT + "%y = add(%l, %b)",
    ],
)
def test_what_was_taken_off_comes_back(statements: str) -> None:
    before = spelled(statements)
    result = run(RECOGNISE_LOG_SUMS, before)
    dropped = " keepdims=false" if "keepdims=false" in statements else ""
    assert nodes(result.graph) == ["reduce(%x) mode=log_sum_exp axes=[2]" + dropped]
    assert said(result) == [("y", "recognised logarithm of a sum of exponentials", FORMULA)]
    np.testing.assert_allclose(values(result.graph), values(before), rtol=1e-5)


def test_nothing_needs_to_be_taken_off() -> None:
    result = run(RECOGNISE_LOG_SUMS, spelled("%e = exp(%x); %s = reduce(%e) mode=sum axes=[1,2]; %y = log(%s)"))
    assert nodes(result.graph) == ["reduce(%x) mode=log_sum_exp axes=[1,2]"]
    assert said(result) == [("y", "recognised logarithm of a sum of exponentials", "log(sum(exp(x)))")]


@pytest.mark.parametrize(
    "statements",
    [
        "%l = reduce(%x) mode=log_sum_exp axes=[1]; %y = sub(%x, %l)",
        "%l = reduce(%x) mode=log_sum_exp axes=[1] keepdims=false; %k = reshape(%l) shape=[2,1,4]; %y = sub(%x, %k)",
        "%m = reduce(%x) mode=max axes=[1]; " + POWERS + "%s = reduce(%e) mode=sum axes=[1]; %l = log(%s); "
        "%k = add(%l, %m); %y = sub(%x, %k)",
    ],
)
def test_a_tensor_less_that_is_the_logarithm_of_a_softmax(statements: str) -> None:
    before = spelled(statements)
    result = run(RECOGNISE_LOG_SUMS, before)
    assert nodes(result.graph) == ["line(%x) function=log_softmax axis=1"]
    assert said(result)[-1] == ("y", "recognised logarithm of a softmax", "x - logsumexp(x)")
    np.testing.assert_allclose(values(result.graph), values(before), rtol=1e-5)


@pytest.mark.parametrize(
    "statements",
    [
        # Something else comes back.
        GREATEST + POWERS + KEPT + "%y = add(%l, %b)",
        # No sum, no exponential.
        GREATEST + POWERS + "%s = reduce(%e) mode=mean axes=[2]; %l = log(%s); %y = add(%l, %m)",
        GREATEST + "%d = sub(%x, %m); %s = reduce(%d) mode=sum axes=[2]; %l = log(%s); %y = add(%l, %m)",
        # Of another tensor, over more than one axis.
        "%z = exp(%x); %l = reduce(%z) mode=log_sum_exp axes=[2]; %y = sub(%x, %l)",
        "%l = reduce(%x) mode=log_sum_exp axes=[1,2]; %y = sub(%x, %l)",
        "%l = reduce(%x) mode=log_sum_exp axes=[2]; %y = sub(%l, %x)",
    ],
)
def test_others_stay(statements: str) -> None:
    before = spelled(statements)
    assert nodes(run(RECOGNISE_LOG_SUMS, before).graph) == nodes(before)


@pytest.mark.parametrize("axes", ["[0]", "[0,1]"])
def test_what_differs_along_the_axis_stays_in_front(axes: str) -> None:
    before = spelled(f"%m = reduce(%x) mode=max axes={axes}; " + POWERS + KEPT + "%y = add(%l, %m)")
    after = run(RECOGNISE_LOG_SUMS, before).graph
    assert nodes(after) == [
        f"reduce(%x) mode=max axes={axes}",
        "sub(%x, %m)",
        "reduce(%d) mode=log_sum_exp axes=[2]",
        "add(%l, %m)",
    ]
    np.testing.assert_allclose(values(after), values(before), rtol=1e-5)


def test_what_others_read_is_computed_once() -> None:
    result = run(RECOGNISE_LOG_SUMS, spelled(GREATEST + POWERS + KEPT + "%y = add(%l, %m)", "%y, %e"))
    assert said(result) == [("y", "declined", "logarithm of a sum of exponentials: 'e' is a graph output")]
    shared = "%l = reduce(%x) mode=log_sum_exp axes=[2]; %y = sub(%x, %l)"
    assert said(run(RECOGNISE_LOG_SUMS, spelled(shared, "%y, %l"))) == [
        ("y", "declined", "logarithm of a softmax: 'l' is a graph output")
    ]
