"""Models of opsets 7 and 8, as ONNX's model zoo has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.version_converter
import pytest
from graph_models import bound, model, node, ones, refusals, tensor
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from bolt_build.graph import reference


@pytest.mark.parametrize("opset", [7, 8])
def test_models_of_the_oldest_opsets(opset: int, tmp_path: Path) -> None:
    """As ONNX's model zoo has them: operators that later opsets say more of."""
    nodes = [
        node("Constant", "-", "c", value=numpy_helper.from_array(np.full((1, 3, 1, 1), 0.5, np.float32))),
        node("BatchNormalization", "x s b m v", "norm", spatial=1) if opset == 7 else
        node("BatchNormalization", "x s b m v", "norm"),
        node("MaxPool", "norm", "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Upsample", "pool", "large", mode="nearest", scales=[1.0, 1.0, 2.0, 2.0]),
        node("Max", "large x", "max"), node("Sum", "max x", "sum"), node("Mean", "sum x", "mean"),
        node("Min", "mean x", "least"), node("Greater", "least c", "over"), node("Not", "over", "under"),
        node("Less", "least c", "below"), node("Xor", "under below", "either"), node("Cast", "either", "number", to=1),
        node("Add", "number mean", "both"), node("Flatten", "both", "flat"), node("MatMul", "flat w", "product"),
        node("Gemm", "product u r", "y", alpha=0.5, transB=1),
    ]  # fmt: skip
    random = np.random.RandomState(opset)
    shapes = {"s": (3,), "b": (3,), "m": (3,), "w": (3 * 64, 5), "u": (4, 5), "r": (4,)}
    constants = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    proto = model(nodes, constants=constants | {"v": ones(3) * 2}, opset=opset)
    x = random.standard_normal((1, 3, 8, 8)).astype(np.float32)
    # ONNX's own reference has no Constant and no BatchNormalization as old as these.
    scale, bias, mean = (constants[name].reshape(3, 1, 1) for name in "sbm")
    given = {"x": x, "norm": (scale * (x - mean) / np.sqrt(2 + 1e-5) + bias).astype(np.float32)}
    ports, spoken = [tensor(name, [1, 3, 8, 8]) for name in given], constants | {"c": ones(1, 3, 1, 1) / 2}
    newer = onnx.version_converter.convert_version(model(nodes[2:], ports, constants=spoken, opset=opset), 9)
    wanted = ReferenceEvaluator(newer).run(None, given)[0]
    np.testing.assert_allclose(reference.evaluate(bound(tmp_path, proto), {"x": x})["y"], wanted, rtol=1e-4, atol=1e-5)


def test_a_batch_norm_of_every_element_is_refused(tmp_path: Path) -> None:
    proto = model([node("BatchNormalization", "x s s s s", "y", "norm", spatial=0)], constants={"s": ones(3)}, opset=7)
    assert refusals(tmp_path, proto) == [
        ("unsupported-attribute", "BatchNormalization 'norm': spatial=0 is not supported")
    ]
