"""Attention that models spell out, as exporters write it."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said
from spelled_attention import END, QKV, SCORES, found, heads, spelled

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.recognise.attention import RECOGNISE_ATTENTION


@pytest.mark.parametrize(
    ("scores", "said_of_it"),
    [
        (SCORES + "%p = softmax(%s) axis=3;", "scale=1.0"),
        (SCORES + "%t2 = mul(%s, %half); %p = softmax(%t2) axis=3;", "scale=0.5"),
        (SCORES + "%t2 = div(%s, %eight); %p = softmax(%t2) axis=3;", "scale=0.125"),
        ("%a = mul(%qh, %root); %b = mul(%half, %kh); %s = matmul(%a, %b) transpose_b=true; %p = softmax(%s) axis=3;",
         "scale=0.25"),
        ("%kt = transpose(%kh) perm=[0,1,3,2]; %s = matmul(%qh, %kt); %p = softmax(%s) axis=3;", "scale=1.0"),
    ],
)  # fmt: skip
def test_scales_stand_on_scores_queries_and_keys(scores: str, said_of_it: str) -> None:
    assert found(spelled(QKV + scores + END)) == f"%y = attention(%q, %k, %v) heads=3 kv_heads=3 {said_of_it}"


def sliced(of: str, axis: int, rank: int, shape: str) -> str:
    """Queries, keys and values as thirds of an axis."""
    extents = [int(size) for size in shape.split(",")]
    lines = ""
    for index, name in enumerate("qkv"):
        begin = ",".join(str(index * extents[axis] if at == axis else 0) for at in range(rank))
        lines += f"%{name} = slice(%{of}) begin=[{begin}] count=[{shape}] step=[{','.join('1' * rank)}]; "
    return lines


PACKED = "%y = attention(%x) heads=3 kv_heads=3 scale=1.0 packed=true"
PLAIN = SCORES + "%p = softmax(%s) axis=3; " + END
ROWS = "%{0}.m = reshape(%{0}) shape=[5,6,4]; %{0}h = transpose(%{0}.m) perm=[1,0,2]; "

TURNED = (
    "%'o.rows = transpose(%late) perm=[1,0,2]; "
    "%'o.attention = attention(%'o.rows) heads=3 kv_heads=3 scale=1.0 packed=true; "
    "%'o.heads = transpose(%'o.attention) perm=[1,0,2]; %y = reshape(%'o.heads) shape=[10,12]"
)
CUT = (
    "%k = slice(%x) begin=[0,0,0] count=[2,5,12] step=[1,1,1]; "
    "%v = slice(%x) begin=[0,0,24] count=[2,5,12] step=[1,1,1]; "
)
OVER_CHANNELS = (
    "%'y.rows = reshape(%x) shape=[2,5,9,4]; %'y.rows.1 = transpose(%'y.rows) perm=[0,3,2,1]; "
    "%'y.rows.2 = reshape(%'y.rows.1) shape=[2,4,45]; "
    "%'y.attention = attention(%'y.rows.2) heads=3 kv_heads=3 scale=1.0 packed=true; "
    "%'y.heads = reshape(%'y.attention) shape=[2,4,3,5]; %y = transpose(%'y.heads) perm=[0,2,1,3]"
)
TAKEN = "%{0} = gather(%x.t, %nought) axis=0; %{1} = gather(%x.t, %one) axis=0; %{2} = gather(%x.t, %two) axis=0; "


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        (sliced("x", 2, 3, "2,5,12") + QKV + PLAIN, PACKED),
        # As timm cuts them.
        ("%x.r = reshape(%x) shape=[2,5,3,3,4]; %x.t = transpose(%x.r) perm=[2,0,3,1,4]; "
         + TAKEN.format("qh", "kh", "vh") + PLAIN, PACKED),
        # Rows first, images and heads in one axis, as torch's MultiheadAttention has them.
        ("%x.r = reshape(%late) shape=[5,2,3,12]; %x.t = transpose(%x.r) perm=[2,0,1,3]; "
         + TAKEN.format("q", "k", "v") + "".join(ROWS.format(name) for name in "qkv")
         + "%s = matmul(%qh, %kh) transpose_b=true; %p = softmax(%s) axis=2; %o = matmul(%p, %vh); "
         "%t = transpose(%o) perm=[1,0,2]; %y = reshape(%t) shape=[10,12]", TURNED),
        # As Hiera does, with one window behind the heads.
        ("%x.r = reshape(%x) shape=[2,5,1,3,3,4]; %x.t = transpose(%x.r) perm=[3,0,4,2,1,5]; "
         + TAKEN.format("qh", "kh", "vh") + SCORES + "%p = softmax(%s) axis=4; %o = matmul(%p, %vh); "
         "%t = transpose(%o) perm=[0,3,2,1,4]; %y = reshape(%t) shape=[2,5,12]", PACKED),
        # Over channels: all of a product are moved at once, in whatever order.
        ("%x.r = reshape(%x) shape=[2,5,3,3,4]; %x.t = transpose(%x.r) perm=[2,0,3,4,1]; "
         + TAKEN.format("qh", "kh", "vh") + SCORES + "%p = softmax(%s) axis=3; %y = matmul(%p, %vh)",
         OVER_CHANNELS),
        # Not side by side.
        (CUT + QKV + PLAIN, CUT + "%y = attention(%q, %k, %v) heads=3 kv_heads=3 scale=1.0"),
        # Images in channels: columns of queries, keys and values, and of the result.
        ("%x.r = reshape(%planes) shape=[2,3,12,5]; " + sliced("x.r", 2, 4, "2,3,4,5")
         + "%s = matmul(%q, %k) transpose_a=true; %p = softmax(%s) axis=3; %o = matmul(%v, %p) transpose_b=true; "
         "%y = reshape(%o) shape=[2,12,5]",
         "%'o.rows = reshape(%planes) shape=[2,3,12,5]; "
         + "".join(
             f"%'o.rows.{at} = slice(%'o.rows) begin=[0,0,{begin},0] count=[2,3,4,5] step=[1,1,1,1]; "
             f"%'o.rows.{at + 1} = reshape(%'o.rows.{at}) shape=[2,12,5]; "
             f"%'o.rows.{at + 2} = transpose(%'o.rows.{at + 1}) perm=[0,2,1]; "
             for at, begin in ((1, 0), (5, 4), (9, 8))
         )
         + "%'o.attention = attention(%'o.rows.3, %'o.rows.7, %'o.rows.11) heads=3 kv_heads=3 scale=1.0; "
         "%y = transpose(%'o.attention) perm=[0,2,1]"),
    ],
    ids=["slices", "timm", "rows-first", "window", "over-channels", "two-of-one", "channels"],
)  # fmt: skip
def test_queries_keys_and_values_are_found_where_they_lie(text: str, nodes: str) -> None:
    assert found(spelled(text)) == nodes


def across(name: str) -> str:
    """[2, 5, 12] as [2, 3, 5, 4], where the heads' first elements lie beside each other, then their second ones."""
    return f"%{name}.r = reshape(%{name}) shape=[2,5,4,3]; %{name}h = transpose(%{name}.r) perm=[0,3,1,2]; "


@pytest.mark.parametrize("turned", ["qkv", "qk", "v", "k"])
def test_heads_whose_elements_lie_apart_are_no_packed_rows(turned: str) -> None:
    """Models cut rows in elements of heads as well: einops' `(d h)`."""
    cut = "".join(across(name) if name in turned else heads(name, name) for name in "qkv")
    nodes = found(spelled(sliced("x", 2, 3, "2,5,12") + cut + PLAIN))
    assert "attention(" in nodes
    assert ("packed" in nodes) == (turned == "qkv")  # moved by one step


def repeated(name: str) -> str:
    """The one head of [2, 5, 4] three times, as [2, 3, 5, 4]."""
    return (
        f"%{name}.r = reshape(%{name}) shape=[2,5,1,4]; %{name}.t = transpose(%{name}.r) perm=[0,2,1,3]; "
        f"%{name}.u = reshape(%{name}.t) shape=[2,1,1,5,4]; %{name}.e = expand(%{name}.u) shape=[2,1,3,5,4]; "
        f"%{name}h = reshape(%{name}.e) shape=[2,3,5,4]; "
    )


def test_a_factor_of_each_head_multiplies_its_queries() -> None:
    """Cosine attention has a temperature that is learned."""
    text = QKV + SCORES + "%f = mul(%s, %each); %p = softmax(%f) axis=3; " + END
    assert found(spelled(text)) == (
        "%'o.rows = head_rows(%q, %'o.rows.scale) heads=3 scaled=true; "
        "%y = attention(%'o.rows, %k, %v) heads=3 kv_heads=3 scale=1.0"
    )


def test_heads_that_share_keys_and_values_are_grouped() -> None:
    """Whether they are repeated, or broadcast by the product itself."""
    made = "%y = attention(%q, %one.head, %other) heads=3 kv_heads=1 scale=1.0"
    by_hand = repeated("one.head") + repeated("other")
    by_product = heads("one.head", "one.head", 1) + heads("other", "other", 1)
    for given in (by_hand, by_product):
        text = heads("q", "q") + given + PLAIN
        assert found(spelled(text.replace("%kh", "%one.headh").replace("%vh", "%otherh"))) == made


def test_keys_may_be_others_rows_than_the_queries() -> None:
    text = heads("q", "q") + heads("k", "cross", rows=7) + heads("v", "cross", rows=7) + SCORES
    text += "%m = add(%s, %pad); %p = softmax(%m) axis=3; " + END
    made = "%y = attention(%q, %cross, %cross, %pad) heads=3 kv_heads=3 scale=1.0"
    assert found(spelled(text)) == made


def cached(queries: int) -> Graph:
    """Queries of heads in their rows, keys and values with the rows of each head by themselves, as caches have them."""
    return graph(f"""
        graph g batch=2 (%q: f32[2,{queries},12], %k: f32[2,3,7,4], %v: f32[2,3,7,4]) -> (%y) {{
          %r = reshape(%q) shape=[2,{queries},3,4] // "r"
          %h = transpose(%r) perm=[0,2,1,3] // "h"
          %s = matmul(%h, %k) transpose_b=true // "s"
          %p = softmax(%s) axis=3 // "p"
          %o = matmul(%p, %v) // "o"
          %t = transpose(%o) perm=[0,2,1,3] // "t"
          %y = reshape(%t) shape=[2,{queries},12] // "y"
        }}""")


def test_heads_of_a_cache_are_read_where_they_lie_as_images() -> None:
    assert found(cached(1)) == (
        "%'o.rows = reshape(%q) shape=[6,1,4]; %'o.rows.1 = reshape(%k) shape=[6,7,4]; "
        "%'o.rows.2 = reshape(%v) shape=[6,7,4]; "
        "%'o.attention = attention(%'o.rows, %'o.rows.1, %'o.rows.2) heads=1 kv_heads=1 scale=1.0; "
        "%y = reshape(%'o.attention) shape=[2,1,12]"
    )


def test_heads_that_share_those_of_a_cache_stay_together() -> None:
    """Two queries' heads a head of the cache: the cache is moved no more than where each has its own."""
    lines = found(graph("""
        graph g batch=2 (%q: f32[2,1,16], %k: f32[2,2,7,4], %v: f32[2,2,7,4]) -> (%y) {
          %r = reshape(%q) shape=[2,1,4,4] // "r"
          %h = transpose(%r) perm=[0,2,1,3] // "h"
          %k5 = reshape(%k) shape=[2,2,1,7,4] // "k5"
          %kx = expand(%k5) shape=[2,2,2,7,4] // "kx"
          %kh = reshape(%kx) shape=[2,4,7,4] // "kh"
          %v5 = reshape(%v) shape=[2,2,1,7,4] // "v5"
          %vx = expand(%v5) shape=[2,2,2,7,4] // "vx"
          %vh = reshape(%vx) shape=[2,4,7,4] // "vh"
          %s = matmul(%h, %kh) transpose_b=true // "s"
          %p = softmax(%s) axis=3 // "p"
          %o = matmul(%p, %vh) // "o"
          %t = transpose(%o) perm=[0,2,1,3] // "t"
          %y = reshape(%t) shape=[2,1,16] // "y"
        }"""))  # fmt: skip
    assert "%'o.rows = reshape(%q) shape=[4,1,8]; %'o.rows.1 = reshape(%k) shape=[4,7,4]; " in lines
    assert "heads=2 kv_heads=1" in lines


def test_many_queries_are_not_moved_for_the_sake_of_few_keys() -> None:
    assert "heads=3" in found(cached(8))


def test_masks_of_windows_are_spread_over_images() -> None:
    """Scores are regrouped, a mask for each window is added, and they are regrouped again."""
    text = (
        QKV
        + SCORES
        + "%b = add(%s, %bias); %g = reshape(%b) shape=[1,2,3,5,5]; %u = reshape(%window) shape=[1,2,1,5,5]; "
        "%m = add(%g, %u); %f = reshape(%m) shape=[2,3,5,5]; %p = softmax(%f) axis=3; " + END
    )
    assert found(spelled(text)) == "%y = attention(%q, %k, %v, %'o.rows.1) heads=3 kv_heads=3 scale=1.0"
    (mask,) = [value for value in run(RECOGNISE_ATTENTION, spelled(text)).graph.values if value.name == "o.rows.1"]
    assert mask.type.shape == (2, 3, 5, 5)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (QKV + SCORES + "%p = softmax(%s) axis=3; " + END.replace("%y =", "%z =")
         + "; %e = reduce(%s) mode=sum axes=[1,2,3]; %y = add(%z, %e)", "'s' is read by 2 nodes"),
        (QKV + SCORES + "%p = softmax(%s) axis=3; " + END.replace("%y =", "%z =")
         + "; %e = reduce(%p) mode=sum axes=[1,2,3]; %y = add(%z, %e)", "the shares: 'p' is read by 2 nodes"),
        (QKV + SCORES + "%c = sigmoid(%s); %p = softmax(%c) axis=3; " + END,
         "the softmax's argument comes from 'c', which is a sigmoid and neither scales nor masks a product"),
        (QKV + SCORES + "%c = mul(%s, %bias); %p = softmax(%c) axis=3; " + END,
         "the scores are multiplied in 'c' with what is no number"),
        (QKV + SCORES + "%c = compare(%mask, %zero) question=less; %m = where(%c, %least, %s); %h = mul(%m, %half); "
         "%p = softmax(%h) axis=3; " + END, "'c' is scaled together with the scores"),
        (QKV + SCORES + "%p = softmax(%s) axis=3; %o = matmul(%p, %vh) transpose_a=true; "
         "%t = transpose(%o) perm=[0,2,1,3]; %y = reshape(%t) shape=[2,5,12]", "'o' sums over queries instead of keys"),
        ("%s = matmul(%q, %weight); %p = softmax(%s) axis=2; %y = matmul(%p, %weight)", "'s' multiplies with weights"),
        (heads("q", "q") + heads("k", "k") + SCORES + "%p = softmax(%s) axis=3; %y = matmul(%p, %learned)",
         "'y' multiplies with weights"),
    ],
)  # fmt: skip
def test_what_is_no_attention_stays_and_says_why(text: str, reason: str) -> None:
    before = spelled(text)
    result = run(RECOGNISE_ATTENTION, before)
    assert result.graph == before
    assert said(result) == [("p", "declined", reason)]


@pytest.mark.parametrize(("length", "keys", "recognised"), [(256, 3, True), (257, 257, False), (257, 258, True)])
def test_heads_that_are_longer_than_kernels_hold_are_left_where_scores_are_small(
    length: int, keys: int, recognised: bool
) -> None:
    """Attention over channels: each is as long as there are positions."""
    before = graph(f"""
        graph g batch=1 (%q: f32[1,2,5,{length}], %k: f32[1,2,{keys},{length}], %v: f32[1,2,{keys},{length}]) -> (%y) {{
          %s = matmul(%q, %k) transpose_b=true // "s"
          %p = softmax(%s) axis=3 // "p"
          %y = matmul(%p, %v) // "y"
        }}""")
    result = run(RECOGNISE_ATTENTION, before)
    if recognised:
        assert [action for _, action, _ in said(result)] == ["recognised attention"]
        return
    reason = f"heads have {length} elements, no fewer than a query has scores ({keys})"
    assert (result.graph, said(result)) == (before, [("p", "declined", reason)])


def test_a_softmax_that_multiplies_nothing_is_not_spoken_of() -> None:
    before = spelled(heads("q", "q") + "%y = softmax(%qh) axis=3")
    result = run(RECOGNISE_ATTENTION, before)
    assert (result.graph, said(result)) == (before, [])


def test_an_attention_of_the_model_reads_where_its_operands_lie() -> None:
    """As ONNX's operator is imported: rows of heads that were apart."""
    rows = "".join(
        f"%{name}t = transpose(%{name}h) perm=[0,2,1,3]; %{name}s = reshape(%{name}t) shape=[2,5,12]; "
        for name in "qkv"
    )
    op = "%a = attention(%qs, %ks, %vs, %mask) heads=3 kv_heads=3 scale=0.5; "
    back = "%b = reshape(%a) shape=[2,5,3,4]; %c = transpose(%b) perm=[0,2,1,3]; "
    text = sliced("x", 2, 3, "2,5,12") + QKV + rows + op + back
    text += "%d = transpose(%c) perm=[0,2,1,3]; %y = reshape(%d) shape=[2,5,12]"
    made = "%y = attention(%x, %mask) heads=3 kv_heads=3 scale=0.5 packed=true"
    assert found(spelled(text)) == made
    again = spelled(made)
    result = run(RECOGNISE_ATTENTION, again)
    assert (result.graph, said(result)) == (again, [])


GROUPS = "%g = reshape(%qh) shape=[2,1,15,4]; %s = matmul(%g, %kh) transpose_b=true; "
"""Three heads that share keys, as rows of one matrix."""
SHARED = heads("q", "q") + heads("k", "one.head", 1) + heads("v", "other", 1)
JOINED = "%j = reshape(%p) shape=[2,1,15,5]; %w = matmul(%j, %vh); %o = reshape(%w) shape=[2,3,5,4]; "
ROWS = "%t = transpose(%o) perm=[0,2,1,3]; %y = reshape(%t) shape=[2,5,12]"


@pytest.mark.parametrize("cut", ["[2,3,5,5]", "[2,1,3,5,5]"])
def test_heads_that_are_rows_of_one_product_share_its_keys(cut: str) -> None:
    """As einsum multiplies grouped queries with their keys."""
    softmax = f"%c = reshape(%s) shape={cut}; %m = mul(%c, %half); %p = softmax(%m) axis={cut.count(',')};"
    before = spelled(SHARED + GROUPS + softmax + JOINED + ROWS)
    assert found(before) == "%y = attention(%q, %one.head, %other) heads=3 kv_heads=1 scale=0.5"


def test_rows_of_several_heads_stay_where_no_attention_is_found() -> None:
    """Nothing is repeated for heads either."""
    softmax = "%c = reshape(%s) shape=[2,3,5,5]; %e = mul(%c, %bias); %p = softmax(%e) axis=3; "
    before = spelled(SHARED + GROUPS + softmax + JOINED + ROWS)
    result = run(RECOGNISE_ATTENTION, before)
    assert result.graph == before
    assert [action for _, action, _ in said(result)] == ["declined"]
