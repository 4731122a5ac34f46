"""Attention whose constant mask shows blocks of keys alone becomes that of a batch."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import body, graph, run, said, same_values

import bolt_build.planner.passes.rows.mask_blocks as mask_blocks
from bolt_build.graph.ir import Array, Graph
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.planner.passes.rows.mask_blocks import MASK_BLOCKS


def blocks(*lengths: int, hidden: float = -np.inf) -> Array:
    """[S, S]: zeros within blocks of these lengths behind each other."""
    places = np.repeat(np.arange(len(lengths)), lengths)
    return np.where(places == places[:, None], np.float32(0.0), np.float32(hidden))


def attending(mask: Array, options: str = "", batch: int = 1, more: str = "") -> Graph:
    levels = ",".join("-inf" if each == -np.inf else str(float(each)) for each in mask.reshape(-1))
    constants = f"const %m: f32[{','.join(map(str, mask.shape))}] {{{levels}}}" + (f"\n{more}" if more else "")
    read = "%q, %k, %v, %m" + (", %s" if more else "")
    rows = mask.shape[-1]
    return graph(
        f"graph g batch={batch} (%q: f32[{batch},{rows},8], %k: f32[{batch},{rows},4], %v: f32[{batch},{rows},4])"
        f" -> (%y) {{\n{constants}\n"
        f"%y = attention({read}) heads=2 kv_heads=1 scale=0.5 {options}\n}}"
    )


def attentions(before: Graph) -> list[tuple[Attention, tuple[int, ...], Array | None]]:
    """Each attention that the pass leaves, the shape of its queries, and its mask."""
    result = run(MASK_BLOCKS, before).graph
    same_values(before, result)
    found = []
    for node in result.nodes:
        if isinstance(node.op, Attention):
            masks = node.op.masks(node.inputs)
            found.append((node.op, result.type(node.inputs[0]).shape, result.constant(masks[0]) if masks else None))
    return found


PLAIN = Attention(2, 1, 0.5)


@pytest.mark.parametrize("hidden", [-np.inf, -3e38])
@pytest.mark.parametrize("batch", [1, 2])
def test_blocks_of_one_length_are_images_of_a_batch(hidden: float, batch: int) -> None:
    before = attending(blocks(3, 3, 3, hidden=hidden), batch=batch)
    assert attentions(before) == [(PLAIN, (3 * batch, 3, 8), None)]
    result = run(MASK_BLOCKS, before)
    assert said(result) == [("y", "attended in blocks", "its mask shows blocks of keys alone: 3 of 3")]
    assert "slice" not in body(result.graph)


def test_heads_and_images_may_have_the_same_blocks() -> None:
    before = attending(np.broadcast_to(blocks(2, 2), (2, 1, 4, 4)), batch=2)
    assert attentions(before) == [(PLAIN, (4, 2, 8), None)]


def test_blocks_may_be_causal_within() -> None:
    triangle = np.where(np.tri(6, dtype=np.bool_), np.float32(0.0), np.float32(-np.inf))
    ((op, shape, mask),) = attentions(attending(blocks(3, 3) + triangle))
    assert (op, shape) == (PLAIN, (2, 3, 8))
    assert mask is not None
    assert mask.shape == (1, 1, 3, 3)  # alike in both
    assert attentions(attending(blocks(3, 3), "causal=true")) == [(Attention(2, 1, 0.5, causal=True), (2, 3, 8), None)]


def test_a_triangle_leaves_blocks_that_the_mask_alone_does_not() -> None:
    mask = blocks(3, 3)
    mask[0, 4] = 0.0
    assert attentions(attending(mask, "causal=true")) == [(Attention(2, 1, 0.5, causal=True), (2, 3, 8), None)]
    assert run(MASK_BLOCKS, attending(mask)).decisions == ()


def test_numbers_of_heads_stay_those_of_each_block() -> None:
    bias = np.arange(72, dtype=np.float32).reshape(2, 6, 6) / 50
    ((op, shape, mask),) = attentions(attending(blocks(3, 3) + bias))
    assert (op, shape) == (PLAIN, (2, 3, 8))
    assert mask is not None
    assert mask.shape == (2, 2, 3, 3)


def test_images_of_other_numbers_stay_beside_each_other() -> None:
    masks = blocks(2, 2) + np.arange(32, dtype=np.float32).reshape(2, 1, 4, 4) / 20
    ((_, shape, mask),) = attentions(attending(masks, batch=2))
    assert shape == (4, 2, 8)
    assert mask is not None
    assert mask.shape == (4, 1, 2, 2)


def test_sinks_and_windows_stay() -> None:
    before = attending(blocks(4, 4), "sunk=true window=2", more="const %s: f32[2] {0.5, 1.0}")
    assert attentions(before) == [(Attention(2, 1, 0.5, window=2, sunk=True), (2, 4, 8), None)]


def test_blocks_of_other_lengths_are_attentions_of_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mask_blocks, "_LEAST_SAVED", 1)
    before = attending(blocks(2, 2, 5, 3, 3), batch=2)
    assert [shape for _, shape, _ in attentions(before)] == [(4, 2, 8), (2, 5, 8), (4, 3, 8)]
    result = run(MASK_BLOCKS, before)
    assert said(result)[0][2].endswith("2 of 2, 1 of 5, 2 of 3")


COLUMNS = """
    graph g batch=1 (%x: f32[1,6,24]) -> (%y) {
      const %m: f32[6,6] {MASK}
      %q = slice(%x) begin=[0,0,0] count=[1,6,8] step=[1,1,1]
      %k = slice(%x) begin=[0,0,8] count=[1,6,8] step=[1,1,1]
      %v = slice(%x) begin=[0,0,16] count=[1,6,8] step=[1,1,1]
      %y = attention(%q, %k, %v, %m) heads=2 kv_heads=2 scale=0.5
    }"""


def test_columns_of_one_product_are_cut_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mask_blocks, "_LEAST_SAVED", 1)
    levels = ",".join("-inf" if each else "0" for each in blocks(4, 2).reshape(-1))
    before = graph(COLUMNS.replace("MASK", levels))
    result = run(MASK_BLOCKS, before).graph
    same_values(before, result)
    assert [node.inputs for node in result.nodes if node.op.kind == "slice"] == [("x",)] * 6


@pytest.mark.parametrize(
    ("mask", "why"),
    [
        (blocks(4, 2), "but 2 attentions take longer than all scores"),
        (blocks(1, 2, 1, 2, 1, 2, 1, 2, 1), "but these are 9 runs of one length each"),
    ],
)
def test_it_says_why_blocks_stay(mask: Array, why: str) -> None:
    (decision,) = said(run(MASK_BLOCKS, attending(mask)))
    assert decision[1] == "declined"
    assert decision[2].endswith(why)


def test_a_mask_that_begins_anew_behind_some_images_stays() -> None:
    masks = np.broadcast_to(blocks(2, 2), (2, 1, 4, 4))
    (decision,) = said(run(MASK_BLOCKS, attending(masks, batch=4)))
    assert decision[2].endswith("but it begins anew behind some images")


def test_a_query_that_is_left_no_key_reads_all_alike() -> None:
    mask = blocks(2, 2)
    mask[0] = -np.inf
    assert run(MASK_BLOCKS, attending(mask)).decisions == ()


@pytest.mark.parametrize("mask", [np.zeros((4, 4), np.float32), np.zeros((1, 4), np.float32), blocks(4)])
def test_masks_without_blocks_stay(mask: Array) -> None:
    assert run(MASK_BLOCKS, attending(mask)).decisions == ()
