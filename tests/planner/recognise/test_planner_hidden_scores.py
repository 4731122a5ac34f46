"""Scores that are hidden in attention that models spell out: masks are added or chosen, and shares are zeroed."""

from __future__ import annotations

import pytest
from planner_checks import run, said
from spelled_attention import END, QKV, SCORES, found, spelled

from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.planner.passes.recognise.attention import RECOGNISE_ATTENTION


@pytest.mark.parametrize("sides", ["%s, %least", "%least, %s"])
def test_a_constant_condition_that_is_too_large_to_be_stored_as_numbers_is_asked_by_the_engine(
    sides: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bolt_build.planner.passes.recognise.attention.MOST_FOLDED", 24)
    before = spelled(QKV + SCORES + f"%m = where(%seen, {sides}); %p = softmax(%m) axis=3;" + END)
    after = run(RECOGNISE_ATTENTION, before).graph
    assert [node.inputs[0] for node in after.nodes if node.op == Where()] == ["seen"]


ADDED = "%y = attention(%q, %k, %v, %mask) heads=3 kv_heads=3 scale=1.0"
FACTOR = "%'o.rows = mul(%mask, %'mask.factor); " + ADDED.replace("%mask", "%'o.rows")
CHOSEN = (
    "%c = compare(%mask, %zero) question=less; %'o.rows = where(%c, %'c.hidden, %'c.shown); "
    "%y = attention(%q, %k, %v, %'o.rows) heads=3 kv_heads=3 scale=1.0"
)
SAFE = CHOSEN.replace("%'c.hidden, %'c.shown", "%'c.shown, %'c.hidden") + " safe=true"
GUARDED = "%n = ask(%p) question=nan; %w = where(%n, %zero, %p);"


@pytest.mark.parametrize(
    ("masked", "nodes"),
    [
        ("%m = add(%s, %mask); %p = softmax(%m) axis=3;", ADDED),
        ("%w = expand(%mask) shape=[2,1,5,5]; %m = add(%w, %s); %p = softmax(%m) axis=3;", ADDED),
        ("%m = sub(%s, %mask); %p = softmax(%m) axis=3;", FACTOR),
        ("%m = add(%s, %mask); %t2 = mul(%m, %half); %p = softmax(%t2) axis=3;", FACTOR.replace("1.0", "0.5")),
        ("%c = less(%mask, %zero); %m = where(%c, %least, %s); %p = softmax(%m) axis=3;", CHOSEN),
        ("%c = less(%mask, %zero); %m = where(%c, %s, %none); %p = softmax(%m) axis=3; " + GUARDED, SAFE),
        ("%e = mul(%s, %half); %m = add(%e, %bias); %p = softmax(%m) axis=3;",
         "%y = attention(%q, %k, %v, %bias) heads=3 kv_heads=3 scale=0.5"),
        ("%b1 = add(%s, %bias); %m = add(%b1, %mask); %p = softmax(%m) axis=3;",
         "%'o.rows = add(%mask, %bias); %y = attention(%q, %k, %v, %'o.rows) heads=3 kv_heads=3 scale=1.0"),
    ],
)  # fmt: skip
def test_masks_are_added_or_chosen(masked: str, nodes: str) -> None:
    masked = masked.replace("less(%mask, %zero)", "compare(%mask, %zero) question=less")
    end = END.replace("%p", "%w") if "%w = where" in masked else END
    assert found(spelled(QKV + SCORES + masked + end)) == nodes


ZEROED = SCORES + "%seen4 = reshape(%seen) shape=[1,1,5,5]; %h = where(%seen4, %s, {least}); %p0 = softmax(%h) axis=3; "


@pytest.mark.parametrize("zeros", ["where(%seen4, %p0, %zero)", "where(%not, %zero, %p0)"])
def test_shares_that_a_mask_zeroes_as_well_are_safe(zeros: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bolt_build.planner.passes.recognise.attention.MOST_FOLDED", 24)
    asked = '%not = ask(%seen4) question="not"; ' if "%not" in zeros else ""
    before = spelled(QKV + ZEROED.format(least="%least") + asked + f"%p = {zeros}; " + END)
    assert "safe=true" in found(before)


def test_shares_that_another_condition_zeroes_are_none() -> None:
    ids = '%pad4 = compare(%mask, %zero) question="less"; '
    before = spelled(QKV + ids + ZEROED.format(least="%least") + "%p = where(%pad4, %zero, %p0); " + END)
    result = run(RECOGNISE_ATTENTION, before)
    assert said(result) == [("p0", "declined", "'pad4' puts zeros in the place of shares that 'seen4' does not hide")]
