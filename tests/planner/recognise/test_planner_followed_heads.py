"""What an Attention of a model reads is followed to where heads lie, whatever selected, normalised or turned them."""

from __future__ import annotations

from planner_checks import body, graph, run, same_values

from bolt_build.planner.passes.recognise.attention import RECOGNISE_ATTENTION

SELECTED = """
    graph g batch=2 (%x: f32[2,5,24], %v: f32[2,5,12]) -> (%y) {
      const %second: i64[] {1}
      %c = reshape(%x) shape=[2,5,6,4]
      %t = transpose(%c) perm=[0,2,1,3]
      %h = reshape(%t) shape=[2,3,2,5,4]
      %s = gather(%h, %second) axis=2
      %b = transpose(%s) perm=[0,2,1,3]
      %q = reshape(%b) shape=[2,5,12]
      %y = attention(%q, %q, %v) heads=3 kv_heads=3 scale=1.0
    }"""


def test_heads_that_were_moved_selected_and_moved_back_are_read_where_they_lie() -> None:
    before = graph(SELECTED)
    after = run(RECOGNISE_ATTENTION, before).graph
    same_values(before, after)
    assert "transpose" not in body(after)


TURNED = """
    graph g batch=2 (%x: f32[5,2,24], %v: f32[2,5,12]) -> (%y) {
      const %first: i64[] {0}
      %c = reshape(%x) shape=[1,5,2,2,12]
      %t = transpose(%c) perm=[3,1,2,0,4]
      %h = reshape(%t) shape=[2,5,2,12]
      %s = gather(%h, %first) axis=0
      %r = reshape(%s) shape=[5,6,4]
      %u = transpose(%r) perm=[1,0,2]
      %w = reshape(%u) shape=[2,3,5,4]
      %b = transpose(%w) perm=[0,2,1,3]
      %k = reshape(%b) shape=[2,5,12]
      %y = attention(%v, %k, %v) heads=3 kv_heads=3 scale=1.0
    }"""


def test_keys_of_a_word_first_projection_are_moved_once() -> None:
    """As torch.export writes MultiheadAttention of other keys."""
    before = graph(TURNED)
    after = run(RECOGNISE_ATTENTION, before).graph
    same_values(before, after)
    assert body(after).count("transpose(") == 1


NORMALISED = """
    graph g batch=2 (%q: f32[2,5,8], %x: f32[2,5,4], %v: f32[2,5,8]) -> (%y) {
      const %w: f32[4] #
      %c = reshape(%x) shape=[2,1,5,4]
      %n = norm(%c, %w) statistic=rms axes=[3] epsilon=1e-05
      %e = expand(%n) shape=[2,2,5,4]
      %t = transpose(%e) perm=[0,2,1,3]
      %k = reshape(%t) shape=[2,5,8]
      %f = reshape(%v) shape=[2,5,2,4]
      %y = attention(%q, %k, %v) heads=2 kv_heads=2 scale=1.0
    }"""


def test_values_that_are_not_shared_decline_keys_that_are() -> None:
    before = graph(NORMALISED)
    assert run(RECOGNISE_ATTENTION, before).graph == before


def test_keys_that_heads_share_are_normalised_once() -> None:
    text = NORMALISED.replace("%v: f32[2,5,8]", "%z: f32[2,5,4]").replace(
        "%f = reshape(%v) shape=[2,5,2,4]",
        "%f = reshape(%z) shape=[2,1,5,4]\n%g = expand(%f) shape=[2,2,5,4]\n%h = transpose(%g) perm=[0,2,1,3]\n"
        "%v = reshape(%h) shape=[2,5,8]",
    )
    before = graph(text)
    after = run(RECOGNISE_ATTENTION, before).graph
    same_values(before, after)
    assert "head_rows(" in body(after)
    assert "heads=2 kv_heads=1" in body(after)
    assert "expand(" not in body(after)
