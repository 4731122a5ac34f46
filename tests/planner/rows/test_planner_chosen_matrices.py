"""Rows that each have a matrix of their own among a stack are one product: experts."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said, same_values

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.products.chosen_matmul import ChosenMatMul
from bolt_build.planner.passes.rows.chosen_matrices import CHOSEN_MATRICES
from bolt_build.targets import target_named

HEAD = """
    graph g batch=1 (%x: f32[6,4], %e: i64[6]) -> (%y{more}) {{
      const %w: f32[3,{matrix}] #
"""
ALL = (
    HEAD
    + """
      const %count: i64[] {{{count}}}
      const %own: i64[6] {{0,1,2,3,4,5}}
      %lines = reshape(%x) shape=[1,6,4] // "lines"
      %every = matmul(%lines, %w) {how} // "every"
      %flat = reshape(%every) shape=[18,5] // "flat"
      %behind = mul(%e, %count) // "behind"
      %place = add(%own, %behind) // "place"
      %y = gather(%flat, %place) axis=0 // "y"
    }}"""
)
GATHERED = (
    HEAD
    + """
      %taken = gather(%w, %e) axis=0 // "taken"
      %lines = reshape(%x) shape={lines} // "lines"
      %made = matmul({factors}) {how} // "made"
      %y = reshape(%made) shape=[6,5] // "y"
    }}"""
)


def products(before: Graph) -> list[ChosenMatMul]:
    """Those that the pass leaves, which compute the same."""
    result = run(CHOSEN_MATRICES, before).graph
    same_values(before, result)
    assert not {"gather", "gather_nd", "matmul"} & {node.op.kind for node in result.nodes}
    return [node.op for node in result.nodes if isinstance(node.op, ChosenMatMul)]


def of_all(matrix: str = "4,5", how: str = "", count: int = 6, more: str = "") -> Graph:
    return graph(ALL.format(matrix=matrix, how=how, count=count, more=more))


def of_gathered(matrix: str, lines: str, factors: str, how: str = "", more: str = "") -> Graph:
    return graph(GATHERED.format(matrix=matrix, lines=lines, factors=factors, how=how, more=more))


def test_rows_of_products_with_all_matrices_are_those_of_chosen_ones() -> None:
    assert products(of_all()) == [ChosenMatMul()]
    assert products(of_all("5,4", "transpose_b=true")) == [ChosenMatMul(transpose_b=True)]
    assert said(run(CHOSEN_MATRICES, of_all())) == [
        ("y", "multiplied with chosen matrices", "6 rows, 3 matrices of 4x5")
    ]


@pytest.mark.parametrize(
    ("matrix", "lines", "factors", "how", "turned"),
    [
        ("4,5", "[6,1,4]", "%lines, %taken", "", False),
        ("5,4", "[6,1,4]", "%lines, %taken", "transpose_b=true", True),
        ("5,4", "[6,4,1]", "%taken, %lines", "", True),
        ("5,4", "[6,1,4]", "%taken, %lines", "transpose_b=true", True),
    ],
)
def test_so_are_products_with_matrices_that_were_gathered(
    matrix: str, lines: str, factors: str, how: str, turned: bool
) -> None:
    assert products(of_gathered(matrix, lines, factors, how)) == [ChosenMatMul(turned)]


def test_torch_export_gathers_matrices_by_tuples_of_one_index() -> None:
    text = GATHERED.format(matrix="5,4", lines="[6,4,1]", factors="%taken, %lines", how="", more="")
    tuples = "%tuples = reshape(%e) shape=[6,1]\n      %taken = gather_nd(%w, %tuples) batch_dims=0"
    before = graph(text.replace("%taken = gather(%w, %e) axis=0", tuples))
    assert products(before) == [ChosenMatMul(transpose_b=True)]


@pytest.mark.parametrize(
    ("before", "why"),
    [
        (of_all(more=", %every"), "'every' multiplies with all matrices, and 'every' is a graph output"),
        (
            of_gathered("4,5", "[6,1,4]", "%lines, %taken", more=", %taken"),
            "the matrices of 'taken' are gathered, and 'taken' is a graph output",
        ),
    ],
)
def test_it_says_why_others_stay(before: Graph, why: str) -> None:
    result = run(CHOSEN_MATRICES, before)
    assert result.graph == before
    assert [each[1:] for each in said(result)] == [("declined", why)]


def test_other_places_are_no_choice_of_a_matrix() -> None:
    assert run(CHOSEN_MATRICES, of_all(count=5)).decisions == ()


def test_it_is_for_gpus_whose_tensor_cores_multiply_the_precision() -> None:
    assert CHOSEN_MATRICES.pays_on is not None
    for name, dtype, pays in (("h200", "fp16", True), ("t4", "fp16", True), ("h200", "fp32", False)):
        assert CHOSEN_MATRICES.pays_on(target_named(name), dtype) is pays
    assert not CHOSEN_MATRICES.pays_on(target_named("host"), "fp32")
