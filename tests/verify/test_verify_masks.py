"""A mask that a model computes with fp32's lowest number, of which half precision makes infinity: a row that is hidden
as a whole has one score for all keys in the model, and the engine is compared with that."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from alarm_networks import Net
from fake_engine import FakeModel, plan_of

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array, Node
from bolt_build.graph.onnx_import import load_model
from bolt_build.schema.recipe import VerifySpec
from bolt_build.verify.engine import verify_model
from bolt_build.verify.reference import Reference


@pytest.mark.parametrize(("share", "departing"), [(0.25, []), (0.3, ["shares"])])
def test_a_row_that_is_hidden_as_a_whole_is_compared_with_the_models_number(
    share: float, departing: list[str], tmp_path: Path
) -> None:
    net = Net([2, 4, 4])
    ones = net.node("Ceil", "ones", net.node("Sigmoid", "positive", "x"))
    mask = net.node("Mul", "mask", ones, net.constant("lowest", np.float32(np.finfo(np.float32).min)))
    net.node("Softmax", "shares", net.node("Add", "hidden", "x", mask), axis=-1)
    path = net.saved(tmp_path / "net.onnx", net.node("MatMul", "y", "shares", "x"), [2, 4, 4])

    def infinite(node: Node, inputs: list[Array], output: Array) -> Array:
        return np.full_like(output, -np.inf)

    def alike(node: Node, inputs: list[Array], output: Array) -> Array:
        return np.full_like(output, share)

    graph = load_model(path).bind(2)
    model = FakeModel((graph,), {"mask": infinite, "hidden": infinite, "shares": alike})
    plan = plan_of(graph, stored=DType.F16)
    report = verify_model(model, Reference(path, ()), plan, VerifySpec("onnxruntime", samples=1, seed=3))
    assert [layer.name for layer in report.batches[0].layers if not layer.ok] == departing
