"""Activations that a model spells out as a choice by a comparison, as torch.export decomposes them."""

from __future__ import annotations

import re

import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.recognise.activations import RECOGNISE_ACTIVATIONS

NUMBERS = {"zero": 0.0, "half": 0.5, "two": 2.0, "twenty": 20.0, "less": -1.0, "tenth": 0.1, "far": -1e4}
GUARD = "%s = softplus(%x); %c = compare(%x, %twenty) question="
SCALED = "%u = mul(%x, %two); %s = softplus(%u); %d = div(%s, %two); %c = compare(%u, %twenty) question=greater; "
SIZE = "%a = abs(%x); %c = compare(%a, %half) question="
SIGN = "%g = sign(%x); %m = mul(%g, %half); %d = sub(%x, %m); %n = mul(%x, %zero); "

SPELLINGS = [
    (GUARD + "greater; %y = where(%c, %x, %s)", "softplus(%x)", "softplus", "softplus(x)"),
    (GUARD + "less_equal; %y = where(%c, %s, %x)", "softplus(%x)", "softplus", "softplus(x)"),
    ("%s = softplus(%x); %c = compare(%twenty, %x) question=less; %y = where(%c, %x, %s)", "softplus(%x)", "softplus",
     "softplus(x)"),
    (SCALED + "%y = where(%c, %x, %d)", "div(%s, %two)", "softplus", "softplus(2 * x) / 2"),
    ("%c = compare(%x, %zero) question=greater; %y = where(%c, %x, %zero)", "relu(%x)", "relu",
     "x where x > 0, else 0"),
    ("%m = mul(%x, %tenth); %c = compare(%x, %zero) question=less; %y = where(%c, %m, %x)",
     "leaky_relu(%x) alpha=0.10000000149011612", "leaky_relu", "x where x > 0, else 0.1 * x"),
    ("%c = compare(%x, %half) question=less_equal; %y = where(%c, %zero, %x)", "thresholded_relu(%x) alpha=0.5",
     "thresholded_relu", "x where x > 0.5, else 0"),
    (SIZE + "less_equal; %y = where(%c, %zero, %x)", "shrink(%x) alpha=0.5", "shrink", "x where |x| > 0.5, else 0"),
    (SIZE + "greater; " + SIGN + "%y = where(%c, %d, %n)", "shrink(%x) alpha=0.5 beta=0.5", "shrink",
     "x - 0.5 * sign(x) where |x| > 0.5, else 0"),
]  # fmt: skip

OTHERS = {
    "a guard that is reached": "%s = softplus(%x); %c = compare(%x, %two) question=greater; %y = where(%c, %x, %s)",
    "branches the other way": GUARD + "less; %y = where(%c, %x, %s)",
    "another argument": "%u = mul(%x, %two); %s = softplus(%u); %c = compare(%x, %twenty) question=greater; "
    "%y = where(%c, %x, %s)",
    "another factor": SCALED + "%y = where(%c, %u, %d)",
    "a number that is not 0": "%c = compare(%x, %half) question=less_equal; %y = where(%c, %less, %x)",
    "another slope's number": "%m = mul(%x, %tenth); %c = compare(%x, %half) question=less; %y = where(%c, %m, %x)",
    "the number itself is kept": "%c = compare(%x, %half) question=greater_equal; %y = where(%c, %x, %zero)",
    "the number itself is kept, turned": "%c = compare(%half, %x) question=greater; %y = where(%c, %zero, %x)",
    "magnitudes of the number are kept": SIZE + "less; %y = where(%c, %zero, %x)",
    "a number far below": "%s = sigmoid(%x); %c = compare(%x, %far) question=greater; %y = where(%c, %x, %s)",
    "equality": "%c = compare(%x, %zero) question=equal; %y = where(%c, %x, %zero)",
}


def spelled(statements: str, outputs: str = "%y") -> Graph:
    """The statements, separated by semicolons, as a graph of %x with the numbers that they use."""
    named = set(re.findall(r"%(\w+)", statements))
    lines = [f"const %{name}: f32[] {{{value}}}" for name, value in NUMBERS.items() if name in named]
    lines += [f'{line.strip()} // "{line.strip().split()[0][1:]}"' for line in statements.split(";")]
    text = "\n          ".join(lines)
    return graph(f"graph g batch=2 (%x: f32[2,3,4]) -> ({outputs}) {{\n{text}\n}}")


@pytest.mark.parametrize(("statements", "becomes", "function", "formula"), SPELLINGS)
def test_the_choice_is_gone(statements: str, becomes: str, function: str, formula: str) -> None:
    result = run(RECOGNISE_ACTIVATIONS, spelled(statements))
    assert body(result.graph).splitlines()[-1].split("  //")[0].split(" @")[0] == f"%y = {becomes}"
    assert "compare" not in body(result.graph)
    assert said(result)[-1] == ("y", f"recognised {function}", formula)


@pytest.mark.parametrize("statements", OTHERS.values(), ids=OTHERS)
def test_other_choices_stay(statements: str) -> None:
    before = spelled(statements)
    assert run(RECOGNISE_ACTIVATIONS, before).graph is before


def test_a_comparison_that_is_an_output_stays() -> None:
    before = spelled(GUARD + "greater; %y = where(%c, %x, %s)", "%y, %c")
    assert run(RECOGNISE_ACTIVATIONS, before).graph is before
