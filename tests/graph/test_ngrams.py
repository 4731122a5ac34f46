"""TfIdfVectorizer as comparisons that are counted, against onnxruntime. ONNX's own cases are tried with all others'."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from graph_models import bound, model, node, refusals, tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto

from bolt_build.graph.reference import evaluate

KINDS = {np.dtype(np.int32): TensorProto.INT32, np.dtype(np.int64): TensorProto.INT64}


def counted(shape: tuple[int, ...], dtype: type, **attributes: object) -> ModelProto:
    usual = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, "ngram_counts": [0]}
    ports = [tensor("x", shape, KINDS[np.dtype(dtype)])]
    return model([node("TfIdfVectorizer", "x", "y", "words", **(usual | attributes))], ports)


@given(
    seed=st.integers(0, 1 << 20), shape=st.sampled_from([(1,), (7,), (1, 3), (3, 8)]),
    dtype=st.sampled_from([np.int32, np.int64]), mode=st.sampled_from(["TF", "IDF", "TFIDF"]),
    lengths=st.sampled_from([(1, 1), (1, 2), (2, 2), (2, 3), (1, 3)]), skips=st.integers(0, 5), weighed=st.booleans(),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_counts_agree_with_onnxruntime(
    tmp_path_factory: pytest.TempPathFactory, seed: int, shape: tuple[int, ...], dtype: type, mode: str,
    lengths: tuple[int, int], skips: int, weighed: bool,
) -> None:  # fmt: skip
    random = np.random.RandomState(seed)
    levels = [np.unique(random.randint(0, 4, (random.randint(length == 3, 4), length)), axis=0) for length in (1, 2, 3)]
    many = sum(map(len, levels))
    weights = {"weights": [float(each) for each in random.randint(1, 9, many)]} if weighed else {}
    proto = counted(
        shape, dtype, mode=mode, min_gram_length=lengths[0], max_gram_length=lengths[1], max_skip_count=skips,
        ngram_counts=[0, levels[0].size, levels[0].size + levels[1].size], ngram_indexes=random.permutation(many),
        pool_int64s=np.concatenate([each.reshape(-1) for each in levels]), **weights,
    )  # fmt: skip
    x = random.randint(0, 4, shape).astype(dtype)
    graph = bound(tmp_path_factory.mktemp("ngrams"), proto, shape[0])
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(evaluate(graph, {"x": x})["y"], session.run(None, {"x": x})[0])


def test_ngrams_of_one_column_are_added_up_and_a_column_of_none_is_zero(tmp_path: Path) -> None:
    """Onnxruntime counts the last of them alone."""
    proto = counted((2, 4), np.int32, ngram_indexes=[2, 0, 2], pool_int64s=[5, 6, 7])
    found = evaluate(bound(tmp_path, proto, 2), {"x": np.asarray([[5, 7, 7, 1], [6, 1, 1, 1]], np.int32)})["y"]
    assert found.tolist() == [[0, 0, 3], [1, 0, 0]]


@pytest.mark.parametrize(
    ("proto", "code", "said"),
    [
        (counted((1, 4), np.int32, ngram_indexes=[0], pool_strings=["a"]), "unsupported-attribute",
         "its n-grams are of strings, and engines compute numbers"),
        (counted((1, 4), np.int32, mode="BM25", ngram_indexes=[0], pool_int64s=[1]), "unsupported-attribute",
         "mode 'BM25' is none of TF, IDF, TFIDF"),
        (counted((1, 4), np.int32, ngram_indexes=[0, 1], pool_int64s=[1]), "shape-mismatch",
         "a pool of 1 n-grams has 2 columns"),
        (counted((1, 4), np.int32, ngram_counts=[0, 1], ngram_indexes=[0], pool_int64s=[1, 2]), "shape-mismatch",
         "n-grams do not begin at [0, 1] in a pool of 2 elements"),
        (counted((1, 4), np.int32, ngram_indexes=[0], pool_int64s=[1], weights=[1.0, 2.0]), "shape-mismatch",
         "1 n-grams with 2 weights in [1, 4]"),
        (counted((1, 4), np.int32, ngram_indexes=[1 << 24], pool_int64s=[1]), "model-too-large",
         "an n-gram has column 16777216; supported are 16777216"),
    ],
    ids=["strings", "mode", "columns", "pool", "weights", "far"],
)  # fmt: skip
def test_says_what_it_cannot(tmp_path: Path, proto: ModelProto, code: str, said: str) -> None:
    assert refusals(tmp_path, proto) == [(code, f"TfIdfVectorizer 'words': {said}")]
