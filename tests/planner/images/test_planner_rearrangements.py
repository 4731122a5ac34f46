"""A reshape, a transpose and a reshape between images are one movement; activations come in front of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.moves.rearrange import Rearrange
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.align.pad_filters import PAD_FILTERS
from bolt_build.planner.passes.fold.batch_norm import FOLD_BATCH_NORM
from bolt_build.planner.passes.fold.early_norms import NORM_EARLY
from bolt_build.planner.passes.images.rearrangements import MERGE_REARRANGEMENTS
from bolt_build.targets import target_named

SHUFFLE = """
    graph g batch=2 (%x: f32[2,12,3,5]) -> (%a, %b) {
      %s = reshape(%x) shape=[2,2,6,3,5] // "s"
      %t = transpose(%s) perm=[0,2,1,3,4] // "t"
      %u = reshape(%t) shape=[2,12,3,5] // "u"
      %a = slice(%u) begin=[0,0,0,0] count=[2,6,3,5] step=[1,1,1,1] // "a"
      %b = slice(%u) begin=[0,6,0,0] count=[2,6,3,5] step=[1,1,1,1] // "b"
    }"""
PIXELS = """
    graph g batch=2 (%x: f32[2,3,4,5]) -> (%y) {
      const %w: f32[24,3,3,3]
      const %bias: f32[24]
      %c = conv(%x, %w, %bias) pads_begin=[1,1] pads_end=[1,1] // "c"
      %s = reshape(%c) shape=[2,6,2,2,4,5] // "s"
      %t = transpose(%s) perm=[0,1,4,2,5,3] // "t"
      %u = reshape(%t) shape=[2,6,8,10] // "u"
      %y = relu(%u) // "y"
    }"""


def agrees(before: Graph, after: Graph) -> None:
    x = {"x": np.random.default_rng(1).standard_normal(before.type("x").shape).astype(np.float32)}
    wanted, found = evaluate(before, x), evaluate(after, x)
    for name in before.outputs:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-6, atol=1e-6)


def kinds(graph: Graph) -> list[str]:
    return [node.op.kind for node in graph.nodes]


def test_a_channel_shuffle_and_its_halves_are_two_movements() -> None:
    before = graph(SHUFFLE)
    result = run(MERGE_REARRANGEMENTS, before)
    assert kinds(result.graph) == ["rearrange", "rearrange"]
    assert said(result) == [
        ("u", "merged", "moves elements between axes in one step"),
        ("a", "merged", "takes its channels of 'u' itself"),
        ("b", "merged", "takes its channels of 'u' itself"),
    ]
    agrees(before, result.graph)


def test_a_shuffle_that_something_else_reads_stays_whole() -> None:
    before = graph(SHUFFLE.replace("(%a, %b)", "(%a, %b, %u)"))
    result = run(MERGE_REARRANGEMENTS, before)
    assert kinds(result.graph) == ["rearrange", "slice", "slice"]
    agrees(before, result.graph)


def test_filters_of_one_pixel_follow_each_other_and_the_activation_comes_first() -> None:
    before = graph(PIXELS)
    result = run(MERGE_REARRANGEMENTS, before)
    assert kinds(result.graph) == ["conv", "activation", "rearrange"]
    assert said(result) == [
        ("c", "ordered", "filters that 'u' moves to one pixel follow each other"),
        ("u", "merged", "moves elements between axes in one step"),
        ("y", "moved", "in front of 1 movement of the convolution's result"),
    ]
    old, new = before.constant("w"), result.graph.constant("w.ordered")
    assert old is not None
    assert new is not None
    # Pixel (1, 0) of channel 4.
    np.testing.assert_array_equal(new[2 * 6 + 4], old[4 * 4 + 2])
    agrees(before, result.graph)


def test_filters_stay_apart_where_something_else_reads_the_convolution() -> None:
    before = graph(PIXELS.replace("(%y)", "(%y, %c)"))
    result = run(MERGE_REARRANGEMENTS, before)
    reason = "filters that 'u' moves to one pixel stay apart: 'c' is a graph output"
    assert said(result)[0] == ("c", "declined", reason)
    agrees(before, result.graph)


def test_filters_are_ordered_in_front_of_an_activation_too() -> None:
    before = graph(PIXELS.replace("%s = reshape(%c)", '%r = tanh(%c) // "r"\n  %s = reshape(%r)'))
    result = run(MERGE_REARRANGEMENTS, before)
    assert kinds(result.graph) == ["conv", "activation", "rearrange", "activation"]
    assert ("c", "ordered", "filters that 'u' moves to one pixel follow each other") in said(result)
    agrees(before, result.graph)


@pytest.mark.parametrize(
    "moves",
    [
        ("[2,3,2,10]", "[0,1,3,2]", "[2,3,20]"),  # no image is left
        ("[2,3,20,1]", "[2,0,1,3]", "[20,6,1,1]"),  # images are mixed
        ("[2,15,2,2]", "[0,1,3,2]", "[2,3,4,5]"),  # axes are cut across
    ],
)
def test_other_movements_stay(moves: tuple[str, str, str]) -> None:
    split, perm, shape = moves
    before = graph(f"""
        graph g batch=2 (%x: f32[2,3,4,5]) -> (%u) {{
          %s = reshape(%x) shape={split}
          %t = transpose(%s) perm={perm}
          %u = reshape(%t) shape={shape}
        }}""")
    assert run(MERGE_REARRANGEMENTS, before).graph == before


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_cut_order_and_join_gives_the_same(data: st.DataObject) -> None:
    cut = [data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=2)) for _ in range(3)]
    split = [2, *(extent for axis in cut for extent in axis)]
    perm = [0, *data.draw(st.permutations(range(1, len(split))))]
    ends = sorted(data.draw(st.sets(st.integers(2, len(split) - 1), min_size=2, max_size=2)))
    moved = [split[axis] for axis in perm]
    shape = [2, *(int(np.prod(moved[a:b])) for a, b in zip([1, *ends], [*ends, len(split)], strict=True))]
    before = graph(f"""
        graph g batch=2 (%x: f32[2,{",".join(str(int(np.prod(axis))) for axis in cut)}]) -> (%u) {{
          %s = reshape(%x) shape={split}
          %t = transpose(%s) perm={perm}
          %u = reshape(%t) shape={shape}
        }}""")
    after = run(MERGE_REARRANGEMENTS, before).graph
    assert [type(node.op) for node in after.nodes] == [Rearrange]
    agrees(before, after)


def test_lines_of_a_convolution_move_in_one_step_and_tokens_do_not() -> None:
    """What a transposed convolution over lines leaves: phases first, so channels last nothing moves."""
    text = """
        graph g batch=2 (%x: f32[2,3,5]) -> (%u) {
          const %w: f32[8,3,1]
          %c = conv(%x, %w) strides=[1] // "c"
          %s = reshape(%c) shape=[2,2,4,5] // "s"
          %t = transpose(%s) perm=[0,2,3,1] // "t"
          %u = reshape(%t) shape=[2,4,10] // "u"
        }"""
    before = graph(text)
    result = run(MERGE_REARRANGEMENTS, before)
    assert kinds(result.graph) == ["conv", "rearrange"]
    agrees(before, result.graph)
    tokens = graph(
        text.replace('%c = conv(%x, %w) strides=[1] // "c"', "").replace("%c", "%x").replace("[2,3,5]", "[2,8,5]")
    )
    assert run(MERGE_REARRANGEMENTS, tokens).graph == tokens


def test_few_filters_become_whole_stores() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,32,4,5]) -> (%y) {
          const %w: f32[3,32,3,3]
          const %b: f32[3]
          %y = conv(%x, %w, %b) pads_begin=[1,1] pads_end=[1,1] | relu // "y"
        }""")
    result = run(PAD_FILTERS, before)
    assert kinds(result.graph) == ["conv", "rearrange"]
    assert said(result) == [("y", "padded 3 filters to 8", "kernels store 16 bytes at once")]
    agrees(before, result.graph)


def test_lines_have_filters_for_whole_stores_too() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,5,9]) -> (%y) {
          const %w: f32[1,5,7]
          %y = conv(%x, %w) strides=[1] pads_begin=[3] pads_end=[3] // "y"
        }""")
    result = run(PAD_FILTERS, before)
    assert said(result) == [("y", "padded 1 filters to 8", "kernels store 16 bytes at once")]
    agrees(before, result.graph)


@pytest.mark.parametrize(
    ("filters", "kernel", "inside", "last"),
    [(3, 1, False, False), (21, 1, False, True), (19, 2, True, True), (65, 2, False, True), (126, 3, True, True)],
)
def test_filters_are_padded_where_that_pays(filters: int, kernel: int, inside: bool, last: bool) -> None:
    """Of one position in results, which are moved into planes anyway; many behind a deep product."""
    text = f"""
        graph g batch=2 (%x: f32[2,64,4,5]) -> (%z) {{
          const %w: f32[{filters},64,{kernel},{kernel}]
          %y = conv(%x, %w) strides=[1,1] // "y"
          %z = softmax(%y) axis=1 // "z"
        }}"""
    assert bool(said(run(PAD_FILTERS, graph(text)))) is inside
    assert (
        bool(said(run(PAD_FILTERS, graph(text.replace("(%z)", "(%y)").replace('%z = softmax(%y) axis=1 // "z"', "")))))
        is last
    )


def test_a_window_over_one_channel_keeps_its_filter() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,1,40]) -> (%y) {
          const %w: f32[1,1,5]
          %y = conv(%x, %w) strides=[1] pads_begin=[2] pads_end=[2] | sigmoid // "y"
        }""")
    result = run(PAD_FILTERS, before)
    assert (result.graph, said(result)) == (before, [])


def test_a_residual_keeps_the_filters() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,35,4,5]) -> (%z) {
          const %w: f32[35,35,3,3]
          %y = conv(%x, %w, %x) pads_begin=[1,1] pads_end=[1,1] | add(%x@2) // "y"
          %z = softmax(%y) axis=1 // "z"
        }""")
    result = run(PAD_FILTERS, before)
    assert result.graph == before
    assert said(result) == [
        ("y", "declined", "35 filters are no whole store, but something is added to its results"),
    ]


def test_a_residual_of_a_result_is_added_behind() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,3,4,5]) -> (%y) {
          const %w: f32[3,3,3,3]
          const %b: f32[3]
          %z = abs(%x) // "z"
          %y = conv(%x, %w, %b, %x, %z) pads_begin=[1,1] pads_end=[1,1] | tanh | sub(%x@3) swapped | relu | mul(%z)
        }""")
    result = run(PAD_FILTERS, before)
    assert kinds(result.graph) == ["activation", "conv", "rearrange", "binary"]
    _, conv, _, last = result.graph.nodes
    assert [stage.operand for stage in conv.epilogue] == [None]
    assert last.inputs == ("x", "y.taken", "z")
    assert [stage.operand for stage in last.epilogue] == [None, 2]
    agrees(before, result.graph)


def test_they_pay_where_there_are_tensor_cores() -> None:
    shuffles, filters = MERGE_REARRANGEMENTS.pays_on, PAD_FILTERS.pays_on
    assert shuffles is not None
    assert filters is not None
    assert [shuffles(target_named(name), "fp16") for name in ("h200", "a100", "t4")] == [True] * 3
    assert [filters(target_named(name), "fp16") for name in ("h200", "a100", "t4")] == [True, False, False]
    assert not shuffles(target_named("host"), "fp32")


def test_heads_of_a_run_of_columns_are_moved_in_one_step() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,6,24]) -> (%y) {
          %q = slice(%x) begin=[0,0,8] count=[2,6,8] step=[1,1,1] // "q"
          %cut = reshape(%q) shape=[2,6,2,4] // "cut"
          %t = transpose(%cut) perm=[0,2,1,3] // "t"
          %y = reshape(%t) shape=[4,6,4] // "y"
        }""")
    result = run(MERGE_REARRANGEMENTS, before)
    assert body(result.graph).splitlines() == [
        '%q = slice(%x) begin=[0,0,8] count=[2,6,8] step=[1,1,1]  // "q"',
        '%y = rearrange(%q) split=[2,6,2,4] perm=[0,2,1,3] whole=[4,6,4] begin=0 shape=[4,6,4] @y  // "cut", "t", "y"',
    ]


def test_a_reshape_that_cuts_through_heads_stays_behind() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,6,24]) -> (%y) {
          %q = slice(%x) begin=[0,0,8] count=[2,6,8] step=[1,1,1] // "q"
          %cut = reshape(%q) shape=[2,6,2,4] // "cut"
          %t = transpose(%cut) perm=[0,2,1,3] // "t"
          %y = reshape(%t) shape=[2,2,3,8] // "y"
        }""")
    result = run(MERGE_REARRANGEMENTS, before)
    assert [node.op.kind for node in result.graph.nodes] == ["slice", "rearrange", "reshape"]


def test_heads_of_whole_rows_are_a_transpose() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,6,8]) -> (%y) {
          %cut = reshape(%x) shape=[2,6,2,4] // "cut"
          %y = transpose(%cut) perm=[0,2,1,3] // "y"
        }""")
    assert run(MERGE_REARRANGEMENTS, before).graph is before


def test_what_lies_between_an_activation_and_its_movements_has_no_name_of_the_model() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,8,5]) -> (%y) {
          const %w: f32[12,8,1]
          %c = conv(%x, %w) // "c"
          %r = reshape(%c) shape=[2,3,4,5] // "r"
          %t = transpose(%r) perm=[0,1,3,2] // "t"
          %y = relu(%t) // "y"
        }""")
    after = run(MERGE_REARRANGEMENTS, before).graph
    assert [node.op.kind for node in after.nodes] == ["conv", "activation", "reshape", "transpose"]
    assert [value.name for value in after.values if not value.synthetic] == ["x", "w", "c", "y"]


DECODER = """
    graph g batch=2 (%x: f32[2,3,4,5]) -> (%y) {
      const %w: f32[24,3,2,2]
      const %scale: f32[6]
      const %shift: f32[6]
      const %mean: f32[6]
      const %variance: f32[6]
      %c = conv(%x, %w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] // "c"
      %s = reshape(%c) shape=[2,2,2,6,5,6] // "s"
      %t = transpose(%s) perm=[0,3,4,1,5,2] // "t"
      %u = reshape(%t) shape=[2,6,10,12] // "u"
      %k = slice(%u) begin=[0,0,1,1] count=[2,6,8,10] step=[1,1,1,1] // "k"
      %y = batch_norm(%k, %scale, %shift, %mean, %variance) epsilon=1.0 // "y"
    }"""


def test_a_batch_norm_behind_a_transposed_convolution_is_folded_and_its_border_is_left_out() -> None:
    before = graph(DECODER)
    early = run(NORM_EARLY, before)
    assert said(early) == [("y", "moved", "in front of 4 movements of the result of 'c'")]
    folded = run(FOLD_BATCH_NORM, early.graph)
    result = run(MERGE_REARRANGEMENTS, folded.graph)
    assert kinds(result.graph) == ["conv", "rearrange"]
    (moved,) = [node.op for node in result.graph.nodes if isinstance(node.op, Rearrange)]
    assert (moved.shape, moved.first) == ((2, 6, 8, 10), (1, 1))
    assert ("k", "merged", "leaves out what is cut off of 'u'") in said(result)
    agrees(before, result.graph)


def test_a_border_within_steps_stays_a_slice() -> None:
    text = DECODER.replace("begin=[0,0,1,1] count=[2,6,8,10]", "begin=[0,0,0,1] count=[2,6,9,11]")
    before = graph(text)
    result = run(MERGE_REARRANGEMENTS, run(FOLD_BATCH_NORM, run(NORM_EARLY, before).graph).graph)
    assert kinds(result.graph) == ["conv", "rearrange", "slice"]
    agrees(before, result.graph)


def test_a_batch_norm_whose_convolution_has_another_reader_stays() -> None:
    result = run(NORM_EARLY, graph(DECODER.replace("(%y)", "(%y, %c)")))
    assert said(result) == [("y", "declined", "'c' is a graph output")]
