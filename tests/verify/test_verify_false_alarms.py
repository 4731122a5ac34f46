"""Networks that once failed although the engine was right: each at its smallest, with an engine that computes in fp32
in another order of sums than the reference, and with one that is wrong in the very layer that was blamed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from alarm_networks import (
    NETS,
    Net,
    alike,
    cancelling_means,
    chaotic,
    half_padded,
    normalized,
    squeezed,
)
from fake_engine import FakeModel, Fault, plan_of

from bolt_build.graph.ir import Array, Node
from bolt_build.graph.onnx_import import load_model
from bolt_build.schema.recipe import VerifySpec
from bolt_build.verify import LayerReport, Tolerances, VerifyReport
from bolt_build.verify.engine import verify_model
from bolt_build.verify.reference import Reference
from bolt_build.verify.tolerance import BY_ROUNDING

SPEC = VerifySpec("onnxruntime", samples=2, seed=3)


def reversed_sums(node: Node, inputs: list[Array], output: Array) -> Array:
    """What the layer gives where every sum is taken in fp32 and from the other end."""
    if node.op.kind == "matmul":
        left, right = inputs[0].astype(np.float32), inputs[1].astype(np.float32)
        total = np.zeros(output.shape, np.float32)
        for k in reversed(range(left.shape[-1])):
            total += left[..., k : k + 1] * right[..., k : k + 1, :]
        return total
    if node.op.kind == "reduce" and output.shape[-1] == 1 and inputs[0].ndim == 3:
        total = np.zeros(output.shape, np.float32)
        for k in reversed(range(inputs[0].shape[-1])):
            total += inputs[0][..., k : k + 1]
        return total / np.float32(inputs[0].shape[-1])
    return output


def verified(
    path: Path, faults: dict[str, Fault] | None = None, tolerances: Tolerances = BY_ROUNDING, batch: int = 2
) -> VerifyReport:
    graph = load_model(path).bind(batch)
    engine = dict.fromkeys((node.name for node in graph.nodes), reversed_sums) | (faults or {})
    return verify_model(FakeModel((graph,), engine), Reference(path, ()), plan_of(graph), SPEC, tolerances)


def departed(report: VerifyReport) -> list[str]:
    return [layer.name for layer in report.batches[0].layers if not layer.ok]


def layer(report: VerifyReport, name: str) -> LayerReport:
    return next(layer for layer in report.batches[0].layers if layer.name == name)


@pytest.mark.parametrize("net", NETS)
def test_a_right_engine_passes(net: str, tmp_path: Path) -> None:
    report = verified(NETS[net](tmp_path / "net.onnx"))
    assert report.ok, [problem.message for problem in report.problems]
    assert departed(report) == []


@pytest.mark.parametrize(
    ("net", "name"),
    [
        ("means", "second/sub"),
        ("attention", "block3/softmax"),
        ("attention", "block3/out"),
        ("gates", "block2/gate"),
        ("chaos", "dense9"),
        ("padding", "norm"),
        ("resized", "smaller"),
        ("infinite mask", "block1/masked"),
        ("infinite mask", "block1/softmax"),
        ("finite mask", "block1/masked"),
        ("finite mask", "block2/softmax"),
    ],
)
def test_a_wrong_layer_of_the_same_network_is_found_and_alone(net: str, name: str, tmp_path: Path) -> None:
    def swapped(node: Node, inputs: list[Array], output: Array) -> Array:
        return output[:, ::-1]

    report = verified(NETS[net](tmp_path / "net.onnx"), {name: swapped})
    assert not report.ok
    assert departed(report) == [name]


def test_a_mean_of_nothing_but_rounding_is_counted_as_not_judged_and_named(tmp_path: Path) -> None:
    report = verified(cancelling_means(tmp_path / "net.onnx"))
    assert [layer.name for layer in report.batches[0].blind] == ["second/mean"]
    (problem,) = report.problems
    assert (problem.code, problem.severity) == ("layers-not-judged", "warning")
    assert problem.message == (
        "batch 2: rounding alone may make as much as the model does in 1 of 66 layers, which could not be judged: "
        "'second/mean'"
    )
    assert problem.hint == ("verify on real inputs ('verify.inputs'), or say what is right: 'tolerance' under 'layers'")


def test_a_mean_over_the_wrong_axis_is_found_although_the_right_one_is_rounding(tmp_path: Path) -> None:
    def wrong(node: Node, inputs: list[Array], output: Array) -> Array:
        return inputs[0].mean(axis=-2, keepdims=True)[..., :1] + np.zeros_like(output)

    assert departed(verified(cancelling_means(tmp_path / "net.onnx"), {"second/mean": wrong})) == ["second/mean"]


def test_outputs_that_rounding_decides_are_judged_by_their_layers(tmp_path: Path) -> None:
    report = verified(chaotic(tmp_path / "net.onnx"))
    assert report.ok
    (output,) = report.batches[0].outputs
    assert not output.tells
    assert output.amplification > 1e4
    (problem,) = report.problems
    assert (problem.code, problem.severity) == ("weak-check", "warning")
    assert "so that two right engines may differ by as much as the output itself" in problem.message
    assert layer(report, "tanh15").tells


def test_most_layers_of_a_network_must_be_judged(tmp_path: Path) -> None:
    net = Net(["N", 16, 96])
    x = normalized(net, "x", "first")
    for name in ("second", "third"):
        x = normalized(net, x, name)
    report = verified(net.saved(tmp_path / "net.onnx", x, ["N", 16, 96]))
    assert [problem.code for problem in report.problems if problem.severity == "error"] == ["layers-not-judged"]
    told = Tolerances(layers=(("*/mean", 100.0),))
    assert verified(tmp_path / "net.onnx", tolerances=told).problems == ()


def test_an_output_must_be_judged_by_itself_or_by_the_layer_that_makes_it(tmp_path: Path) -> None:
    net = Net(["N", 16, 96])
    mean = net.node("ReduceMean", "mean", normalized(net, "x", "first"), axes=[-1])
    report = verified(net.saved(tmp_path / "net.onnx", mean, ["N", 16, 1]))
    assert [layer.name for layer in report.batches[0].blind] == ["mean"]
    (problem,) = (problem for problem in report.problems if problem.severity == "error")
    assert (problem.code, problem.message, problem.hint) == (
        "output-not-judged",
        "batch 2, output 'mean': rounding alone may make as much as the model does",
        "verify on real inputs ('verify.inputs'), or say what is right: 'verify.tolerance'",
    )
    told = Tolerances(layers=(("mean", 100.0),))
    assert not any(problem.severity == "error" for problem in verified(tmp_path / "net.onnx", tolerances=told).problems)


class TestTolerances:
    """What the recipe says counts in place of rounding, and shows in the report."""

    @staticmethod
    def off(node: Node, inputs: list[Array], output: Array) -> Array:
        """Wrong by 1e-3 of the root mean square."""
        return output + np.float32(1e-3 * np.sqrt(np.mean(np.square(output))))

    def test_of_a_layer(self, tmp_path: Path) -> None:
        path = squeezed(tmp_path / "net.onnx")
        faults: dict[str, Fault] = {"block3/depthwise": self.off}
        assert departed(verified(path, faults)) == ["block3/depthwise"]
        told = Tolerances(layers=(("block3/*", 1e-5), ("*/depthwise", 5e-3)))
        found = layer(verified(path, faults, told), "block3/depthwise")
        assert (found.ok, found.tolerance) == (True, 5e-3)
        assert found.error == pytest.approx(1e-3, rel=1e-2)
        tighter = Tolerances(layers=(("block3/depthwise", 5e-4),))
        assert departed(verified(path, faults, tighter)) == ["block3/depthwise"]

    def test_of_everything_outputs_included(self, tmp_path: Path) -> None:
        path = squeezed(tmp_path / "net.onnx")
        faults: dict[str, Fault] = {"block3/out": self.off}
        report = verified(path, faults, Tolerances(2e-3))
        assert report.ok
        assert report.tolerance == 2e-3
        (output,) = report.batches[0].outputs
        assert output.allowed == output.tolerance == 2e-3
        strict = verified(path, faults, Tolerances(5e-4))
        assert departed(strict) == ["block3/out"]
        assert [problem.code for problem in strict.problems] == ["layer-departs", "output-departs"]


class TestAmplification:
    """Of a large batch a few rows are run once more; what a model makes of all rows together is no amplification."""

    def test_of_rows_that_do_not_pass_by_themselves(self, tmp_path: Path) -> None:
        net = Net(["N", 64])
        mean = net.node("ReduceMean", "mean", "x", axes=[0])
        path = net.saved(tmp_path / "net.onnx", net.node("Sub", "below", "x", mean), ["N", 64])
        (output,) = verified(path, batch=16).batches[0].outputs
        assert output.tells
        assert output.amplification < 10

    def test_of_a_model_that_takes_no_other_batch(self, tmp_path: Path) -> None:
        net = Net(["N", 64])
        shape = net.node("Constant", "shape", value_ints=[8, 128])
        x = net.node("Relu", "relu", net.node("Reshape", "pairs", "x", shape))
        back = net.node("Constant", "back", value_ints=[16, 64])
        path = net.saved(tmp_path / "net.onnx", net.node("Reshape", "y", x, back), ["N", 64])
        assert verified(path, batch=16).ok

    def test_is_the_most_of_all_samples(self, tmp_path: Path) -> None:
        """One sample in which a decision is torn is enough for the output not to tell."""
        net = Net(["N", 64])
        steep = net.node("Mul", "steep", "x", net.constant("far", np.float32(1e8)))
        path = net.saved(tmp_path / "net.onnx", net.node("Tanh", "y", steep), ["N", 64])
        images = np.ones((4, 64), np.float32)
        images[2] = 1e-9
        np.savez(tmp_path / "real.npz", x=images)
        graph = load_model(path).bind(1)
        spec = VerifySpec("onnxruntime", samples=4, seed=0, inputs=str(tmp_path / "real.npz"))
        images_report = verify_model(FakeModel((graph,), {}), Reference(path, ()), plan_of(graph), spec)
        assert images_report.batches[0].outputs[0].amplification > 0.5


def test_rows_that_are_partly_padding_are_normalised_exactly_by_the_reference(tmp_path: Path) -> None:
    """onnxruntime's kernel in fp32 is off by 5e-05 here."""
    assert layer(verified(half_padded(tmp_path / "net.onnx")), "norm").max_abs < 1e-6


def test_a_norm_of_elements_that_are_alike_does_not_depart(tmp_path: Path) -> None:
    """Its layers are judged by fp64. The outputs are onnxruntime's own."""
    path = alike(tmp_path / "net.onnx")
    assert departed(verified(path)) == []
    assert departed(verified(path, {"norm": lambda node, inputs, output: output[:, ::-1]})) == ["norm"]
