"""Operators of onnxruntime's own domain, against onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from bolt_build.errors import BoltError
from bolt_build.graph import reference
from bolt_build.graph.invariants import check
from bolt_build.graph.ir import Array
from bolt_build.graph.onnx_import import load_model

RANDOM = np.random.RandomState(3)


def drawn(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """A node: data and constants in the order of its inputs (None where left out), attributes, outputs."""

    op_type: str
    data: tuple[Array | None, ...]
    constants: tuple[Array | None, ...] = ()
    attributes: dict[str, int | float] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("y",)

    @property
    def compared(self) -> list[str]:
        return [name for name in self.outputs if name not in ("", "unused")]

    def saved(self, path: Path) -> dict[str, Array]:
        """Writes the model; the inputs' arrays."""
        given = {f"x{index}": array for index, array in enumerate((*self.data, *self.constants)) if array is not None}
        names = [f"x{i}" if f"x{i}" in given else "" for i in range(len(self.data) + len(self.constants))]
        feeds = {name: array for name, array in list(given.items()) if name in names[: len(self.data)]}
        constants = [numpy_helper.from_array(array, name) for name, array in given.items() if name not in feeds]
        ports = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ]
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.compared]
        node = helper.make_node(
            self.op_type, names, list(self.outputs), name="node", domain="com.microsoft", **self.attributes
        )
        graph = helper.make_graph([node], "g", ports, results, constants)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
        return feeds


X, SKIP, W = drawn(2, 5, 12), drawn(2, 5, 12), drawn(12)
IDS = np.asarray([[1, 4, 2, 0, 3], [5, 5, 1, 2, 6]], np.int32)
KINDS = np.asarray([[0, 0, 1, 1, 1], [0, 1, 0, 1, 0]], np.int32)
KEYS = np.asarray([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32)
LENGTHS = np.asarray([3, 5], np.int32)
WEIGHTS = (drawn(12, 36), drawn(36))
EMBEDDINGS = (drawn(7, 12), drawn(6, 12), drawn(2, 12), W, drawn(12))

CASES = {
    "gelu": Case("Gelu", (X,)),
    "bias-gelu": Case("BiasGelu", (X,), (W,)),
    "fast-gelu": Case("FastGelu", (X,), (W,)),
    "quick-gelu": Case("QuickGelu", (X,), (), {"alpha": 1.5}),
    "skip-norm": Case("SkipLayerNormalization", (X, SKIP), (W, drawn(12)), {"epsilon": 1e-3}),
    "skip-norm-sum": Case("SkipLayerNormalization", (X, SKIP), (W, drawn(12), drawn(12)), {}, ("y", "", "", "sum")),
    "skip-rms-norm": Case("SkipSimplifiedLayerNormalization", (X, SKIP), (W,), {}, ("y", "", "", "sum")),
    "embeddings": Case("EmbedLayerNormalization", (IDS, KINDS), EMBEDDINGS, {}, ("y", "unused")),
    "embeddings-of-words": Case(
        "EmbedLayerNormalization", (IDS,), (None, *EMBEDDINGS[:2], None, *EMBEDDINGS[3:]), {}, ("y", "unused")
    ),
    "attention": Case("Attention", (X,), WEIGHTS, {"num_heads": 3}),
    "attention-of-keys": Case("Attention", (X,), (*WEIGHTS, KEYS), {"num_heads": 3}),
    "attention-of-lengths": Case("Attention", (X,), (*WEIGHTS, LENGTHS), {"num_heads": 3, "mask_filter_value": -50.0}),
    "attention-causal": Case("Attention", (X,), WEIGHTS, {"num_heads": 2, "unidirectional": 1, "scale": 0.2}),
    "multi-head": Case("MultiHeadAttention", (X, SKIP, X), (drawn(36), KEYS), {"num_heads": 3}),
    "multi-head-cross": Case("MultiHeadAttention", (X, drawn(2, 7, 12), drawn(2, 7, 12)), (), {"num_heads": 4}),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_onnxruntime(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    feeds = case.saved(tmp_path / "case.onnx")
    graph = load_model(tmp_path / "case.onnx").bind(2)
    check(graph)
    found = reference.evaluate(graph, feeds)
    session = onnxruntime.InferenceSession(tmp_path / "case.onnx", providers=["CPUExecutionProvider"])
    for output, wanted in zip(case.compared, session.run(case.compared, feeds), strict=True):
        np.testing.assert_allclose(found[output], wanted, rtol=2e-4, atol=2e-5)


def test_what_they_have_beyond_is_refused_with_a_reason(tmp_path: Path) -> None:
    case = Case("Attention", (X,), (*WEIGHTS, None, drawn(2, 2, 3, 4, 4)), {"num_heads": 3})
    case.saved(tmp_path / "case.onnx")
    with pytest.raises(BoltError) as raised:
        load_model(tmp_path / "case.onnx").bind(2)
    assert [found.message for found in raised.value.diagnostics] == ["Attention 'node': past is not supported"]
