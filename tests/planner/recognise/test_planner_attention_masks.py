"""Masks that attention repeats for its images, as networks of shifted windows write them."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, same_values
from planner_fakes import POLICY

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.planner.passes.recognise.attention import RECOGNISE_ATTENTION
from bolt_build.planner.pipeline import optimize

HEAD = """
  %h = reshape(%x) shape=[6,3,2,2]
  %t = transpose(%h) perm=[0,2,1,3]
  %s = matmul(%t, %t) transpose_b=true
"""
"""Scores of 2 heads and 3 positions, of 3 windows of each of 2 images."""
END = """
  %p = softmax(%m) axis=3
  %o = matmul(%p, %t) // "o"
  %t2 = transpose(%o) perm=[0,2,1,3]
  %y = reshape(%t2) shape=[6,3,4]
}
"""
SHIFTED = """
  %b = add(%s, %bias)
  %w = reshape(%b) shape=[2,3,2,3,3]
  %c = add(%w, %windows)
  %m = reshape(%c) shape=[6,2,3,3]
"""
"""torchvision's."""
BIAS, WINDOWS = "const %bias: f32[1,2,3,3] #1", "const %windows: f32[1,3,1,3,3] #2"


def shifted(constants: str, masked: str, inputs: str = "") -> Graph:
    return graph(f"graph g batch=2 (%x: f32[6,3,4]{inputs}) -> (%y) {{\n{constants}{HEAD}{masked}{END}")


def attention_of(before: Graph) -> tuple[Graph, Node]:
    """The graph with attention, whose values are those before; and the attention."""
    after = run(RECOGNISE_ATTENTION, before).graph
    (node,) = [node for node in after.nodes if isinstance(node.op, Attention)]
    return after, node


def mask_of(before: Graph) -> tuple[tuple[int, ...], bool]:
    """The shape of the mask that attention reads once all is folded, and whether it is constant."""
    attention_of(before)
    after = optimize(before, POLICY).graph
    same_values(before, after)
    (node,) = [node for node in after.nodes if isinstance(node.op, Attention)]
    mask = node.inputs[-1]
    return after.type(mask).shape, after.constant(mask) is not None


def test_a_mask_of_windows_and_a_bias_of_heads_are_one_constant_of_one_image() -> None:
    assert mask_of(shifted(f"{BIAS}\n{WINDOWS}", SHIFTED)) == ((3, 2, 3, 3), True)


def test_their_sum_is_left_to_the_engine_where_it_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bolt_build.planner.passes.recognise.attention_masks.MOST_FOLDED", 53)
    after, node = attention_of(shifted(f"{BIAS}\n{WINDOWS}", SHIFTED))
    (total,) = [each for each in after.nodes if each.op == Binary("add")]
    assert total.outputs == node.inputs[-1:]
    assert after.type(node.inputs[-1]).shape == (3, 2, 3, 3)


REPEATED = "%e = expand(%part) shape=[2,3,1,3,3]\n %r = reshape(%e) shape=[6,1,3,3]\n"
TILED = "%e = pad(%part) begin=[0,0,0,0,0] end=[1,0,0,0,0] mode=wrap value=0.0\n %r = reshape(%e) shape=[6,1,3,3]\n"
PART = ", %part: f32[1,3,1,3,3]"


@pytest.mark.parametrize(
    ("masked", "shape"),
    [
        (REPEATED + "%m = add(%s, %r)", (3, 1, 3, 3)),
        (TILED + "%m = add(%s, %r)", (3, 1, 3, 3)),
        (REPEATED + "%sum = add(%bias, %r)\n %m = add(%s, %sum)", (3, 2, 3, 3)),
        (REPEATED.replace("shape=[2,3,1,3,3]", "shape=[2,3,2,3,3]").replace("[6,1,", "[6,2,") + "%m = add(%s, %r)",
         (3, 1, 3, 3)),
    ],
)  # fmt: skip
def test_what_a_model_repeats_is_read_again(masked: str, shape: tuple[int, ...]) -> None:
    assert mask_of(shifted(BIAS if "%bias" in masked else "", masked, PART)) == (shape, False)


def test_so_is_what_an_exporter_has_repeated() -> None:
    numbers = [", ".join(str(window * 9 + at) for window in range(3) for at in range(9))] * 2
    before = shifted(f"const %windows: f32[6,1,3,3] {{{', '.join(numbers)}}}", "%m = add(%s, %windows)")
    assert mask_of(before) == ((3, 1, 3, 3), True)
    other = shifted(
        f"const %windows: f32[6,1,3,3] {{{numbers[0]}, {numbers[0].replace('26', '27')}}}", "%m = add(%s, %windows)"
    )
    assert mask_of(other) == ((6, 1, 3, 3), True)


def test_what_repeats_in_the_middle_of_an_image_is_kept_whole() -> None:
    """Three matrices again and again, of images of two heads each."""
    numbers = ", ".join([", ".join(map(str, range(27)))] * 4)
    apart = "%a = reshape(%s) shape=[12,3,3]\n %c = add(%a, %windows)\n %m = reshape(%c) shape=[6,2,3,3]"
    assert mask_of(shifted(f"const %windows: f32[12,3,3] {{{numbers}}}", apart)) == ((3, 2, 3, 3), True)


def test_a_mask_of_every_image_is_added_to_one_that_repeats() -> None:
    masked = REPEATED + "%a = add(%s, %r)\n %m = add(%a, %own)"
    assert mask_of(shifted("", masked, PART + ", %own: f32[6,1,1,3]")) == ((6, 1, 3, 3), False)


def test_masks_that_begin_anew_at_different_images_are_added() -> None:
    halves = "%f = expand(%half) shape=[3,2,1,1,3]\n %g = reshape(%f) shape=[6,1,1,3]\n"
    masked = REPEATED + halves + "%a = add(%s, %r)\n %m = add(%a, %g)"
    assert mask_of(shifted("", masked, PART + ", %half: f32[1,2,1,1,3]")) == ((6, 1, 3, 3), False)


def test_a_mask_that_every_window_repeats_is_no_period() -> None:
    """Window n reads mask n // 3, not n % 2."""
    masked = "%e = expand(%part) shape=[2,3,1,3,3]\n %r = reshape(%e) shape=[6,1,3,3]\n %m = add(%s, %r)"
    assert mask_of(shifted("", masked, ", %part: f32[2,1,1,3,3]")) == ((6, 1, 3, 3), False)


def test_an_attention_of_the_model_reads_it_again_too() -> None:
    before = graph(f"""
    graph g batch=2 (%x: f32[6,3,4]{PART}) -> (%y) {{
      {REPEATED}
      %y = attention(%x, %x, %x, %r) heads=2 kv_heads=2 scale=1.0
    }}""")
    assert mask_of(before) == ((3, 1, 3, 3), False)
