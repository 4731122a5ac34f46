"""A model begins and ends at the tensors that its recipe names, and a refusal says which these are: `model.inputs` and
`model.outputs`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_models import bound, model, node, tensor
from onnx import TensorProto, helper

from bolt_build.errors import BoltError
from bolt_build.graph.nodes.missing import COUNTED
from bolt_build.graph.onnx_model.rewired import EndError, rewired
from bolt_build.graph.reference import evaluate

PORTS = [tensor("images", [1, 3, 8, 8]), tensor("size", [2], TensorProto.INT64)]
CONSTANTS = {
    "w": np.random.default_rng(1).standard_normal((6, 3, 1, 1)).astype(np.float32), "half": np.float32(0.5),
    "rows": np.asarray([1, 6, 64], np.int64), "corners": np.asarray([1, 64, 4], np.int64),
    "some": np.asarray([10], np.int64), "four": np.asarray([4], np.int64), "none": np.asarray([0], np.int64),
    "one": np.asarray([1], np.int64), "six": np.asarray([6], np.int64),
    "two": np.asarray(2, np.int64),
}  # fmt: skip
HEAD = [
    node("Conv", "images w", "c"), node("Reshape", "c rows", "r"), node("Slice", "r none four one", "b"),
    node("Reshape", "b corners", "boxes"), node("Slice", "r four six one", "s"), node("Sigmoid", "s", "scores"),
]  # fmt: skip
BEHIND = [
    node("NonMaxSuppression", "boxes scores some half half", "kept", "choose"),
    node("Gather", "kept two", "at", axis=1),
    node("Cast", "size", "scale", to=1), node("Gather", "boxes at", "those", axis=1),
]  # fmt: skip


def detector() -> onnx.ModelProto:
    return model([*HEAD, *BEHIND], PORTS, ["those", "c"], CONSTANTS)


def test_a_refusal_names_all_that_is_in_front_of_what_data_decide(tmp_path: Path) -> None:
    with pytest.raises(BoltError) as raised:
        bound(tmp_path, detector())
    assert [(each.message, each.hint) for each in raised.value.diagnostics] == [
        (
            "operator NonMaxSuppression is not supported: node 'choose'",
            f"{COUNTED}, as model.outputs: ['c', 'boxes', 'scores']",
        )
    ]


def test_the_model_that_ends_there_is_the_part_in_front(tmp_path: Path) -> None:
    found = rewired(detector(), [], ["scores", "boxes"])
    graph = found.graph
    assert [each.op_type for each in graph.node] == ["Conv", "Reshape", "Slice", "Reshape", "Slice", "Sigmoid"]
    assert [each.name for each in graph.input] == ["images"]
    assert {each.name for each in graph.initializer} == {"w", "rows", "corners", "none", "four", "six", "one"}
    assert [(each.name, [dim.dim_value for dim in each.type.tensor_type.shape.dim]) for each in graph.output] == [
        ("scores", [1, 2, 64]), ("boxes", [1, 64, 4]),
    ]  # fmt: skip
    onnx.checker.check_model(found)
    images = np.random.default_rng(3).standard_normal((1, 3, 8, 8)).astype(np.float32)
    assert evaluate(bound(tmp_path, found), {"images": images})["boxes"].shape == (1, 64, 4)


def test_what_a_branch_reads_stays() -> None:
    def branch(name: str) -> onnx.GraphProto:
        return helper.make_graph([node("Relu", "c", name)], name, [], [tensor(name, None)])

    choose = node("If", "half", "y", then_branch=branch("a"), else_branch=branch("b"))
    graph = rewired(model([HEAD[0], choose, node("Neg", "y", "z")], PORTS, ["z"], CONSTANTS), [], ["y"]).graph
    assert [each.op_type for each in graph.node] == ["Conv", "If"]
    assert {each.name for each in graph.initializer} == {"w", "half"}


def test_a_type_that_onnx_cannot_infer_is_left_to_the_runtime() -> None:
    own = model([node("Own", "images", "m", domain="own"), node("Relu", "m", "y")], PORTS, opsets=[("own", 1)])
    (output,) = rewired(own, [], ["m"]).graph.output
    assert (output.name, output.HasField("type")) == ("m", False)


def test_tensors_inside_of_functions_have_the_names_of_inlining() -> None:
    body = [node("Relu", "a", "inner"), node("Neg", "inner", "b")]
    function = helper.make_function("own", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    proto = model([node("Twice", "images", "t", domain="own"), node("Relu", "t", "y")], PORTS, opsets=[("own", 1)])
    proto.functions.append(function)
    named = next(each.output[0] for each in onnx.inliner.inline_local_functions(proto).graph.node)
    assert [each.op_type for each in rewired(proto, [], [named]).graph.node] == ["Relu"]


NOISY = [
    node("Conv", "images w", "c"), node("RandomNormalLike", "c", "noise", "draw"), node("Add", "c noise", "y"),
    node("RandomUniformLike", "images", "other", "more"), node("Relu", "other", "z"),
]  # fmt: skip


def test_random_numbers_are_given_from_outside(tmp_path: Path) -> None:
    proto = model(NOISY, PORTS, ["y", "z"], CONSTANTS)
    with pytest.raises(BoltError) as raised:
        bound(tmp_path, proto)
    drawn = "an engine draws no random numbers: give them to it, as model.inputs: "
    assert [each.hint for each in raised.value.diagnostics] == [f"{drawn}['noise']", f"{drawn}['other']"]
    found = rewired(proto, ["noise", "other"], [])
    assert [each.name for each in found.graph.input] == ["images", "noise", "other"]
    given = {
        each.name: np.random.default_rng(4).standard_normal([dim.dim_value for dim in each.type.tensor_type.shape.dim])
        for each in found.graph.input
    }
    got = evaluate(bound(tmp_path, found), {name: array.astype(np.float32) for name, array in given.items()})
    np.testing.assert_allclose(got["y"] - got["c"], given["noise"], atol=1e-5)


def test_what_only_computed_an_input_is_left_out() -> None:
    graph = rewired(detector(), ["s"], ["scores"]).graph
    assert ([each.name for each in graph.input], [each.op_type for each in graph.node]) == (["s"], ["Sigmoid"])


def test_all_that_is_wrong_with_the_names_is_said() -> None:
    own = model([node("Own", "images", "m", domain="own"), node("Relu", "m", "y")], PORTS, opsets=[("own", 1)])
    with pytest.raises(EndError) as raised:
        rewired(own, ["images", "m"], ["mm", "w"])
    assert [(each.key, each.message, each.hint) for each in raised.value.mistakes] == [
        ("inputs", "'images' goes into the model: no node computes it", None),
        ("outputs", "the model has no tensor 'mm'", "did you mean 'm'?"),
        ("outputs", "the model has no tensor 'w'", None),
        ("inputs", "the shape of 'm' is not known", None),
    ]
