"""What decides where the usual variances do not: those of all rows, and what trying shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fault_table import planned_engine
from graph_models import model, node, saved, tensor
from onnx import NodeProto, TensorProto
from planned_engine import PlannedContext

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array
from bolt_build.verify.layers import compare_layers, layer_report
from bolt_build.verify.models.piece import Care
from bolt_build.verify.reference import Reference
from bolt_build.verify.taps import Source, Tap

LAYERS = 12
IMAGE = (2, 8, 16, 16)


def windows(weights: Array, x: Array) -> Array:
    """Depthwise 3x3 windows with a border of zeros, results in fp16."""
    wide = np.pad(x.astype(np.float32), ((0, 0), (0, 0), (1, 1), (1, 1)))
    parts = (
        weights[:, :, i, j].reshape(1, -1, 1, 1) * wide[:, :, i : i + IMAGE[2], j : j + IMAGE[3]]
        for i in range(3) for j in range(3)
    )  # fmt: skip
    return np.asarray(sum(parts), np.float16)


@pytest.fixture
def hidden(tmp_path: Path) -> tuple[Reference, Tap, list[Array], Array]:
    """Depthwise convolutions of which an engine shows the last one alone: their weights, and its input."""
    random = np.random.RandomState(3)
    weights = [(random.standard_normal((IMAGE[1], 1, 3, 3)) / 3).astype(np.float32) for _ in range(LAYERS)]
    names = ["x", *(f"h{at}" for at in range(1, LAYERS)), "y"]
    nodes = [
        node("Conv", f"{names[at]} w{at}", names[at + 1], f"conv{at}", group=IMAGE[1], pads=[1, 1, 1, 1])
        for at in range(LAYERS)
    ]
    saved(tmp_path, model(nodes, [tensor("x", list(IMAGE))], constants={f"w{at}": w for at, w in enumerate(weights)}))
    half = DType.F16
    source = (Source("x", "x", half),)
    tap = Tap(LAYERS - 1, "last", ("last",), "y", "y", "kernel", IMAGE, source, half, half, LAYERS, LAYERS, half, False)
    return Reference(tmp_path / "test.onnx", ()), tap, weights, random.standard_normal(IMAGE).astype(np.float16)


def computed(weights: list[Array], x: Array) -> Array:
    """As an engine in half precision computes them."""
    for each in weights:
        x = windows(each.astype(np.float16).astype(np.float32), x)
    return x


def test_roundings_of_many_hidden_layers_are_tried_for_their_bound_is_wider_than_the_tensor(
    hidden: tuple[Reference, Tap, list[Array], Array],
) -> None:
    reference, tap, weights, x = hidden
    right = computed(weights, x)

    def told(array: Array, care: Care) -> tuple[bool, bool]:
        (expected,) = reference.expected((tap,), {"x": x}, {"x": "x"}, care)
        report = layer_report(tap, array, expected)
        return report.ok, report.tells

    assert told(right, Care.FIRST_ROWS) == (True, False)
    assert told(right, Care.EVERY_ROW) == (True, False)
    assert told(right, Care.TRIED) == (True, True)
    weights[5] = weights[5].copy()
    weights[5][2, 0, 1, 1] *= 1.1
    assert told(computed(weights, x), Care.TRIED) == (False, True)


@pytest.mark.parametrize(
    "measured",
    [node("Sin", "x", "h", "sin"), node("Gelu", "x", "h", "gelu", domain="com.microsoft")],
    ids=["without a rule", "of another domain"],
)
def test_nothing_is_tried_of_layers_whose_roundings_are_measured(measured: NodeProto, tmp_path: Path) -> None:
    nodes = [measured, node("Conv", "h w", "y", "conv")]
    constants = {"w": np.ones((4, 4, 1, 1), np.float32)}
    given = [tensor("x", [2, 4, 3, 3])]
    saved(tmp_path, model(nodes, given, constants=constants, opsets=[("com.microsoft", 1)]))
    half = DType.F16
    tap = Tap(
        1, "conv", ("conv",), "y", "y", "k", (2, 4, 3, 3), (Source("x", "x", half),), half, half, 2, 2, half, False
    )
    held = {"x": np.linspace(0, 1, 72, dtype=np.float16).reshape(2, 4, 3, 3)}
    reference = Reference(tmp_path / "test.onnx", ())
    bound, tried = (
        reference.expected((tap,), held, {"x": "x"}, care)[0].variance for care in (Care.EVERY_ROW, Care.TRIED)
    )
    assert bound is not None
    assert tried is not None
    np.testing.assert_array_equal(bound, tried)


def test_a_row_unlike_the_first_ones_is_judged_by_its_own_variance(tmp_path: Path) -> None:
    """Two channels of one image are a thousand times as large, and what they do cancels but for the roundings of their
    weights: neither the first images nor the size of this one's result say how far these take it."""
    random = np.random.RandomState(5)
    weights = random.standard_normal((64, 64, 1, 1)).astype(np.float32)
    weights[:, 8] = -1.5 * weights[:, 7]
    saved(
        tmp_path,
        model([node("Conv", "x w", "y", "conv")], [tensor("x", ["N", 64, 4, 4])], constants={"w": weights}),
    )
    engine = planned_engine(tmp_path / "test.onnx", "h200", "fp16", batch=16)
    x = random.standard_normal((16, 64, 4, 4)).astype(np.float32)
    x[12, 7] *= 1000
    x[12, 8] = x[12, 7] / 1.5
    context = PlannedContext(engine.plan, engine.planned.constants)
    (report,) = compare_layers(context, engine.reference, engine.plan, {"x": x.astype(engine.inputs["x"].dtype)}).layers
    assert report.ok


def test_a_softmax_that_takes_one_argument_is_judged_although_rounding_moves_its_arguments_far(tmp_path: Path) -> None:
    """Arguments of some thousands are off by more than one, and their distances are a hundred times that. A share next
    to 1 is moved by what is left of it, and by no more."""
    random = np.random.RandomState(7)
    weights = (100 * random.standard_normal((64, 16))).astype(np.float32)
    nodes = [node("MatMul", "x w", "h", "product"), node("Softmax", "h", "y", "shares", axis=-1)]
    saved(tmp_path, model(nodes, [tensor("x", [32, 64])], constants={"w": weights}))
    x = random.standard_normal((32, 64)).astype(np.float16)
    half = DType.F16
    tap = Tap(
        1, "shares", ("shares",), "y", "y", "k", (32, 16), (Source("x", "x", half),), half, half, 2, 2, half, False
    )
    (expected,) = Reference(tmp_path / "test.onnx", ()).expected((tap,), {"x": x}, {"x": "x"})

    def shares(of: Array) -> Array:
        arguments = (x.astype(np.float32) @ of.astype(np.float16).astype(np.float32)).astype(np.float16)
        powers = np.exp(arguments.astype(np.float32) - arguments.max(axis=-1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True), np.float16)

    right = layer_report(tap, shares(weights), expected)
    assert (right.ok, right.tells) == (True, True)
    wrong = layer_report(tap, shares(weights[:, ::-1]), expected)
    assert not wrong.ok


def test_numbers_of_a_table_that_half_precision_holds_coarsely_are_judged_so(tmp_path: Path) -> None:
    """Below 2^-14 its numbers lie 2^-24 apart, whatever their size: of small words a normalisation makes large ones."""
    random = np.random.RandomState(3)
    words = (0.02 * random.standard_normal((64, 256))).astype(np.float32)
    words[:, ::16] *= 1e-4
    nodes = [
        node("Gather", "words ids", "w", "take"), node("Mul", "w w", "w2", "squares"),
        node("ReduceMean", "w2", "m", "mean", axes=[-1]), node("Add", "m epsilon", "v", "more"),
        node("Sqrt", "v", "d", "root"), node("Div", "w d", "y", "norm"),
    ]  # fmt: skip
    constants = {"words": words, "epsilon": np.float32(1e-5)}
    saved(tmp_path, model(nodes, [tensor("ids", ["N", 8], TensorProto.INT64)], constants=constants))
    engine = planned_engine(tmp_path / "test.onnx", "h200", "fp16", batch=16)
    ids = random.randint(0, 64, (16, 8))
    context = PlannedContext(engine.plan, engine.planned.constants)
    (*_, report) = compare_layers(context, engine.reference, engine.plan, {"ids": ids}).layers
    assert (report.tensor, report.ok) == ("y", True)
