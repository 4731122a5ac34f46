"""Calibration gives any graph weights with which its outputs depend on its input, and leaves the graph alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from bolt_build.errors import BoltError
from bolt_build.graph.ir import Array
from bolt_build.graph.zoo.calibrate import calibrate
from bolt_build.graph.zoo.replace import replace_constants
from bolt_build.graph.zoo.samples import sample
from bolt_build.verify.compare import dependence

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def run(model: onnx.ModelProto, count: int = 4, *tensors: str) -> list[Array]:
    """Outputs (or `tensors`) for `count` different inputs, stacked."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    known = {output.name for output in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in tensors if name not in known)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (port,) = session.get_inputs()
    shape = tuple(extent if isinstance(extent, int) else 1 for extent in port.shape)
    feeds = [{port.name: sample(shape, 99, number)} for number in range(count)]
    runs = [session.run(list(tensors) or None, feed) for feed in feeds]
    return [np.stack(arrays) for arrays in zip(*runs, strict=True)]


def chain(*nodes: onnx.NodeProto, opset: int = 13, **weights: Array) -> onnx.ModelProto:
    """A model from x [N,3,32,32] through `nodes` to the last one's output."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        list(nodes), "chain", [info("x", TensorProto.FLOAT, ["N", 3, 32, 32])],
        [info(nodes[-1].output[0], TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)])


node = helper.make_node


def test_a_light_model_of_onnx_becomes_a_check() -> None:
    """Its weights all are 0.02, made by ConstantOfShape; it has groups. Three others become engines in
    acceptance/test_known_models.py, which asks them the same."""
    light = onnx.load(LIGHT / "light_shufflenet.onnx")
    model = calibrate(light, seed=1)
    kept = [n for n in light.graph.node if n.op_type != "ConstantOfShape"]
    assert list(model.graph.node) == kept
    assert list(model.graph.output) == list(light.graph.output)
    (before,), (after,) = run(light), run(model)
    cosines = dependence(before), dependence(after)
    assert cosines[0] is not None
    assert cosines[0] > 0.9999
    assert cosines[1] is not None
    assert cosines[1] < 0.99
    assert np.isfinite(after).all()


def test_a_graph_without_batch_norm_keeps_unit_variance_through_its_layers() -> None:
    nodes = []
    weights = {}
    x = "x"
    for depth in range(6):
        weights |= {f"w{depth}": np.ones((8, 3 if depth == 0 else 8, 3, 3)), f"b{depth}": np.ones(8)}
        nodes.append(node("Conv", [x, f"w{depth}", f"b{depth}"], [f"y{depth}"], pads=[1, 1, 1, 1]))
        nodes.append(node("Relu", [f"y{depth}"], [f"z{depth}"]))
        x = f"z{depth}"
    model = calibrate(chain(*nodes, **weights), seed=3)
    for tensor in run(model, 4, *(f"y{depth}" for depth in range(5))):
        assert 0.4 < tensor.std() < 2.5
        assert 0 < tensor.mean() < 1.2, "a channel is moved by 0.2 to 1 deviations"


def test_a_layer_without_bias_loses_the_part_along_its_mean_input() -> None:
    """Inputs behind a ReLU have a mean, which would give every output channel the same sign in every image."""
    model = chain(
        node("Conv", ["x", "w", "b"], ["y"]), node("Relu", ["y"], ["z"]), node("Conv", ["z", "v"], ["u"], group=2),
        node("Relu", ["u"], ["r"]), node("Flatten", ["r"], ["f"]), node("MatMul", ["f", "m"], ["out"]),
        w=np.ones((8, 3, 3, 3)), b=np.ones(8), v=np.ones((6, 4, 3, 3)), m=np.ones((6 * 28 * 28, 10)),
    )  # fmt: skip
    inner, out = run(calibrate(model, seed=4), 6, "u", "out")
    assert np.abs(inner.mean(axis=(0, 1, 3, 4))).max() < 0.3 * inner.std()
    cosine = dependence(out)
    assert cosine is not None
    assert cosine < 0.9


def test_batch_norm_gets_the_statistics_of_what_reaches_it() -> None:
    model = chain(
        node("Conv", ["x", "w"], ["y"]), node("BatchNormalization", ["y", "s", "b", "m", "v"], ["z"]),
        w=np.ones((5, 3, 3, 3)), s=np.ones(5), b=np.ones(5), m=np.ones(5), v=np.ones(5),
    )  # fmt: skip
    (y,) = run(calibrate(model, seed=5), 8, "y")
    stored = {item.name: numpy_helper.to_array(item) for item in calibrate(model, seed=5).graph.initializer}
    np.testing.assert_allclose(stored["v"], y.var(axis=(0, 1, 3, 4)), rtol=0.25)
    np.testing.assert_allclose(stored["m"], y.mean(axis=(0, 1, 3, 4)), atol=0.25)
    assert np.ptp(stored["s"]) > 0
    assert (stored["v"].view(np.uint32) & 0x7FF == 0).all(), "rounded to 12 bits"


def test_weights_follow_seed_and_name_not_the_order_of_nodes() -> None:
    def weights(seed: int, *order: str) -> dict[str, bytes]:
        nodes = [node("Conv", ["x", name], [f"y_{name}"]) for name in order]
        sums = node("Sum", [f"y_{name}" for name in sorted(order)], ["out"])
        made = calibrate(chain(*nodes, sums, **{name: np.ones((4, 3, 3, 3)) for name in order}), seed)
        return {item.name: item.raw_data for item in made.graph.initializer}

    assert weights(1, "a", "b") == weights(1, "b", "a")
    assert weights(1, "a", "b")["a"] != weights(2, "a", "b")["a"]
    assert weights(1, "a", "b")["a"] != weights(1, "a", "b")["b"]


def test_constants_that_mean_something_stay() -> None:
    """A HardSwish written out: its numbers are no weights."""
    model = chain(
        node("Conv", ["x", "w"], ["y"]), node("Add", ["y", "three"], ["a"]), node("Clip", ["a", "zero", "six"], ["c"]),
        node("Mul", ["y", "c"], ["m"]), node("Div", ["m", "six"], ["out"]),
        w=np.ones((4, 3, 3, 3)), three=np.array(3.0), zero=np.array(0.0), six=np.array(6.0),
    )  # fmt: skip
    stored = {item.name: numpy_helper.to_array(item) for item in calibrate(model, seed=6).graph.initializer}
    assert (stored["three"], stored["zero"], stored["six"]) == (3.0, 0.0, 6.0)
    assert np.ptp(stored["w"]) > 0


def test_symbolic_extents_are_bound_by_the_caller() -> None:
    model = chain(node("Conv", ["x", "w"], ["y"]), w=np.ones((4, 3, 3, 3)))
    model.graph.input[0].type.tensor_type.shape.dim[3].dim_param = "width"
    with pytest.raises(BoltError, match="width"):
        calibrate(model, seed=1)
    assert np.ptp(numpy_helper.to_array(calibrate(model, 1, (("width", 9),)).graph.initializer[0])) > 0


def test_replaced_constants_take_what_only_made_them_along() -> None:
    model = chain(
        node("ConstantOfShape", ["shape"], ["raw"]), node("Unsqueeze", ["raw", "axes"], ["w"]),
        node("Transpose", ["square"], ["turned"]),
        node("Mul", ["x", "w"], ["y"]), node("Add", ["y", "turned"], ["out"]), square=np.ones((32, 32)),
    )  # fmt: skip
    model.graph.initializer.append(numpy_helper.from_array(np.array([32]), "shape"))
    model.graph.initializer.append(numpy_helper.from_array(np.array([0]), "axes"))
    half, line = np.full((32, 32), 0.5, np.float32), np.arange(32, dtype=np.float32)
    result = replace_constants(model, {"w": line[None], "turned": half})
    assert [item.op_type for item in result.graph.node] == ["Unsqueeze", "Mul", "Add"]
    stored = {item.name: numpy_helper.to_array(item) for item in result.graph.initializer}
    assert sorted(stored) == ["axes", "raw", "turned"]
    np.testing.assert_array_equal(stored["raw"], line)
    np.testing.assert_array_equal(stored["turned"], half)
    (out,) = run(result, 1)
    np.testing.assert_allclose(out[0], sample((1, 3, 32, 32), 99, 0) * line + 0.5, rtol=1e-6, atol=1e-6)
    assert len(model.graph.node) == 5, "the model given is left alone"
