"""Factors of data that scale filters scale the image and the result instead."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import PassResult
from bolt_build.planner.passes.fold.filter_scales import SCALE_IMAGES

DID = ("scaled its image and its result", "factors of data scale its filters")
HOW = "dilations=[1,1] pads_begin=[1,1] pads_end=[1,1] strides=[1,1]"


def styled(length: str = "", result: str = "%m", images: int = 2) -> Graph:
    """StyleGAN's layer: a batch is one image with groups, `length` what divides the filters."""
    return graph(f"""
        graph g batch={images} (%x: f32[{images},4,5,6], %s: f32[{images},4]) -> (%y) {{
          const %w: f32[1,3,4,3,3]
          const %two: f32[] {{2}}
          const %small: f32[] {{0.01}}
          %r = reshape(%s) shape=[{images},1,4,1,1]
          %m = mul(%w, %r) // "m"
          {length}
          %f = reshape({result}) shape=[{3 * images},4,3,3]
          %i = reshape(%x) shape=[1,{4 * images},5,6]
          %y = conv(%i, %f) {HOW} groups={images} // "y"
        }}""")


def convolved(result: PassResult) -> Conv:
    """The convolution, whose filters must be constant but for a reshape."""
    (node,) = [each for each in result.graph.nodes if isinstance(each.op, Conv)]
    (made,) = [each for each in result.graph.nodes if each.outputs == node.inputs[1:2]]
    assert result.graph.value(made.inputs[0]).constant is not None
    assert isinstance(node.op, Conv)
    return node.op


@pytest.mark.parametrize("images", [1, 2])
def test_styles_of_channels_scale_the_image(images: int) -> None:
    result = run(SCALE_IMAGES, styled(images=images))
    assert said(result) == [("y", *DID)]
    assert convolved(result).groups == 1


@pytest.mark.parametrize(
    "square",
    [
        "%q = mul(%m, %m)\n          %t = reduce(%q) mode=sum axes=[2,3,4] keepdims=true",
        "%q = pow(%m, %two)\n          %t = reduce(%q) mode=mean axes=[2,3,4] keepdims=true",
        "%t = reduce(%m) mode=sum_square axes=[2,3,4] keepdims=true",
    ],
)
@pytest.mark.parametrize("images", [1, 2])
def test_lengths_of_scaled_filters_are_products_of_squares(square: str, images: int) -> None:
    """StyleGAN2 divides by them: no step computes filters of each image."""
    length = f"""{square}
          %a = add(%t, %small)
          %d = sqrt(%a)
          %n = div(%m, %d)"""
    result = run(SCALE_IMAGES, styled(length, "%n", images))
    assert [each[1:] for each in said(result)] == [
        ("made a product of squares", "a factor of each channel scales the filters"), DID,
    ]  # fmt: skip
    assert convolved(result).groups == 1
    assert sum(isinstance(node.op, MatMul) for node in result.graph.nodes) == 1
    shapes = {result.graph.value(node.outputs[0]).type.shape for node in result.graph.nodes}
    assert not shapes & {(2, 3, 4, 3, 3), (1, 3, 4, 3, 3)}


def test_a_bias_and_factors_of_filters_stand_behind_the_convolution() -> None:
    result = run(
        SCALE_IMAGES,
        graph(f"""
        graph g batch=1 (%x: f32[3,4,5,6], %k: f32[8,1,1,1], %b: f32[8]) -> (%y) {{
          const %w: f32[8,2,3,3]
          %m = mul(%k, %w)
          %y = conv(%x, %m, %b) {HOW} groups=2 // "y"
        }}"""),
    )
    assert said(result) == [("y", *DID)]
    assert convolved(result).groups == 2


def declined(body: str, inputs: str, weights: str = "const %w: f32[8,2,3,3]", groups: int = 2) -> str:
    result = run(
        SCALE_IMAGES,
        graph(f"""
        graph g batch=1 (%x: f32[3,4,5,6], {inputs}) -> (%y) {{
          {weights}
          {body}
          %y = conv(%x, %m) {HOW} groups={groups} // "y"
        }}"""),
    )
    ((subject, action, reason),) = said(result)
    assert (subject, action) == ("y", "declined")
    return reason


def test_what_scales_elements_of_the_window_stays() -> None:
    """ODConv weighs positions; mixed filters have no constant ones."""
    reason = "its filters are data, and no constant ones with factors"
    assert declined("%m = mul(%w, %k)", "%k: f32[1,1,3,3]") == reason
    assert declined("%m = mul(%w, %k)", "%k: f32[8,2,1,1]") == reason
    assert declined("%m = add(%w, %k)", "%k: f32[8,1,1,1]") == reason
    assert declined("%m = div(%k, %w)", "%k: f32[8,1,1,1]") == reason
    assert declined("%m = relu(%k)", "%k: f32[8,2,3,3]", "") == reason


def test_groups_that_share_a_factor_of_channels_stay() -> None:
    found = declined("%m = mul(%w, %k)", "%k: f32[1,2,1,1]")
    assert found == "factors scale its filters, but groups share a factor of channels"


def test_an_image_with_filters_of_several_stays() -> None:
    """All of them are convolved with each image."""
    reason = declined(
        "%a = mul(%w, %k)\n          %m = reshape(%a) shape=[8,2,3,3]", "%k: f32[2,4,1,1,1]", "const %w: f32[1,4,2,3,3]"
    )
    assert reason == "factors scale its filters, but each image is convolved with the filters of all"


def test_filters_of_each_image_with_a_number_a_channel_stay() -> None:
    """The constant has as many elements as a window of channels, and is none: each image has its own."""
    before = graph(f"""
        graph g batch=1 (%x: f32[1,9,5,6], %s: f32[1,1,3,1,1]) -> (%y) {{
          const %w: f32[3,4,1,1,1]
          %m = mul(%w, %s) // "m"
          %f = reshape(%m) shape=[12,3,1,1]
          %y = conv(%x, %f) {HOW} groups=3 // "y"
        }}""")
    assert run(SCALE_IMAGES, before).graph == before
