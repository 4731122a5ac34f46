"""Models of opsets 7 and 8, as ONNX's model zoo has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.version_converter
import pytest
from graph_models import bound, model, node, ones, tensor
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from bolt_build.graph import reference
from bolt_build.verify.models.oldest import in_ninth
from bolt_build.verify.models.written_out import written_out


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


@pytest.mark.parametrize("form", ["each element", "batch"])
def test_batch_norms_of_every_element_and_of_the_batch_itself(form: str, tmp_path: Path) -> None:
    """The latter has more outputs than y. Verification has both as the operators that define them."""
    random = np.random.default_rng(2)
    shape, axes, more = ((3, 4), (0,), "") if form == "each element" else ((3,), (0, 2), " m2 v2 m3 v3")
    s, b, m, v = (random.random(shape, np.float32) + 0.5 for _ in range(4))
    attributes = {"spatial": 0} if form == "each element" else {}
    proto = model(
        [node("BatchNormalization", "x s b m v", f"y{more}", "norm", **attributes)], [tensor("x", ["N", 3, 4])],
        constants={"s": s, "b": b, "m": m, "v": v}, opset=7,
    )  # fmt: skip
    x = random.standard_normal((2, 3, 4)).astype(np.float32)
    if form == "batch":
        m, v = x.mean(axes), x.var(axes)
        s, b, m, v = (each[:, None] for each in (s, b, m, v))
    wanted = (x - m) / np.sqrt(v + 1e-5) * s + b
    np.testing.assert_allclose(reference.evaluate(bound(tmp_path, proto, 2), {"x": x})["y"], wanted, rtol=1e-4)
    written = written_out(in_ninth(proto))
    assert "BatchNormalization" not in {each.op_type for each in written.graph.node}
    np.testing.assert_allclose(ReferenceEvaluator(written).run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-6)


def test_verification_has_the_oldest_models_in_the_ninth_operator_set() -> None:
    """Its rules add operators that came with it."""
    nodes = [node("Upsample", "x", "y", "up", scales=[1.0, 1.0, 2.0, 2.0], mode="nearest")]
    made = in_ninth(model(nodes, [tensor("x", [1, 3, 8, 8])], opset=8))
    assert [each.version for each in made.opset_import] == [9]
    x = np.random.default_rng(3).standard_normal((1, 3, 8, 8)).astype(np.float32)
    np.testing.assert_array_equal(ReferenceEvaluator(made).run(None, {"x": x})[0], x.repeat(2, 2).repeat(2, 3))
