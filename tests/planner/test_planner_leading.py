"""Covers that lead: the cheapest, and what takes nearly as little without a part of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planner_fakes import HOST_TARGET, LAST, ROW
from test_planner_selected_space import net, planned, selection, space_of, trials_of
from tuned_family import Tiled

from bolt_build.families.base import KernelProblem
from bolt_build.graph.ir import Layout
from bolt_build.planner.selection import ChosenCover, Selection
from bolt_build.tuning.trials import leading_covers as module
from bolt_build.tuning.trials.engine_table import engine_tables, lineup
from bolt_build.tuning.trials.leading_covers import MOST, leading_covers

TILED = Tiled(conversion=1e-8)


def layout_of(problem: KernelProblem) -> Layout:
    return problem.outputs[0].format.layout


def times(last: float, row: float) -> Selection:
    """Everything measured: softmaxes take so many seconds in each layout."""
    by = {LAST: last, ROW: row}
    return selection(
        trials_of(TILED), lambda problem, _: 1e-8 if problem.op.kind == "convert" else by[layout_of(problem)]
    )


def leading(by: Selection) -> tuple[ChosenCover, ...]:
    return leading_covers(space_of(TILED), by, HOST_TARGET, [TILED])


def test_the_first_is_what_the_planner_takes() -> None:
    for by in (times(1e-6, 1.01e-6), times(2e-6, 1e-6)):
        assert leading(by)[0] == planned(TILED, by=by).covers[0]


def test_others_do_without_a_part_of_it_and_take_little_more() -> None:
    found = leading(times(1e-6, 1.01e-6))
    assert 1 < len(found) <= 1 + MOST
    assert len(set(found)) == len(found)
    first = set(found[0].alternatives)
    assert all(set(other.alternatives) - first for other in found[1:])


def test_what_takes_much_more_does_not_lead() -> None:
    assert len(leading(times(1e-6, 3e-6))) == 1


def test_equal_layers_change_together() -> None:
    # "a" and "y" are one problem: a cover has both of them in one layout or the other.
    for cover in leading(times(1e-6, 1.01e-6)):
        by_node = {each.region[0]: each.problems for each in cover.alternatives}
        assert by_node["a"] == by_node["y"]


def test_of_very_many_kinds_those_for_the_same_operators_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    # All three nodes are softmaxes of one family: without its kernels for them nothing is left.
    monkeypatch.setattr(module, "MANY", 1)
    assert len(leading(times(1e-6, 1.01e-6))) == 1


def test_covers_and_engines_of_the_selection_do_not_count() -> None:
    by = times(1e-6, 1.01e-6)
    found = leading(by)
    assert leading(replace(by, covers=found[1:2])) == found


def test_a_lineup_has_the_plan_of_each_cover_as_an_engine_has_it() -> None:
    by = times(1e-6, 1.01e-6)
    found = lineup(space_of(TILED), by, HOST_TARGET, [TILED])
    assert [cover for _, cover in found.plans] == list(leading(by))
    assert found.table == engine_tables(planned(TILED, by=by))[0]
    for table, cover in found.plans:
        assert engine_tables(planned(TILED, by=replace(by, covers=(cover,))))[0] == table
        assert found.plan(table.digest) == (table, cover)
    assert found.kept([]).plans == found.plans[:1]
    assert found.plan("0" * 64) is None


def test_a_batch_is_the_same_engine_whichever_others_there_are() -> None:
    alone = engine_tables(planned(TILED, graphs=[net(8)]))
    both = engine_tables(planned(TILED, graphs=[net(1), net(8)]))
    assert alone == both[1:]
