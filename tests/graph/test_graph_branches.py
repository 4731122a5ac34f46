"""An If whose condition is known once shapes are: the branch that it takes, in its place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_models import bound, model, node, ones, refusals, saved, tensor
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from bolt_build.errors import BoltError
from bolt_build.graph.importing import DATA_DECIDE
from bolt_build.graph.ir import Array
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.reference import evaluate
from bolt_build.verify.models.unrolled import unrolled

WIDE = tensor("x", ["N", "width", 4])
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def branch(
    nodes: Sequence[onnx.NodeProto], outputs: Sequence[str] = ("inner",), constants: dict[str, Array] | None = None
) -> onnx.GraphProto:
    made = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    return helper.make_graph(nodes, "branch", [], [tensor(name, None) for name in outputs], made)


def asked(then: onnx.GraphProto, other: onnx.GraphProto, more: Sequence[onnx.NodeProto] = ()) -> onnx.ModelProto:
    """What exporters write for `squeeze` of an axis that may be longer: an If on the extent of axis 1."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape one", "extent"),
        node("Equal", "extent one", "is_one"),
        node("If", "is_one", "y", "choice", then_branch=then, else_branch=other),
    ]
    return model([*nodes, *more], [WIDE], ["z" if more else "y"], {"one": np.asarray(1, np.int64)})


SQUEEZED = branch([node("Squeeze", "x axis", "inner")], constants={"axis": np.asarray([1], np.int64)})
SAME = branch([node("Relu", "x", "inner", "relu")])
FLAT = branch([node("Flatten", "x", "flat"), node("Squeeze", "flat", "inner")])


@pytest.mark.parametrize(("width", "shape"), [(1, (2, 4)), (3, (2, 3, 4))])
def test_shapes_decide(width: int, shape: tuple[int, ...], tmp_path: Path) -> None:
    proto = asked(SQUEEZED, SAME)
    graph = bound(tmp_path, proto, 2, (("width", width),))
    x = X[:, :width]
    found = evaluate(graph, {"x": x})["y"]
    assert found.shape == shape
    np.testing.assert_array_equal(found, ReferenceEvaluator(proto).run(None, {"x": x})[0])
    assert len(graph.nodes) == 1


def test_what_is_inside_is_synthetic_and_nodes_are_named_by_the_if(tmp_path: Path) -> None:
    inside = branch([node("Relu", "x", "a", "relu"), node("Neg", "a", "inner", "neg")])
    graph = bound(tmp_path, asked(SQUEEZED, inside, [node("Abs", "y", "z")]), 2, (("width", 3),))
    assert [each.name for each in graph.nodes] == ["choice/relu", "choice/neg", "Abs_4"]
    assert [value.name for value in graph.values if value.synthetic] == ["a"]


def test_names_inside_may_be_names_of_another_branch(tmp_path: Path) -> None:
    """Both branches, and both Ifs, call what they compute `inner`; one inside the other reads `x` of the model."""
    deep = branch([node("If", "is_one", "inner", "deep", then_branch=SQUEEZED, else_branch=SAME)])
    again = node("If", "is_one", "z", "again", then_branch=SAME, else_branch=branch([node("Neg", "y", "inner")]))
    proto = asked(SQUEEZED, deep, [again])
    graph = bound(tmp_path, proto, 2, (("width", 3),))
    found = evaluate(graph, {"x": X - 5})["z"]
    np.testing.assert_array_equal(found, ReferenceEvaluator(proto).run(None, {"x": X - 5})[0])


@pytest.mark.parametrize("source", ["x", "inside", "outside"])
def test_a_branch_may_give_what_was_there(source: str, tmp_path: Path) -> None:
    """An input, a constant of its own, one of the model."""
    given = branch([], [source], {"inside": ones(2, 3, 4)} if source == "inside" else None)
    proto = asked(SQUEEZED, given, [node("Add", "x y", "z")])
    proto.graph.initializer.append(numpy_helper.from_array(ones(2, 3, 4) * 2, "outside"))
    found = evaluate(bound(tmp_path, proto, 2, (("width", 3),)), {"x": X})["z"]
    np.testing.assert_array_equal(found, X + {"x": X, "inside": ones(1), "outside": 2 * ones(1)}[source])


BENT = branch([node("Neg", "x", "inner", "neg")])


@pytest.mark.parametrize("chosen", [False, True])
def test_where_data_decide_both_branches_are_computed_and_one_is_chosen(chosen: bool, tmp_path: Path) -> None:
    proto = model(
        [node("If", "c", "y", "choice", then_branch=SAME, else_branch=BENT)],
        [tensor("x", [2, 4]), tensor("c", [1], TensorProto.BOOL)],
    )
    graph = bound(tmp_path, proto, 2)
    assert [each.op.kind for each in graph.nodes] == ["activation", "activation", "reshape", "where"]
    feeds = {"x": X[0, :2] - 3, "c": np.asarray([chosen])}
    np.testing.assert_array_equal(evaluate(graph, feeds)["y"], ReferenceEvaluator(proto).run(None, feeds)[0])
    written = unrolled(proto, lambda asked, names: {})
    assert {each.op_type for each in written.graph.node} == {"Relu", "Neg", "Where"}
    np.testing.assert_array_equal(
        ReferenceEvaluator(written).run(None, feeds)[0], ReferenceEvaluator(proto).run(None, feeds)[0]
    )


def hints(path: Path) -> list[str | None]:
    """What to do about all that keeps a model from being bound."""
    with pytest.raises(BoltError) as raised:
        load_model(path).bind(1)
    return [found.hint for found in raised.value.diagnostics]


def test_an_input_of_one_number_that_decides_may_be_given_a_value(tmp_path: Path) -> None:
    """As Silero's voice detector asks for the sample rate: its name may have an initializer, and is a constant then."""
    nodes = [
        node("Equal", "rate other", "c"), node("If", "c", "y", "choice", then_branch=SAME, else_branch=FLAT),
    ]  # fmt: skip
    ports = [tensor("x", [1, 4]), tensor("rate", [], TensorProto.INT64)]
    proto = model(nodes, ports, constants={"other": np.asarray(16000, np.int64)})
    assert hints(saved(tmp_path, proto)) == [
        "input 'rate' decides: give it a value in the recipe, as model.fixed: {rate: VALUE}"
    ]
    proto.graph.initializer.append(numpy_helper.from_array(np.asarray(16000, np.int64), "rate"))
    assert bound(tmp_path, proto).inputs == ("x",)


SIZED = {
    "where a slice ends": [node("Slice", "x zero size one", "y")],
    "how far a range goes": [
        node("Squeeze", "size", "end"), node("Range", "first end first", "places"), node("Gather", "x places", "y"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", SIZED)
def test_an_input_of_few_numbers_that_says_how_much_is_read_may_be_given_a_value(name: str, tmp_path: Path) -> None:
    """As vision-language models ask for the size of an image."""
    ports = [tensor("x", [1, 4]), tensor("given", [1, 2], TensorProto.INT64)]
    constants = {
        "zero": np.asarray([0]), "one": np.asarray([1]), "first": np.asarray(1), "last": np.asarray([0, 1]),
    }  # fmt: skip
    nodes = [node("Squeeze", "given zero", "line"), node("Gather", "line one", "size"), *SIZED[name]]
    proto = model(nodes, ports, constants=constants)
    assert hints(saved(tmp_path, proto)) == [
        "input 'given' decides: give it a value in the recipe, as model.fixed: {given: VALUE}"
    ]


def test_where_data_decide_how_large_something_is_the_model_is_to_end_there(tmp_path: Path) -> None:
    """As models that repeat each token by a duration of their own."""
    nodes = [
        node("ReduceMax", "x", "most", keepdims=0), node("Cast", "most", "long", to=TensorProto.INT64),
        node("Reshape", "long line", "size"), node("Expand", "one", "y", "repeat"),
    ]  # fmt: skip
    nodes[-1].input.append("size")
    proto = model(nodes, [tensor("x", [1, 4])], constants={"line": np.asarray([1]), "one": np.ones(1, np.float32)})
    assert hints(saved(tmp_path, proto)) == [
        (
            "data decide it, and shapes and weights are static: end the model in front of it "
            "(model.outputs), or export it for one value"
        )
    ]


def test_where_a_whole_input_decides_about_a_shape_the_model_is_to_end_there(tmp_path: Path) -> None:
    nodes = [
        node("ReduceMax", "x", "m", keepdims=0), node("Cast", "m", "c", to=TensorProto.BOOL),
        node("If", "c", "y", "choice", then_branch=SAME, else_branch=FLAT),
    ]  # fmt: skip
    with pytest.raises(BoltError) as raised:
        load_model(saved(tmp_path, model(nodes, [tensor("x", [1, 4])]))).bind(1)
    (found,) = raised.value.diagnostics
    assert found.message == "If 'choice': data decide whether 'y' is f32 [1, 4] or f32 [4]: shapes are static"
    assert found.hint == DATA_DECIDE


def test_of_a_branch_that_cannot_be_had_the_if_alone_is_named(tmp_path: Path) -> None:
    nodes = [
        node("If", "c", "y", "choice", then_branch=SAME, else_branch=branch([node("Unique", "x", "inner", "det")])),
    ]  # fmt: skip
    proto = model(nodes, [tensor("x", [1, 4]), tensor("c", [1], TensorProto.BOOL)])
    assert refusals(tmp_path, proto) == [
        ("unsupported-op", "control flow is not supported: operator If, node 'choice'")
    ]


def test_before_shapes_are_known_nothing_else_is_advised(tmp_path: Path) -> None:
    extents = "set model.dims in the recipe: dims: {width: SIZE}"
    assert hints(saved(tmp_path, asked(SQUEEZED, SAME))) == [extents]
    mixed = asked(SQUEEZED, SAME)
    mixed.graph.input.append(tensor("flag", [1], onnx.TensorProto.BOOL))
    mixed.graph.node.insert(3, node("And", "is_one flag", "both"))
    mixed.graph.node[4].input[0] = "both"
    first = "give all dimensions their extents first (model.dims): shapes may decide what it does"
    assert hints(saved(tmp_path, mixed)) == [extents, first]


@pytest.mark.parametrize(
    ("inside", "code", "said"),
    [
        (branch([node("Unique", "x", "inner", "det")]), "unsupported-op",
         "operator Unique is not supported: node 'choice/det'"),
        (branch([node("Add", "x gone", "inner", "add")]), "undefined-tensor",
         "Add 'choice/add': it reads 'gone', which nothing in front of it defines"),
        (branch([node("Relu", "x", "inner")], []), "invalid-node",
         "If 'choice': a branch has 0 outputs where 1 are used"),
    ],
    ids=["operator", "name", "outputs"],
)  # fmt: skip
def test_what_is_wrong_inside_is_said(inside: onnx.GraphProto, code: str, said: str, tmp_path: Path) -> None:
    proto = asked(inside, inside)
    proto.graph.input[0].CopyFrom(tensor("x", ["N", 3, 4]))
    assert refusals(tmp_path, proto) == [(code, said)]
