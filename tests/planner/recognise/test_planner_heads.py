"""Queries and keys that are normalised, scaled or turned in front of attention become one operator on rows."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import body, graph, run, said, same_values

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.recognise.attention import RECOGNISE_ATTENTION
from bolt_build.planner.passes.recognise.norms import RECOGNISE_NORMS

# --- lengths -----------------------------------------------------------------------------------------------------


def test_a_division_by_a_length_is_a_normalisation() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,5,12]) -> (%y) {
          %l = reduce(%x) mode=l2 axes=[2] // "l"
          %c = clip(%l) alpha=9.999999960041972e-13 beta=3.4028234663852886e+38 // "c"
          %y = div(%x, %c) // "y"
        }""")
    result = run(RECOGNISE_NORMS, before)
    assert body(result.graph).startswith("%y = norm(%x) statistic=l2 axes=[2] epsilon=1e-12 ")
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


def turned_and_normed(statistic: str = "rms", angles: str = "0.6, 0.8", scale: str = ", %g") -> Graph:
    """Hunyuan's: heads are turned, and normalised behind that."""
    cosine, sine = angles.split(", ")
    table = ", ".join([cosine] * 40), ", ".join([sine] * 40)
    return attention(
        "const %g: f32[8]", f"const %cos: f32[5,8] {{{table[0]}}}", f"const %sin: f32[5,8] {{{table[1]}}}", PACKED,
        '%qr = rotary(%q, %cos, %sin) // "qr"', '%kr = rotary(%k, %cos, %sin) // "kr"',
        f'%qn = norm(%qr{scale}) statistic={statistic} axes=[3] epsilon=1e-5 // "qn"',
        f'%kn = norm(%kr{scale}) statistic={statistic} axes=[3] epsilon=1e-5 // "kn"',
        '%s = matmul(%qn, %kn) transpose_b=true // "s"', ATTENTION,
    )  # fmt: skip


def test_heads_that_are_normalised_behind_their_turn_are_so_in_front_of_it() -> None:
    """A turn leaves them as long as they are; what scales each element afterwards is in its angles."""
    before = turned_and_normed()
    assert made(before)[1] == (
        "%'o.rows.1 = head_rows(%'o.rows, %'o.rows.cosines, %'o.rows.sines) heads=6 statistic=rms epsilon=1e-05"
        " rotary=true"
    )
    result = run(RECOGNISE_ATTENTION, before)
    scale, sines = before.constant("g"), result.graph.constant("o.rows.sines")
    assert scale is not None
    assert sines is not None
    np.testing.assert_allclose(
        sines[..., -1, :], np.broadcast_to(np.float32(0.8) * scale, sines[..., -1, :].shape), rtol=1e-6
    )


@pytest.mark.parametrize(
    "before", [turned_and_normed("variance"), turned_and_normed(angles="0.6, 0.9")], ids=["a mean", "no turn alone"]
)
def test_heads_that_a_turn_changes_are_normalised_behind_it(before: Graph) -> None:
    assert not [line for line in made(before) if "head_rows" in line and "statistic" in line]


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


@pytest.mark.parametrize(("angles", "stated"), [("%c: f32[10,1,4], %z: f32[10,1,4]", ""), ("", "const")])
def test_rows_of_all_images_may_be_turned_along_one_axis(angles: str, stated: str) -> None:
    """As encoders have them that put images behind each other, such as Qwen's."""
    constants = "const %c: f32[10,1,4] #\n const %z: f32[10,1,4] #" if stated else ""
    turned = "".join(
        f"""
          %{name}r = rotary(%{name}, %c, %z) // "{name}r"
          %{name}s = reshape(%{name}r) shape=[2,5,3,8] // "{name}s"
          %{name}t = transpose(%{name}s) perm=[0,2,1,3] // "{name}t"
        """
        for name in "qk"
    )
    before = graph(
        f"""
        graph g batch=2 (%x: f32[10,48], %v: f32[2,3,5,8]{", " + angles if angles else ""}) -> (%y) {{
          {constants}
          %h = reshape(%x) shape=[10,2,3,8] // "h"
          %a = transpose(%h) perm=[1,0,2,3] // "a"
          %qa = slice(%a) begin=[0,0,0,0] count=[1,10,3,8] step=[1,1,1,1] // "qa"
          %q = reshape(%qa) shape=[10,3,8] // "q"
          %ka = slice(%a) begin=[1,0,0,0] count=[1,10,3,8] step=[1,1,1,1] // "ka"
          %k = reshape(%ka) shape=[10,3,8] // "k"
          {turned}
          %s = matmul(%qt, %kt) transpose_b=true // "s"
    """
        + ATTENTION
        + "}"
    )
    result = run(RECOGNISE_ATTENTION, before).graph
    same_values(before, result)
    (heads,) = [node for node in result.nodes if node.op.kind == "head_rows"]
    assert [result.type(name).shape for name in heads.inputs] == [(2, 5, 48), (2, 5, 1, 4), (2, 5, 1, 4)]


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
