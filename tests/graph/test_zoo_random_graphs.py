"""What `random_graphs` promises: valid models that onnxruntime runs, in numbers that mean something, of every kind."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from random_graphs import OPSETS, random_model

from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.reference import evaluate
from bolt_build.graph.zoo.samples import sample
from bolt_build.verify.compare import difference

SEEDS = range(50)


@pytest.mark.parametrize("seed", SEEDS)
def test_onnxruntime_and_the_reference_evaluator_agree(seed: int, tmp_path: Path) -> None:
    model = random_model(seed)
    onnx.checker.check_model(model, full_check=True)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    graph = load_model(path).bind(2)
    inputs = {"input": sample(graph.type("input").shape, seed)}
    (expected,) = session.run(None, inputs)
    assert np.abs(expected).max() < 100
    assert list(expected.shape[1:]) == [d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim[1:]]
    assert not np.array_equal(expected[0], expected[1])
    found = difference(evaluate(graph, inputs)["output"], expected)
    assert found.not_finite == found.reference_not_finite == 0
    assert found.element < 1e-4


def test_a_seed_is_a_model() -> None:
    assert random_model(7).SerializeToString() == random_model(7).SerializeToString()
    assert random_model(7).SerializeToString() != random_model(12).SerializeToString()


def test_the_seeds_cover_every_operator_opset_and_kind_of_convolution() -> None:
    operators: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    opsets = set()
    for seed in SEEDS:
        model = random_model(seed)
        opsets.add(model.opset_import[0].version)
        assert 7 <= len(model.graph.node) <= 35
        shapes = {item.name: tuple(item.dims) for item in model.graph.initializer}
        for node in model.graph.node:
            operators[node.op_type] += 1
            attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
            groups = attributes.get("group", 1)
            kinds["grouped"] += groups > 1
            kinds["depthwise"] += groups > 1 and shapes[node.input[1]][1] == 1
            kinds["dilated"] += max(attributes.get("dilations", [1])) > 1
            kinds["strided"] += node.op_type == "Conv" and max(attributes.get("strides", [1])) > 1
            pads = attributes.get("pads", [])
            kinds["asymmetric"] += node.op_type == "Conv" and list(pads[:2]) != list(pads[2:])
            kinds["auto_pad"] += "auto_pad" in attributes
            kinds["ceil_mode"] += attributes.get("ceil_mode", 0)
            kinds["count_include_pad"] += attributes.get("count_include_pad", 0)
            kinds["odd channels"] += node.op_type == "Conv" and shapes[node.input[1]][0] % 2
    assert opsets == set(OPSETS)
    assert set(operators) >= {
        "Add", "AveragePool", "BatchNormalization", "Clip", "Concat", "Conv", "Div", "Dropout", "Erf", "Flatten",
        "Gemm", "GlobalAveragePool", "HardSigmoid", "HardSwish", "Identity", "LRN", "LeakyRelu", "MatMul", "MaxPool",
        "Mul", "Pad", "ReduceMean", "Relu", "Reshape", "Sigmoid", "Slice", "Softmax", "Softplus", "Sub", "Sum", "Tanh",
        "Transpose",
    }  # fmt: skip
    assert all(kinds.values()), kinds
