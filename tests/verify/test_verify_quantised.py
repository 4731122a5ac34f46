"""A quantised number may be a step off at the border between two integers, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array
from bolt_build.verify.layers import layer_report
from bolt_build.verify.reference import Expected, Reference
from bolt_build.verify.sensitivity import Share, amplification
from bolt_build.verify.taps import Source, Tap

DRAW = np.random.RandomState(5)
X, W = DRAW.standard_normal((2, 16, 96)).astype(np.float32), DRAW.standard_normal((96, 24)).astype(np.float32)
EXACT = X.astype(np.float64) @ W.astype(np.float64)
BORDER = (1, 3, 5)
"""The element that lies between 20 and 21 steps."""
SCALE = np.float32(EXACT[BORDER] / 20.5)
STEPS = np.clip(np.rint(EXACT / np.float64(SCALE)), -128, 127)


def expected(folder: Path, tensor: str, opset: int = 19) -> tuple[Tap, Expected]:
    """What the model makes of the product's input in one segment: nothing is shown in between."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], "product"),
        helper.make_node("QuantizeLinear", ["y", "s", "z"], ["q"], "round"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["r"], "back"),
    ]
    kind = TensorProto.FLOAT if tensor == "r" else TensorProto.INT8
    constants = [numpy_helper.from_array(np.asarray(a), n) for n, a in (("w", W), ("s", SCALE), ("z", np.int8(0)))]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info(tensor, kind, EXACT.shape)], constants,
    )  # fmt: skip
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    stored = DType.F32 if tensor == "r" else DType.I8
    source = (Source("x", "x", DType.F32),)
    tap = Tap(0, "round", (), tensor, tensor, "k", EXACT.shape, source, stored, DType.F32, 1, 1, DType.F32, False)
    return tap, Reference(path, ()).expected([tap], {"x": X}, {"x": "x"})[0]


def made(tensor: str, steps: Array) -> Array:
    return steps.astype(np.int8) if tensor == "q" else steps.astype(np.float32) * SCALE


@pytest.mark.parametrize(("tensor", "opset"), [("q", 19), ("q", 13), ("r", 19)])
def test_either_integer_is_right_at_a_border(tensor: str, opset: int, tmp_path: Path) -> None:
    tap, found = expected(tmp_path, tensor, opset)
    for steps in (20, 21):
        other = STEPS.copy()
        other[BORDER] = steps
        assert layer_report(tap, made(tensor, other), found).ok


@pytest.mark.parametrize("tensor", ["q", "r"])
@pytest.mark.parametrize("off", [1, -1])
def test_a_step_elsewhere_is_wrong(tensor: str, off: int, tmp_path: Path) -> None:
    tap, found = expected(tmp_path, tensor)
    away = np.abs(EXACT / np.float64(SCALE) % 1 - 0.5)
    place = np.unravel_index(np.argmax(away), away.shape)
    other = STEPS.copy()
    other[place] += off
    assert not layer_report(tap, made(tensor, other), found).ok


WHOLE, RIGHT = (
    DRAW.randint(0, 256, (1, 6, 5, 5)).astype(np.uint8),
    DRAW.randint(-127, 128, (4, 6, 3, 3)).astype(np.int8),
)
FACTORS = np.float32([0.01, 0.02, 0.03, 0.05])


def scaled(folder: Path, op_type: str) -> tuple[Array, Array, Tap, Expected]:
    """The exact numbers of steps of a convolution or a product of integers, of which the first lies at a border; the
    integers; and what verification expects."""
    conv = op_type == "QLinearConv"
    x, w = (WHOLE, RIGHT) if conv else (WHOLE.reshape(-1, 6), RIGHT.reshape(-1, 6)[:4].T.copy())
    centred, bias = x.astype(np.float64) - 120, np.int32([900, -700, 20, 5000]) if conv else np.zeros(4)
    if conv:
        windows = np.lib.stride_tricks.sliding_window_view(centred, (3, 3), (2, 3))
        sums = np.einsum("ncyxij,kcij->nkyx", windows, w.astype(np.float64)) + bias.reshape(-1, 1, 1)
        numbers = sums * (0.5 * FACTORS.astype(np.float64)).reshape(-1, 1, 1)
    else:
        numbers = (centred @ w) * (0.5 * FACTORS.astype(np.float64))
    scale = np.float32(numbers.reshape(-1)[0] / (np.sign(numbers.reshape(-1)[0]) * 40.5))
    numbers = numbers / np.float64(scale)
    given = {
        "xs": np.float32(0.5), "xz": np.uint8(120), "w": w, "ws": FACTORS, "wz": np.zeros(4, np.int8), "ys": scale,
        "yz": np.uint8(128), **({"b": bias} if conv else {}),
    }  # fmt: skip
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", *(["b"] if conv else [])]
    made = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], "scaled")], "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, numbers.shape)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in given.items()],
    )  # fmt: skip
    path = folder / "net.onnx"
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 10)], ir_version=8), path)
    whole, fp32 = DType.U8, DType.F32
    tap = Tap(0, "scaled", (), "y", "y", "k", numbers.shape, (Source("x", "x", whole),), whole, fp32, 1, 1, fp32, False)
    integers = np.clip(np.rint(numbers) + 128, 0, 255)
    return numbers, integers, tap, Reference(path, ()).expected([tap], {"x": x}, {"x": "x"})[0]


@pytest.mark.parametrize("op_type", ["QLinearConv", "QLinearMatMul"])
def test_sums_of_integers_that_are_scaled_may_be_a_step_off_at_a_border_alone(op_type: str, tmp_path: Path) -> None:
    numbers, integers, tap, found = scaled(tmp_path, op_type)
    first = int(np.sign(numbers.reshape(-1)[0]))
    for steps in (40, 41):
        other = integers.copy()
        other.reshape(-1)[0] = 128 + first * steps
        assert layer_report(tap, other.astype(np.uint8), found).ok
    inside = np.where(np.abs(numbers) < 100, np.abs(numbers % 1 - 0.5), 0.0)
    other.reshape(-1)[np.argmax(inside)] += 1
    assert not layer_report(tap, other.astype(np.uint8), found).ok


def test_outputs_may_be_off_by_what_steps_at_borders_make_of_them(tmp_path: Path) -> None:
    expected(tmp_path, "r")
    reference = Reference(tmp_path / "net.onnx", ())
    before = reference.outputs({"x": X})
    (grown,) = amplification(reference, {"x": X}, before, DType.F32, Share(2, 0, 1), 0).values()
    assert reference.rounds_to_integers
    assert 1e2 < grown.rms < 1e6


def test_many_steps_at_a_border_are_wrong(tmp_path: Path) -> None:
    tap, found = expected(tmp_path, "q")
    other = STEPS.copy()
    other[BORDER] = 60
    assert not layer_report(tap, made("q", other), found).ok


def test_the_nearest_of_integers_are_verified(tmp_path: Path) -> None:
    """An enlarged image of a quantised model, behind a sum whose roundings reach it."""
    scale, zero = np.float32(0.02), np.asarray(np.uint8(9))
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "quantise"),
        helper.make_node("Resize", ["q", "", "f"], ["large"], "enlarge", mode="nearest"),
        helper.make_node("DequantizeLinear", ["large", "s", "z"], ["y"], "back"),
    ]
    given = {"s": scale, "z": zero, "f": np.float32([1, 1, 2, 2])}
    made = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in given.items()],
    )  # fmt: skip
    path = tmp_path / "net.onnx"
    path.write_bytes(
        helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )
    fp32, held = DType.F32, {"x": np.asarray([[[[0.1, 0.2], [0.3, 0.4]]]], np.float32)}
    tap = Tap(0, "back", (), "y", "y", "k", (1, 1, 4, 4), (Source("x", "x", fp32),), fp32, fp32, 1, 1, fp32, False)
    (expected,) = Reference(path, ()).expected([tap], held, {"x": "x"})
    np.testing.assert_allclose(expected.tensor[0, 0, ::2, ::2], held["x"][0, 0], atol=0.011)
