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


def expected(folder: Path, tensor: str) -> tuple[Tap, Expected]:
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
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), path)
    stored = DType.F32 if tensor == "r" else DType.I8
    source = (Source("x", "x", DType.F32),)
    tap = Tap(0, "round", (), tensor, tensor, "k", EXACT.shape, source, stored, DType.F32, 1, 1, DType.F32, False)
    return tap, Reference(path, ()).expected([tap], {"x": X}, {"x": "x"})[0]


def made(tensor: str, steps: Array) -> Array:
    return steps.astype(np.int8) if tensor == "q" else steps.astype(np.float32) * SCALE


@pytest.mark.parametrize("tensor", ["q", "r"])
def test_either_integer_is_right_at_a_border(tensor: str, tmp_path: Path) -> None:
    tap, found = expected(tmp_path, tensor)
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
