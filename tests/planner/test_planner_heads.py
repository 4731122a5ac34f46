"""Rotary embedding and normalised queries and keys, as exporters spell them out, become one operator on rows."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said, same_values

from bolt_build.graph.ir import Graph
from bolt_build.graph.text import format_op
from bolt_build.planner.passes.recognise.attention import RECOGNISE_ATTENTION
from bolt_build.planner.passes.recognise.norms import RECOGNISE_NORMS
from bolt_build.planner.passes.recognise.rotary import RECOGNISE_ROTARY


def first(after: Graph) -> str:
    """The first node of a graph, without its name."""
    return body(after).split("  //")[0].split(" @")[0]


# --- rotary embedding --------------------------------------------------------------------------------------------

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


def test_elements_in_front_of_the_turned_ones_do_not() -> None:
    result = run(RECOGNISE_ROTARY, part("4", "0"))
    assert said(result) == [("y", "declined", "around rotary embedding: turned elements stand behind others")]


# --- lengths -----------------------------------------------------------------------------------------------------


def test_a_division_by_a_length_is_a_normalisation() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,5,12]) -> (%y) {
          %l = reduce(%x) mode=l2 axes=[2] // "l"
          %c = clip(%l) alpha=9.999999960041972e-13 beta=3.4028234663852886e+38 // "c"
          %y = div(%x, %c) // "y"
        }""")
    result = run(RECOGNISE_NORMS, before)
    assert first(result.graph) == "%y = norm(%x) statistic=l2 axes=[2] epsilon=1e-12"
    assert said(result) == [("y", "recognised l2 norm", "x / max(sqrt(sum(x ** 2)), epsilon)")]


def test_a_length_that_others_read_stays() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,5,12]) -> (%y, %c) {
          %l = reduce(%x) mode=l2 axes=[2] // "l"
          %c = clip(%l) alpha=0.001 beta=3.4028234663852886e+38 // "c"
          %y = div(%x, %c) // "y"
        }""")
    result = run(RECOGNISE_NORMS, before)
    assert result.graph == before
    assert said(result) == [("y", "declined", "x / max(sqrt(sum(x ** 2)), epsilon): 'c' is a graph output")]


# --- in front of attention ---------------------------------------------------------------------------------------

PACKED = """
    %cut = reshape(%x) shape=[2,5,3,3,8] // "cut"
    %apart = transpose(%cut) perm=[2,0,3,1,4] // "apart"
    %q1 = slice(%apart) begin=[0,0,0,0,0] count=[1,2,3,5,8] step=[1,1,1,1,1] // "q1"
    %k1 = slice(%apart) begin=[1,0,0,0,0] count=[1,2,3,5,8] step=[1,1,1,1,1] // "k1"
    %v1 = slice(%apart) begin=[2,0,0,0,0] count=[1,2,3,5,8] step=[1,1,1,1,1] // "v1"
    %q = reshape(%q1) shape=[2,3,5,8] // "q"
    %k = reshape(%k1) shape=[2,3,5,8] // "k"
    %v = reshape(%v1) shape=[2,3,5,8] // "v"
"""
ATTENTION = """
    %p = softmax(%s) axis=3 // "p"
    %o = matmul(%p, %v) // "o"
    %t = transpose(%o) perm=[0,2,1,3] // "t"
    %y = reshape(%t) shape=[2,5,24] // "y"
"""


def attention(*parts: str) -> Graph:
    return graph("\n".join(["graph g batch=2 (%x: f32[2,5,72]) -> (%y) {", *parts, "}"]))


def made(before: Graph) -> list[str]:
    """The nodes of the graph behind the pass, without their names."""
    result = run(RECOGNISE_ATTENTION, before)
    assert [action for _, action, _ in said(result)] == ["recognised attention"]
    return [line.split("  //")[0].split(" @")[0] for line in body(result.graph).splitlines()]


def test_cosine_attention_reads_rows_of_heads_that_one_step_normalised_and_scaled() -> None:
    before = attention(
        "const %scale: f32[3,1,1]", PACKED,
        '%qn = norm(%q) statistic=l2 axes=[3] epsilon=1e-12 // "qn"',
        '%kn = norm(%k) statistic=l2 axes=[3] epsilon=1e-12 // "kn"',
        '%qk = matmul(%qn, %kn) transpose_b=true // "qk"',
        '%s = mul(%qk, %scale) // "s"', ATTENTION,
    )  # fmt: skip
    assert made(before)[:2] == [
        "%'o.rows = slice(%x) begin=[0,0,0] count=[2,5,48] step=[1,1,1]",
        "%'o.rows.1 = head_rows(%'o.rows, %'o.rows.scale) heads=6 statistic=l2 epsilon=1e-12 scaled=true",
    ]


def test_queries_and_keys_that_are_prepared_alike_are_one_step() -> None:
    before = attention(
        "const %g: f32[8]", "const %h: f32[8]", "const %b: f32[8]", "const %cos: f32[5,8]", "const %sin: f32[5,8]",
        PACKED,
        '%qn = norm(%q, %g, %b) statistic=variance axes=[3] epsilon=1e-5 // "qn"',
        '%kn = norm(%k, %h, %b) statistic=variance axes=[3] epsilon=1e-5 // "kn"',
        '%qr = rotary(%qn, %cos, %sin) // "qr"', '%kr = rotary(%kn, %cos, %sin) // "kr"',
        '%s = matmul(%qr, %kr) transpose_b=true // "s"', ATTENTION,
    )  # fmt: skip
    assert made(before) == [
        "%'o.rows = slice(%x) begin=[0,0,0] count=[2,5,48] step=[1,1,1]",
        (
            "%'o.rows.1 = head_rows(%'o.rows, %'o.rows.scale, %'o.rows.bias, %'o.rows.cosines, %'o.rows.sines) heads=6"
            " statistic=variance epsilon=1e-05 scaled=true shifted=true rotary=true"
        ),
        "%'o.rows.2 = slice(%'o.rows.1) begin=[0,0,0] count=[2,5,24] step=[1,1,1]",
        "%'o.rows.3 = slice(%'o.rows.1) begin=[0,0,24] count=[2,5,24] step=[1,1,1]",
        "%'o.rows.4 = slice(%x) begin=[0,0,48] count=[2,5,24] step=[1,1,1]",
        "%y = attention(%'o.rows.2, %'o.rows.3, %'o.rows.4) heads=3 kv_heads=3 scale=1.0",
    ]


def test_queries_and_keys_of_two_products_have_each_a_scale_of_its_own() -> None:
    before = graph(
        """
        graph g batch=2 (%x: f32[2,5,24], %z: f32[2,5,24], %v: f32[2,3,5,8]) -> (%y) {
          const %g: f32[8]
          const %h: f32[8]
          %xh = reshape(%x) shape=[2,5,3,8] // "xh"
          %q = transpose(%xh) perm=[0,2,1,3] // "q"
          %zh = reshape(%z) shape=[2,5,3,8] // "zh"
          %k = transpose(%zh) perm=[0,2,1,3] // "k"
          %qn = norm(%q, %g) statistic=rms axes=[3] epsilon=1e-5 // "qn"
          %kn = norm(%k, %h) statistic=rms axes=[3] epsilon=1e-5 // "kn"
          %s = matmul(%qn, %kn) transpose_b=true // "s"
    """
        + ATTENTION
        + "}"
    )
    assert made(before)[:2] == [
        "%'o.rows = head_rows(%x, %'o.rows.scale) heads=3 statistic=rms epsilon=1e-05 scaled=true",
        "%'o.rows.1 = head_rows(%z, %'o.rows.scale.2) heads=3 statistic=rms epsilon=1e-05 scaled=true",
    ]
    same_values(before, run(RECOGNISE_ATTENTION, before).graph)


def test_angles_may_be_no_constants() -> None:
    before = graph("\n".join([
        "graph g batch=2 (%x: f32[2,5,72], %cos: f32[2,1,5,8], %sin: f32[2,1,5,8]) -> (%y) {", PACKED,
        '%qr = rotary(%q, %cos, %sin) interleaved=true // "qr"',
        '%kr = rotary(%k, %cos, %sin) interleaved=true // "kr"',
        '%s = matmul(%qr, %kr) transpose_b=true // "s"', ATTENTION, "}",
    ]))  # fmt: skip
    found = made(before)
    assert found[1:4] == [
        "%'o.rows.1 = reshape(%cos) shape=[2,5,1,8]",
        "%'o.rows.2 = reshape(%sin) shape=[2,5,1,8]",
        "%'o.rows.3 = head_rows(%'o.rows, %'o.rows.1, %'o.rows.2) heads=6 rotary=true interleaved=true",
    ]


def test_queries_and_keys_of_channels_are_prepared_by_one_step_behind_one_move() -> None:
    """As in XCiT, which attends over channels and normalises them."""
    before = graph(
        """
        graph g batch=2 (%x: f32[2,5,72]) -> (%o) {
          const %none: i64[] {0}
          const %one: i64[] {1}
          const %two: i64[] {2}
          const %t: f32[3,1,1]
          %xr = reshape(%x) shape=[2,5,3,3,8] // "xr"
          %xt = transpose(%xr) perm=[2,0,3,4,1] // "xt"
          %q = gather(%xt, %none) axis=0 // "q"
          %k = gather(%xt, %one) axis=0 // "k"
          %v = gather(%xt, %two) axis=0 // "v"
          %qn = norm(%q) statistic=l2 axes=[3] epsilon=1e-12 // "qn"
          %kn = norm(%k) statistic=l2 axes=[3] epsilon=1e-12 // "kn"
          %s = matmul(%qn, %kn) transpose_b=true // "s"
          %scaled = mul(%s, %t) // "scaled"
          %p = softmax(%scaled) axis=3 // "p"
          %o = matmul(%p, %v) // "o"
        }"""
    )
    assert made(before)[:7] == [
        "%'o.rows.2 = reshape(%x) shape=[2,5,9,8]",
        "%'o.rows.1 = transpose(%'o.rows.2) perm=[0,3,2,1]",
        "%'o.rows.2.2 = reshape(%'o.rows.1) shape=[2,8,45]",
        "%'o.rows.3 = slice(%'o.rows.2.2) begin=[0,0,0] count=[2,8,30] step=[1,1,1]",
        "%'o.rows.4 = head_rows(%'o.rows.3, %'o.rows.scale) heads=6 statistic=l2 epsilon=1e-12 scaled=true",
        "%'o.rows.5 = slice(%'o.rows.4) begin=[0,0,0] count=[2,8,15] step=[1,1,1]",
        "%'o.rows.6 = slice(%'o.rows.4) begin=[0,0,15] count=[2,8,15] step=[1,1,1]",
    ]
    same_values(before, run(RECOGNISE_ATTENTION, before).graph)


def test_rows_that_are_normalised_whole_are_turned_where_they_lie() -> None:
    """As in OLMo 2, whose queries are normalised over all heads."""
    before = graph(
        """
        graph g batch=2 (%x: f32[2,5,24], %k: f32[2,3,5,8], %v: f32[2,3,5,8]) -> (%y) {
          const %g: f32[24]
          const %cos: f32[5,4]
          const %sin: f32[5,4]
          %n = norm(%x, %g) statistic=rms axes=[2] epsilon=1e-5 // "n"
          %nh = reshape(%n) shape=[2,5,3,8] // "nh"
          %q = transpose(%nh) perm=[0,2,1,3] // "q"
          %qr = rotary(%q, %cos, %sin) // "qr"
          %s = matmul(%qr, %k) transpose_b=true // "s"
    """
        + ATTENTION
        + "}"
    )
    assert made(before)[1] == "%'o.rows = head_rows(%n, %'o.rows.cosines, %'o.rows.sines) heads=3 rotary=true"
    same_values(before, run(RECOGNISE_ATTENTION, before).graph)


@pytest.mark.parametrize(
    "prepared",
    [
        '%qn = norm(%q) statistic=rms axes=[2] epsilon=1e-6 // "qn"',
        '%n = norm(%q) statistic=rms axes=[3] epsilon=1e-6 // "n"; %qn = norm(%n) statistic=l2 axes=[3] // "qn"',
        '%r = rotary(%q, %cos, %sin) // "r"; %qn = mul(%r, %g) // "qn"',
        '%r = rotary(%q, %cos, %sin) // "r"; %qn = rotary(%r, %cos, %sin) // "qn"',
    ],
)
def test_what_is_no_operator_on_rows_stays_in_front(prepared: str) -> None:
    before = attention(
        "const %g: f32[8]", "const %cos: f32[5,8]", "const %sin: f32[5,8]", PACKED, prepared.replace("; ", "\n"),
        '%s = matmul(%qn, %k) transpose_b=true // "s"', ATTENTION,
    )  # fmt: skip
    assert all("head_rows" not in line for line in made(before))


def test_heads_that_others_read_are_prepared_where_they_are() -> None:
    before = graph("\n".join([
        "graph g batch=2 (%x: f32[2,5,72]) -> (%y, %kn) {", PACKED,
        '%kn = norm(%k) statistic=rms axes=[3] epsilon=1e-6 // "kn"',
        '%s = matmul(%q, %kn) transpose_b=true // "s"', ATTENTION, "}",
    ]))  # fmt: skip
    assert all("head_rows" not in line for line in made(before))


def test_an_attention_that_a_model_has_as_such_reads_prepared_heads() -> None:
    """As exporters write opset 23: heads are moved, normalised and turned, then ONNX's operator reads them."""
    lines = []
    for name, count in (("q", 3), ("k", 1)):
        lines += [
            f'%{name}r = reshape(%{name}) shape=[2,5,{count},8] // "{name}r"',
            f'%{name}h = transpose(%{name}r) perm=[0,2,1,3] // "{name}h"',
            f'%{name}n = norm(%{name}h, %g) statistic=rms axes=[3] epsilon=1e-5 // "{name}n"',
            f'%{name}t = rotary(%{name}n, %cos, %sin) // "{name}t"',
            f'%{name}b = transpose(%{name}t) perm=[0,2,1,3] // "{name}b"',
            f'%{name}o = reshape(%{name}b) shape=[2,5,{8 * count}] // "{name}o"',
        ]
    before = graph("\n".join([
        "graph g batch=2 (%q: f32[2,5,24], %k: f32[2,5,8], %v: f32[2,5,8]) -> (%y) {",
        "const %g: f32[8]", "const %cos: f32[5,8]", "const %sin: f32[5,8]", *lines,
        '%y = attention(%qo, %ko, %v) heads=3 kv_heads=1 scale=0.5 causal=true // "y"', "}",
    ]))  # fmt: skip
    result = run(RECOGNISE_ATTENTION, before)
    assert [node.op.kind for node in result.graph.nodes if node.op.kind != "reshape"] == [
        "head_rows", "head_rows", "attention",
    ]  # fmt: skip
    (node,) = [node for node in result.graph.nodes if node.name == "y"]
    assert node.inputs[2] == "v"
