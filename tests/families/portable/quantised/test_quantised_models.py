"""Quantised operators of onnxruntime's domain against onnxruntime, and how models come to have few steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from planner_checks import body, graph, run, said

from bolt_build.errors import BoltError
from bolt_build.graph import reference
from bolt_build.graph.invariants import check
from bolt_build.graph.ir import Array
from bolt_build.graph.onnx_import import load_model
from bolt_build.planner.passes.quantised.fake_quantise import FAKE_QUANTISE
from bolt_build.planner.passes.quantised.scaled_sums import SCALE_SUMS

DRAW = np.random.RandomState(11)
IMAGE = (2, 6, 5, 4)


def whole(shape: tuple[int, ...], dtype: Any = np.uint8) -> Array:
    info = np.iinfo(dtype)
    return DRAW.randint(info.min, info.max + 1, shape).astype(dtype)


def part(shape: tuple[int, ...] = IMAGE, dtype: Any = np.uint8) -> tuple[Array, Array, Array]:
    """Integers, their scale and their zero point."""
    return whole(shape, dtype), np.float32(DRAW.uniform(0.01, 0.05)), np.asarray(dtype(7))


def scaled(dtype: Any = np.uint8, scale: float = 0.07) -> tuple[Array, Array]:
    return np.float32(scale), np.asarray(dtype(3))


A, W = whole((3, 40)), whole((40, 9), np.int8)
COLUMNS = np.linspace(0.01, 0.02, 9, dtype=np.float32)
ZERO = np.asarray(np.uint8(128))
BIAS = whole((9,), np.int32) // 99999

CASES: dict[str, tuple[str, tuple[Array | None, ...], dict[str, Any]]] = {
    "add": ("QLinearAdd", (*part(), *part((6, 1, 4)), *scaled()), {}),
    "mul-signed": ("QLinearMul", (*part(IMAGE, np.int8), *part(IMAGE, np.int8), *scaled(np.int8)), {}),
    "sigmoid": ("QLinearSigmoid", (*part(), *scaled(scale=1 / 256)), {}),
    "leaky": ("QLinearLeakyRelu", (*part(IMAGE, np.int8), *scaled(np.int8)), {"alpha": 0.1}),
    "softmax": ("QLinearSoftmax", (*part(), *scaled(scale=1 / 256)), {"opset": 13, "axis": 2}),
    "softmax-of-several-axes": ("QLinearSoftmax", (*part(), *scaled(scale=1 / 256)), {"opset": 11, "axis": 2}),
    "where": ("QLinearWhere", (whole(IMAGE) > 99, *part(), *part((5, 1)), *scaled()), {}),
    "concat": ("QLinearConcat", (*scaled(), *part(), *part()), {"axis": 1}),
    "mean": ("QLinearGlobalAveragePool", (*part(), *scaled()), {"channels_last": 0}),
    "mean-last": ("QLinearGlobalAveragePool", (*part(), *scaled()), {"channels_last": 1}),
    "average": ("QLinearAveragePool", (*part(), *scaled()), {"kernel_shape": [2, 2], "pads": [1, 0, 0, 0]}),
    "gemm": (
        "QGemm",
        (A, np.float32(0.02), ZERO, W.T.copy(), COLUMNS, np.zeros(9, np.int8), BIAS, *scaled()),
        {"transB": 1},
    ),
    "to-float": ("MatMulIntegerToFloat", (A, W, np.float32(0.02), COLUMNS, ZERO, np.zeros(9, np.int8), COLUMNS), {}),
    "dynamic": ("DynamicQuantizeMatMul", (DRAW.standard_normal((2, 3, 40)).astype(np.float32), W, COLUMNS), {}),
    "nbits": (
        "MatMulNBits",
        (DRAW.standard_normal((2, 3, 40)).astype(np.float32), whole((9, 3, 8)),
         DRAW.uniform(0.01, 0.02, 27).astype(np.float32), whole((9 * 2,))),
        {"K": 40, "N": 9, "bits": 4, "block_size": 16},
    ),
}  # fmt: skip
for index, name in enumerate(("fp4", "nf4")):
    CASES[f"nbits-{name}"] = (
        "MatMulBnb4",
        (DRAW.standard_normal((2, 3, 24)).astype(np.float32), whole((5 * 24 // 2,)),
         DRAW.uniform(0.5, 2.0, 8).astype(np.float32)),
        {"K": 24, "N": 5, "block_size": 16, "quant_type": index},
    )  # fmt: skip
for bits in (2, 4, 8):
    CASES[f"table-of-{bits}-bits"] = (
        "GatherBlockQuantized",
        (whole((7, 5 * bits)), DRAW.randint(0, 7, (2, 3)), DRAW.uniform(0.01, 0.02, (7, 3)).astype(np.float32),
         whole((7, -(-3 * bits // 8)))),
        {"bits": bits, "block_size": 16, "quantize_axis": 1},
    )  # fmt: skip
CASES["table-around-the-middle"] = (
    "GatherBlockQuantized",
    (whole((7, 20)), DRAW.randint(0, 7, (2, 3)), DRAW.uniform(0.01, 0.02, (7, 3)).astype(np.float32)),
    {"block_size": 16},
)
for kind in (ml_dtypes.int4, ml_dtypes.uint4):
    CASES[f"table-of-{np.dtype(kind).name}"] = (
        "GatherBlockQuantized",
        (DRAW.randint(0, 8, (7, 40)).astype(kind), DRAW.randint(0, 7, (2, 3)),
         DRAW.uniform(0.01, 0.02, (7, 2)).astype(np.float32)),
        {"block_size": 32, "quantize_axis": 1},
    )  # fmt: skip
for name, ends, causal in (("attention", np.asarray([5, 3], np.int32), 0), ("attention-of-the-past", None, 1)):
    CASES[name] = (
        "QAttention",
        (DRAW.randint(0, 256, (2, 5, 12)).astype(np.uint8), DRAW.randint(-128, 128, (12, 24)).astype(np.int8),
         DRAW.standard_normal(24).astype(np.float32), np.float32(0.02), DRAW.uniform(0.01, 0.02, 24).astype(np.float32),
         ends, ZERO, np.zeros(24, np.int8)),
        {"num_heads": 2, "unidirectional": causal},
    )  # fmt: skip
FIXED = {
    **{name: (0,) for name in CASES if name.startswith("nbits")},
    **{name: (1,) for name in CASES if name.startswith("table")},
}
"""Which inputs are data, where the others must be constant."""


def saved(path: Path, name: str) -> dict[str, Array]:
    """Writes the case's model; the arrays of its inputs."""
    op_type, arrays, attributes = CASES[name]
    names = [f"x{index}" if array is not None else "" for index, array in enumerate(arrays)]
    given = {names[index]: np.asarray(arrays[index]) for index in FIXED.get(name, range(len(arrays))) if names[index]}
    ports = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in given.items()
    ]
    constants = [numpy_helper.from_array(a, n) for n, a in zip(names, arrays, strict=True) if n not in ("", *given)]
    node = helper.make_node(op_type, names, ["y"], "node", domain="com.microsoft", **attributes)
    made = helper.make_graph([node], "g", ports, [onnx.ValueInfoProto(name="y")], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    path.write_bytes(helper.make_model(made, opset_imports=opsets, ir_version=8).SerializeToString())
    return given


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_onnxruntime(name: str, tmp_path: Path) -> None:
    feeds = saved(tmp_path / "case.onnx", name)
    bound = load_model(tmp_path / "case.onnx").bind(next(a.shape[0] for a in feeds.values() if a.ndim))
    check(bound)
    found = reference.evaluate(bound, feeds)["y"]
    session = onnxruntime.InferenceSession(tmp_path / "case.onnx", providers=["CPUExecutionProvider"])
    (wanted,) = session.run(["y"], feeds)
    assert found.dtype == wanted.dtype
    if wanted.dtype == np.float32:
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)
        return
    differences = np.abs(found.astype(int) - wanted.astype(int))
    assert differences.max() <= 1  # a half may be rounded to either side where it was computed in another order
    assert np.mean(differences > 0) < 0.02


def test_one_scale_of_one_channel_is_of_the_whole_tensor(tmp_path: Path) -> None:
    """onnxruntime's quantiser states the axis of a layer with one channel, too."""
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["r"], "back", axis=0),
        helper.make_node("MatMul", ["x", "r"], ["y"], "product"),
    ]
    made = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 1])],
        [numpy_helper.from_array(np.ones((4, 1), np.int8), "w"), numpy_helper.from_array(np.float32([0.5]), "s")],
    )  # fmt: skip
    path = tmp_path / "net.onnx"
    path.write_bytes(
        helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )
    found = reference.evaluate(load_model(path).bind(2), {"x": np.ones((2, 4), np.float32)})
    np.testing.assert_array_equal(found["y"], [[2.0], [2.0]])


def test_weights_of_four_bits_become_plain_ones(tmp_path: Path) -> None:
    weights = (np.arange(64).reshape(4, 16) % 16 - 8).astype(ml_dtypes.int4)
    scales = np.linspace(0.1, 0.4, 8, dtype=np.float32).reshape(4, 2)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["r"], "back", axis=1, block_size=8),
        helper.make_node("MatMul", ["x", "r"], ["y"], "product"),
    ]
    made = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 16])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(scales, "s")],
    )  # fmt: skip
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    bound = load_model(path).bind(2)
    assert body(bound) == '%y = matmul(%x, %r)  // "product"'
    np.testing.assert_array_equal(bound.constant("r"), weights.astype(np.float32) * np.repeat(scales, 8, 1))
    nodes[1].input[1] = "w"
    nodes[1].op_type = "Add"
    made.node[1].CopyFrom(nodes[1])
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    with pytest.raises(BoltError) as raised:
        load_model(path).bind(2)
    assert [each.message for each in raised.value.diagnostics] == [
        "Add 'product': 'w' is of int4, which is taken only by DequantizeLinear, GatherBlockQuantized"
    ]


ROUNDED = """
    graph g batch=2 (%x: f32[2,3,4,4]) -> (%y) {
      const %s: f32[] {0.1}
      const %t: f32[] {0.2}
      const %z: i8[] {3}
      %q = quantize(%x, %s, %z) to=i8 // "q"
      %y = dequantize(%q, SCALE, %z) to=f32 // "y"
    }"""


def test_a_rounding_and_what_undoes_it_are_one_step() -> None:
    result = run(FAKE_QUANTISE, graph(ROUNDED.replace("SCALE", "%s")))
    assert body(result.graph) == '%y = fake-quantize(%x, %s, %z) to=i8 @y  // "q", "y"'
    assert said(result) == [("y", "merged", "with 'q'")]


def test_with_another_scale_they_stay_apart() -> None:
    result = run(FAKE_QUANTISE, graph(ROUNDED.replace("SCALE", "%t")))
    assert said(result) == [("y", "declined", "its scale or zero point is another one")]


def test_sums_of_integers_are_scaled_in_one_step() -> None:
    before = """
        graph g batch=2 (%a: u8[2,8], %s: f32[]) -> (%y) {
          const %b: i8[8,5]
          const %az: u8[]
          const %bz: i8[]
          const %t: f32[5]
          %i = integer-matmul(%a, %b, %az, %bz) // "i"
          %f = cast(%i) to=f32 // "f"
          %st = mul(%s, %t) // "st"
          %y = mul(%f, %st) // "y"
        }"""
    result = run(SCALE_SUMS, graph(before))
    assert body(result.graph).splitlines() == [
        '%i = integer-matmul(%a, %b, %az, %bz)  // "i"',
        '%y = scale-sums(%i, %s, %t) to=f32 @y  // "f", "y"',
    ]
    assert said(result) == [("y", "merged", "with 'f'")]
