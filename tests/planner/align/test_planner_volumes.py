"""Convolutions over three axes, and those with very wide windows, become ones that tensor cores have kernels for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.align import split_batches, split_groups
from bolt_build.planner.passes.images.volumes import FLATTEN_VOLUMES
from bolt_build.targets import target_named


def volume(
    kernel: str = "3,3,3", strides: str = "1,1,1", pads: str = "1,1,1", x: str = "2,3,5,6,4", groups: int = 1
) -> Graph:
    channels = int(x.split(",")[1]) // groups
    return graph(f"""
        graph g batch=2 (%x: f32[{x}]) -> (%y) {{
          const %w: f32[6,{channels},{kernel}]
          const %b: f32[6]
          %c = conv(%x, %w, %b) strides=[{strides}] pads_begin=[{pads}] pads_end=[{pads}] groups={groups} // "c"
          %y = relu(%c) // "y"
        }}""")


def line(taps: int, channels: int = 9, groups: int = 1, filters: int = 18) -> Graph:
    return graph(f"""
        graph g batch=2 (%x: f32[2,{channels},90]) -> (%y) {{
          const %w: f32[{filters},{channels // groups},{taps}]
          %y = conv(%x, %w) strides=[2] pads_begin=[5] pads_end=[16] groups={groups} // "c"
        }}""")


def agrees(before: Graph, after: Graph) -> None:
    """Both graphs give the same for one input."""
    shape = before.type("x").shape
    x = {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    np.testing.assert_allclose(evaluate(after, x)["y"], evaluate(before, x)["y"], rtol=1e-5, atol=1e-5)


def kinds(graph: Graph) -> list[str]:
    return [node.op.kind for node in graph.nodes]


@pytest.mark.parametrize(
    ("before", "left", "what"),
    [
        (volume(), ["stack", "fold-depth", "conv", "unfold-depth", "relu"], "its 3 depths are channels of images"),
        (
            volume(kernel="1,3,3", pads="0,1,1", strides="1,2,2"),
            ["fold-depth", "conv", "unfold-depth", "relu"], "each depth is an image",
        ),
        (
            volume(kernel="1,1,1", pads="0,0,0", strides="2,2,2"),
            ["stack", "fold-depth", "conv", "unfold-depth", "relu"], "its 1 depths are channels of images",
        ),
        (
            volume(kernel="3,1,1", pads="1,0,0", strides="2,1,1"),
            ["reshape", "conv", "reshape", "relu"], "windows over depths alone go over rows that are whole images",
        ),
        (
            volume(x="2,6,5,6,4", groups=3),
            ["stack", "fold-depth", "conv", "unfold-depth", "relu"], "its 3 depths are channels of images",
        ),
    ],
)  # fmt: skip
def test_a_volume_becomes_images(before: Graph, left: list[str], what: str) -> None:
    result = run(FLATTEN_VOLUMES, before)
    assert [kind if kind != "activation" else "relu" for kind in kinds(result.graph)] == left
    assert said(result) == [("c", "flattened", what)]
    agrees(before, result.graph)


@pytest.mark.parametrize(("kernel", "pads", "sides"), [("3,3,3", "1,1,1", ""), ("5,1,3", "2,0,1", "dilations=[2,1,4]")])
def test_a_filter_for_each_channel_goes_through_planes(kernel: str, pads: str, sides: str) -> None:
    before = graph(f"""
        graph g batch=2 (%x: f32[2,6,5,6,14]) -> (%y) {{
          const %w: f32[6,1,{kernel}]
          %y = conv(%x, %w) pads_begin=[{pads}] pads_end=[{pads}] strides=[1,1,1] {sides} groups=6 // "c"
        }}""")
    result = run(FLATTEN_VOLUMES, before)
    assert result.graph == before
    assert said(result) == [
        ("c", "declined", "each channel has a filter of its own, and kernels go through planes")
    ]  # fmt: skip


@pytest.mark.parametrize(("kernel", "dilation"), [("10,1,3", 1), ("3,3,3", 5), ("1,3,3", 1), ("3,1,1", 1)])
def test_other_filters_of_each_channel_are_of_images(kernel: str, dilation: int) -> None:
    """Windows too large to go through planes, of one plane, and along depths alone."""
    before = graph(f"""
        graph g batch=2 (%x: f32[2,6,14,16,14]) -> (%y) {{
          const %w: f32[6,1,{kernel}]
          %y = conv(%x, %w) strides=[1,1,1] dilations=[{dilation},{dilation},{dilation}] groups=6 // "c"
        }}""")
    after = run(FLATTEN_VOLUMES, before).graph
    (conv,) = (node.op for node in after.nodes if isinstance(node.op, Conv))
    assert len(conv.strides) == 2
    agrees(before, after)


def test_residuals_and_factors_of_channels_go_with_the_convolution() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,6,5,6,4]) -> (%y) {
          const %w: f32[6,6,3,3,3]
          const %s: f32[6,1,1,1]
          %y = conv(%x, %w, %s, %x) pads_begin=[1,1,1] pads_end=[1,1,1] | mul(%s) | add(%x@3) | relu // "c"
        }""")
    result = run(FLATTEN_VOLUMES, before)
    assert kinds(result.graph) == ["stack", "fold-depth", "fold-depth", "conv", "unfold-depth"]
    agrees(before, result.graph)


def test_an_operand_that_follows_images_alone_keeps_the_convolution() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,6,5,6,4], %g: f32[2,6,1,1,1]) -> (%y) {
          const %w: f32[6,6,1,1,1]
          %y = conv(%x, %w, %g) | mul(%g) // "c"
        }""")
    result = run(FLATTEN_VOLUMES, before)
    assert result.graph == before
    assert said(result) == [
        ("c", "declined", "'g' of shape [2, 6, 1, 1, 1] follows neither channels nor all of [2, 6, 5, 6, 4]")
    ]


def test_computed_weights_keep_the_convolution() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,6,5,6,4], %w: f32[6,6,1,1,1]) -> (%y) {
          %y = conv(%x, %w) strides=[1,1,1] // "c"
        }""")
    result = run(FLATTEN_VOLUMES, before)
    assert result.graph == before
    assert said(result) == [("c", "declined", "its weights are computed")]


def test_a_window_over_the_whole_image_moves_each_element_once() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,4,64,5]) -> (%y) {
          const %w: f32[3,4,64,1] #
          %y = conv(%x, %w) | relu // "c"
        }""")
    result = run(FLATTEN_VOLUMES, before)
    assert [result.graph.type(node.outputs[0]).shape for node in result.graph.nodes] == [(2, 8, 32, 5), (2, 3, 1, 5)]


def test_wide_windows_become_channels() -> None:
    before = line(80)
    result = run(FLATTEN_VOLUMES, before)
    assert kinds(result.graph) == ["stack", "conv"]
    assert said(result) == [("c", "narrowed", "3 of its 80 taps are channels")]
    agrees(before, result.graph)


@pytest.mark.parametrize("before", [line(32), line(80, channels=8), line(80, groups=9)])
def test_others_stay(before: Graph) -> None:
    """Kernels count so many taps; a row of few channels is one run; groups have kernels of their own."""
    assert run(FLATTEN_VOLUMES, before).graph == before


@settings(max_examples=40, deadline=None)
@given(
    kernel=st.tuples(*[st.integers(1, 4)] * 3), stride=st.tuples(*[st.integers(1, 3)] * 3),
    dilation=st.tuples(*[st.integers(1, 2)] * 3), begin=st.tuples(*[st.integers(0, 2)] * 3),
    end=st.tuples(*[st.integers(0, 2)] * 3), groups=st.sampled_from((1, 2, 4)),
)  # fmt: skip
def test_any_window_gives_the_same(
    kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...], begin: tuple[int, ...],
    end: tuple[int, ...], groups: int,
) -> None:  # fmt: skip
    sides = f"strides={list(stride)} dilations={list(dilation)} pads_begin={list(begin)} pads_end={list(end)}"
    before = graph(f"""
        graph g batch=2 (%x: f32[2,4,8,7,9]) -> (%y) {{
          const %w: f32[8,{4 // groups},{",".join(map(str, kernel))}]
          %y = conv(%x, %w) {sides} groups={groups} // "c"
        }}""")
    after = run(FLATTEN_VOLUMES, before).graph
    (conv,) = (node.op for node in after.nodes if isinstance(node.op, Conv))
    assert len(conv.strides) == 2
    agrees(before, after)


def test_it_pays_where_there_are_tensor_cores() -> None:
    pays = FLATTEN_VOLUMES.pays_on
    assert pays is not None
    assert pays(target_named("t4"), "fp16")
    assert not pays(target_named("t4"), "bf16")
    assert not pays(target_named("host"), "fp32")


def test_more_than_kernels_reach_is_computed_in_parts_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    before = graph("""
        graph g batch=5 (%x: f32[5,4,4,4], %r: f32[5,6,4,4]) -> (%y) {
          const %w: f32[6,4,3,3]
          %y = conv(%x, %w, %r) pads_begin=[1,1] pads_end=[1,1] | add(%r@2) | relu // "c"
        }""")
    monkeypatch.setattr(split_batches, "_MOST", 200)
    result = run(split_batches.SPLIT_BATCHES, before)
    parts = [node for node in result.graph.nodes if isinstance(node.op, Conv)]
    assert [result.graph.type(node.outputs[0]).shape[0] for node in parts] == [2, 2, 1]
    assert said(result) == [("c", "split", "into 3 parts of the batch, of less than 2 GiB each")]
    random = np.random.default_rng(1)
    x = {name: random.standard_normal(before.type(name).shape).astype(np.float32) for name in before.inputs}
    np.testing.assert_allclose(evaluate(result.graph, x)["y"], evaluate(before, x)["y"], rtol=1e-6, atol=1e-6)


def test_parts_of_a_batch_read_all_filters_that_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are as many as images here."""
    before = graph("""
        graph g batch=4 (%x: f32[4,4,4,4], %w: f32[4,4,3,3]) -> (%y) {
          %y = conv(%x, %w) pads_begin=[1,1] pads_end=[1,1] // "c"
        }""")
    monkeypatch.setattr(split_batches, "_MOST", 200)
    result = run(split_batches.SPLIT_BATCHES, before)
    assert [node.inputs[1] for node in result.graph.nodes if isinstance(node.op, Conv)] == ["w", "w"]


def test_a_residual_of_the_own_input_is_cut_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = graph("""
        graph g batch=4 (%x: f32[4,4,4,4]) -> (%y) {
          const %w: f32[4,4,1,1]
          %y = conv(%x, %w, %x) | add(%x@2) // "c"
        }""")
    monkeypatch.setattr(split_batches, "_MOST", 200)
    parts = run(split_batches.SPLIT_BATCHES, before).graph.nodes
    assert [(node.op.kind, node.inputs) for node in parts][:2] == [
        ("slice", ("x",)), ("conv", ("x.part0", "w", "x.part0")),
    ]  # fmt: skip


def test_images_that_are_constant_have_no_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = graph("""
        graph g batch=4 (%w: f32[4,4,3,3]) -> (%y) {
          const %x: f32[4,4,4,4]
          %y = conv(%x, %w) pads_begin=[1,1] pads_end=[1,1] // "c"
        }""")
    monkeypatch.setattr(split_batches, "_MOST", 200)
    result = run(split_batches.SPLIT_BATCHES, before)
    assert result.graph == before
    assert said(result) == [("c", "declined", "its images are constant")]


def test_a_convolution_whose_epilogue_has_a_constant_for_each_image_has_no_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = graph("""
        graph g batch=5 (%x: f32[5,4,4,4]) -> (%y) {
          const %w: f32[6,4,3,3]
          const %n: f32[5,1,1,1]
          %y = conv(%x, %w, %n) pads_begin=[1,1] pads_end=[1,1] | mul(%n) // "c"
        }""")
    monkeypatch.setattr(split_batches, "_MOST", 200)
    result = run(split_batches.SPLIT_BATCHES, before)
    assert result.graph == before
    assert said(result) == [("c", "declined", "a constant of its epilogue has an element for each image")]


def test_an_image_beyond_reach_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,4,4,4]) -> (%y) {
          const %w: f32[6,4,1,1]
          %y = conv(%x, %w) // "c"
        }""")
    monkeypatch.setattr(split_batches, "_MOST", 90)
    result = run(split_batches.SPLIT_BATCHES, before)
    assert result.graph == before
    assert said(result) == [("c", "declined", "one image alone has 96 elements, kernels reach 90")]


def in_groups(channels: int, groups: int = 2, stages: str = "| relu") -> Graph:
    return graph(f"""
        graph g batch=2 (%x: f32[2,{channels * groups},4,4]) -> (%y) {{
          const %w: f32[{48 * groups},{channels},3,3]
          const %b: f32[{48 * groups}]
          %y = conv(%x, %w, %b) pads_begin=[1,1] pads_end=[1,1] groups={groups} {stages} // "c"
        }}""")


def test_large_groups_are_products_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before = in_groups(56)
    monkeypatch.setattr(split_groups, "_LEAST_WORK", 1.0)
    result = run(split_groups.SPLIT_GROUPS, before)
    assert kinds(result.graph) == ["slice", "conv", "slice", "conv", "concat"]
    assert said(result) == [("c", "split", "its 2 groups of 56 channels are products of their own")]
    agrees(before, result.graph)


@pytest.mark.parametrize(
    ("before", "least", "why"),
    [
        (in_groups(56), 5e8, "2 launches take longer than its groups do in one"),
        (in_groups(50), 1.0, "groups of 50 channels and 48 filters are no whole loads"),
        (line(33, 112, 2, 96), 1.0, "products have at most 32 taps along an axis, not 33"),
        (in_groups(40), 1.0, None),
        (in_groups(56, 17), 1.0, None),
    ],
)
def test_other_groups_stay(monkeypatch: pytest.MonkeyPatch, before: Graph, least: float, why: str | None) -> None:
    monkeypatch.setattr(split_groups, "_LEAST_WORK", least)
    result = run(split_groups.SPLIT_GROUPS, before)
    assert result.graph == before
    assert said(result) == ([] if why is None else [("c", "declined", why)])


def test_groups_are_split_where_no_kernel_computes_all_of_them_on_tensor_cores() -> None:
    pays = split_groups.SPLIT_GROUPS.pays_on
    assert pays is not None
    assert [pays(target_named(name), "fp16") for name in ("t4", "a100", "h200", "host")] == [True, True, False, False]
    assert not pays(target_named("t4"), "bf16")
