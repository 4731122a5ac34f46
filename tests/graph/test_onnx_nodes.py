"""benchmarks/correctness/onnx_nodes.py: many cases in one engine, and what is right and what is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from benchmarks.correctness.merged_engine import Workshop, merged
from benchmarks.correctness.onnx_cases import CONSTANT, GIVEN, PART, Case, Form, Refused, imported
from benchmarks.correctness.onnx_nodes import RIGHT, Results, difference, ran
from benchmarks.record import RESULTS
from benchmarks.repository.operators_page import PAGE, cases
from bolt_build.families.portable.family import Portable

X = np.asarray([[-1, 2, 3], [4, -5, 6]], np.float32)


def case_of(op_type: str, *inputs: np.ndarray, wanted: np.ndarray) -> Case:
    """One node on inputs of these arrays' types."""
    names = [f"x{index}" for index in range(len(inputs))]

    def value(name: str, array: np.ndarray) -> object:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"])], op_type, [value(n, a) for n, a in zip(names, inputs, strict=True)],
        [value("y", wanted)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return Case(op_type.lower(), op_type, False, model, inputs, (wanted,), 1e-3, 1e-7)


RELU = case_of("Relu", X, wanted=np.maximum(X, 0))
ADD = case_of("Add", X, X, wanted=X + X)
RESHAPE = case_of("Reshape", X, np.asarray([6], np.int64), wanted=X.reshape(6))


def test_a_case_is_tried_with_all_some_and_no_data() -> None:
    assert [(type(each), each.form) for each in imported(ADD)] == [(Form, GIVEN), (Form, PART), (Form, CONSTANT)]
    assert [(type(each), each.form) for each in imported(RELU)] == [(Form, GIVEN), (Form, CONSTANT)]
    refused, part, folded = imported(RESHAPE)
    assert isinstance(refused, Refused)
    assert "is not a constant" in refused.reasons[0]
    assert isinstance(part, Form)
    assert [name for name, _ in part.data] == ["x0"]
    assert isinstance(folded, Form)


def test_merged_graphs_keep_their_names_apart() -> None:
    graphs = [form.graph for case in (ADD, RELU) for form in imported(case)[:1] if isinstance(form, Form)]
    graph = merged(graphs)
    assert graph.inputs == ("0/x0", "0/x1", "1/x0")
    assert graph.outputs == ("0/y", "1/y")
    assert [node.inputs for node in graph.nodes] == [("0/x0", "0/x1"), ("1/x0",)]


def test_one_engine_computes_what_each_case_wants(tmp_path: Path) -> None:
    """And what does not is found: a case that wants something else is wrong, the others stay right."""
    lying = replace(RELU, name="lying", outputs=(X,))
    chosen = [RELU, ADD, lying]
    results = Results(chosen)
    forms = [form for case in chosen for form in imported(case) if isinstance(form, Form)]
    ran(forms, Workshop(tmp_path, [Portable()]), results, "engine")
    said = "output 0: 2 of 6 differ, first 0.0 where -1.0 is wanted"
    assert results.wrong() == {"lying, data": said, "lying, constants": said}
    assert results.operators() == {"Add": {GIVEN: 1}, "Relu": {GIVEN: 1, "wrong": 1}}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (X, RIGHT),
        (X * np.float32(1.0005), RIGHT),
        (X * np.float32(1.01), "output 0: 6 of 6 differ, first -1.01 where -1.0 is wanted"),
        (X[:1], "output 0 is float32 [1, 3] where float32 [2, 3] is wanted"),
        (X.astype(np.float64), "output 0 is float64 [2, 3] where float32 [2, 3] is wanted"),
        (np.where(X == 2, np.float32(np.nan), X), "output 0: 1 of 6 differ, first nan where 2.0 is wanted"),
    ],
)
def test_what_counts_as_a_difference(found: np.ndarray, said: str) -> None:
    assert difference(replace(RELU, outputs=(X,)), [found]) == said


def test_types_are_compared_as_finely_as_they_are() -> None:
    narrow = X.astype(ml_dtypes.bfloat16)
    case = replace(RELU, outputs=(narrow,))
    assert difference(case, [X * np.float32(1.01)]) == RIGHT
    assert difference(case, [X * np.float32(1.1)]) != RIGHT
    whole = replace(RELU, outputs=(np.asarray([2**40]),))
    assert difference(whole, [np.asarray([2**40 + 1])]) != RIGHT


def test_the_page_is_that_of_the_committed_result() -> None:
    """`python benchmarks/repository/operators_page.py` renders it."""
    result = json.loads((RESULTS / "onnx_nodes.json").read_text())
    assert PAGE.read_text(encoding="utf-8").endswith(cases(result))
    assert result["wrong"] == {}
