"""GroupQueryAttention, against onnxruntime: prompts and steps of decoders, whose lengths are data or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from contrib_nodes import Case, drawn, refusal, same_as_onnxruntime

from bolt_build.graph.ir import Array

HEADS = {"num_heads": 4, "kv_num_heads": 2}
ROTARY = {**HEADS, "do_rotary": 1}
TABLES = (drawn(12, 8), drawn(12, 8))
ALL = ("y", "keys", "values")
ENDS = np.asarray([5, 3], np.int32)
"""Less by one than each image has rows, with the new one."""


def rows(count: int, batch: int = 2) -> tuple[Array, Array, Array]:
    return drawn(batch, count, 64), drawn(batch, count, 32), drawn(batch, count, 32)


def cache(room: int, batch: int = 2) -> tuple[Array, Array]:
    return drawn(batch, 2, room, 16), drawn(batch, 2, room, 16)


def total(count: int) -> Array:
    return np.asarray(count, np.int32)


def full(count: int, batch: int = 2) -> Array:
    return np.full((batch,), count - 1, np.int32)


PROMPT = (*rows(5), None, None, full(5))
STEP = (*rows(1), *cache(5), ENDS)

CASES = {
    "prompt": Case("GroupQueryAttention", PROMPT, (total(5),), HEADS, ALL),
    "packed": Case("GroupQueryAttention", (drawn(2, 5, 128), None, None, None, None, full(5)), (total(5),), HEADS),
    "rotary": Case("GroupQueryAttention", PROMPT, (total(5), *TABLES), {**ROTARY, "rotary_interleaved": 1}, ALL),
    "placed": Case(
        "GroupQueryAttention", PROMPT, (total(5), *TABLES, np.tile(np.arange(5, dtype=np.int64), (2, 1))), ROTARY
    ),
    "room": Case("GroupQueryAttention", (*rows(5), *cache(8), full(5)), (total(5),), HEADS, ALL),
    "ended": Case("GroupQueryAttention", (*rows(5), None, None, np.asarray([4, 1], np.int32)), (total(5),), HEADS, ALL),
    "window": Case("GroupQueryAttention", PROMPT, (total(5),), {**HEADS, "local_window_size": 2}),
    "both-ways": Case("GroupQueryAttention", PROMPT, (total(5),), {**HEADS, "causal": 0}),
    "capped": Case("GroupQueryAttention", PROMPT, (total(5),), {**HEADS, "softcap": 2.0, "scale": 0.5}),
    "smooth": Case("GroupQueryAttention", PROMPT, (total(5),), {**HEADS, "smooth_softmax": 1}),
    "sink-and-bias": Case(
        "GroupQueryAttention", PROMPT, (total(5), None, None, None, drawn(1, 4, 5, 5), drawn(4)), HEADS
    ),
    "step": Case("GroupQueryAttention", STEP, (total(6), *TABLES), ROTARY, ALL),
    "step-placed": Case(
        "GroupQueryAttention", STEP, (total(6), *TABLES, np.asarray([[4], [1]], np.int64)), {**ROTARY}, ALL
    ),
    "step-with-room": Case(
        "GroupQueryAttention", (*rows(1), *cache(9)), (ENDS, total(6)), {**HEADS, "local_window_size": 2}, ALL
    ),
    "step-capped": Case(
        "GroupQueryAttention", STEP, (total(6), None, None, None, drawn(2, 1, 1, 6), drawn(4)),
        {**HEADS, "softcap": 3.0}, ALL,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_onnxruntime(name: str, tmp_path: Path) -> None:
    same_as_onnxruntime(CASES[name], tmp_path)


def test_several_new_rows_of_one_image_follow_those_of_the_cache(tmp_path: Path) -> None:
    given = (*rows(3, 1), *cache(4, 1), full(7, 1))
    same_as_onnxruntime(Case("GroupQueryAttention", given, (total(7), *TABLES), ROTARY, ALL), tmp_path, batch=1)


REFUSED = {
    "length": (
        Case("GroupQueryAttention", (*PROMPT, total(5)), (), HEADS), "the total length ('x6') is not a constant"
    ),
    "room": (
        Case("GroupQueryAttention", (*rows(5), *cache(2), full(5)), (total(4),), HEADS),
        "a total length of 4 does not fit 5 new rows and a cache of 2",
    ),
    "heads": (
        Case("GroupQueryAttention", PROMPT, (total(5),), {"num_heads": 3, "kv_num_heads": 2}),
        "3 heads cannot share 2 heads of keys and values equally",
    ),
    "quantised": (
        Case("GroupQueryAttention", PROMPT, (total(5),), {**HEADS, "k_quant_type": "PER_TENSOR"}),
        "k_quant_type 'PER_TENSOR' is not supported",
    ),
    "scores": (
        Case("GroupQueryAttention", PROMPT, (total(5),), {**HEADS, "qk_output": 1}), "qk_output is not supported"
    ),
    "half": (
        Case("GroupQueryAttention", (*rows(5)[:2], None, None, None, full(5)), (total(5),), HEADS),
        "key and value are given together, or neither is",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_has_beyond_is_refused_with_a_reason(name: str, tmp_path: Path) -> None:
    case, said = REFUSED[name]
    assert refusal(case, tmp_path) == [f"GroupQueryAttention 'node': {said}"]
