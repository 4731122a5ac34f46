"""Sparse tensors of a model, written densely for verification."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from graph_models import model, node, tensor
from onnx import helper, numpy_helper

from bolt_build.verify.models.sparse import without_sparse


@pytest.mark.parametrize("constant", [False, True], ids=["initializer", "node"])
@pytest.mark.parametrize("places", [[5, 0], [[1, 2], [0, 0]]], ids=["one number a value", "a row a value"])
def test_dense_tensors_give_the_same(places: list[int], constant: bool) -> None:
    values = numpy_helper.from_array(np.asarray([7, 9], np.float32), "s")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.asarray(places, np.int64), "at"), [2, 3])
    first = [node("Constant", "", "s", sparse_value=sparse)] if constant else []
    given = model([*first, node("MatMul", "x s", "y")], [tensor("x", (1, 2))])
    if not constant:
        given.graph.sparse_initializer.append(sparse)
    made = without_sparse(given)
    assert not made.graph.sparse_initializer
    assert not any(each.HasField("sparse_tensor") for each in made.graph.node[0].attribute)
    assert without_sparse(made) is made
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": np.ones((1, 2), np.float32)})[0], [[9, 0, 7]])
