"""Right engines pass: what models compute of constants, outputs that are constants, tensors without axes, and outputs
of one number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from fault_table import planned_engine
from onnx import TensorProto, helper, numpy_helper
from planned_engine import Change, Executed, PlannedModel

from bolt_build.graph.ir import Array
from bolt_build.schema.recipe import VerifySpec
from bolt_build.verify import VerifyReport
from bolt_build.verify.engine import verify_model

SPEC = VerifySpec("onnxruntime", samples=2, seed=5)


class Net:
    """A model of single-output nodes that are called what they make. Its input is `x`."""

    def __init__(self) -> None:
        self.random = np.random.RandomState(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.outputs: list[str] = []

    def constant(self, name: str, array: Array) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, name: str, *shape: int) -> str:
        return self.constant(name, self.random.standard_normal(shape).astype(np.float32))

    def node(self, op: str, name: str, *inputs: str, **attributes: int | list[int]) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def saved(self, path: Path, shape: list[int | str]) -> Path:
        ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        known = {each.name: (each.data_type, list(each.dims)) for each in self.constants}
        graph = helper.make_graph(self.nodes, "net", ports, [], self.constants)
        for name in self.outputs:
            kind, dims = known.get(name, (TensorProto.FLOAT, None))
            graph.output.append(helper.make_tensor_value_info(name, kind, dims))
        onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)
        return path


def position_bias(path: Path) -> Path:
    """Swin V2: biases of pairs of positions come of their distances, through two products of constants."""
    net = Net()
    hidden = net.node(
        "Relu", "hidden", net.node("MatMul", "first", net.weight("distances", 49, 2), net.weight("u", 2, 512))
    )
    table = net.node("MatMul", "table", hidden, net.weight("v", 512, 4))
    halves = ["one", "two"]
    net.nodes.append(helper.make_node("Split", [table], halves, name="split", axis=1))
    table = net.node("Concat", "joined", *halves, axis=1)
    pairs = net.node("Gather", "pairs", table, net.constant("index", net.random.randint(0, 49, 256)), axis=0)
    square = net.node("Reshape", "square", pairs, net.constant("shape", np.asarray([16, 16, 4])))
    net.outputs = [net.node("Add", "biased", "x", net.node("Transpose", "bias", square, perm=[2, 0, 1]))]
    return net.saved(path, ["N", 4, 16, 16])


def computed_output(path: Path) -> Path:
    """What a convolution makes of a constant is an output by itself, and multiplied."""
    net = Net()
    made = net.node("Conv", "made", net.weight("image", 1, 8, 8, 8), net.weight("w", 8, 8, 3, 3), pads=[1, 1, 1, 1])
    net.outputs = [net.node("Mul", "scaled", "x", made), made]
    return net.saved(path, ["N", 8, 8, 8])


def turned(path: Path) -> Path:
    """Rotary positions: the cosine of products of whole numbers, which are cast."""
    net = Net()
    places = net.node("Cast", "places", net.constant("place", np.arange(5000, 5064)[:, None]), to=TensorProto.FLOAT)
    angles = net.node(
        "MatMul",
        "angles",
        places,
        net.constant("rates", np.float32(1e4) ** -np.linspace(0, 1, 16, dtype=np.float32)[None]),
    )
    net.outputs = [net.node("Mul", "turned", "x", net.node("Cos", "cosines", angles))]
    return net.saved(path, ["N", 64, 16])


def normalised_weights(path: Path) -> Path:
    """Weights of a direction and a length, and a bias that is a product."""
    net = Net()
    direction = net.weight("direction", 4, 3, 3, 3)
    squares = net.node(
        "ReduceSum",
        "squares",
        net.node("Mul", "square", direction, direction),
        net.constant("axes", np.asarray([1, 2, 3])),
    )
    unit = net.node("Div", "unit", direction, net.node("Sqrt", "length", squares))
    bias = net.node("MatMul", "product", net.weight("a", 4, 3000), net.weight("b", 3000, 1))
    flat = net.node("Reshape", "flat", bias, net.constant("shape", np.asarray([4])))
    net.outputs = [net.node("Conv", "conv", "x", net.node("Mul", "scaled", unit, net.weight("gain", 4, 1, 1, 1)), flat)]
    return net.saved(path, ["N", 3, 8, 8])


def constant_outputs(path: Path) -> Path:
    """Initializers that are outputs, of several types, one of them read as well."""
    net = Net()
    net.outputs = [net.node("Mul", "scaled", "x", net.weight("scale", 4))]
    net.outputs += ["scale", net.constant("classes", np.arange(3)), net.constant("known", np.asarray([True, False]))]
    return net.saved(path, ["N", 4])


def without_axes(path: Path) -> Path:
    """A mean of all, read and given out."""
    net = Net()
    mean = net.node("ReduceMean", "mean", net.node("Relu", "relu", "x"), keepdims=0)
    net.outputs = [net.node("Sub", "below", "x", mean), mean]
    return net.saved(path, ["N", 4, 5])


NETS = (position_bias, computed_output, turned, normalised_weights, constant_outputs, without_axes)


def verified(path: Path, change: tuple[str, Change] | None = None) -> VerifyReport:
    engine = planned_engine(path, "host", "fp32")
    (plan,) = engine.planned.plan.plans
    changes = {} if change is None else {s.index: change[1] for s in plan.steps if s.outputs[0].onnx == change[0]}
    assert change is None or changes
    return verify_model(PlannedModel(engine.planned, changes), engine.reference, engine.planned.plan, SPEC)


@pytest.mark.parametrize("net", NETS, ids=lambda net: net.__name__)
def test_a_right_engine_passes(net: Callable[[Path], Path], tmp_path: Path) -> None:
    report = verified(net(tmp_path / "net.onnx"))
    assert report.ok, [problem.message for problem in report.problems]


@pytest.mark.parametrize(
    ("net", "layer"),
    [
        (position_bias, "biased"),
        (computed_output, "scaled"),
        (turned, "turned"),
        (normalised_weights, "conv"),
        (constant_outputs, "scale"),
        (without_axes, "mean"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_layer_that_is_off_by_a_hundredth_is_found(net: Callable[[Path], Path], layer: str, tmp_path: Path) -> None:
    def off(done: Executed) -> Array:
        return np.asarray(done.result * np.float32(1.01))

    report = verified(net(tmp_path / "net.onnx"), (layer, off))
    assert not report.ok
    assert [each.tensor for each in report.batches[0].layers if not each.ok] == [layer]
