"""Normalisations whose result a model scales and shifts by numbers that it computes."""

from __future__ import annotations

import re

import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.text import format_graph
from bolt_build.planner.passes.fold.scaled_norms import SCALE_NORMS

NORM = "%n = norm(%x) statistic=variance axes=[2] epsilon=1e-05"
ONES = NORM.replace("%x", "%x, %w")
BOTH = "%m = mul(%n, %s); %y = add(%t, %m)"


def modulated(statements: str, outputs: str = "%y") -> Graph:
    """The statements, separated by semicolons, of tokens, and a scale and a shift for each image."""
    lines = [f'{line.strip()} // "{line.strip()[1]}"' for line in statements.split(";")]
    constants = ["const %w: f32[4]", "const %b: f32[4]"]
    used = [line for line in constants if re.search(rf"%{line[7]}\b", statements)]
    inputs = ", ".join(
        f"%{name}: {type_}"
        for name, type_ in (("x", "f32[2,3,4]"), ("s", "f32[2,1,4]"), ("t", "f32[2,1,4]"), ("full", "f32[2,3,4]"))
        if re.search(rf"%{name}\b", statements)
    )
    return graph("\n".join([f"graph g batch=2 ({inputs}) -> ({outputs}) {{", *used, *lines, "}"]))


def nodes(after: Graph) -> list[str]:
    lines = [line for line in format_graph(after).splitlines() if " = " in line]
    return [re.split(" @|  //| epsilon", line.split("=", 1)[1].strip())[0] for line in lines]


@pytest.mark.parametrize(
    ("statements", "made"),
    [
        (f"{NORM}; {BOTH}", ["norm(%x, %s, %t) statistic=variance axes=[2]"]),
        (f"{NORM}; %y = mul(%s, %n)", ["norm(%x, %s) statistic=variance axes=[2]"]),
        (f"{NORM}; %m = mul(%n, %s); %y = add(%m, %full)",
         ["norm(%x, %s) statistic=variance axes=[2]", "add(%'m, %full)"]),
        (f"{ONES}; {BOTH}", ["mul(%s, %w)", "norm(%x, %'s.scale, %t) statistic=variance axes=[2]"]),
    ],
)  # fmt: skip
def test_computed_scales_and_shifts_are_the_normalisations(statements: str, made: list[str]) -> None:
    result = run(SCALE_NORMS, modulated(statements))
    assert nodes(result.graph) == [line.replace("%'m", "%m") for line in made]
    words = [("m" if "%m" in statements else "y", "fused", "'s' into the normalisation 'n' as its scale")]
    if "%t" in statements:
        words.append(("y", "fused", "'t' into the normalisation 'n' as its bias"))
    assert said(result) == words


@pytest.mark.parametrize(
    "statements",
    [
        f"{NORM}; %y = mul(%n, %full)",
        f"{NORM}; %y = mul(%n, %w)",
        f"{NORM}; %y = add(%n, %t)",
        "%n = norm(%x, %w, %b) statistic=variance axes=[2] epsilon=1e-05; %y = mul(%n, %s)",
    ],
)
def test_others_stay(statements: str) -> None:
    """A gate of the tokens, constants, a shift alone, and what has a bias already."""
    before = modulated(statements)
    result = run(SCALE_NORMS, before)
    assert result.graph == before
    assert said(result) == []


def test_a_normalisation_that_others_read_stays_and_says_why() -> None:
    before = modulated(f"{NORM}; %y = mul(%n, %s)", "%y, %n")
    result = run(SCALE_NORMS, before)
    assert result.graph == before
    assert said(result) == [("n", "declined", "'s' stays out of the normalisation: 'n' is a graph output")]
