"""GroupNorm as torch-script exports it, and arithmetic that broadcasts by itself."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.recognise.group_norms import RECOGNISE_GROUP_NORMS
from bolt_build.planner.passes.tidy.expands import BROADCAST


def grouped(groups: int, behind: str, outputs: str = "%y", rows: str = "") -> Graph:
    """A normalisation of `groups` rows of an image, with `behind` what reads the image %b again."""
    return graph(f"""
        graph g batch=2 (%x: f32[2,4,3,5]) -> ({outputs}) {{
          const %s: f32[{groups},1] #
          const %t: f32[{groups},1] #
          const %w: f32[4,1,1] #
          const %v: f32[4,1,1] #
          const %one: f32[1] #
          const %wide: f32[5] #
          %a = reshape(%x) shape={rows or f"[2,{groups},{60 // groups}]"} // "a"
          %n = norm(%a, %s, %t) statistic=variance axes=[2] epsilon=1e-05 groups=1 // "n"
          %b = reshape(%n) shape=[2,4,3,5] // "b"
          {behind}
        }}""")


@pytest.mark.parametrize(("groups", "words"), [(1, "1 group"), (2, "2 groups"), (4, "4 groups")])
@pytest.mark.parametrize(
    ("behind", "covers", "left"),
    [
        ('%c = mul(%b, %w) // "c"\n%y = add(%v, %c) // "y"', '"a", "n", "b", "c", "y"', ""),
        ('%y = add(%b, %v) // "y"', '"a", "n", "b", "y"', ""),
        ('%y = relu(%b) // "y"', '"a", "n", "b"', '\n%y = relu(%b)  // "y"'),
        ('%y = mul(%b, %wide) // "y"', '"a", "n", "b"', '\n%y = mul(%b, %wide)  // "y"'),
        ('%y = mul(%b, %one) // "y"', '"a", "n", "b", "y"', ""),
    ],
)
def test_groups_of_channels_are_normalised_where_they_are(
    groups: int, words: str, behind: str, covers: str, left: str
) -> None:
    result = run(RECOGNISE_GROUP_NORMS, grouped(groups, behind))
    name = "%b" if left else "%y"
    cut = f" groups={groups}" if groups > 1 else ""
    norm = f"{name} = norm(%x, %'n.scale, %'n.shift) statistic=variance axes=[1,2,3] epsilon=1e-05{cut}"
    assert body(result.graph) == f"{norm} @{name[1:]}  // {covers}{left}"
    assert said(result) == [(name[1:], "recognised group norm", f"4 channels in {words}")]


@pytest.mark.parametrize(
    "before",
    [
        grouped(2, '%y = relu(%b) // "y"', "%y, %n"),
        grouped(4, '%y = relu(%n) // "y"\n%z = relu(%b) // "z"', "%y, %z"),
    ],
)
def test_rows_that_somebody_else_reads_stay_rows(before: Graph) -> None:
    assert run(RECOGNISE_GROUP_NORMS, before).graph == before


@pytest.mark.parametrize("rows", ["[1,4,30]", "[2,3,20]", "[4,2,15]"])
def test_rows_that_are_no_groups_of_channels_stay_rows(rows: str) -> None:
    images, groups, _ = rows.strip("[]").split(",")
    before = graph(f"""
        graph g batch={images} (%x: f32[2,4,3,5]) -> (%y) {{
          const %s: f32[{groups},1] #
          %a = reshape(%x) shape={rows} // "a"
          %n = norm(%a, %s) statistic=variance axes=[2] epsilon=1e-05 groups=1 // "n"
          %y = reshape(%n) shape=[2,4,3,5] // "y"
        }}""")
    assert run(RECOGNISE_GROUP_NORMS, before).graph == before


def test_a_norm_of_one_number_a_position_stays() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,4,3,5]) -> (%y) {
          const %s: f32[30] #
          %a = reshape(%x) shape=[2,2,30] // "a"
          %n = norm(%a, %s) statistic=variance axes=[2] epsilon=1e-05 groups=1 // "n"
          %y = reshape(%n) shape=[2,4,3,5] // "y"
        }""")
    assert run(RECOGNISE_GROUP_NORMS, before).graph == before


def test_arithmetic_broadcasts_what_an_expand_repeats() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,3,4], %m: f32[4]) -> (%y, %z) {
          %n = reduce(%x) mode=l2 axes=[2] keepdims=true // "n"
          %e = expand(%n) shape=[2,3,4] // "e"
          %y = div(%x, %e) // "y"
          %f = expand(%m) shape=[2,3,4] // "f"
          %z = sub(%f, %x) // "z"
        }""")
    result = run(BROADCAST, before)
    assert [node.op.kind for node in result.graph.nodes] == ["reduce", "binary", "binary"]
    assert said(result) == [
        ("y", "broadcasts", "'n' without the expand 'e'"), ("z", "broadcasts", "'m' without the expand 'f'"),
    ]  # fmt: skip


POSITIONS = """
        graph g batch=2 (%x: f32[2,3,1,4,3], %v: f32[2,4,1,3,4]) -> ({outputs}) {{
          %e = expand(%x) shape=[2,3,4,4,3] // "e"
          %t = transpose(%e) perm=[0,1,3,2,4] // "t"
          %f = expand(%v) shape=[2,4,3,3,4] // "f"
          %p = transpose(%f) perm=[0,3,1,4,2] // "p"
          %y = add(%p, %t) // "y"
          {more}
        }}"""


def test_what_repeats_is_turned_before_arithmetic_repeats_it() -> None:
    """Relative positions of BoTNet: those of rows and those of columns, each repeated along the other."""
    result = run(BROADCAST, graph(POSITIONS.format(outputs="%y", more="")))
    assert body(result.graph).splitlines() == [
        '%\'t.once = transpose(%x) perm=[0,1,3,2,4]  // "t"',
        '%\'p.once = transpose(%v) perm=[0,3,1,4,2]  // "p"',
        "%y = add(%'p.once, %'t.once)  // \"y\"",
    ]
    assert said(result) == [
        ("y", "broadcasts", "'t.once' without the expand 'e'"), ("y", "broadcasts", "'p.once' without the expand 'f'"),
    ]  # fmt: skip


def test_what_is_read_turned_and_as_it_is_by_one_node_repeats_in_it_alone() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,3,1]) -> (%y) {
          %e = expand(%x) shape=[1,3,3] // "e"
          %t = transpose(%e) perm=[0,2,1] // "t"
          %y = mul(%t, %e) // "y"
        }""")
    assert [node.inputs for node in run(BROADCAST, before).graph.nodes] == [("x",), ("t.once", "x")]


def test_what_others_read_is_turned_as_it_is() -> None:
    before = graph(POSITIONS.format(outputs="%y, %t, %z", more='%q = relu(%p) // "q"\n %z = mul(%q, %p) // "z"'))
    assert run(BROADCAST, before).graph == before


def test_an_expand_stays_that_makes_the_result_larger_or_that_others_read() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,3,4], %m: f32[2,3,1]) -> (%y, %z) {
          const %c: f32[4] #
          %a = expand(%m) shape=[2,3,4] // "a"
          %b = expand(%x) shape=[5,2,3,4] // "b"
          %w = relu(%a) // "w"
          %y = mul(%x, %w) // "y"
          %z = mul(%b, %c) // "z"
        }""")
    assert run(BROADCAST, before).graph == before
