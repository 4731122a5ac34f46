"""BitCast: what is refused, and in which types engines have what is cast."""

from __future__ import annotations

from pathlib import Path

import pytest
from graph_models import bound, model, node, refusals, tensor
from onnx import ModelProto, TensorProto
from planner_fakes import recipe

from bolt_build.families import load
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import HOST


def cast(source: int, to: int) -> ModelProto:
    return model([node("BitCast", "x", "y", "bits", to=to)], [tensor("x", [1, 3], source)], opset=26)


@pytest.mark.parametrize(
    ("source", "to", "code", "said"),
    [
        (TensorProto.FLOAT16, TensorProto.INT16, "unsupported-op",
         "bits of f16 depend on the precision in which an engine stores it"),
        (TensorProto.UINT16, TensorProto.BFLOAT16, "unsupported-op",
         "bits of bf16 depend on the precision in which an engine stores it"),
        (TensorProto.UINT8, TensorProto.BOOL, "unsupported-op",
         "bytes that are data are no booleans: they may be neither 0 nor 1"),
        (TensorProto.FLOAT, TensorProto.INT64, "shape-mismatch",
         "elements of f32 have not as many bytes as those of i64"),
    ],
    ids=["f16", "bf16", "bool", "bytes"],
)  # fmt: skip
def test_says_what_it_cannot(tmp_path: Path, source: int, to: int, code: str, said: str) -> None:
    assert refusals(tmp_path, cast(source, to)) == [(code, f"BitCast 'bits': {said}")]


def test_layers_in_half_precision_read_bits_of_fp32_without_moving_them(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "a"), node("BitCast", "a", "b", to=TensorProto.INT32), node("Neg", "b", "y")]
    graph = bound(tmp_path, model(nodes, [tensor("x", [2, 3])], opset=26), 2)
    (plan,) = plan_engine([graph], recipe(), TargetSpec("host", "bf16"), HOST, load(HOST)).plan.plans
    (step,) = [step for step in plan.steps if step.problem.op.kind == "bit_cast"]
    stored = [operand.format.dtype.value for operand in (*step.problem.inputs, *step.problem.outputs)]
    assert (stored, step.view) == (["f32", "i32"], True)
