"""Local functions of a model where their calls and they differ, and operators that files of few exporters have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_models import bound, model, node, tensor
from onnx import AttributeProto, ModelProto, NodeProto, helper

from bolt_build.errors import BoltError
from bolt_build.graph import reference

ROW = tensor("x", [1, 4])


def calling(opset: int, *, of: int, inner: list[NodeProto], value: float | None = None) -> ModelProto:
    """A model of an opset with a call of a function that is written in opset `of` and has a `value`, 2 unless said."""
    said = {} if value is None else {"value": value}
    proto = model([node("Own", "x", "y", "call", domain="local", **said)], [ROW], opset=opset, opsets=[("local", 1)])
    given = helper.make_attribute("value", 2.0)
    imports = [helper.make_opsetid("", of)]
    proto.functions.append(helper.make_function("local", "Own", ["a"], ["b"], inner, imports, attribute_protos=[given]))
    return proto


@pytest.mark.parametrize("value", [None, 3.0], ids=["left out", "given"])
def test_a_function_has_a_value_for_an_attribute_that_a_call_leaves_out(value: float | None, tmp_path: Path) -> None:
    constant = node("Constant", "", "k")
    constant.attribute.add(name="value_float", ref_attr_name="value", type=AttributeProto.FLOAT)
    graph = bound(tmp_path, calling(17, of=17, inner=[constant, node("Mul", "a k", "b")], value=value))
    x = np.linspace(-1, 1, 4, dtype=np.float32).reshape(1, 4)
    np.testing.assert_array_equal(reference.evaluate(graph, {"x": x})["y"], x * (value or 2.0))


@pytest.mark.parametrize(
    "inner",
    [[node("Relu", "a", "b")], [node("ReduceMean", "a", "b", axes=[1])]],
    ids=["of the same form in both", "of another form"],
)
def test_a_function_of_another_opset_than_the_model_is_inlined(inner: list[NodeProto], tmp_path: Path) -> None:
    graph = bound(tmp_path, calling(18, of=13, inner=inner))
    x = np.linspace(-1, 2, 4, dtype=np.float32).reshape(1, 4)
    wanted = np.maximum(x, 0) if inner[0].op_type == "Relu" else x.mean(1, keepdims=True)
    np.testing.assert_allclose(reference.evaluate(graph, {"x": x})["y"], wanted, rtol=1e-6)


@pytest.mark.parametrize(("of", "hint"), [(1 << 40, "install a newer onnx package"), (0, None), (-1, None)])
def test_a_function_of_an_opset_that_nobody_knows_is_refused(of: int, hint: str | None, tmp_path: Path) -> None:
    with pytest.raises(BoltError) as caught:
        bound(tmp_path, calling(18, of=of, inner=[node("Relu", "a", "b")]))
    (said,) = caught.value.diagnostics
    known = f"onnx {onnx.__version__} knows 1 to {onnx.defs.onnx_opset_version()}"
    assert (said.code, said.hint) == ("unsupported-opset", hint)
    assert said.message == f"the function 'Own' is written in opset {of}; {known}"


def test_a_range_of_onnxruntime_may_leave_out_its_step_and_its_domain(tmp_path: Path) -> None:
    proto = model(
        [node("Range", "from to", "r", domain="com.microsoft"), node("Gather", "x r", "y", axis=1)],
        [ROW],
        constants={"from": np.asarray(1), "to": np.asarray(3)},
    )
    assert [each.domain for each in proto.opset_import] == [""]
    x = np.arange(4, dtype=np.float32).reshape(1, 4)
    np.testing.assert_array_equal(reference.evaluate(bound(tmp_path, proto), {"x": x})["y"], [[1, 2]])


def test_what_draws_numbers_at_random_becomes_an_input(tmp_path: Path) -> None:
    proto = model([node("RandomNormalLike", "x", "noise", "draw"), node("Add", "x noise", "y")])
    with pytest.raises(BoltError) as raised:
        bound(tmp_path, proto)
    (found,) = raised.value.diagnostics
    assert found.message == "operator RandomNormalLike is not supported: node 'draw'"
    assert found.hint == "an engine draws no random numbers: give them to it, as model.inputs: ['noise']"
