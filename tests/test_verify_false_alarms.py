"""Networks that once failed although the engine was right: each at its smallest, with an engine that computes in fp32
in another order of sums than the reference, and with one that is wrong in the very layer that was blamed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from fake_engine import FakeModel, Fault, plan_of
from onnx import TensorProto, helper, numpy_helper

from bolt_build.graph.ir import Array, Node
from bolt_build.graph.onnx_import import load_model
from bolt_build.schema.recipe import VerifySpec
from bolt_build.verify import LayerReport, Tolerances, VerifyReport
from bolt_build.verify.engine import verify_model
from bolt_build.verify.reference import Reference
from bolt_build.verify.tolerance import BY_ROUNDING

SPEC = VerifySpec("onnxruntime", samples=2, seed=3)


class Net:
    """A model of single-output nodes that are called what they make."""

    def __init__(self, shape: list[int | str]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.shape = shape

    def constant(self, name: str, array: Array) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def pads(self, entries: list[int]) -> str:
        self.constants.append(numpy_helper.from_array(np.array(entries), "pads"))
        return "pads"

    def node(self, op: str, name: str, *inputs: str, **attributes: int | float | list[int]) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def saved(self, path: Path, output: str, shape: list[int | str]) -> Path:
        info = helper.make_tensor_value_info
        ports = [info("x", TensorProto.FLOAT, self.shape)], [info(output, TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self.nodes, "net", *ports, self.constants)
        onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)
        return path


def normalized(net: Net, x: str, name: str) -> str:
    """Layer normalisation over the last axis, in the operators that exporters write."""
    mean = net.node("ReduceMean", f"{name}/mean", x, axes=[-1])
    below = net.node("Sub", f"{name}/sub", x, mean)
    square = net.node("Mul", f"{name}/square", below, below)
    variance = net.node("ReduceMean", f"{name}/variance", square, axes=[-1])
    shifted = net.node("Add", f"{name}/shift", variance, net.constant(f"{name}.epsilon", np.float32(1e-6)))
    return net.node("Div", f"{name}/out", below, net.node("Sqrt", f"{name}/root", shifted))


def cancelling_means(path: Path) -> Path:
    """ConvNeXt: what was normalised is normalised again, and its mean is nothing but rounding. Then enough layers for
    that one to be few."""
    random = np.random.RandomState(0)
    net = Net(["N", 16, 96])
    x = normalized(net, "x", "first")
    weight = net.constant("layer.w", 1e-9 * random.standard_normal((96, 96)))
    x = net.node("Add", "scaled", x, net.node("MatMul", "layer", x, weight))
    x = normalized(net, x, "second")
    for index in range(50):
        weight = net.constant(f"w{index}", random.standard_normal((96, 96)) / np.sqrt(96))
        x = net.node("MatMul", f"dense{index}", x, weight)
    return net.saved(path, x, ["N", 16, 96])


def sure_attention(path: Path) -> Path:
    """LeViT: attention with logits in the thousands, whose own rounding in fp32 is far above that of the softmax."""
    random = np.random.RandomState(1)
    net = Net(["N", 24, 32])
    x = "x"
    for block in range(4):
        name = f"block{block}"
        parts = [
            net.node(
                "MatMul", f"{name}/{part}", x, net.constant(f"{name}.{part}", 4 * random.standard_normal((32, 32)))
            )
            for part in ("q", "k", "v")
        ]
        turned = net.node("Transpose", f"{name}/turn", parts[1], perm=[0, 2, 1])
        logits = net.node("MatMul", f"{name}/logits", parts[0], turned)
        attention = net.node("Softmax", f"{name}/softmax", logits, axis=-1)
        x = net.node("MatMul", f"{name}/out", attention, parts[2])
    return net.saved(path, x, ["N", 24, 32])


def chaotic(path: Path) -> Path:
    """A network that enlarges what rounding does in every layer, until it is as large as the output."""
    random = np.random.RandomState(4)
    net = Net(["N", 64])
    x = "x"
    for index in range(16):
        x = net.node("MatMul", f"dense{index}", x, net.constant(f"w{index}", random.standard_normal((64, 64))))
        x = net.node("Tanh", f"tanh{index}", x)
    return net.saved(path, x, ["N", 64])


def squeezed(path: Path) -> Path:
    """EfficientNetV2: gates from means over positions that nearly cancel, around which activations are large."""
    random = np.random.RandomState(2)
    net = Net(["N", 8, 16, 16])
    x = "x"
    for block in range(4):
        name = f"block{block}"
        weight = net.constant(f"{name}.w", random.standard_normal((8, 1, 3, 3)))
        y = net.node("Conv", f"{name}/depthwise", x, weight, pads=[1, 1, 1, 1], group=8)
        mean = net.node("GlobalAveragePool", f"{name}/mean", y)
        down = net.node(
            "Conv", f"{name}/down", mean, net.constant(f"{name}.d", 3 * random.standard_normal((2, 8, 1, 1)))
        )
        down = net.node("Mul", f"{name}/silu", down, net.node("Sigmoid", f"{name}/sigmoid", down))
        up = net.node("Conv", f"{name}/up", down, net.constant(f"{name}.u", 3 * random.standard_normal((8, 2, 1, 1))))
        gate = net.node("Sigmoid", f"{name}/gate", up)
        x = net.node("Add", f"{name}/out", net.node("Mul", f"{name}/gated", y, gate), x)
    return net.saved(path, x, ["N", 8, 16, 16])


def masked(path: Path, lowest: float) -> Path:
    """Llama and T5: attention of which a causal mask, infinite or the least number, leaves what came before."""
    random = np.random.RandomState(5)
    net = Net(["N", 24, 32])
    mask = net.constant("mask", np.where(np.tri(24) == 1, 0.0, lowest))
    x = "x"
    for block in range(3):
        name = f"block{block}"
        weights = [net.constant(f"{name}.{p}", random.standard_normal((32, 32)) / np.sqrt(32)) for p in "qkv"]
        q, k, v = (net.node("MatMul", f"{name}/{part}", x, w) for part, w in zip("qkv", weights, strict=True))
        logits = net.node("MatMul", f"{name}/logits", q, net.node("Transpose", f"{name}/turn", k, perm=[0, 2, 1]))
        logits = net.node("Add", f"{name}/masked", logits, mask)
        attention = net.node("Softmax", f"{name}/softmax", logits, axis=-1)
        x = net.node("Add", f"{name}/out", x, net.node("MatMul", f"{name}/mix", attention, v))
    return net.saved(path, x, ["N", 24, 32])


def half_padded(path: Path) -> Path:
    """Video Swin: rows of which padding makes three quarters 0 are normalised, which onnxruntime's kernel in fp32 does
    less exactly than engines."""
    random = np.random.RandomState(6)
    net = Net(["N", 40, 384])
    padded = net.node("Pad", "pad", "x", net.pads([0, 0, 0, 0, 0, 1152]))
    scale = net.constant("scale", random.standard_normal(1536))
    x = net.node("LayerNormalization", "norm", padded, scale, net.constant("shift", np.zeros(1536)))
    weight = net.constant("w", random.standard_normal((1536, 64)) / np.sqrt(1536))
    return net.saved(path, net.node("MatMul", "dense", x, weight), ["N", 40, 64])


def alike(path: Path) -> Path:
    """Channels whose elements are all the same, far from zero: onnxruntime takes their norms as differences of large
    products."""
    random = np.random.RandomState(7)
    net = Net(["N", 4, 6, 8])
    least = net.constant("least", 500 + 50 * random.standard_normal((4, 1, 1)))
    same = net.node("Max", "same", "x", least)
    factors = net.constant("scale", random.standard_normal(4)), net.constant("shift", random.standard_normal(4))
    x = net.node("InstanceNormalization", "norm", same, *factors, epsilon=1e-3)
    weight = net.constant("w", random.standard_normal((8, 8)) / np.sqrt(8))
    return net.saved(path, net.node("MatMul", "dense", x, weight), ["N", 4, 6, 8])


def places_alone(path: Path) -> Path:
    """TopK of which only the places are read: onnxruntime takes no TopK of one output."""
    random = np.random.RandomState(8)
    net = Net(["N", 12, 32])
    x = net.node("MatMul", "first", "x", net.constant("v", random.standard_normal((32, 32)) / np.sqrt(32)))
    net.constants.append(numpy_helper.from_array(np.asarray([4]), "count"))
    net.nodes.append(helper.make_node("TopK", [x, "count"], ["values", "places"], name="top", axis=-1))
    x = net.node("Cast", "numbers", "places", to=TensorProto.FLOAT)
    weight = net.constant("w", random.standard_normal((4, 8)))
    return net.saved(path, net.node("MatMul", "dense", x, weight), ["N", 12, 8])


def resized(path: Path) -> Path:
    """CrossViT: images made smaller by a factor that is no whole number; onnxruntime takes places in fp32."""
    net = Net(["N", 3, 240, 240])
    net.constants.append(numpy_helper.from_array(np.asarray([1, 1, 224 / 240, 224 / 240], np.float32), "scales"))
    net.nodes.append(helper.make_node("Resize", ["x", "", "scales"], ["smaller"], name="smaller", mode="cubic"))
    weight = net.constant("w", np.random.RandomState(9).standard_normal((4, 3, 16, 16)))
    return net.saved(path, net.node("Conv", "patches", "smaller", weight, strides=[16, 16]), ["N", 4, 14, 14])


NETS: dict[str, Callable[[Path], Path]] = {
    "means": cancelling_means,
    "attention": sure_attention,
    "gates": squeezed,
    "chaos": chaotic,
    "padding": half_padded,
    "places": places_alone,
    "resized": resized,
    "infinite mask": lambda path: masked(path, -np.inf),
    "finite mask": lambda path: masked(path, float(np.finfo(np.float32).min)),
}


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
