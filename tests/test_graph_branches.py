"""An If whose condition is known once shapes are: the branch that it takes, in its place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_models import bound, model, node, ones, refusals, tensor
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from bolt_build.graph.ir import Array
from bolt_build.graph.reference import evaluate

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


def test_data_decide_nothing(tmp_path: Path) -> None:
    nodes = [node("If", "c", "y", "choice", then_branch=SAME, else_branch=SAME)]
    proto = model(nodes, [tensor("x", [2, 4]), tensor("c", [1], TensorProto.BOOL)])
    assert refusals(tmp_path, proto) == [
        ("unsupported-op", "control flow is not supported: operator If, node 'choice'")
    ]


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
