"""Inputs with a dimension of size 0 are left out: a decoder's first step has seen nothing yet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_models import bound, model, node, tensor
from onnx import TensorProto

from bolt_build.graph.onnx_model.empty_inputs import without_empty
from bolt_build.graph.onnx_model.fixed_inputs import FixedError
from bolt_build.graph.reference import evaluate

SEEN = tensor("seen", ["batch", "past", 4], TensorProto.FLOAT16)


def decoder(*inputs: onnx.ValueInfoProto) -> onnx.ModelProto:
    """The tokens so far, and how often each has been seen."""
    nodes = [node("Cast", "seen", "known", to=1), node("Concat", "known x", "y", axis=1)]
    return model(nodes, inputs or [tensor("x", ["batch", "tokens", 4]), SEEN])


def mistakes(proto: onnx.ModelProto, *empty: str) -> list[tuple[str, str | None]]:
    with pytest.raises(FixedError) as raised:
        without_empty(proto, empty, {})
    return [(each.message, each.hint) for each in raised.value.mistakes]


@pytest.mark.parametrize("batch", [1, 3])
def test_what_reads_an_empty_input_reads_a_tensor_without_elements(batch: int, tmp_path: Path) -> None:
    proto = without_empty(decoder(), ["past"], {"tokens": 2})
    assert [each.name for each in proto.graph.input] == ["x"]
    graph = bound(tmp_path, proto, batch, (("tokens", 2),))
    x = np.random.default_rng(0).standard_normal((batch, 2, 4)).astype(np.float32)
    assert graph.inputs == ("x",)
    np.testing.assert_array_equal(evaluate(graph, {"x": x})["y"], x)


@pytest.mark.parametrize("seen", [[1, "past", 4], ["batch", None, 4], ["batch", "past", "width"]])
def test_a_dimension_has_the_name_that_recipes_call_it_by(seen: Sequence[int | str | None], tmp_path: Path) -> None:
    """Fixed ones, those without a name, and those whose extent the recipe gives too."""
    inputs = [tensor("x", ["batch", 2, 4]), tensor("seen", seen)]
    empty = "seen.1" if None in seen else "past"
    graph = bound(tmp_path, without_empty(decoder(*inputs), [empty], {"width": 4}))
    assert (graph.inputs, graph.type("y").shape) == (("x",), (1, 2, 4))


def test_a_dimension_that_no_input_has() -> None:
    assert mistakes(decoder(), "pas") == [("model.dims sets 'pas', which no input has", "did you mean 'past'?")]


def test_a_batch_that_no_other_input_has() -> None:
    inputs = [tensor("x", [1, 2, 4]), SEEN]
    assert mistakes(decoder(*inputs), "past") == [("'batch' of the empty input 'seen' is of no other input", None)]


def test_some_input_has_elements() -> None:
    inputs = [tensor("x", [1, "past", 4]), tensor("seen", [1, "past", 4])]
    assert mistakes(decoder(*inputs), "past") == [("no input of the model would have elements", None)]


ATTENTION = {
    "ONNX's": (node("Attention", "q k v - keys values", "y next_keys next_values"), 23, [1, 4, 3, 8]),
    "onnxruntime's": (
        node(
            "MultiHeadAttention", "q k v - - - keys values", "y next_keys next_values", domain="com.microsoft",
            num_heads=4,
        ), 17, [1, 3, 32],
    ),
}  # fmt: skip


@pytest.mark.parametrize("whose", ATTENTION)
def test_attention_behind_an_empty_past_is_attention(whose: str, tmp_path: Path) -> None:
    step, opset, shape = ATTENTION[whose]
    past = [tensor(name, [1, 4, "past", 8]) for name in ("keys", "values")]
    outputs = ["y", "next_keys", "next_values"]
    rows = [tensor(name, shape) for name in "qkv"]
    proto = model([step], [*rows, *past], outputs, opset=opset, opsets=[("com.microsoft", 1)])
    graph = bound(tmp_path, without_empty(proto, ["past"], {}))
    random = np.random.default_rng(0)
    given = {name: random.standard_normal(shape).astype(np.float32) for name in "qkv"}
    q, k, v = (
        array if array.ndim == 4 else array.reshape(1, 3, 4, 8).transpose(0, 2, 1, 3) for array in given.values()
    )
    scores = np.exp(q @ k.swapaxes(2, 3) / np.sqrt(8))
    wanted = scores / scores.sum(-1, keepdims=True) @ v
    if len(shape) == 3:
        wanted = wanted.transpose(0, 2, 1, 3).reshape(shape)
    found = evaluate(graph, given)
    np.testing.assert_allclose(found["y"], wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found["next_keys"], k)
    np.testing.assert_array_equal(found["next_values"], v)
