"""Constant masks of attention that are read by distance."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import graph, run, said, same_values

from bolt_build.graph.ir import Array, Graph
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.planner.passes.rows.distances import MASKS_BY_DISTANCE
from bolt_build.targets import target_named

PLACES = np.arange(6)
APART = (PLACES - PLACES[:, None]).astype(np.float32)
"""How far a key lies from each query."""
SLOPES = np.stack([-0.5 * np.abs(APART), -0.25 * np.abs(APART)])
"""ALiBi's for two heads."""
BEHIND = np.where(APART > 0, -np.inf, 0.0).astype(np.float32)


def attending(mask: Array, options: str = "", rows: int = 6, sinks: str = "") -> Graph:
    levels = ",".join("-inf" if each == -np.inf else str(float(each)) for each in mask.reshape(-1))
    constants = f"const %m: f32[{','.join(map(str, mask.shape))}] {{{levels}}}" + (f"\n{sinks}" if sinks else "")
    read = "%x, %x, %x, %m" + (", %k" if sinks else "")
    return graph(
        f"graph g batch=2 (%x: f32[2,{rows},8]) -> (%y) {{\n{constants}\n"
        f"%y = attention({read}) heads=2 kv_heads=2 scale=0.5 {options}\n}}"
    )


def made(before: Graph) -> tuple[Attention, Array | None]:
    result = run(MASKS_BY_DISTANCE, before).graph
    same_values(before, result)
    (node,) = result.nodes
    assert isinstance(node.op, Attention)
    return node.op, result.constant(node.op.masks(node.inputs)[0])


@pytest.mark.parametrize(
    ("mask", "causal", "window", "shape"),
    [
        (SLOPES, False, 0, (2, 11)),
        (SLOPES[None], False, 0, (2, 11)),
        (SLOPES + BEHIND, True, 0, (2, 11)),
        (SLOPES + np.where(APART > 0, np.float32(-3e38), np.float32(0.0)), True, 0, (2, 11)),
        (SLOPES[:1] + BEHIND, True, 0, (1, 11)),
        (SLOPES + np.where(APART < -2, -np.inf, BEHIND), True, 3, (2, 11)),
        (np.where(np.abs(APART) > 1, -np.inf, 0.1 * APART), False, 2, (1, 11)),
        (np.where(APART > 2, -np.inf, 0.1 * APART), False, 0, (1, 11)),
    ],
)
def test_masks_that_are_alike_along_diagonals_are_read_by_distance(
    mask: Array, causal: bool, window: int, shape: tuple[int, ...]
) -> None:
    op, numbers = made(attending(mask.astype(np.float32)))
    assert (op.relative, op.causal, op.window) == (True, causal, window)
    assert numbers is not None
    assert numbers.shape == shape


def test_sinks_stay_behind_the_mask() -> None:
    op, numbers = made(attending(SLOPES, "sunk=true", sinks="const %k: f32[2] {0.5, 1.0}"))
    assert (op.relative, op.sunk) == (True, True)
    assert numbers is not None


@pytest.mark.parametrize("hidden", [-np.inf, -3e38])
def test_other_masks_that_hide_a_triangle_make_attention_causal(hidden: float) -> None:
    mask = np.where(APART > 0, np.float32(hidden), np.outer(PLACES, PLACES + 1).astype(np.float32) / 30)
    before = attending(mask)
    op, numbers = made(before)
    assert op == Attention(2, 2, 0.5, causal=True)
    assert numbers is not None
    assert numbers.shape == (6, 6)
    assert said(run(MASKS_BY_DISTANCE, before)) == [
        ("y", "made causal", "its mask hides all keys behind a query's own")
    ]


def test_a_query_that_is_left_no_key_reads_all_alike() -> None:
    mask = BEHIND.copy()
    mask[0, 0] = -np.inf
    finite = np.where(mask == -np.inf, np.float32(-3e38), mask)
    assert run(MASKS_BY_DISTANCE, attending(finite)).graph == attending(finite)


@pytest.mark.parametrize(
    "mask",
    [np.outer(PLACES, PLACES).astype(np.float32), np.zeros((2, 1, 6, 1), np.float32), np.ones((1, 6), np.float32)],
)
def test_others_stay(mask: Array) -> None:
    assert run(MASKS_BY_DISTANCE, attending(mask)).graph == attending(mask)


def test_one_query_has_no_distances() -> None:
    assert run(MASKS_BY_DISTANCE, attending(np.ones((1, 1), np.float32), rows=1)).decisions == ()


def test_it_is_for_gpus_whose_tensor_cores_multiply_the_precision() -> None:
    assert MASKS_BY_DISTANCE.pays_on is not None
    for name, dtype, pays in (("h200", "fp16", True), ("t4", "fp16", True), ("h200", "fp32", False)):
        assert MASKS_BY_DISTANCE.pays_on(target_named(name), dtype) is pays
    assert not MASKS_BY_DISTANCE.pays_on(target_named("host"), "fp32")
