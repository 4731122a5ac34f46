"""Rotary embedding, as exporters spell it out, becomes one operator on rows."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.text import format_op
from bolt_build.planner.passes.recognise.rotary import RECOGNISE_ROTARY


def first(after: Graph) -> str:
    """The first node of a graph, without its name."""
    return body(after).split("  //")[0].split(" @")[0]


ANGLES = "const %cos: f32[5,8]\n const %sin: f32[5,8]\n const %c: f32[5,4]\n const %s: f32[5,4]"
HALVES = """
    %lo = slice(%x) begin=[0,0,0,0] count=[2,3,5,4] step=[1,1,1,1] // "lo"
    %hi = slice(%x) begin=[0,0,0,4] count=[2,3,5,4] step=[1,1,1,1] // "hi"
"""
NEIGHBOURS = """
    %lo = slice(%x) begin=[0,0,0,0] count=[2,3,5,4] step=[1,1,1,2] // "lo"
    %hi = slice(%x) begin=[0,0,0,1] count=[2,3,5,4] step=[1,1,1,2] // "hi"
"""
PAIRED = """
    const %zero: i64[] {0}
    const %one: i64[] {1}
    %p = reshape(%x) shape=[2,3,5,4,2] // "p"
    %lo = gather(%p, %zero) axis=4 // "lo"
    %hi = gather(%p, %one) axis=4 // "hi"
"""
UNBOUND = """
    %p = reshape(%x) shape=[2,3,5,4,2] // "p"
    %p0 = slice(%p) begin=[0,0,0,0,0] count=[2,3,5,4,1] step=[1,1,1,1,1] // "p0"
    %p1 = slice(%p) begin=[0,0,0,0,1] count=[2,3,5,4,1] step=[1,1,1,1,1] // "p1"
    %lo = reshape(%p0) shape=[2,3,5,4] // "lo"
    %hi = reshape(%p1) shape=[2,3,5,4] // "hi"
"""
TOGETHER = """
    %a1 = reshape(%first) shape=[2,3,5,4,1] // "a1"
    %b1 = reshape(%second) shape=[2,3,5,4,1] // "b1"
    %ab = concat(%a1, %b1) axis=4 // "ab"
"""
EXCHANGED = """
    %n = neg(%hi) // "n"
    %r = concat(%n, %lo) axis=3 // "r"
"""
STACKED = """
    %n = neg(%hi) // "n"
    %a1 = reshape(%n) shape=[2,3,5,4,1] // "a1"
    %b1 = reshape(%lo) shape=[2,3,5,4,1] // "b1"
    %ab = concat(%a1, %b1) axis=4 // "ab"
    %r = reshape(%ab) shape=[2,3,5,8] // "r"
"""
KEPT_ONE = """
    %p = reshape(%x) shape=[2,3,5,4,2] // "p"
    %p0 = slice(%p) begin=[0,0,0,0,0] count=[2,3,5,4,1] step=[1,1,1,1,1] // "p0"
    %p1 = slice(%p) begin=[0,0,0,0,1] count=[2,3,5,4,1] step=[1,1,1,1,1] // "p1"
    %hi = reshape(%p1) shape=[2,3,5,4] // "hi"
    %n = neg(%hi) // "n"
    %a1 = reshape(%n) shape=[2,3,5,4,1] // "a1"
    %ab = concat(%a1, %p0) axis=4 // "ab"
    %r = reshape(%ab) shape=[2,3,5,8] // "r"
"""
KEPT = """
    %p = reshape(%x) shape=[2,3,5,4,2] // "p"
    %p0 = slice(%p) begin=[0,0,0,0,0] count=[2,3,5,4,1] step=[1,1,1,1,1] // "p0"
    %p1 = slice(%p) begin=[0,0,0,0,1] count=[2,3,5,4,1] step=[1,1,1,1,1] // "p1"
    %n = neg(%p1) // "n"
    %ab = concat(%n, %p0) axis=4 // "ab"
    %r = reshape(%ab) shape=[2,3,5,8] // "r"
"""
SUM = """
    %xc = mul(%x, %cos) // "xc"
    %rs = mul(%sin, %r) // "rs"
    %y = add(%rs, %xc) // "y"
"""
APART = """
    %a = mul(%lo, %c) // "a"
    %b = mul(%hi, %s) // "b"
    %first = sub(%a, %b) // "first"
    %d = mul(%hi, %c) // "d"
    %e = mul(%lo, %s) // "e"
    %second = add(%d, %e) // "second"
"""


BACK = """
    %n = neg(%lo) // "n"
    %r = concat(%hi, %n) axis=3 // "r"
"""
APART_BACK = """
    %a = mul(%lo, %c) // "a"
    %b = mul(%hi, %s) // "b"
    %first = add(%a, %b) // "first"
    %d = mul(%hi, %c) // "d"
    %n = neg(%s) // "n"
    %e = mul(%lo, %n) // "e"
    %second = add(%e, %d) // "second"
"""


def turning(*parts: str, x: str = "f32[2,3,5,8]") -> Graph:
    return graph("\n".join([f"graph g batch=2 (%x: {x}) -> (%y) {{", ANGLES, *parts, "}"]))


@pytest.mark.parametrize(
    ("parts", "made", "pairs"),
    [
        ((HALVES, EXCHANGED, SUM), "rotary(%x, %cos, %sin)", "halves"),
        ((NEIGHBOURS, STACKED, SUM), "rotary(%x, %cos, %sin) interleaved=true", "neighbours"),
        ((HALVES, APART, '%y = concat(%first, %second) axis=3 // "y"'), "rotary(%x, %'c.both, %'s.both)", "halves"),
        (
            (NEIGHBOURS, APART, TOGETHER, '%y = reshape(%ab) shape=[2,3,5,8] // "y"'),
            "rotary(%x, %'c.both, %'s.both) interleaved=true", "neighbours",
        ),
        (
            (PAIRED, APART, TOGETHER, '%y = reshape(%ab) shape=[2,3,5,8] // "y"'),
            "rotary(%x, %'c.both, %'s.both) interleaved=true", "neighbours",
        ),
        ((UNBOUND, STACKED, SUM), "rotary(%x, %cos, %sin) interleaved=true", "neighbours"),
        ((KEPT_ONE, SUM), "rotary(%x, %cos, %sin) interleaved=true", "neighbours"),
        ((KEPT, SUM), "rotary(%x, %cos, %sin) interleaved=true", "neighbours"),
        ((HALVES, BACK, SUM), "rotary(%x, %cos, %'sin.back)", "halves"),
        ((HALVES, APART_BACK, '%y = concat(%first, %second) axis=3 // "y"'), "rotary(%x, %'c.both, %'s.both.back)",
         "halves"),
    ],
)  # fmt: skip
def test_pairs_are_turned_by_one_operator(parts: tuple[str, ...], made: str, pairs: str) -> None:
    result = run(RECOGNISE_ROTARY, turning(*parts))
    assert first(result.graph) == f"%y = {made}"
    assert said(result) == [("y", "recognised rotary embedding", f"of 8 elements, in {pairs}")]


@pytest.mark.parametrize("begin", [4, 3])
def test_elements_that_pass_by_are_put_together_with_both_halves(begin: int) -> None:
    """As ONNX's operator is written out where it turns a part of each head."""
    before = graph(f"""
        graph g batch=2 (%x: f32[2,3,5,8]) -> (%y) {{
          const %c: f32[5,2]
          const %s: f32[5,2]
          %lo = slice(%x) begin=[0,0,0,0] count=[2,3,5,2] step=[1,1,1,1] // "lo"
          %hi = slice(%x) begin=[0,0,0,2] count=[2,3,5,2] step=[1,1,1,1] // "hi"
          %rest = slice(%x) begin=[0,0,0,{begin}] count=[2,3,5,4] step=[1,1,1,1] // "rest"
          {APART}
          %y = concat(%first, %second, %rest) axis=3 // "y"
        }}""")
    result = run(RECOGNISE_ROTARY, before)
    if begin == 4:
        assert first(result.graph) == "%y = rotary(%x, %'c.both, %'s.both)"
    else:
        assert result.graph == before


def test_pairs_that_lie_along_an_axis_of_their_own_are_turned_without_it() -> None:
    """As Llama's reference splits a product's columns in heads and pairs at once, and joins images and heads behind."""
    parts = (PAIRED.replace("{0}", "{-2}"), APART, TOGETHER, '%y = reshape(%ab) shape=[6,5,8] // "y"')
    result = run(RECOGNISE_ROTARY, turning(*parts, x="f32[2,3,5,4,2]"))
    assert [format_op(node.op) for node in result.graph.nodes] == [
        ("reshape", " shape=[2,3,5,4,2]"), ("reshape", " shape=[2,3,5,8]"), ("rotary", " interleaved=true"),
        ("reshape", " shape=[6,5,8]"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "parts",
    [
        (PAIRED.replace("{1}", "{0}"), APART, TOGETHER, '%y = reshape(%ab) shape=[2,3,5,8] // "y"'),
        (UNBOUND, EXCHANGED, SUM),
        (NEIGHBOURS, EXCHANGED, SUM),
        (HALVES, STACKED, SUM),
        (HALVES, EXCHANGED.replace("%n, %lo", "%lo, %n"), SUM),
        (HALVES.replace("begin=[0,0,0,4]", "begin=[0,0,0,3]"), EXCHANGED, SUM),
        (HALVES, APART.replace("%first = sub(%a, %b)", "%first = sub(%b, %a)"),
         '%y = concat(%first, %second) axis=3 // "y"'),
    ],
)  # fmt: skip
def test_what_turns_no_pairs_stays(parts: tuple[str, ...]) -> None:
    before = turning(*parts)
    result = run(RECOGNISE_ROTARY, before)
    assert result.graph == before
    assert said(result) == []


ONE = "const %c: f32[{shape}]\n const %s: f32[{shape}]"
"""Angles of all pairs of a row, or of everything."""


@pytest.mark.parametrize("shape", ["5,1", "2,3,1,1", "1", ""])
@pytest.mark.parametrize(
    "parts",
    [
        (HALVES, APART, '%y = concat(%first, %second) axis=3 // "y"'),
        (NEIGHBOURS, APART, TOGETHER, '%y = reshape(%ab) shape=[2,3,5,8] // "y"'),
        ("%lo = relu(%x)\n %hi = sigmoid(%x)", APART, '%y = concat(%first, %second) axis=3 // "y"'),
    ],
)
def test_one_angle_of_all_pairs_is_none_of_each(shape: str, parts: tuple[str, ...]) -> None:
    lines = [ONE.format(shape=shape), *parts]
    before = graph("\n".join(["graph g batch=2 (%x: f32[2,3,5,8]) -> (%y) {", *lines, "}"]))
    assert run(RECOGNISE_ROTARY, before).graph == before


def test_pairs_of_doubles_stay_for_which_nothing_has_a_kernel() -> None:
    parts = [ANGLES.replace("f32", "f64"), HALVES, EXCHANGED, SUM]
    before = graph("\n".join(["graph g batch=2 (%x: f64[2,3,5,8]) -> (%y) {", *parts, "}"]))
    assert run(RECOGNISE_ROTARY, before).graph == before


def test_a_part_of_queries_that_lie_beside_keys_is_turned() -> None:
    """As GPT-NeoX has queries, keys and values of a head side by side, and turns a part of the first two."""
    before = graph("""
        graph g batch=2 (%x: f32[2,3,5,30]) -> (%y) {
          const %cos: f32[5,4]
          const %sin: f32[5,4]
          %part = slice(%x) begin=[0,0,0,10] count=[2,3,5,4] step=[1,1,1,1] // "part"
          %rest = slice(%x) begin=[0,0,0,14] count=[2,3,5,6] step=[1,1,1,1] // "rest"
          %lo = slice(%part) begin=[0,0,0,0] count=[2,3,5,2] step=[1,1,1,1] // "lo"
          %hi = slice(%part) begin=[0,0,0,2] count=[2,3,5,2] step=[1,1,1,1] // "hi"
          %n = neg(%hi) // "n"
          %r = concat(%n, %lo) axis=3 // "r"
          %xc = mul(%part, %cos) // "xc"
          %rs = mul(%r, %sin) // "rs"
          %t = add(%xc, %rs) // "t"
          %y = concat(%t, %rest) axis=3 // "y"
        }""")
    result = run(RECOGNISE_ROTARY, before)
    assert [format_op(node.op) for node in result.graph.nodes] == [
        ("slice", " begin=[0,0,0,10] count=[2,3,5,10] step=[1,1,1,1]"), ("rotary", ""),
    ]  # fmt: skip


def test_a_class_token_is_turned_by_nothing() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,3,6,8]) -> (%y) {
          const %cos: f32[5,8]
          const %sin: f32[5,8]
          %token = slice(%x) begin=[0,0,0,0] count=[2,3,1,8] step=[1,1,1,1] // "token"
          %rest = slice(%x) begin=[0,0,1,0] count=[2,3,5,8] step=[1,1,1,1] // "rest"
          %lo = slice(%x) begin=[0,0,1,0] count=[2,3,5,4] step=[1,1,1,1] // "lo"
          %hi = slice(%rest) begin=[0,0,0,4] count=[2,3,5,4] step=[1,1,1,1] // "hi"
          %n = neg(%hi) // "n"
          %r = concat(%n, %lo) axis=3 // "r"
          %xc = mul(%rest, %cos) // "xc"
          %rs = mul(%r, %sin) // "rs"
          %t = add(%xc, %rs) // "t"
          %y = concat(%token, %t) axis=2 // "y"
        }""")
    result = run(RECOGNISE_ROTARY, before)
    assert first(result.graph) == "%y = rotary(%x, %'cos.all, %'sin.all)"
    assert said(result)[1] == ("y", "recognised rotary embedding", "of all of 'x', where a part passed by")
    cosines, sines = (result.graph.constant(f"{name}.all") for name in ("cos", "sin"))
    assert cosines is not None
    assert sines is not None
    assert (cosines.shape, set(cosines[0]), set(sines[0])) == ((6, 8), {1.0}, {0.0})


def part(first: str, second: str, cosines: str = "const %cos: f32[5,8]") -> Graph:
    """The first eight of twelve elements turned, and the others behind or in front."""
    return graph(f"""
        graph g batch=2 (%x: f32[2,5,12]) -> (%y) {{
          {cosines}
          const %sin: f32[5,8]
          %own = slice(%x) begin=[0,0,{first}] count=[2,5,8] step=[1,1,1] // "own"
          %other = slice(%x) begin=[0,0,{second}] count=[2,5,4] step=[1,1,1] // "other"
          %t = rotary(%own, %cos, %sin) // "t"
          %y = concat({"%t, %other" if first == "0" else "%other, %t"}) axis=2 // "y"
        }}""")


def test_elements_behind_the_turned_ones_pass_by() -> None:
    result = run(RECOGNISE_ROTARY, part("0", "8"))
    assert first(result.graph) == "%y = rotary(%x, %cos, %sin)"


def test_elements_in_front_of_the_turned_ones_do_too() -> None:
    result = run(RECOGNISE_ROTARY, part("4", "0"))
    assert first(result.graph) == "%y = rotary(%x, %cos, %sin) passed=4"


def test_elements_in_front_are_put_together_with_both_halves() -> None:
    """DeepSeek's queries."""
    before = graph(f"""
        graph g batch=2 (%z: f32[2,3,5,14]) -> (%y) {{
          {ANGLES}
          %front = slice(%z) begin=[0,0,0,0] count=[2,3,5,6] step=[1,1,1,1] // "front"
          %x = slice(%z) begin=[0,0,0,6] count=[2,3,5,8] step=[1,1,1,1] // "x"
          {HALVES}
          {APART}
          %y = concat(%front, %first, %second) axis=3 // "y"
        }}""")
    result = run(RECOGNISE_ROTARY, before)
    assert first(result.graph) == "%y = rotary(%z, %'c.both, %'s.both) passed=6"
