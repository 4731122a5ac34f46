"""Attention in onnxruntime's own domain, against onnxruntime: masks of all forms, past keys and values, angles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from contrib_nodes import Case, drawn, refusal, same_as_onnxruntime

from bolt_build.graph import reference
from bolt_build.graph.onnx_import import load_model

X, OTHER, SHORT = drawn(2, 5, 12), drawn(2, 5, 12), drawn(2, 7, 12)
WEIGHTS = (drawn(12, 36), drawn(36))
KEYS = np.asarray([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32)
LENGTHS = np.asarray([3, 5], np.int32)
ENDS_AND_BEGINS = np.asarray([3, 5, 1, 2], np.int32)
PAIRS = np.tri(5, dtype=np.int32)[None].repeat(2, 0)
PAST = (drawn(2, 3, 2, 4), drawn(2, 3, 2, 4))
PRESENT = ("y", "k", "v")
TABLES = (drawn(9, 2), drawn(9, 2))
PLACES = np.asarray([[1, 2, 3, 4, 5], [3, 4, 5, 6, 0]], np.int64)

CASES = {
    "packed": Case("Attention", (X,), WEIGHTS, {"num_heads": 3}),
    "without-bias": Case("Attention", (X,), (WEIGHTS[0], None, LENGTHS), {"num_heads": 3}),
    "keys": Case("Attention", (X,), (*WEIGHTS, KEYS), {"num_heads": 3}),
    "lengths": Case("Attention", (X,), (*WEIGHTS, LENGTHS), {"num_heads": 3, "mask_filter_value": -50.0}),
    "ends-and-begins": Case("Attention", (X,), (*WEIGHTS, ENDS_AND_BEGINS), {"num_heads": 3}),
    "pairs": Case("Attention", (X,), (*WEIGHTS, PAIRS, None, drawn(1, 3, 5, 5)), {"num_heads": 3}),
    "causal": Case("Attention", (X,), WEIGHTS, {"num_heads": 2, "unidirectional": 1, "scale": 0.2}),
    "other-values": Case(
        "Attention", (X,), (drawn(12, 30), drawn(30)), {"num_heads": 3, "qkv_hidden_sizes": [12, 12, 6]}
    ),
    "past": Case(
        "Attention", (X, *WEIGHTS, None, drawn(2, 2, 3, 2, 4)), (), {"num_heads": 3, "unidirectional": 1}, ("y", "kv")
    ),
    "present-alone": Case("Attention", (X,), WEIGHTS, {"num_heads": 3}, ("y", "kv")),
    "multi-head": Case("MultiHeadAttention", (X, OTHER, X), (drawn(36), KEYS), {"num_heads": 3}),
    "multi-head-cross": Case("MultiHeadAttention", (X, SHORT, SHORT), (), {"num_heads": 4}),
    "multi-head-by-head": Case(
        "MultiHeadAttention", (X, drawn(2, 3, 7, 4), drawn(2, 3, 7, 4), drawn(36)), (), {"num_heads": 3}
    ),
    "multi-head-past": Case(
        "MultiHeadAttention", (X, OTHER, X, None, None, None, *PAST), (), {"num_heads": 3, "unidirectional": 1}, PRESENT
    ),
    "multi-head-present": Case("MultiHeadAttention", (X, OTHER, X), (), {"num_heads": 3}, PRESENT),
    "rotary": Case("RotaryEmbedding", (X, PLACES), TABLES),
    "rotary-by-head": Case(
        "RotaryEmbedding", (drawn(2, 3, 5, 4), np.asarray([2], np.int64)), TABLES, {"interleaved": 1}
    ),
    "rotary-in-part": Case("RotaryEmbedding", (X, PLACES), TABLES, {"num_heads": 2, "rotary_embedding_dim": 4}),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_onnxruntime(name: str, tmp_path: Path) -> None:
    same_as_onnxruntime(CASES[name], tmp_path)


UNDOCUMENTED = {
    "past-left-out": (
        Case("MultiHeadAttention", (X, OTHER, X, None, None, None, *PAST), (), {"num_heads": 3}),
        "past_key is supported with keys as rows alone, and where present_key and present_value are outputs",
    ),
    "last-query": (
        Case("MultiHeadAttention", (X, SHORT, SHORT), (), {"num_heads": 3, "unidirectional": 1}),
        "unidirectional=1 with other numbers of keys than of queries is not supported",
    ),
    "queries-alone": (
        Case("MultiHeadAttention", (X,), (), {"num_heads": 3}),
        "queries, keys and values of [3, 0, 0] axes are not supported",
    ),
    "angles": (Case("Attention", (X,), WEIGHTS, {"num_heads": 3, "do_rotary": 1}), "do_rotary is not supported"),
    "mask": (Case("Attention", (X,), (*WEIGHTS, KEYS[:, :4]), {"num_heads": 3}), "a mask [2, 4] is not supported"),
    "ragged": (
        Case("RotaryEmbedding", (X, PLACES), TABLES, {"is_packed_batching": 1}),
        "is_packed_batching=1 is not supported",
    ),
    "places": (
        Case("RotaryEmbedding", (X, PLACES[:, :3]), TABLES), "positions [2, 3] must be [1] or [2, 5]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDOCUMENTED)
def test_what_they_have_beyond_is_refused_with_a_reason(name: str, tmp_path: Path) -> None:
    case, said = UNDOCUMENTED[name]
    assert refusal(case, tmp_path) == [f"{case.op_type} 'node': {said}"]


def test_packed_queries_keys_and_values_are_three_tensors(tmp_path: Path) -> None:
    """onnxruntime's CPU has no kernel for the packed forms: they are compared with what they pack."""
    q, k, v = (drawn(2, 5, 12) for _ in range(3))
    together = np.stack([x.reshape(2, 5, 3, 4) for x in (q, k, v)], 3)
    results = []
    for data in ((q, k, v), (together,), (q, np.ascontiguousarray(together[:, :, :, 1:]))):
        feeds = Case("MultiHeadAttention", data, (), {"num_heads": 3}).saved(tmp_path / "case.onnx")
        results.append(reference.evaluate(load_model(tmp_path / "case.onnx").bind(2), feeds)["y"])
    np.testing.assert_array_equal(results[1], results[0])
    np.testing.assert_array_equal(results[2], results[0])
