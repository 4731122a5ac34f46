"""Softmaxes that models spell out, with the largest score taken off or without."""

from __future__ import annotations

import re

import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.text import format_graph
from bolt_build.planner.passes.recognise.softmaxes import RECOGNISE_SOFTMAXES

LESS = "%m = reduce(%x) mode=max axes=[2]; %d = sub(%x, %m); "
POWERS = LESS + "%e = exp(%d); "
TOTAL = "%s = reduce(%e) mode=sum axes=[2]; "
DROPPED = "%u = reduce(%e) mode=sum axes=[2] keepdims=false; %s = reshape(%u) shape=[2,3,1]; "
FORMULA = "exp(x - max(x)) / sum(exp(x - max(x)))"


def spelled(statements: str, outputs: str = "%y") -> Graph:
    lines = [f'{line.strip()} // "{line.strip()[1]}"' for line in statements.split(";")]
    constants = ["const %w: f32[4,5]", "const %little: f32[] {1e-09}", "const %large: f32[] {0.1}"]
    used = [line for line in constants if re.search(rf"%{line.split()[1][1:-1]}\b", statements)]
    return graph("\n".join([f"graph g batch=2 (%x: f32[2,3,4]) -> ({outputs}) {{", *used, *lines, "}"]))


def nodes(after: Graph) -> list[str]:
    lines = [line for line in format_graph(after).splitlines() if " = " in line]
    return [re.split(" @|  //", line.split("=", 1)[1].strip())[0] for line in lines]


@pytest.mark.parametrize(
    "statements",
    [
        POWERS + TOTAL + "%y = div(%e, %s)",
        POWERS + DROPPED + "%y = div(%e, %s)",
        POWERS + TOTAL + "%r = reciprocal(%s); %y = mul(%r, %e)",
        POWERS + TOTAL + "%t = add(%s, %little); %y = div(%e, %t)",
        "%m = reduce(%x) mode=max axes=[0,1,2] keepdims=false; %d = sub(%x, %m); %e = exp(%d); " + TOTAL
        + "%y = div(%e, %s)",
        "%e = exp(%x); " + TOTAL + "%y = div(%e, %s)",
    ],
)  # fmt: skip
def test_powers_over_their_sum_are_a_softmax(statements: str) -> None:
    before = spelled(statements)
    result = run(RECOGNISE_SOFTMAXES, before)
    assert nodes(result.graph) == ["softmax(%x) axis=2"]
    assert said(result) == [("y", "recognised softmax", FORMULA if "%m" in statements else "exp(x) / sum(exp(x))")]
    (node,) = result.graph.nodes
    assert set(node.covers) == {name for each in before.nodes for name in each.covers}


def test_a_product_of_powers_that_is_divided_is_one_of_shares() -> None:
    result = run(RECOGNISE_SOFTMAXES, spelled(POWERS + TOTAL + "%o = matmul(%e, %w); %y = div(%o, %s)"))
    assert nodes(result.graph) == ["softmax(%x) axis=2", "matmul(%'e.shares, %w)"]
    assert said(result) == [("y", "recognised softmax", FORMULA + ", in front of a product")]


def test_a_largest_score_in_front_of_a_softmax_goes() -> None:
    result = run(RECOGNISE_SOFTMAXES, spelled(LESS + "%y = softmax(%d) axis=2"))
    assert nodes(result.graph) == ["softmax(%x) axis=2"]
    assert said(result) == [("y", "left out the largest score", "a softmax takes it off itself")]


@pytest.mark.parametrize(
    "statements",
    [
        POWERS + TOTAL + "%t = add(%s, %large); %y = div(%e, %t)",
        "%e = exp(%x); " + TOTAL + "%t = add(%s, %little); %y = div(%e, %t)",
        POWERS + "%s = reduce(%d) mode=sum axes=[2]; %y = div(%e, %s)",
        "%m = reduce(%x) mode=max axes=[1]; %d = sub(%x, %m); %y = softmax(%d) axis=2",
        "%m = reduce(%x) mode=min axes=[2]; %d = sub(%x, %m); %y = softmax(%d) axis=2",
    ],
)  # fmt: skip
def test_what_only_looks_alike_stays(statements: str) -> None:
    before = spelled(statements)
    result = run(RECOGNISE_SOFTMAXES, before)
    assert result.graph == before
    assert said(result) == []


def test_powers_that_are_read_elsewhere_stay_and_say_why() -> None:
    before = spelled(POWERS + TOTAL + "%y = div(%e, %s)", "%y, %e")
    result = run(RECOGNISE_SOFTMAXES, before)
    assert result.graph == before
    assert said(result) == [("y", "declined", "softmax: 'e' is read by more than its sum and one node")]
