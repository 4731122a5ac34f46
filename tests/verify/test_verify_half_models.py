"""Models in half precision whose engines compute in fp32: the reference widens them as planning does, so that a layer
is judged by fp32's roundings, and constants that passes compute are not rounded to half precision on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from fault_table import Engine, planned_engine
from onnx import TensorProto, helper, numpy_helper
from planned_engine import Change, Executed, PlannedModel

from bolt_build.graph.ir import Array
from bolt_build.schema.recipe import VerifySpec
from bolt_build.verify import VerifyReport
from bolt_build.verify.engine import verify_model

SPEC = VerifySpec("onnxruntime", samples=2, seed=5)
TYPES = {
    "f16": (TensorProto.FLOAT16, np.dtype(np.float16)),
    "bf16": (TensorProto.BFLOAT16, np.dtype(ml_dtypes.bfloat16)),
}


class Half:
    """A model whose inputs, weights and outputs are all of one half-precision type."""

    def __init__(self, dtype: str) -> None:
        self.kind, self.numpy = TYPES[dtype]
        self.random = np.random.RandomState(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, array: Array, *, single: bool = False) -> str:
        self.constants.append(numpy_helper.from_array(array.astype(np.float32 if single else self.numpy), name))
        return name

    def node(self, op: str, name: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def normal(self, *shape: int) -> Array:
        return np.asarray(self.random.standard_normal(shape))

    def block(self, name: str, x: str, channels: int) -> str:
        """Convolution and BatchNorm whose scales are no powers of two."""
        weight = self.normal(8, channels, 3, 3) / np.sqrt(9 * channels)
        y = self.node("Conv", f"{name}/conv", x, self.constant(f"{name}.w", weight), pads=[1, 1, 1, 1])
        parts = {"scale": 1 + 0.3 * self.normal(8), "bias": self.normal(8), "mean": 0.1 * self.normal(8)}
        parts["var"] = 0.5 + np.abs(self.normal(8))
        return self.node(
            "BatchNormalization", f"{name}/bn", y, *(self.constant(f"{name}.{k}", v) for k, v in parts.items())
        )

    def saved(self, path: Path, output: str) -> Path:
        info = helper.make_tensor_value_info
        ports = [info("x", self.kind, ["N", 3, 9, 9])], [info(output, self.kind, None)]
        graph = helper.make_graph(self.nodes, "half", *ports, self.constants)
        onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)
        return path


def stem(net: Half) -> str:
    """A layer whose result the engine keeps in fp32, before that in question."""
    weight = net.constant("stem.w", net.normal(3, 3, 1, 1) / np.sqrt(3))
    return net.node("Relu", "stem", net.node("Conv", "stem/conv", "x", weight))


def residual(net: Half) -> str:
    x = net.node("Relu", "stem/relu", net.block("stem", "x", 3))
    y = net.node("Relu", "a/relu", net.block("a1", x, 8))
    return net.node("Relu", "a/out", net.node("Add", "a/add", net.block("a2", y, 8), x))


def scaled_by_channel(net: Half) -> str:
    """Arithmetic on constants, whose result is folded into the convolution."""
    y = net.node("Conv", "conv", stem(net), net.constant("w", net.normal(8, 3, 3, 3)), pads=[1, 1, 1, 1])
    gains = (net.constant(f"gain{index}", 1 + 0.3 * net.normal(1, 8, 1, 1)) for index in range(2))
    return net.node("Mul", "scaled", y, net.node("Mul", "gain", *gains))


def cast_weights(net: Half) -> str:
    """Weights that are kept in fp32, and cast where they are used."""
    weight = net.constant("w", net.normal(8, 3, 3, 3), single=True)
    return net.node("Conv", "conv", stem(net), net.node("Cast", "half", weight, to=net.kind), pads=[1, 1, 1, 1])


def normalised_alone(net: Half) -> str:
    """A BatchNorm without a convolution before it."""
    y = net.node("Relu", "relu", net.node("Conv", "conv", stem(net), net.constant("w", net.normal(8, 3, 1, 1))))
    parts = [net.constant(f"bn.{index}", 0.5 + np.abs(net.normal(8))) for index in range(4)]
    return net.node("BatchNormalization", "bn", y, *parts)


def merged_branches(net: Half) -> str:
    """RepVGG's: two convolutions of one tensor, added."""
    x = stem(net)
    wide = net.block("wide", x, 3)
    narrow = net.node("Conv", "narrow", x, net.constant("narrow.w", net.normal(8, 3, 1, 1)))
    return net.node("Relu", "relu", net.node("Add", "sum", wide, narrow))


NETS = (residual, scaled_by_channel, cast_weights, normalised_alone, merged_branches)


def verified(engine: Engine, changes: dict[int, Change] | None = None) -> VerifyReport:
    model = PlannedModel(engine.planned, changes or {})
    return verify_model(model, engine.reference, engine.planned.plan, SPEC)


@pytest.mark.parametrize("net", NETS, ids=lambda net: net.__name__)
@pytest.mark.parametrize("dtype", TYPES)
def test_a_right_engine_in_fp32_passes_by_the_roundings_of_fp32(dtype: str, net: Any, tmp_path: Path) -> None:
    made = Half(dtype)
    path = made.saved(tmp_path / "net.onnx", net(made))
    report = verified(planned_engine(path, "host", "fp32"))
    assert report.ok, [problem.message for problem in report.problems]


def test_an_error_of_half_precision_is_a_fault_where_the_engine_computes_in_fp32(tmp_path: Path) -> None:
    made = Half("f16")
    path = made.saved(tmp_path / "net.onnx", residual(made))
    engine = planned_engine(path, "host", "fp32")
    (step,) = (step for step in engine.plan.steps if step.outputs[0].onnx == "a/relu")

    def rounded(done: Executed) -> Array:
        return done.result.astype(np.float16).astype(np.float32)

    report = verified(engine, {step.index: rounded})
    assert [layer.tensor for layer in report.batches[0].layers if not layer.ok] == ["a/relu"]
