"""Operators of onnxruntime that it has on GPUs alone: as their functions, against sums of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import erf
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from contrib_nodes import drawn
from graph_models import refusals, saved
from onnx import ModelProto, TensorProto, helper, numpy_helper

from bolt_build.graph.ir import Array
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.onnx_model.contrib_bodies import OPERATORS
from bolt_build.graph.reference import evaluate
from bolt_build.verify.models.written_out import written_out

IMAGE, SKIP = drawn(2, 3, 4, 8), drawn(2, 3, 4, 8)
ROWS, ROWS_BESIDE = drawn(2, 3, 12), drawn(2, 3, 12)
PAIRS, PAIRS_BESIDE = drawn(2, 5, 2), drawn(2, 5, 2)


def gelu(x: Array) -> Array:
    return np.asarray(x / 2 * (1 + np.vectorize(erf)(x / np.sqrt(2))))


def softmax(x: Array) -> Array:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(raised / raised.sum(-1, keepdims=True))


def normed(image: Array, scale: Array, bias: Array, groups: int, silu: bool) -> Array:
    """Channels last, normalised in groups of them."""
    n, height, width, channels = image.shape
    x = image.reshape(n, height * width, groups, channels // groups).astype(np.float64)
    x = (x - x.mean((1, 3), keepdims=True)) / np.sqrt(x.var((1, 3), keepdims=True) + 1e-3)
    y = x.reshape(image.shape) * scale + bias
    return np.asarray(y / (1 + np.exp(-y)) if silu else y)


def convolved(x: Array, filters: Array, bias: Array) -> Array:
    """3x3, in steps of 2, without padding."""
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))[:, ::2, ::2]
    return np.asarray(np.einsum("nhwcij,mijc->nhwm", windows, filters) + bias)


def gelu_by_tanh(x: Array) -> Array:
    return np.asarray(x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


def whole(x: Array) -> Array:
    """Real and imaginary parts, the last axis, as complex numbers."""
    return np.asarray(x[..., 0] + 1j * x[..., 1])


def apart(x: Array) -> Array:
    return np.stack((x.real, x.imag), -1)


def gated_positions(x: Array, bias: Array, added: Array, weight: Array, weight_bias: Array, a: Array) -> Array:
    by_head = (x + bias).reshape(*x.shape[:2], 3, -1).swapaxes(1, 2)
    gates = (by_head @ weight + weight_bias).reshape(*by_head.shape[:3], 2, -1).sum(-1)
    update, reset = np.split(1 / (1 + np.exp(-gates)), 2, -1)
    return np.asarray((update * (reset * a - 1) + 2) * added)


@dataclass(frozen=True)
class Case:
    """A node of data and constants; what `meant` makes of them. The first of `outputs` is y."""

    op_type: str
    data: tuple[Array, ...]
    constants: tuple[Array, ...]
    meant: Callable[..., Array]
    attributes: tuple[tuple[str, Any], ...] = ()
    outputs: tuple[str, ...] = ("y",)

    def model(self, elem_type: int, opset: int = 14) -> ModelProto:
        """What is data in the middle of a model, of this type, behind an operator that onnx knows no types of."""
        kind = helper.tensor_dtype_to_np_dtype(elem_type)
        names = [f"x{index}" for index in range(len(self.data) + len(self.constants))]
        nodes = [helper.make_node("QuickGelu", ["x0"], ["bent"], domain="com.microsoft", alpha=0.0)]
        inner = helper.make_node(
            self.op_type, ["bent", *names[1:]], list(self.outputs), "node", domain="com.microsoft",
            **dict(self.attributes),
        )  # fmt: skip
        ports = [
            helper.make_tensor_value_info(name, elem_type, array.shape)
            for name, array in zip(names, self.data, strict=False)
        ]
        results = [helper.make_tensor_value_info("y", elem_type, None)]
        held = [
            numpy_helper.from_array(array.astype(kind), name)
            for name, array in zip(names[len(self.data) :], self.constants, strict=True)
        ]
        graph = helper.make_graph([*nodes, inner], "g", ports, results, held)
        imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)

    @property
    def wanted(self) -> Array:
        return self.meant(self.data[0] / 2, *self.data[1:], *self.constants)


NORM = (("groups", 4), ("epsilon", 1e-3), ("channels_last", 1))
CASES = {
    "bias": Case("BiasAdd", (ROWS, ROWS_BESIDE), (drawn(12),), lambda x, skip, b: x + skip + b),
    "split gelu": Case("BiasSplitGelu", (ROWS,), (drawn(12),), lambda x, b: (x + b)[..., :6] * gelu((x + b)[..., 6:])),
    "softmax": Case("BiasSoftmax", (ROWS, drawn(2, 1, 12)), (), lambda x, b: softmax(x + b), (("axis", 2),)),
    "dropout": Case("BiasDropout", (ROWS,), (drawn(12), ROWS_BESIDE), lambda x, b, skip: x + b + skip),
    **{
        f"distances, {metric}": Case(
            "CDist", (drawn(4, 6),), (drawn(5, 6),),
            lambda a, b, power=power: (((a[:, None] - b) ** 2).sum(-1)) ** power, (("metric", metric),),
        )
        for metric, power in (("euclidean", 0.5), ("sqeuclidean", 1.0))
    },
    "norm": Case("GroupNorm", (IMAGE,), (drawn(8), drawn(8)), lambda x, g, b: normed(x, g, b, 4, False), NORM),
    "norm and gate": Case(
        "GroupNorm", (IMAGE,), (drawn(8), drawn(8)), lambda x, g, b: normed(x, g, b, 4, True),
        (*NORM, ("activation", 1)),
    ),
    "norm of a sum": Case(
        "SkipGroupNorm", (IMAGE,), (drawn(8), drawn(8), SKIP, drawn(8)),
        lambda x, g, b, skip, more: normed(x + skip + more, g, b, 4, False), NORM, ("y", "sum"),
    ),
    "norm of a sum with channels": Case(
        "SkipGroupNorm", (IMAGE,), (drawn(8), drawn(8), drawn(2, 8)),
        lambda x, g, b, skip: normed(x + skip[:, None, None], g, b, 4, False), NORM,
    ),
    "product and gelu": Case(
        "GemmFastGelu", (ROWS,), (drawn(12, 7), drawn(7)), lambda x, w, b: gelu_by_tanh(x @ w + b),
    ),
    "product and activation": Case(
        "FusedMatMulActivation", (ROWS, drawn(2, 5, 12)), (), lambda x, y: np.maximum(x @ y.swapaxes(1, 2) / 2, 0),
        (("transB", 1), ("alpha", 0.5), ("activation", "Relu")),
    ),
    "product and leaky activation": Case(
        "FusedMatMulActivation", (ROWS, drawn(2, 12, 5)), (), lambda x, y: np.where(x @ y > 0, x @ y, (x @ y) / 5),
        (("activation", "LeakyRelu"), ("activation_alpha", 0.2)),
    ),
    "convolution and sum": Case(
        "NhwcFusedConv", (drawn(1, 7, 9, 4),), (drawn(5, 4, 3, 3), drawn(5), drawn(1, 3, 4, 5)),
        lambda x, w, b, z: np.maximum(convolved(x, np.moveaxis(w, 1, 3), b) + z, 0),
        (("kernel_shape", [3, 3]), ("strides", [2, 2]), ("activation", "Relu")),
    ),
    "gate": Case("SwiGLU", (ROWS, ROWS_BESIDE), (), lambda x, y: x / (1 + np.exp(-x)) * y),
    "gate of halves within limits": Case(
        "SwiGLU", (4 * ROWS,), (),
        lambda x: (lambda g, up: g / (1 + np.exp(-1.7 * g)) * (np.clip(up, -1.5, 1.5) + 1))(
            np.minimum(x[..., :6], 1.5), x[..., 6:]
        ),
        (("limit", 1.5), ("activation_alpha", 1.7), ("activation_beta", 1.0)),
    ),
    "complex": Case("ComplexMul", (PAIRS, PAIRS_BESIDE), (), lambda x, y: apart(whole(x) * whole(y))),
    "complex, conjugate": Case(
        "ComplexMulConj", (PAIRS, PAIRS_BESIDE), (), lambda x, y: apart(whole(x) * whole(y).conj())
    ),
    "frequencies": Case("Rfft", (ROWS,), (), lambda x: apart(np.fft.rfft(x)), (("signal_ndim", 1), ("onesided", 1))),
    "rows of frequencies": Case("Irfft", (PAIRS,), (), lambda x: np.fft.irfft(whole(x)), (("signal_ndim", 1),)),
    "bias of positions with a gate": Case(
        "GatedRelativePositionBias", (ROWS,), (drawn(12), drawn(1, 3, 3, 3), drawn(4, 8), drawn(8), drawn(1, 3, 1, 1)),
        gated_positions, (("num_heads", 3),),
    ),
    "queries and keys turned": Case(
        "GemmaRotaryEmbedding", (drawn(2, 3, 8),), tuple(drawn(2, 2, 3, 8) for _ in range(4)),
        lambda emb, q, turned, *keys: q * np.cos(emb)[:, None] + turned * np.sin(emb)[:, None], (), ("y", "k"),
    ),
    "convolution": Case(
        "NhwcConv", (drawn(1, 7, 9, 4),), (drawn(5, 3, 3, 4), drawn(5)), convolved,
        (("kernel_shape", [3, 3]), ("strides", [2, 2])),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_import_makes_of_it_what_is_documented(case: Case, tmp_path: Path) -> None:
    graph = load_model(saved(tmp_path, case.model(TensorProto.FLOAT))).bind(len(case.data[0]))
    feeds = {f"x{index}": array for index, array in enumerate(case.data)}
    np.testing.assert_allclose(evaluate(graph, feeds)["y"], case.wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("elem_type", [TensorProto.FLOAT, TensorProto.FLOAT16], ids=["fp32", "fp16"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_verification_gives_it_to_onnxruntime_written_out(case: Case, elem_type: int) -> None:
    made = written_out(case.model(elem_type))
    assert {node.op_type for node in made.graph.node}.isdisjoint(OPERATORS)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    kind = helper.tensor_dtype_to_np_dtype(elem_type)
    (found,) = session.run(["y"], {f"x{index}": array.astype(kind) for index, array in enumerate(case.data)})
    assert found.dtype == kind
    close = 2e-5 if elem_type == TensorProto.FLOAT else 2e-2
    np.testing.assert_allclose(found.astype(np.float64), case.wanted, rtol=close, atol=close)


@pytest.mark.parametrize("both", [0, 1], ids=["in front alone", "both ways"])
def test_a_bias_of_positions_is_a_row_of_a_table_by_distance(both: int, tmp_path: Path) -> None:
    """T5's: near distances have rows of their own, farther ones share them."""
    rows, table = 40, drawn(16, 3)
    node = helper.make_node(
        "RelativePositionBias", ["table", "n", "n"], ["bias"], "node", domain="com.microsoft", max_distance=20,
        is_bidirectional=both,
    )  # fmt: skip
    constants = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.asarray(rows), "n")]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, rows, rows])]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node, helper.make_node("Add", ["x", "bias"], ["y"])], "g", ports, results, constants)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=8)
    zeros = np.zeros((1, 3, rows, rows), np.float32)
    away = np.arange(rows) - np.arange(rows)[:, None]
    buckets = 8 if both else 16
    distance = np.abs(away) if both else -np.minimum(away, 0)
    exact = buckets // 2
    far = exact + (np.log(np.maximum(distance, 1) / exact) / np.log(20 / exact) * (buckets - exact)).astype(int)
    found = np.where(distance < exact, distance, np.minimum(far, buckets - 1)) + (away > 0) * buckets * both
    wanted = table[found].transpose(2, 0, 1)[None]
    graph_here = load_model(saved(tmp_path, made)).bind(1)
    np.testing.assert_array_equal(evaluate(graph_here, {"x": zeros})["y"], wanted)
    session = onnxruntime.InferenceSession(written_out(made).SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(["y"], {"x": zeros})[0], wanted)


def test_a_mean_of_bytes_is_that_of_the_numbers_that_they_stand_for(tmp_path: Path) -> None:
    names = ["scale", "zero", "other_scale", "other_zero"]
    node = helper.make_node(
        "QLinearReduceMean", ["x", *names], ["y"], "node", domain="com.microsoft", axes=[1], keepdims=0
    )
    held = [np.float32(0.1), np.uint8(128), np.float32(0.05), np.uint8(120)]
    ports = [helper.make_tensor_value_info("x", TensorProto.UINT8, [2, 8, 5])]
    results = [helper.make_tensor_value_info("y", TensorProto.UINT8, None)]
    constants = [numpy_helper.from_array(np.asarray(v), name) for name, v in zip(names, held, strict=True)]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", ports, results, constants)
    made = helper.make_model(graph, opset_imports=imports, ir_version=8)
    x = np.random.RandomState(0).randint(0, 255, (2, 8, 5)).astype(np.uint8)
    wanted = np.clip(np.rint((x.astype(np.float32) - 128).mean(1) * 0.1 / 0.05) + 120, 0, 255)
    found = evaluate(load_model(saved(tmp_path, made)).bind(2), {"x": x})["y"]
    assert np.abs(found.astype(float) - wanted).max() <= 1
    session = onnxruntime.InferenceSession(written_out(made).SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(["y"], {"x": x})[0], found)


def test_its_domain_need_not_be_imported() -> None:
    proto = CASES["bias"].model(TensorProto.FLOAT)
    del proto.opset_import[1]
    assert {node.op_type for node in written_out(proto).graph.node}.isdisjoint(OPERATORS)


def test_what_its_function_does_not_take_is_refused(tmp_path: Path) -> None:
    one_axis = Case("BiasSoftmax", (ROWS, ROWS_BESIDE), (), lambda x, b: x, (("axis", 1),))
    proto = one_axis.model(TensorProto.FLOAT)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    message = "operator com.microsoft.BiasSoftmax is not supported in the form that it has here: node 'node'"
    assert ("unsupported-op", message) in refusals(tmp_path, proto)
