"""Operators of the domain ai.onnx.ml that are arithmetic, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from graph_models import bound, model, node, refusals, tensor
from onnx import ModelProto, TensorProto

from bolt_build.graph.invariants import check
from bolt_build.graph.ir import Array
from bolt_build.graph.reference import evaluate

X = np.random.RandomState(0).standard_normal((4, 3)).astype(np.float32)
X[2] = 0
WHOLE = np.asarray([[1, -2, 3], [4, 5, -6]], np.int64)
LINE = X[1]


def rows(x: Array, op_type: str, inputs: str = "x", **attributes: object) -> ModelProto:
    """One node of rows `x`, and of the constant %k, the numbers of columns."""
    kind = TensorProto.INT64 if x.dtype == np.int64 else TensorProto.FLOAT
    made = node(op_type, inputs, "y", "node", domain="ai.onnx.ml", **attributes)
    constants = {"k": np.asarray([[2, 0]], np.int64)} if "k" in inputs else {}
    return model([made], [tensor("x", x.shape, kind)], constants=constants, opsets=[("ai.onnx.ml", 3)])


CASES = {
    "scaled": (X, rows(X, "Scaler", offset=[0.5, 1.0, -1.0], scale=[2.0, 0.5, 3.0])),
    "scaled by one number": (X, rows(X, "Scaler", offset=[0.5], scale=[2.0])),
    "scaled integers": (WHOLE, rows(WHOLE, "Scaler", offset=[0.5], scale=[2.0])),
    "largest": (X, rows(X, "Normalizer", norm="MAX")),
    "magnitudes": (X, rows(X, "Normalizer", norm="L1")),
    "length": (X, rows(X, "Normalizer", norm="L2")),
    "regression": (X, rows(X, "LinearRegressor", coefficients=[0.5, -1.0, 2.0], intercepts=[0.25])),
    "two targets": (X, rows(X, "LinearRegressor", coefficients=[0.5, -1.0, 2.0, 1.0, 1.5, -2.0], targets=2,
                            intercepts=[0.25, 1.0], post_transform="SOFTMAX")),
    "columns": (X, rows(X, "ArrayFeatureExtractor", "x k")),
    "columns of a line": (LINE, rows(LINE, "ArrayFeatureExtractor", "x k")),
    "above": (X, rows(X, "Binarizer", threshold=0.25)),
}  # fmt: skip


@pytest.mark.parametrize(("x", "proto"), CASES.values(), ids=CASES.keys())
def test_it_is_what_onnxruntime_makes_of_it(x: Array, proto: ModelProto, tmp_path: Path) -> None:
    graph = bound(tmp_path, proto, x.shape[0])
    check(graph)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    (found,) = (evaluate(graph, {"x": x})[name] for name in graph.outputs)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_integers_are_above_a_threshold_between_two_of_them(tmp_path: Path) -> None:
    x = np.asarray([[-1, 0, 1]], np.int64)
    graph = bound(tmp_path, rows(x, "Binarizer", threshold=-0.5), 1)  # of floats alone in onnxruntime
    np.testing.assert_array_equal(evaluate(graph, {"x": x})["y"], [[0, 1, 1]])


@pytest.mark.parametrize(
    ("proto", "code", "said"),
    [
        (rows(X, "Scaler", offset=[0.5, 1.0], scale=[1.0]), "shape-mismatch",
         "Scaler 'node': offset has 2 numbers where rows have 3"),
        (rows(X, "Normalizer", norm="L3"), "unsupported-attribute",
         "Normalizer 'node': norm 'L3' is none of MAX, L1, L2"),
        (rows(X, "LinearRegressor", coefficients=[0.5, -1.0]), "shape-mismatch",
         "LinearRegressor 'node': 2 coefficients are not 1 for each column of [1, 3]"),
        (rows(X, "LinearRegressor", coefficients=[0.5, -1.0, 1.0], intercepts=[1.0, 2.0]), "shape-mismatch",
         "LinearRegressor 'node': 2 intercepts are not one for each of 1 rows of coefficients"),
        (rows(X, "LinearRegressor", coefficients=[0.5, -1.0, 1.0], post_transform="PROBIT"), "unsupported-attribute",
         "LinearRegressor 'node': post_transform 'PROBIT' is none of NONE, SOFTMAX, LOGISTIC"),
    ],
)  # fmt: skip
def test_what_is_no_arithmetic_of_rows_is_refused(proto: ModelProto, code: str, said: str, tmp_path: Path) -> None:
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    assert refusals(tmp_path, proto) == [(code, said)]
