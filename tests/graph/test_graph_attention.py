"""Attention as an operator: what it computes, and which inputs do not belong together."""

from __future__ import annotations

import numpy as np
import pytest

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array, ShapeError, TensorType
from bolt_build.graph.ops.attention.attention import Attention


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.RandomState(seed).standard_normal(shape).astype(np.float32)


def one_query(q: Array, k: Array, v: Array, scale: float, mask: Array) -> Array:
    """By the definition, in loops: q [D], k [T, D], v [T, Dv], mask [T]."""
    scores = np.asarray([scale * float(q @ key) for key in k]) + mask
    powers = np.exp(scores - scores.max())
    total = np.zeros(v.shape[1])
    for power, value in zip(powers, v, strict=True):
        total += power / powers.sum() * value
    return total


@pytest.mark.parametrize(("kv_heads", "causal"), [(4, False), (2, False), (1, True)])
def test_each_query_of_each_head_is_the_mean_of_values_that_softmax_weights(kv_heads: int, causal: bool) -> None:
    heads, depth, columns, queries, keys = 4, 3, 5, 6, 4
    q, k = drawn(2, queries, heads * depth), drawn(2, keys, kv_heads * depth, seed=1)
    v, mask = drawn(2, keys, kv_heads * columns, seed=2), drawn(2, 1, queries, keys, seed=3)
    (result,) = Attention(heads, kv_heads, 0.7, causal).evaluate([q, k, v, mask])
    assert result.shape == (2, queries, heads * columns)
    for n, head, i in np.ndindex(2, heads, queries):
        shared = head // (heads // kv_heads)
        last = min(i + 1, keys) if causal else keys
        wanted = one_query(
            q[n, i, head * depth : (head + 1) * depth],
            k[n, :last, shared * depth : (shared + 1) * depth],
            v[n, :last, shared * columns : (shared + 1) * columns], 0.7, mask[n, 0, i, :last],
        )  # fmt: skip
        np.testing.assert_allclose(result[n, i, head * columns : (head + 1) * columns], wanted, rtol=1e-5, atol=1e-6)


def test_a_mask_of_fewer_images_begins_anew_behind_them() -> None:
    q, mask = drawn(6, 5, 8), drawn(3, 2, 5, 5, seed=1)
    op = Attention(2, 2, 0.5)
    (again,) = op.evaluate([q, q, q, mask])
    (whole,) = op.evaluate([q, q, q, np.tile(mask, (2, 1, 1, 1))])
    np.testing.assert_array_equal(again, whole)
    types = [TensorType(DType.F32, x.shape) for x in (q, q, q, mask)]
    assert op.infer(types) == (TensorType(DType.F32, (6, 5, 8)),)


def test_packed_rows_have_queries_then_keys_then_values() -> None:
    q, k, v = drawn(2, 5, 12), drawn(2, 5, 6, seed=1), drawn(2, 5, 6, seed=2)
    (apart,) = Attention(4, 2, 0.5).evaluate([q, k, v])
    (packed,) = Attention(4, 2, 0.5, packed=True).evaluate([np.concatenate([q, k, v], axis=2)])
    np.testing.assert_array_equal(packed, apart)


def test_a_query_whose_keys_are_all_hidden_reads_the_mean_or_is_nan_or_zero() -> None:
    q = k = v = drawn(1, 2, 4)
    mask = np.asarray([[-np.inf, -np.inf], [0.0, -np.inf]], np.float32)
    (plain,) = Attention(1, 1, 1.0).evaluate([q, k, v, mask])
    (endless,) = Attention(1, 1, 1.0, endless=True).evaluate([q, k, v, mask])
    (safe,) = Attention(1, 1, 1.0, safe=True).evaluate([q, k, v, mask])
    np.testing.assert_allclose(plain[0, 0], v[0].mean(axis=0), rtol=1e-6)
    assert np.isnan(endless[0, 0]).all()
    np.testing.assert_array_equal(safe[0, 0], 0.0)
    np.testing.assert_array_equal(plain[0, 1], v[0, 0])
    np.testing.assert_array_equal(safe[0, 1], v[0, 0])


def test_counts_both_products_and_the_softmax() -> None:
    q, kv = TensorType(DType.F16, (2, 8, 64)), TensorType(DType.F16, (2, 16, 32))
    op = Attention(4, 2, 1.0)
    (result,) = op.infer([q, kv, kv])
    assert result == q
    assert op.flops([q, kv, kv], [result]) == 2 * 2 * 4 * 8 * 16 * (16 + 16) + 5 * 2 * 4 * 8 * 16
    assert Attention(4, 2, 1.0, causal=True).flops([q, kv, kv], [result]) == op.flops([q, kv, kv], [result]) // 2


@pytest.mark.parametrize(("causal", "read"), [(True, (0, 1, 2)), (False, (0, 1, 2, 3, 4))])
def test_a_window_leaves_keys_around_the_place_of_a_query(causal: bool, read: tuple[int, ...]) -> None:
    op, x = Attention(1, 1, 1.0, causal, window=3), np.zeros((1, 8, 4), np.float32)
    found = op.seen(8, 8)
    np.testing.assert_array_equal(np.flatnonzero(found[4]) - 2, read)
    for query in range(8):
        first, end = max(0, query - 2), query + 1 if causal else min(8, query + 3)
        assert np.flatnonzero(found[query]).tolist() == list(range(first, end))
    assert op.flops([TensorType(DType.F32, x.shape)] * 3, []) == 21 * found.sum()
    values = np.arange(8, dtype=np.float32).reshape(1, 8, 1)
    (result,) = op.evaluate([x, x, values])
    assert result[0, 4, 0] == 2 + np.mean(read)


def test_a_cap_bounds_scores_before_their_mask_is_added() -> None:
    q, k, v = (np.array([[[n]]], np.float32) for n in (40.0, 1.0, 0.0))
    keys, values = np.concatenate([k, -k], axis=1), np.concatenate([v, v + 1], axis=1)
    (result,) = Attention(1, 1, 1.0, cap=0.5).evaluate([q, keys, values, np.array([[-1.0, 0.0]], np.float32)])
    assert result[0, 0, 0] == pytest.approx(0.5, abs=1e-6)  # 0.5 - 1 and -0.5


def test_two_masks_are_added_up_and_one_by_distance_is_spread() -> None:
    q = np.zeros((2, 2, 2), np.float32)
    values = np.array([[[1.0, 0.0], [0.0, 1.0]]] * 2, np.float32)
    first = np.log(np.array([[[1.0, 3.0]]], np.float32))
    second = np.concatenate([np.zeros((1, 1, 2, 2), np.float32), np.log(np.full((1, 1, 2, 2), 2.0, np.float32))])
    second[1, 0, :, 0] = 0.0
    (result,) = Attention(1, 1, 1.0).evaluate([q, q, values, first, second])
    np.testing.assert_allclose(result[:, 0], [[1 / 4, 3 / 4], [1 / 7, 6 / 7]], rtol=1e-6)
    distances = np.log(np.array([[3.0, 1.0, 7.0]], np.float32))
    (result,) = Attention(1, 1, 1.0, relative=True).evaluate([q, q, values, distances])
    np.testing.assert_allclose(result[0], [[1 / 8, 7 / 8], [3 / 4, 1 / 4]], rtol=1e-6)


def test_a_sink_takes_its_share_and_reads_no_value() -> None:
    q = np.zeros((1, 1, 2), np.float32)
    keys, values = np.zeros((1, 3, 2), np.float32), np.ones((1, 3, 2), np.float32)
    (result,) = Attention(2, 2, 1.0, sunk=True).evaluate([q, keys, values, np.log(np.array([1.0, 5.0], np.float32))])
    assert result[0, 0].tolist() == pytest.approx([3 / 4, 3 / 8])
    hidden = np.full((1, 3), -np.inf, np.float32)
    (result,) = Attention(2, 2, 1.0, sunk=True).evaluate([q, keys, values, hidden, np.zeros(1, np.float32)])
    assert result[0, 0].tolist() == [0.0, 0.0]


X = (1, 5, 12)


@pytest.mark.parametrize(
    ("op", "shapes", "text"),
    [
        (Attention(4, 3, 1.0), (X, X, X), "4 heads cannot share 3 heads of keys and values equally"),
        (Attention(5, 5, 1.0), (X, X, X), "rows of queries of 12 elements cannot be cut in 5 heads"),
        (Attention(4, 4, 1.0, packed=True), ((1, 5, 28),), "packed rows of 28 elements cannot be cut in 12 heads"),
        (Attention(4, 4, 1.0), (X, (1, 5, 8), X),
         "heads of queries [1, 5, 12] and keys [1, 5, 8] have different lengths"),
        (Attention(4, 4, 1.0), (X, X, (1, 6, 12)),
         "queries [1, 5, 12], keys [1, 5, 12] and values [1, 6, 12] do not belong together"),
        (Attention(4, 4, 1.0), (X, X, (5, 12)), "input [5, 12] must have batch, rows and elements of a row"),
        (Attention(4, 4, 1.0), (X, X, X, (1, 1, 5, 6)),
         "shapes [1, 4, 5, 5] and [1, 1, 5, 6] do not broadcast"),
        (Attention(4, 4, 1.0), (X, X, X, (3, 1, 5, 5)), "mask [3, 1, 5, 5] does not broadcast to scores [1, 4, 5, 5]"),
        (Attention(4, 4, 1.0), ((6, 5, 12),) * 3 + ((4, 1, 5, 5),),
         "shapes [6, 4, 5, 5] and [4, 1, 5, 5] do not broadcast"),
        (Attention(4, 4, 1.0, packed=True), (X, X, X, X), "takes 1 to 3 inputs, not 4"),
        (Attention(4, 4, 1.0, window=3), (X, (1, 4, 12), (1, 4, 12)),
         "5 queries have windows of keys, of which there are 4"),
        (Attention(4, 4, 1.0, window=-1), (X, X, X), "a window of -1 keys or a cap of 0 bounds nothing"),
        (Attention(4, 4, 1.0, relative=True), (X, X, X, (4, 8)),
         "a mask by distance has 9 numbers for each of 4 heads or for all"),
        (Attention(4, 4, 1.0, sunk=True), (X, X, X), "takes 4 to 6 inputs, not 3"),
        (Attention(4, 4, 1.0, sunk=True), (X, X, X, (3,)), "sinks [3] are neither one nor one of each of 4 heads"),
        (Attention(4, 4, 1.0, cap=-2.0), (X, X, X), "a window of 0 keys or a cap of -2 bounds nothing"),
    ],
)  # fmt: skip
def test_says_which_inputs_do_not_fit(op: Attention, shapes: tuple[tuple[int, ...], ...], text: str) -> None:
    with pytest.raises(ShapeError) as caught:
        op.infer([TensorType(DType.F32, shape) for shape in shapes])
    assert str(caught.value) == text
