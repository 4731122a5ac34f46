"""What rounding is said to do to single layers, beside what it does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from alarm_networks import Net
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array
from bolt_build.verify.emitter import Emitter
from bolt_build.verify.judgement import judge
from bolt_build.verify.reference import Expected, Reference
from bolt_build.verify.rounding.rounding import OF_CONSTANTS, Work
from bolt_build.verify.rounding.rounding_rules import RULES
from bolt_build.verify.taps import Source, Tap

FP32 = DType.F32
GATES = ("sigmoid", "erf", "tanh", "mish", "hard sigmoid", "clip")


def gate(net: Net, kind: str, z: str) -> str:
    """What lets `z` through, between 0 and 1, in the operators that exporters write."""

    def constant(value: float) -> str:
        return net.constant(f"constant.{value}", np.float32(value))

    if kind == "sigmoid":
        return net.node("Sigmoid", "gate", z)
    if kind == "hard sigmoid":
        return net.node("HardSigmoid", "gate", z, alpha=1 / 6)
    if kind == "mish":
        return net.node("Tanh", "gate", net.node("Softplus", "softplus", z))
    if kind == "clip":
        moved = net.node("Clip", "clip", net.node("Add", "moved", z, constant(3)), constant(0), constant(6))
        return net.node("Mul", "gate", moved, constant(1 / 6))
    curve = net.node("Erf" if kind == "erf" else "Tanh", "curve", z)
    return net.node("Mul", "gate", net.node("Add", "moved", curve, constant(1)), constant(0.5))


def gated(path: Path, kind: str, size: float) -> tuple[Expected, Array]:
    """Functions that level off: z gate(z) of a product z as large as `size`, as one kernel computes them; and z in
    another order of sums."""
    random = np.random.RandomState(0)
    net = Net([8, 64])
    weight = (size * random.standard_normal((64, 64)) / 8).astype(np.float32)
    z = net.node("MatMul", "dense", "x", net.constant("weight", weight))
    net.saved(path, net.node("Mul", "y", z, gate(net, kind, z)), [8, 64])
    held = {"x": random.standard_normal((8, 64)).astype(np.float32)}
    tap = Tap(0, "y", ("y",), "y", "y", "kernel", (8, 64), (Source("x", "x", FP32),), FP32, FP32, 1, 1, FP32, False)
    (expected,) = Reference(path, ()).expected([tap], held, {})
    total = np.zeros((8, 64), np.float32)
    for k in reversed(range(64)):
        total += held["x"][:, k : k + 1] * weight[k]
    return expected, total


@pytest.mark.parametrize("kind", GATES)
def test_far_out_a_product_with_its_gate_is_off_as_the_product_is(kind: str, tmp_path: Path) -> None:
    expected, z = gated(tmp_path / "net.onnx", kind, 1e8)
    right = np.where(z > 0, z, np.float32(0))
    found = judge(right, expected.tensor, expected.variance, FP32, expected.relative)
    assert found.used < 1
    assert found.noise < 1e-5 * found.signal
    wrong = right * np.float32(1 + 1e-4)
    assert judge(wrong, expected.tensor, expected.variance, FP32, expected.relative).used > 1


@pytest.mark.parametrize("kind", GATES)
def test_where_it_opens_a_gate_is_off_by_its_slope(kind: str, tmp_path: Path) -> None:
    expected, z = gated(tmp_path / "net.onnx", kind, 1.0)
    assert np.abs(z).max() < 5
    assert judge(expected.tensor, expected.tensor, expected.variance, FP32, expected.relative).tells
    assert expected.variance is not None
    bound = np.abs(z) * 2.0**-22
    assert np.median(np.sqrt(expected.variance) * 2.0**-24 / bound) > 0.1


@pytest.mark.parametrize("wrong", [False, True])
def test_what_an_engine_holds_in_fp64_the_reference_rounds(wrong: bool, tmp_path: Path) -> None:
    """Exporters compute the corners of boxes in fp64: their difference, of numbers that are alike, is off by fp32's
    rounding of these, and by no more."""
    random = np.random.default_rng(0)
    net = Net([1, 500])
    for name in "ab":
        net.node("Mul", name, "x", net.constant(f"{name}.factor", np.float32(2.0)))
    path = net.saved(tmp_path / "net.onnx", net.node("Sub", "y", "a", "b"), [1, 500])
    held = {"a": 31 + random.random((1, 500)), "b": 31 - random.random((1, 500))}
    fp64 = DType.F64
    sources = tuple(Source(name, name, fp64) for name in "ab")
    tap = Tap(0, "y", ("y",), "y", "y", "kernel", (1, 500), sources, fp64, fp64, 1, 1, fp64, False)
    (expected,) = Reference(path, ()).expected([tap], held, {})
    difference = held["a"] - held["b"] + (1e-4 if wrong else 0)
    assert (judge(difference, expected.tensor, expected.variance, fp64, expected.relative).used > 1) is wrong


def single(path: Path, held: dict[str, Array], tap: str, *sources: str) -> Expected:
    """What a network of rows of 4 makes of `tap` from the engine's `sources`."""
    found = tuple(Source(name, name, FP32) for name in sources)
    wanted = Tap(0, tap, (tap,), tap, tap, "kernel", (4, 4), found, FP32, FP32, 1, 1, FP32, False)
    (expected,) = Reference(path, ()).expected([wanted], held, {})
    return expected


def test_two_masks_in_one_row_leave_rounding_that_numbers_hold(tmp_path: Path) -> None:
    """CLIP's text: a causal mask and one of padding, both the least number there is, and one constant."""
    lowest = np.finfo(np.float32).min
    net = Net([4, 4])
    padding = net.node("Mul", "padding", "x", net.constant("one", np.float32(1)))
    both = net.node("Add", "both", padding, net.constant("causal", np.where(np.tri(4) == 1, 0, lowest)))
    path = net.saved(tmp_path / "net.onnx", net.node("Softmax", "y", both, axis=-1), [4, 4])
    held = {"padding": np.full((4, 4), lowest)}
    expected = single(path, held, "y", "padding")
    assert expected.variance is not None
    assert np.isfinite(expected.variance).all()
    assert judge(expected.tensor, expected.tensor, expected.variance, FP32, expected.relative).tells
    wrong = expected.tensor[:, ::-1]
    assert judge(wrong, expected.tensor, expected.variance, FP32, expected.relative).used > 1


@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("opset", [7, 10, 12])
def test_shares_of_an_old_opset_may_count_their_axis_from_the_end(opset: int, axis: int, tmp_path: Path) -> None:
    """Keras's converters wrote it so, and onnxruntime takes it, but not in Flatten."""
    net = Net([4, 4])
    path = net.saved(tmp_path / "net.onnx", net.node("Softmax", "y", "x", axis=axis), [4, 4], opset)
    held = np.random.default_rng(0).random((4, 4), np.float32)
    powers = np.exp(held.astype(np.float64))
    wanted = (powers / powers.sum(axis=None if axis == -2 else -1, keepdims=True)).astype(np.float32)
    expected = single(path, {"x": held}, "y", "x")
    assert judge(wanted, expected.tensor, expected.variance, FP32, expected.relative).used < 1
    assert judge(1.001 * wanted, expected.tensor, expected.variance, FP32, expected.relative).used > 1


@pytest.mark.parametrize(("op_type", "scale"), [("Elu", 1.0), ("Celu", 1.0), ("Selu", 1.7580993408473766)])
def test_a_power_less_1_of_a_small_argument_is_off_as_the_power_is(op_type: str, scale: float, tmp_path: Path) -> None:
    """Quiet passages of Encodec's decoder: onnxruntime computes e^x - 1, an engine what that is."""
    net = Net([4, 4])
    path = net.saved(tmp_path / "net.onnx", net.node(op_type, "y", "x"), [4, 4])
    held = {"x": -1e-4 * np.random.default_rng(0).random((4, 4), np.float32)}
    expected = single(path, held, "y", "x")
    right = (scale * np.expm1(held["x"].astype(np.float64))).astype(np.float32)
    assert judge(right, expected.tensor, expected.variance, FP32, expected.relative).used < 1
    wrong = right * np.float32(1.02)
    assert judge(wrong, expected.tensor, expected.variance, FP32, expected.relative).used > 1


def test_a_power_of_what_is_masked_is_exactly_0(tmp_path: Path) -> None:
    """RWKV begins a sequence with the state -1e38: its power is 0, and no rounding of its argument is seen there."""
    net = Net([4, 4])
    state = net.node("Sub", "state", "x", net.constant("begin", np.float32(1e38)))
    path = net.saved(tmp_path / "net.onnx", net.node("Exp", "y", state), [4, 4])
    expected = single(path, {"x": np.ones((4, 4), np.float32)}, "y", "x")
    assert expected.tensor.max() == 0
    assert expected.variance is not None
    assert expected.variance.max() == 0


def test_what_equal_nodes_make_is_read_where_an_engine_shows_it_once(tmp_path: Path) -> None:
    """An engine merges two equal sums and shows the first: the second is that, not what lies in front of both."""
    net = Net([4, 4])
    for name in ("first", "second"):
        net.node("Add", name, "x", net.constant(f"{name}.one", np.float32(1)))
    path = net.saved(tmp_path / "net.onnx", net.node("Mul", "y", "second", "second"), [4, 4])
    expected = single(path, {"first": np.full((4, 4), 3, np.float32)}, "y", "first")
    assert (expected.tensor == 9).all()


def test_the_variance_of_a_sum_of_constants_has_its_axes(tmp_path: Path) -> None:
    """D-FINE takes a part of such a sum: its variance is one of as many axes."""
    net = Net([4, 4])
    moved = net.node("Add", "moved", "x", net.constant("offsets", np.arange(4)))
    net.node("Transpose", "turned", moved, perm=[1, 0])
    expected = single(net.saved(tmp_path / "net.onnx", "turned", [4, 4]), {"x": np.ones((4, 4))}, "turned", "x")
    assert expected.variance is not None
    assert expected.variance.shape == (4, 4)


@pytest.mark.parametrize("length", [400, 512])
def test_spectra_of_any_length_are_judged_by_rounding(length: int, tmp_path: Path) -> None:
    """Speech is cut into frames of 400: onnxruntime's spectrum of these in fp32 is off by 1e-4 of its size."""
    net = Net([1, 2000, 1])
    random = np.random.default_rng(0)
    window = net.constant("window", np.hanning(length))
    for name, value in (("step", 160), ("length", length)):
        net.constants.append(numpy_helper.from_array(np.asarray(value), name))
    frames = 1 + (2000 - length) // 160
    shape = (1, frames, length // 2 + 1, 2)
    path = net.saved(tmp_path / "net.onnx", net.node("STFT", "y", "x", "step", window, "length"), list(shape))
    held = {"x": random.standard_normal((1, 2000, 1)).astype(np.float32)}
    tap = Tap(0, "y", ("y",), "y", "y", "kernel", shape, (Source("x", "x", FP32),), FP32, FP32, 1, 1, FP32, False)
    (expected,) = Reference(path, ()).expected([tap], held, {})
    cut = np.stack([held["x"][0, 160 * at : 160 * at + length, 0] for at in range(frames)])
    spectrum = np.fft.rfft(cut * np.hanning(length).astype(np.float32))
    made = np.stack([spectrum.real, spectrum.imag], -1)[None].astype(np.float32)
    assert judge(made, expected.tensor, expected.variance, FP32, expected.relative).used < 1
    wrong = made * np.float32(1 + 3e-4)
    assert judge(wrong, expected.tensor, expected.variance, FP32, expected.relative).used > 1


def test_a_gate_takes_a_variance_that_comes_out_below_0() -> None:
    """NF-RegNet standardises its weights: the variance of a product is a difference there."""
    emit = Emitter(17, "v")
    node = helper.make_node("Sigmoid", ["x"], ["y"])
    emit.nodes.append(node)
    variance = RULES["Sigmoid"](Work(emit, node, ["x"], ["z"], ["y"], [False], OF_CONSTANTS, []))
    assert variance is not None
    graph = emit.graph("rule")
    graph.input.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xz")
    graph.output.append(helper.make_tensor_value_info(variance, TensorProto.FLOAT, [4]))
    found = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    (made,) = found.run(None, {"x": np.arange(4, dtype=np.float32), "z": np.full(4, -1e-3, np.float32)})
    assert (made > 0).all()


@pytest.mark.parametrize("chaotic", [False, True])
def test_a_recurrent_layer_that_makes_of_a_rounding_all_that_it_holds_cannot_be_judged(
    chaotic: bool, tmp_path: Path
) -> None:
    """A speaker's embedder with noise for speech: 80 steps, and two right engines have nothing in common in the end."""
    steps, units, random = 80, 48, np.random.default_rng(2)
    net = Net([steps, 1, units])
    weights = net.constant("w", random.normal(size=(1, units, units)) / 8)
    states = net.constant("r", random.normal(size=(1, units, units)) * (1.0 if chaotic else 0.05))
    path = net.saved(tmp_path / "net.onnx", net.node("RNN", "y", "x", weights, states, hidden_size=units),
                     [steps, 1, 1, units])  # fmt: skip
    x = random.normal(size=(steps, 1, units)).astype(np.float32)
    shape = (steps, 1, 1, units)
    wanted = Tap(0, "y", ("y",), "y", "y", "kernel", shape, (Source("x", "x", FP32),), FP32, FP32, 1, 1, FP32, False)
    reference = Reference(path, ())
    (expected,) = reference.expected([wanted], {"x": x}, {})
    other = reference.outputs({"x": (x * (1 + 1e-7 * random.normal(size=x.shape))).astype(np.float32)})["y"]
    found = judge(other, expected.tensor, expected.variance, FP32, expected.relative)
    assert found.tells is not chaotic
    assert found.used <= 1


@pytest.mark.parametrize(("wrong", "used"), [(0.0, False), (2.0**-7, True)])
def test_what_two_axes_are_resized_behind_each_other_is_stored_between_them(
    wrong: float, used: bool, tmp_path: Path
) -> None:
    """Rows that are nearly opposite cancel where half of each is taken: what is stored of them does not."""
    half = DType.F16
    random = np.random.RandomState(0)
    rows = (1 + random.random_sample((1, 1, 1, 64))).astype(np.float16)
    x = np.concatenate([rows, -rows * np.float16(1.01), rows, -rows], axis=2).astype(np.float32)
    net = Net([1, 1, 4, 64])
    scales = net.constant("scales", np.asarray([1, 1, 2, 1.5], np.float32))
    made = net.node("Resize", "y", "x", "", scales, mode="linear", coordinate_transformation_mode="asymmetric")
    path = net.saved(tmp_path / "net.onnx", made, [1, 1, 8, 96])
    tap = Tap(
        0, "y", ("y",), "y", "y", "kernel", (1, 1, 8, 96), (Source("x", "x", half),), half, half, 2, 1, half, False
    )
    (expected,) = Reference(path, ()).expected([tap], {"x": x}, {})
    places = np.minimum(np.arange(96) / 1.5, 63)
    between = np.stack([np.interp(places, np.arange(64), row) for row in x[0, 0]]).astype(np.float16)
    places = np.minimum(np.arange(8) / 2, 3)
    y = np.stack([np.interp(places, np.arange(4), between[:, k].astype(np.float32)) for k in range(96)], axis=1)
    y = (y + wrong).astype(np.float16).astype(np.float32)[None, None]
    found = judge(y, expected.tensor, expected.variance, half, expected.relative)
    assert (found.used > 1) is used
