"""What trained weights do that drawn ones do not: sums that cancel, results next to zero, outputs that are decided."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from alarm_networks import Net
from fault_table import planned_engine
from onnx import numpy_helper

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array
from bolt_build.sizes import Sizes
from bolt_build.verify.judgement import Judgement, judge
from bolt_build.verify.models.piece import Care
from bolt_build.verify.outputs import OutputLimits, compare_output
from bolt_build.verify.problems import layer_problems
from bolt_build.verify.reference import Reference
from bolt_build.verify.report import LayerReport
from bolt_build.verify.sensitivity import Growth, Share, amplification
from bolt_build.verify.taps import Source, Tap, taps_of

FP32 = DType.F32
RANDOM = np.random.RandomState(0)


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """Whatever ran before in this process, a test draws the same numbers."""
    RANDOM.seed(0)


def judged(net: Net, path: Path, y: str, x: Array, made: Array, care: Care = Care.FIRST_ROWS) -> Judgement:
    """What an engine made of x in one step, beside the network."""
    path = net.saved(path, y, list(made.shape))
    held, shape = {"x": x.astype(np.float32)}, made.shape
    tap = Tap(0, y, (y,), y, y, "kernel", shape, (Source("x", "x", FP32),), FP32, FP32, 1, 1, FP32, False)
    (found,) = Reference(path, ()).expected([tap], held, {}, care)
    return judge(made.astype(np.float32), found.tensor, found.variance, FP32, found.relative)


def summed(x: Array, weight: Array, begin: Array | float = 0.0) -> Array:
    """x @ weight, begun with `begin`, in fp32 from the first to the last."""
    total = np.zeros((len(x), weight.shape[1]), np.float32) + np.float32(begin)
    for k in range(len(weight)):
        total = (total + x[:, k : k + 1].astype(np.float32) * weight[k].astype(np.float32)).astype(np.float32)
    return total


@pytest.mark.parametrize(("wrong", "found"), [(0.0, False), (3e-4, True)])
def test_a_sum_that_a_bias_cancels_is_off_as_the_sum_is(wrong: float, found: bool, tmp_path: Path) -> None:
    x, weight = 1 + RANDOM.random_sample((16, 512)), RANDOM.random_sample((512, 8)) / 512
    bias = -(x @ weight).mean(axis=0)
    net = Net([16, 512])
    product = net.node("MatMul", "product", "x", net.constant("w", weight))
    y = net.node("Add", "y", product, net.constant("b", bias))
    total = summed(x, weight) + bias.astype(np.float32)
    assert (judged(net, tmp_path / "net.onnx", y, x, total * np.float32(1 + wrong)).used > 1) is found


@pytest.mark.parametrize(("wrong", "found"), [(0.0, False), (1e-3, True)])
def test_a_shift_that_is_moved_behind_a_product_leaves_sums_that_it_cancels(
    wrong: float, found: bool, tmp_path: Path
) -> None:
    """The learnable scales and shifts of PP-OCR: (s x + t) W is s x W + t W, whose terms are much larger."""
    x, weight = -0.25 + 0.01 * RANDOM.standard_normal((16, 384)), RANDOM.standard_normal((384, 8)) / 20
    scale, shift = np.float32(4.5), np.float32(1.125)
    net = Net([16, 384])
    scaled = net.node("Mul", "scaled", "x", net.constant("s", scale))
    moved = net.node("Add", "moved", scaled, net.constant("t", shift))
    y = net.node("MatMul", "y", moved, net.constant("w", weight))
    total = summed(x, scale * weight, shift * weight.sum(axis=0))
    assert (judged(net, tmp_path / "net.onnx", y, x, total * np.float32(1 + wrong)).used > 1) is found


@pytest.mark.parametrize(("shift", "found"), [(0, False), (1, True)])
def test_a_transposed_convolution_is_off_as_its_sums_are(shift: int, found: bool, tmp_path: Path) -> None:
    x, weight = RANDOM.standard_normal((2, 256, 9)), RANDOM.standard_normal((256, 4, 8)) / 32
    bias = 10 * RANDOM.standard_normal(4)
    total = np.zeros((2, 4, 9 * 4 + 4), np.float32) + bias.astype(np.float32)[:, None]
    for k in range(256):
        for at in range(9):
            part = x[:, k, None, at, None].astype(np.float32) * weight[k].astype(np.float32)
            total[:, :, 4 * at : 4 * at + 8] += part
    net = Net([2, 256, 9])
    names = net.constant("w", weight), net.constant("b", bias)
    made = net.node("ConvTranspose", "made", "x", *names, kernel_shape=[8], strides=[4])
    y = net.node("LeakyRelu", "y", made, alpha=0.125)
    total = np.roll(np.where(total > 0, total, total / 8), shift, axis=2)
    assert (judged(net, tmp_path / "net.onnx", y, x, total).used > 1) is found


@pytest.mark.parametrize(("wrong", "found"), [(0.0, False), (1e-4, True)])
def test_what_a_sigmoid_nearly_shuts_is_judged_by_its_own_size(wrong: float, found: bool, tmp_path: Path) -> None:
    """A text detector that sees no text answers 1e-7. onnxruntime's Sigmoid is off by as much."""
    x = np.linspace(-40, -14, 96).reshape(4, 24)
    net = Net([4, 24])
    y = net.node("Sigmoid", "y", "x")
    made = judged(net, tmp_path / "net.onnx", y, x, (1 + wrong) / (1 + np.exp(-x.astype(np.float32).astype(float))))
    assert made.tells
    assert (made.used > 1) is found


def test_outputs_of_a_sigmoid_that_is_nearly_shut_are_those_of_its_definition(tmp_path: Path) -> None:
    x = np.linspace(-60, 20, 96).astype(np.float32).reshape(4, 24)
    net = Net([4, 24])
    path = net.saved(tmp_path / "net.onnx", net.node("Sigmoid", "y", "x"), [4, 24])
    (y,) = Reference(path, ()).outputs({"x": x}).values()
    np.testing.assert_allclose(y, 1 / (1 + np.exp(-x.astype(float))), rtol=1e-6)


@pytest.mark.parametrize(("wrong", "found"), [(0.0, False), (1e-3, True)])
def test_a_gate_that_lets_little_through_is_off_as_the_sum_in_front_of_it(
    wrong: float, found: bool, tmp_path: Path
) -> None:
    x, weight = 1 + RANDOM.random_sample((64, 1024)), -RANDOM.random_sample((1024, 8)) / 150
    net = Net([64, 1024])
    z = net.node("MatMul", "z", "x", net.constant("w", weight))
    y = net.node("Mul", "y", z, net.node("Sigmoid", "gate", z))
    total = summed(x, weight).astype(float)
    made = total / (1 + np.exp(-total)) * (1 + wrong)
    assert (judged(net, tmp_path / "net.onnx", y, x, made).used > 1) is found


@pytest.mark.parametrize(("wrong", "found"), [(0.0, False), (0.03, True)])
@pytest.mark.parametrize("window", [False, True])
def test_branches_that_cancel_are_seen_where_a_layer_would_depart(
    window: bool, wrong: float, found: bool, tmp_path: Path
) -> None:
    """The first half of the channels, or of a window, comes to what the second does, but for its sign."""
    x = 1 + 0.001 * RANDOM.standard_normal((16, 1024))
    weight = np.repeat([[1.0], [-1.0]], 512, axis=0) * (1 + 0.001 * RANDOM.standard_normal((1024, 8)))
    total = summed(x, weight) * np.float32(1 + wrong)
    net = Net([16, 4, 16, 16] if window else [16, 1024])
    if window:  # place by place, and the four channels of each place
        x = x.reshape(16, 16, 16, 4).transpose(0, 3, 1, 2)
        filters = weight.T.reshape(8, 16, 16, 4).transpose(0, 3, 1, 2)
        y, total = net.node("Conv", "y", "x", net.constant("w", filters)), total[:, :, None, None]
    else:
        y = net.node("MatMul", "y", "x", net.constant("w", weight))
    assert judged(net, tmp_path / "net.onnx", y, x, total).used > 1
    assert (judged(net, tmp_path / "net.onnx", y, x, total, Care.EVERY_ROW).used > 1) is found


MASKS = {"infinite": -np.inf, "least": np.finfo(np.float32).min}


@pytest.mark.parametrize("mask", MASKS)
def test_what_a_model_masks_in_an_output_is_right_and_hides_nothing_else(mask: str) -> None:
    """Logits of classes that are left out."""
    expected = RANDOM.standard_normal((2, 50)).astype(np.float32)
    expected[:, ::3] = MASKS[mask]
    result = expected.copy()
    limits = OutputLimits(4, Growth(rms=1.0, element=1.0), FP32)
    report, reasons = compare_output("logits", 2, limits, [result], [expected])
    assert (report.ok, report.reference_not_finite, reasons) == (True, 0, ())
    result[1, 1] += 0.01
    assert not compare_output("logits", 2, limits, [result], [expected])[0].ok
    unmasked = expected.copy()
    unmasked[1, 3] = 0.0
    assert not compare_output("logits", 2, limits, [unmasked], [expected])[0].ok
    assert not compare_output("logits", 2, limits, [expected], [unmasked])[0].ok


@pytest.mark.parametrize(("stored", "right"), [(DType.F32, False), (DType.F16, True)])
def test_a_mask_is_the_same_number_or_beyond_what_half_precision_holds(stored: DType, right: bool) -> None:
    expected = RANDOM.standard_normal((2, 50)).astype(np.float32)
    expected[:, ::3] = -1e31
    result = expected.copy()
    result[:, ::3] = -np.inf
    limits = OutputLimits(4, Growth(rms=1.0, element=1.0), stored)
    assert compare_output("logits", 2, limits, [result], [expected])[0].ok is right


def test_an_output_that_is_masked_wholly_says_nothing() -> None:
    masked = np.full((2, 50), -np.inf, np.float32)
    report, reasons = compare_output("logits", 2, OutputLimits(4, Growth(), FP32), [masked], [masked])
    assert (report.ok, reasons) == (False, ("the model itself answers NaN or infinity (100 elements)",))


@pytest.mark.parametrize(("flips", "right"), [(2, True), (200, False)])
def test_a_decided_output_may_change_wholly_where_rounding_decides_it(flips: int, right: bool) -> None:
    """A mask of 0 and 1: a few logits lie at its threshold, and the change of an input flips one too."""
    expected = (RANDOM.random_sample((1, 1000)) > 0.5).astype(np.float32)
    result = expected.copy()
    result[0, :flips] = 1 - result[0, :flips]
    limits = OutputLimits(16, Growth(rms=5.0, element=200.0), DType.BF16)
    report, reasons = compare_output("mask", 1, limits, [result], [expected])
    assert (report.ok, not reasons) == (right, right)
    steady = replace(limits, growth=Growth(rms=1.0, element=4.0))
    assert not compare_output("mask", 1, steady, [result], [expected])[0].ok


ADVICE = {
    "f32": "either the kernel is wrong, or a rounding is not counted: report it with the model; "
    "where so much does no harm, the recipe may say "
    'layers: {"a/conv": {tolerance: 3e-05}}',
    "bf16": "'bolt-build verify RECIPE --widen' says whether rounding explains it, and which layers to keep in fp32; "
    "where it does not, the kernel is wrong: report it with the model",
}


@pytest.mark.parametrize("precision", ADVICE)
def test_a_layer_that_departs_says_what_to_do(precision: str) -> None:
    layer = LayerReport(
        step=3, name="a/conv", tensor="y", kernel="direct", shape=(2, 8), reference_shape=(2, 8), precision=precision,
        max_abs=4e-5, signal=2.0, noise=1e-6, largest=20.0, limit=9.0, spread=1.0, error=2e-5, tolerance=None,
        not_finite=0, reference_not_finite=0, tells=True, ok=False,
    )  # fmt: skip
    (problem,) = layer_problems(Sizes(2), (), (layer,))
    assert problem.hint == ADVICE[precision]


@pytest.mark.parametrize(("changed", "right"), [(0.0, False), (0.01, True)])
def test_whole_numbers_that_rounding_decides_are_judged_by_their_layers(changed: float, right: bool) -> None:
    """Places of scores that are nearly equal."""
    expected = np.arange(100).reshape(1, 100)
    result = expected.copy()
    result[0, [4, 5]] = expected[0, [5, 4]]
    limits = OutputLimits(4, Growth(changed=changed), FP32)
    report, reasons = compare_output("places", 1, limits, [result], [expected])
    assert (report.ok, report.tells, not reasons) == (right, not right, right)


@pytest.mark.parametrize(("turned", "right"), [(0.0, False), (0.02, True)])
def test_a_row_may_turn_as_far_as_rounding_was_seen_to_turn_one(turned: float, right: bool) -> None:
    expected = RANDOM.standard_normal((2, 50)) * np.array([[100.0], [1.0]])
    result = expected.copy()
    result[1, 0] += 1.5
    limits = OutputLimits(4, Growth(turned=turned), DType.BF16)
    assert compare_output("y", 2, limits, [result], [expected])[0].ok is right


def test_an_output_is_stored_as_large_as_it_is_however_little_it_deviates(tmp_path: Path) -> None:
    """Distances of 20 and a little. A deviation below a hundredth of the largest would count as that."""
    net = Net([1, 64])
    path = net.saved(tmp_path / "net.onnx", net.node("Add", "y", "x", net.constant("far", np.float32(20))), [1, 64])
    x = RANDOM.standard_normal((1, 64)).astype(np.float32)
    reference = Reference(path, ())
    before = reference.outputs({"x": x})
    (grown,) = amplification(reference, {"x": x}, before, DType.BF16, Share(1, 0, 1), 0).values()
    assert grown.rms == pytest.approx(20 / x.std(), rel=0.1)


@pytest.mark.parametrize(("wrong", "found"), [(0.0, False), (0.01, True)])
def test_a_plane_far_from_zero_is_normalised_as_its_mean_is_rounded(wrong: float, found: bool, tmp_path: Path) -> None:
    x = (2000 + RANDOM.standard_normal((2, 4, 20, 20))).astype(np.float32)
    net = Net([2, 4, 20, 20])
    constants = net.constant("scale", np.ones(4)), net.constant("bias", np.zeros(4))
    y = net.node("InstanceNormalization", "y", "x", *constants, epsilon=1e-5)
    rows = x.reshape(8, 400)
    mean = (summed(rows, np.ones((400, 1))) / np.float32(400)).astype(np.float32)
    below = rows - mean
    made = (below / np.sqrt((below**2).mean(axis=1, keepdims=True) + 1e-5)).reshape(x.shape) + wrong
    assert (judged(net, tmp_path / "net.onnx", y, x, made).used > 1) is found


def test_a_recurrence_behind_another_is_judged_by_what_a_view_shows_of_that(tmp_path: Path) -> None:
    """What kernels of recurrences leave has no name in the model."""
    net, x = Net([5, 2, 8]), "x"
    for at in ("first", "second"):
        weights = (net.constant(f"{at}.{part}", RANDOM.standard_normal((1, 8, 8))) for part in "wr")
        made = net.node("RNN", f"{at}/y", x, *weights, hidden_size=8)
        turned = net.node("Transpose", f"{at}/turned", made, perm=[0, 2, 1, 3])
        net.constants.append(numpy_helper.from_array(np.array([0, 0, 8]), f"{at}.shape"))
        x = net.node("Reshape", f"{at}/rows", turned, f"{at}.shape")
    path = net.saved(tmp_path / "net.onnx", net.node("Relu", "relu", x), [5, 2, 8])
    plan = planned_engine(path, "host", "fp32", batch=5).plan
    (relu,) = (tap for tap in taps_of(plan) if tap.tensor == "relu")
    (shown,) = (tap for tap in taps_of(plan) if tap.tensor == relu.sources[0].tensor)
    assert shown.view
    assert shown.tensor.startswith("second/")
    assert [source.tensor.partition("/")[0] for source in shown.sources] == ["first"]
