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


def test_its_domain_need_not_be_imported() -> None:
    proto = CASES["bias"].model(TensorProto.FLOAT)
    del proto.opset_import[1]
    assert {node.op_type for node in written_out(proto).graph.node}.isdisjoint(OPERATORS)


def test_what_its_function_does_not_take_is_refused(tmp_path: Path) -> None:
    one_axis = Case("BiasSoftmax", (ROWS, ROWS_BESIDE), (), lambda x, b: x, (("axis", 1),))
    proto = one_axis.model(TensorProto.FLOAT)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    message = "operator com.microsoft.BiasSoftmax is not supported: node 'node'"
    assert ("unsupported-op", message) in refusals(tmp_path, proto)
