"""Masks that exporters join of a triangle, or of nothing, and of what says which keys are padding."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.planner.passes.base import PassResult
from bolt_build.planner.passes.recognise.attention import RECOGNISE_ATTENTION
from bolt_build.planner.passes.tidy.ordered_gathers import RESHAPE_GATHERS

TRIANGLE, EVERYTHING = np.tri(5, dtype=bool), np.ones((5, 5), bool)


def masked(seen: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], hides: str, *, added: str = "") -> Graph:
    """Attention over keys that `seen` shows and that are no padding; another mask may be `added`."""
    more, scores = (f'{added}\n%b0 = add(%a0, %c0) // "b0"', "%b0") if added else ("", "%a0")
    bits = ",".join(str(bit).lower() for bit in seen.reshape(-1))
    return graph(f"""
        graph g batch=2 (%q: f32[2,3,5,4], %k: f32[2,3,5,4], %v: f32[2,3,5,4], %ids: f32[2,1,1,5]) -> (%y0) {{
          const %seen: bool[1,1,5,5] {{{bits}}}
          const %zero: f32[] {{0}}
          const %least: f32[] {{{hides}}}
          const %low: f32[] {{-9}}
          %real = compare(%low, %ids) question="less" // "real"
          %both = logic(%seen, %real) function="and" // "both"
          %s0 = matmul(%q, %k) transpose_b=true // "s0"
          %m0 = where(%both, %zero, %least) // "m0"
          %a0 = add(%s0, %m0) // "a0"
          {more}
          %p0 = softmax({scores}) axis=3 // "p0"
          %y0 = matmul(%p0, %v) // "y0"
        }}""")


def attention_of(result: PassResult) -> list[Attention]:
    return [node.op for node in result.graph.nodes if isinstance(node.op, Attention)]


def shape_of_mask(result: PassResult) -> tuple[int, ...]:
    (node, *_) = [node for node in result.graph.nodes if isinstance(node.op, Attention)]
    return result.graph.type(node.inputs[-1]).shape


@pytest.mark.parametrize(
    ("seen", "hides", "causal", "shape"),
    [
        (TRIANGLE, "-inf", True, (2, 1, 1, 5)),
        (EVERYTHING, "-inf", False, (2, 1, 1, 5)),
        (EVERYTHING, "-3e38", False, (2, 1, 1, 5)),
        (TRIANGLE, "-3e38", True, (2, 1, 1, 5)),
        (TRIANGLE, "-9", False, (2, 1, 5, 5)),  # scores are told from each other yet
        (np.flip(TRIANGLE), "-inf", False, (2, 1, 5, 5)),  # no triangle of a causal mask
    ],
)
def test_a_triangle_comes_apart_from_padding(
    seen: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], hides: str, causal: bool, shape: tuple[int, ...]
) -> None:
    result = run(RECOGNISE_ATTENTION, masked(seen, hides))
    (op,) = attention_of(result)
    assert (op.causal, shape_of_mask(result)) == (causal, shape)
    assert op.endless is (hides == "-inf")


@pytest.mark.parametrize(
    ("added", "causal", "shape"),
    [
        ('%c0 = mul(%ids, %ids) // "c0"', False, (2, 1, 5, 5)),  # of numbers that are given
        ('%i0 = cast(%ids) to=i64\n%d0 = cast(%i0) to=f32\n%e0 = mul(%d0, %d0)\n%c0 = mul(%e0, %least) // "c0"',
         False, (2, 1, 5, 5)),
        ('%n0 = matmul(%ids, %ids) transpose_a=true\n%c0 = mul(%n0, %low) // "c0"', True, (2, 1, 5, 5)),
    ],
)  # fmt: skip
def test_beside_a_mask_that_may_hide_one_that_hides_by_a_finite_number_stays_whole(
    added: str, causal: bool, shape: tuple[int, ...]
) -> None:
    """A key that both hide has no part in the mean that a query reads of keys that one of them hides. A bias hides
    nothing."""
    result = run(RECOGNISE_ATTENTION, masked(TRIANGLE, "-3e38", added=added))
    (op,) = attention_of(result)
    assert (op.causal, op.tied, shape_of_mask(result)) == (causal, True, shape)


@pytest.mark.parametrize(
    ("statement", "indices", "shape", "reshaped"),
    [
        ("gather(%x, %i) axis=0", "i64[2,3] {0,1,2,3,4,-1}", "f32[6,2]", True),
        ("gather(%x, %i) axis=0", "i64[2,3] {0,1,2,3,5,4}", "f32[6,2]", False),
        ("gather(%x, %i) axis=0", "i64[2,2] {0,1,2,3}", "f32[6,2]", False),
        ("gather(%x, %i) axis=1", "i64[1,1] {0}", "f32[1048577,1]", True),  # said by the axis, however large the rest
        ("gather(%x, %i) axis=1", "i64[2] {1,0}", "f32[3,2]", False),
        ("gather_nd(%x, %i) batch_dims=0", "i64[2,2,2] {0,0,0,1,1,0,1,1}", "f32[2,2]", True),
        ("gather_nd(%x, %i) batch_dims=0", "i64[2,2,2] {0,0,1,0,0,1,1,1}", "f32[2,2]", False),
    ],
)
def test_a_gather_of_everything_in_order_is_a_reshape(statement: str, indices: str, shape: str, reshaped: bool) -> None:
    before = graph(f"""
        graph g batch=2 (%x: {shape}) -> (%y) {{
          const %i: {indices}
          %y = {statement} // "y"
        }}""")
    result = run(RESHAPE_GATHERS, before)
    assert (result.graph.nodes[0].op.kind == "reshape") is reshaped
    assert said(result) == [("y", "made a reshape", "'i' names everything in its order")] * reshaped


@pytest.mark.parametrize(
    ("triangle", "causal", "shape"), [("-inf", True, (2, 1, 1, 5)), ("-3e38", False, (2, 1, 5, 5))]
)
def test_a_triangle_that_is_added_to_padding_comes_apart(triangle: str, causal: bool, shape: tuple[int, ...]) -> None:
    """As ONNX's operator is written out that has both. One of finite numbers stays in the sum."""
    numbers = ",".join("0" if seen else triangle for seen in TRIANGLE.reshape(-1))
    result = run(RECOGNISE_ATTENTION, graph(f"""
        graph g batch=2 (%q: f32[2,3,5,4], %k: f32[2,3,5,4], %v: f32[2,3,5,4], %ids: f32[2,1,1,5]) -> (%y0) {{
          const %triangle: f32[5,5] {{{numbers}}}
          const %zero: f32[] {{0}}
          const %least: f32[] {{-inf}}
          const %low: f32[] {{-9}}
          %real = compare(%low, %ids) question="less" // "real"
          %m0 = where(%real, %zero, %least) // "m0"
          %b0 = add(%m0, %triangle) // "b0"
          %s0 = matmul(%q, %k) transpose_b=true // "s0"
          %a0 = add(%s0, %b0) // "a0"
          %p0 = softmax(%a0) axis=3 // "p0"
          %y0 = matmul(%p0, %v) // "y0"
        }}"""))  # fmt: skip
    (op,) = attention_of(result)
    assert (op.causal, shape_of_mask(result)) == (causal, shape)
