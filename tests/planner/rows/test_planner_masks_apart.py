"""Two constant masks that attention adds instead of their sum."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said, same_values

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.planner.passes.rows.masks_apart import MASKS_APART
from bolt_build.targets import target_named

BIAS, WINDOWS = "const %bias: f32[4,3,3] #1", "const %windows: f32[6,1,3,3] #2"
SUM = "%m = add(%bias, %windows)"


def attention(
    *constants: str, total: str = SUM, options: str = "scale=0.5", inputs: str = "%x: f32[12,3,8]", q: str = "%x",
) -> Graph:  # fmt: skip
    lines = "\n".join(constants)
    return graph(
        f"graph g batch=12 ({inputs}) -> (%y) {{\n{lines}\n{total}\n"
        f"%y = attention({q}, %x, %x, %m) heads=4 kv_heads=4 {options}\n}}"
    )


@pytest.mark.parametrize(
    ("constants", "total"),
    [
        ((BIAS, WINDOWS), SUM),
        ((BIAS, WINDOWS), "%m = add(%windows, %bias)"),
        ((BIAS, "const %given: f32[1,6,1,3,3] #2"), "%windows = reshape(%given) shape=[6,1,3,3]\n" + SUM),
        (("const %bias: f32[1,4,3,3] #1", WINDOWS), SUM),
    ],
)
def test_a_bias_of_heads_and_masks_of_images_stay_two(constants: tuple[str, ...], total: str) -> None:
    before = attention(*constants, total=total)
    result = run(MASKS_APART, before)
    same_values(before, result.graph)
    (words,) = said(result)
    assert words[1] == "kept masks apart"
    assert words[2] in {f"{a} and {b} elements in the place of their sum's 216" for a, b in ((36, 54), (54, 36))}
    node = result.graph.nodes[-1]
    assert isinstance(node.op, Attention)
    assert [result.graph.type(name).shape[0] for name in node.op.masks(node.inputs)][1] == 6


@pytest.mark.parametrize(
    ("constants", "options", "why"),
    [
        (("const %bias: f32[1,3,3] #1", "const %windows: f32[4,3,3] #2"), "scale=0.5", None),
        (("const %bias: f32[3,1,3,3] #1", "const %windows: f32[1,3,3] #2"), "scale=0.5", None),
        (("const %bias: f32[4,1,3] #1", WINDOWS), "scale=0.5", "a mask of 'm' has no rows of its own for queries"),
        ((BIAS, WINDOWS), "scale=0.001", "its constant masks are not put in the order of scores"),
    ],
)
def test_others_stay_a_sum(constants: tuple[str, ...], options: str, why: str | None) -> None:
    before = attention(*constants, options=options)
    result = run(MASKS_APART, before)
    assert result.graph == before
    assert [reason for _, what, reason in said(result) if what == "declined"] == ([why] if why else [])


def test_masks_that_are_given_stay_a_sum() -> None:
    before = attention(BIAS, inputs="%x: f32[12,3,8], %windows: f32[6,1,3,3]")
    assert run(MASKS_APART, before).graph == before


def test_it_is_for_gpus_whose_tensor_cores_multiply_the_precision() -> None:
    wanted = [("h200", "fp16", True), ("t4", "fp16", True), ("h200", "fp32", False), ("host", "fp32", False)]
    assert [MASKS_APART.pays_on(target_named(name), dtype) for name, dtype, _ in wanted] == [
        pays for *_, pays in wanted
    ]
