"""Channels rounded up to a multiple: what is widened, what is left and why, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from graph_models import model, node, ones, tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from variant_models import agree, block, check

from bolt_build.graph.ir import Array
from bolt_build.graph.variants import vary
from bolt_build.graph.zoo.calibrate import calibrate
from bolt_build.schema.recipe import Alignment, VariantSpec

ALIGNED = VariantSpec("aligned", align=Alignment(8))


def test_aligning_repeats_channels_where_they_are_made_and_adds_zeros_where_they_are_read() -> None:
    base = calibrate(block(), seed=1)
    found = {item.name: numpy_helper.to_array(item) for item in vary(base, ALIGNED).model.graph.initializer}
    before = {item.name: numpy_helper.to_array(item) for item in base.graph.initializer}
    for name in ("w", "scale", "shift", "mean", "var"):
        np.testing.assert_array_equal(found[name], np.concatenate([before[name]] * 2))
    np.testing.assert_array_equal(found["v"], np.concatenate([before["v"], np.zeros((5, 4, 1, 1))], 1))


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (
            [node("Concat", "c c", "y", "join", axis=1)],
            "'join' (Concat) does not keep channels apart, as far as is known",
        ),
        ([node("Conv", "c g", "y", "half", group=2)], "'half' (Conv) has 2 groups"),
        ([node("Conv", "c v", "d", "b"), node("Conv", "d v", "y", "b2")], "'v' is read in several places"),
    ],
)  # fmt: skip
def test_channels_that_cannot_be_followed_are_left_with_the_reason(nodes: list[onnx.NodeProto], reason: str) -> None:
    constants: dict[str, Array] = {"w": ones(6, 3, 3, 3), "g": ones(4, 3, 1, 1), "v": ones(6, 6, 1, 1)}
    proto = model([node("Conv", "x w", "c", "conv"), *nodes], constants=constants)
    variation = vary(proto, ALIGNED)
    assert variation.changes[0] == "no hidden channels to round up to a multiple of 8"
    assert f"6 channels of 'c' left: {reason}" in variation.changes
    assert list(variation.model.graph.initializer) == list(proto.graph.initializer)


def gated(*gate: onnx.NodeProto) -> onnx.ModelProto:
    """16 channels of a convolution, all of which one tensor 's' is multiplied with, and a convolution behind that."""
    random = np.random.RandomState(1)
    shapes = {"w": (16, 3, 3, 3), "v": (1, 16, 1, 1), "u": (6, 16, 1, 1), "t": (5, 6, 1, 1)}
    weights = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    nodes = [node("Conv", "x w", "c", "conv"), *gate, node("Mul", "c s", "m", "gate")]
    nodes += [node("Conv", "m u", "d", "next"), node("Conv", "d t", "y", "last")]
    return model(nodes, constants=weights)


def test_one_channel_that_is_broadcast_stays_one() -> None:
    proto = gated(node("Conv", "c v", "a", "attend"), node("Sigmoid", "a", "s", "squash"))
    variation = vary(proto, ALIGNED)
    check(variation.model)
    assert variation.changes == (
        "6 channels of 'd' widened to 8",
        "3 channels of 'x' left: 'x' is an input of the model",
        "1 channel of 'a' left: 'gate' (Mul) broadcasts it",
        "5 channels of 'y' left: 'y' is an output of the model",
    )
    agree(proto, variation.model)


def test_a_tensor_of_lower_rank_that_is_broadcast_stays_as_it_is() -> None:
    proto = gated(
        node("GlobalAveragePool", "c", "p"), node("Flatten", "p", "f"), node("MatMul", "f columns", "s", "by_column")
    )
    proto.graph.initializer.append(numpy_helper.from_array(ones(16, 6), "columns"))
    variation = vary(proto, ALIGNED)
    check(variation.model)
    assert "6 channels of 's' left: 'gate' (Mul) broadcasts it" in variation.changes
    agree(proto, variation.model)


def test_what_only_a_subgraph_reads_stays_as_it_is() -> None:
    branches = {
        f"{word}_branch": onnx.helper.make_graph(
            [node(op, "d", f"{word}_d", f"{word}/{op}")], word, [], [tensor(f"{word}_d", [1, 6, 6, 6])]
        )
        for word, op in (("then", "Relu"), ("else", "Neg"))
    }
    random = np.random.RandomState(1)
    shapes = {"w": (6, 3, 3, 3), "v": (5, 6, 1, 1), "u": (6, 6, 1, 1)}
    weights = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    nodes = [node("Conv", "x w", "d", "conv"), node("If", "b", "i", "choose", **branches)]
    nodes += [node("Conv", "d v", "e", "aside"), node("GlobalMaxPool", "e", "z", "pool")]
    nodes += [node("Conv", "i u", "y", "last")]
    inputs = [tensor("x", [1, 3, 8, 8]), tensor("b", [], onnx.TensorProto.BOOL)]
    proto = model(nodes, inputs, ["y", "z"], weights)
    variation = vary(proto, ALIGNED)
    check(variation.model)
    reason = "'choose' (If) does not keep channels apart, as far as is known"
    assert f"6 channels of 'd' left: {reason}" in variation.changes
    for way in (False, True):
        agree(proto, variation.model, b=np.asarray(way))


@st.composite
def networks(draw: st.DrawFn) -> onnx.ModelProto:
    """Convolutions of odd widths, residuals, depthwise ones, pooling and a fully connected end."""
    random = np.random.RandomState(draw(st.integers(0, 2**31)))
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, Array] = {}
    x, channels = "x", 3

    def weight(name: str, *shape: int) -> str:
        constants[name] = (0.4 * random.standard_normal(shape)).astype(np.float32)
        return name

    for at in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(("plain", "residual", "depthwise", "gated", "normed")))
        wide = draw(st.integers(1, 20)) if kind in ("plain", "normed") else channels
        group = channels if kind == "depthwise" else 1
        w, b = weight(f"w{at}", wide, channels // group, 3, 3), weight(f"b{at}", wide)
        nodes.append(node("Conv", f"{x} {w} {b}", f"c{at}", pads=[1, 1, 1, 1], group=group))
        y = f"c{at}"
        if kind == "residual" and x != "x":
            nodes.append(node("Add", f"{y} {x}", f"s{at}"))
            y = f"s{at}"
        if kind == "gated":
            nodes.append(node("Mul", f"{y} {weight(f'm{at}', wide, 1, 1)}", f"g{at}"))
            y = f"g{at}"
        if kind == "normed":
            parts = " ".join(weight(f"n{at}{part}", wide) for part in "abc")
            constants[f"n{at}v"] = random.uniform(0.5, 2, wide).astype(np.float32)
            nodes.append(node("BatchNormalization", f"{y} {parts} n{at}v", f"n{at}"))
            y = f"n{at}"
        nodes.append(node(draw(st.sampled_from(("Relu", "Softplus", "HardSwish"))), y, f"r{at}"))
        x, channels = f"r{at}", wide
    if draw(st.booleans()):
        nodes.append(node("GlobalAveragePool", x, "p"))
        x, inner = "p", channels
    else:
        inner = channels * 64
    nodes.append(node("Flatten", x, "f"))
    nodes.append(node("Gemm", f"f {weight('wf', 7, inner)} {weight('bf', 7)}", "h", transB=1))
    nodes.append(node("Relu", "h", "hr"))
    nodes.append(node("MatMul", f"hr {weight('wl', 7, 4)}", "y"))
    return model(nodes, constants=constants)


@settings(max_examples=40, deadline=None)
@given(networks(), st.sampled_from((2, 4, 8, 12)))
def test_aligning_never_changes_what_a_network_computes(proto: onnx.ModelProto, multiple: int) -> None:
    variation = vary(proto, VariantSpec("aligned", align=Alignment(multiple)))
    found = variation.model
    check(found)
    x = np.random.RandomState(5).standard_normal((1, 3, 8, 8)).astype(np.float32)
    before, after = (
        onnxruntime.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
        for each in (proto, found)
    )
    np.testing.assert_allclose(after[0], before[0], rtol=1e-4, atol=1e-4 * np.abs(before[0]).max())
    left = [change for change in variation.changes if " left: " in change]
    assert all(change.endswith(("is an input of the model", "is an output of the model")) for change in left)
