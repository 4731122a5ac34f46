"""DynamicQuantizeLSTM: an LSTM with weights of 8 bits, against ONNX's LSTM with the numbers that these mean."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from contrib_nodes import Case, refusal
from onnx import TensorProto, helper

from bolt_build.graph import reference
from bolt_build.graph.invariants import check
from bolt_build.graph.ir import Array
from bolt_build.graph.onnx_import import load_model
from bolt_build.verify.models.written_out import written_out

_RANDOM = np.random.RandomState(5)
HIDDEN, WIDTH = 3, 4


def layer(directions: int = 1, columns: bool = False, zeros: bool = True, signed: bool = True) -> Case:
    """An LSTM of 5 steps with a scale for each direction, or for each of their `columns`."""
    kind, least = (np.int8, -127) if signed else (np.uint8, 1)
    spread = (directions, 4 * HIDDEN) if columns else (directions,)

    def drawn(*shape: int) -> Array:
        return _RANDOM.uniform(-1, 1, shape).astype(np.float32)

    def part(inputs: int) -> tuple[Array, Array, Array | None]:
        q = _RANDOM.randint(least, least + 254, (directions, inputs, 4 * HIDDEN)).astype(kind)
        zero = _RANDOM.randint(least + 120, least + 130, spread).astype(kind)
        return q, _RANDOM.uniform(0.002, 0.01, spread).astype(np.float32), zero if zeros else None

    (w, w_scale, w_zero), (r, r_scale, r_zero) = part(WIDTH), part(HIDDEN)
    bias = drawn(directions, 8 * HIDDEN)
    constants = (w, r, bias, None, drawn(directions, 2, HIDDEN), drawn(directions, 2, HIDDEN), None)
    attributes: dict[str, int | float | str | list[float] | list[int]] = {"hidden_size": HIDDEN}
    if directions == 2:
        attributes["direction"] = "bidirectional"
    scales = (w_scale, w_zero, r_scale, r_zero)
    return Case("DynamicQuantizeLSTM", (drawn(5, 2, WIDTH),), (*constants, *scales), attributes, ("y", "h", "c"))


LAYERS = {
    "a scale a direction": layer(), "both directions": layer(2), "a scale a column": layer(columns=True),
    "columns of both directions": layer(2, columns=True), "without zero points": layer(zeros=False),
    "unsigned": layer(2, signed=False),
}  # fmt: skip


def real(case: Case) -> list[Array]:
    """What onnxruntime makes of an LSTM with the numbers that the weights stand for."""
    w, r, bias, _, h, c, _, w_scale, w_zero, r_scale, r_zero = case.constants

    def numbers(q: Array | None, scale: Array | None, zero: Array | None) -> Array:
        assert q is not None
        assert scale is not None
        zeros = np.zeros(1) if zero is None else zero.astype(np.float64).reshape(q.shape[0], 1, -1)
        found = (q.astype(np.float64) - zeros) * scale.reshape(q.shape[0], 1, -1)
        return found.transpose(0, 2, 1).astype(np.float32)

    given: dict[str, Array | None] = {
        "x": case.data[0],
        "w": numbers(w, w_scale, w_zero),
        "r": numbers(r, r_scale, r_zero),
        "b": bias,
    }
    given |= {"h": h, "c": c}
    node = helper.make_node("LSTM", ["x", "w", "r", "b", "", "h", "c"], ["y", "yh", "yc"], **case.attributes)  # type: ignore[arg-type]
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, each.shape)
        for name, each in given.items()
        if each is not None
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "yh", "yc")]
    graph = helper.make_graph([node], "g", ports, results)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, given))


@pytest.mark.parametrize("case", LAYERS.values(), ids=LAYERS.keys())
def test_its_weights_are_the_numbers_that_they_stand_for(case: Case, tmp_path: Path) -> None:
    feeds = case.saved(tmp_path / "case.onnx")
    graph = load_model(tmp_path / "case.onnx").bind(5)
    check(graph)
    found = reference.evaluate(graph, feeds)
    for name, wanted in zip(case.compared, real(case), strict=True):
        np.testing.assert_allclose(found[name], wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("case", LAYERS.values(), ids=LAYERS.keys())
def test_verification_compares_with_the_same(case: Case, tmp_path: Path) -> None:
    """onnxruntime rounds x and the states to 8 bits, by ranges that depend on how many threads it has."""
    feeds = case.saved(tmp_path / "case.onnx")
    given = onnx.load(tmp_path / "case.onnx")
    spelled = written_out(given)
    assert "DynamicQuantizeLSTM" not in {node.op_type for node in spelled.graph.node}
    session = onnxruntime.InferenceSession(spelled.SerializeToString(), providers=["CPUExecutionProvider"])
    for found, wanted in zip(session.run(["y", "h", "c"], feeds), real(case), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


def test_scales_that_fit_nothing_are_refused(tmp_path: Path) -> None:
    case = replace(layer(), data=(np.ones((2, 2, WIDTH), np.float32),))
    constants = (*case.constants[:7], np.ones(5, np.float32), *case.constants[8:])
    assert refusal(replace(case, constants=constants), tmp_path) == [
        "DynamicQuantizeLSTM 'node': the scale of W [5] must be one, or one for each of 1 directions or their columns"
    ]
