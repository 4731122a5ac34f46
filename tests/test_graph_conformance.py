"""The onnx package's node conformance cases, for every operator that can be imported.

Each case runs twice: with all inputs as initializers, so that import folds it, and with its first floating-point
input as data, so that the graph's nodes are evaluated.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

from bolt_build.errors import BoltError
from bolt_build.graph import reference
from bolt_build.graph.arrays import dtype_of
from bolt_build.graph.invariants import check
from bolt_build.graph.ir import Array, Graph
from bolt_build.graph.onnx_import import importer_table, load_model
from bolt_build.graph.text import format_graph, parse_graph

_TRAINING = "training_mode=1 is not supported"
_OUTPUT = "its output 1 ('z') is used, which is not supported"
_EMPTY = "[2, 0, 4] has no"

REFUSED = {
    "test_batchnorm_example_training_mode": f"BatchNormalization 'BatchNormalization_0': {_TRAINING}",
    "test_batchnorm_epsilon_training_mode": f"BatchNormalization 'BatchNormalization_0': {_TRAINING}",
    "test_dropout_default_mask": f"Dropout 'Dropout_0': {_OUTPUT}",
    "test_dropout_default_mask_ratio": f"Dropout 'Dropout_0': {_OUTPUT}",
    "test_training_dropout": f"Dropout 'Dropout_0': {_TRAINING}",
    "test_training_dropout_default": f"Dropout 'Dropout_0': {_TRAINING}",
    "test_training_dropout_default_mask": f"Dropout 'Dropout_0': {_TRAINING}",
    "test_training_dropout_mask": f"Dropout 'Dropout_0': {_TRAINING}",
    "test_training_dropout_zero_ratio": f"Dropout 'Dropout_0': {_TRAINING}",
    "test_training_dropout_zero_ratio_mask": f"Dropout 'Dropout_0': {_TRAINING}",
    "test_maxpool_with_argmax_2d_precomputed_pads": f"MaxPool 'MaxPool_0': {_OUTPUT}",
    "test_maxpool_with_argmax_2d_precomputed_strides": f"MaxPool 'MaxPool_0': {_OUTPUT}",
    "test_reduce_max_empty_set": f"ReduceMax 'ReduceMax_0': {_EMPTY} greatest element",
    "test_reduce_max_empty_set_bool": f"ReduceMax 'ReduceMax_0': {_EMPTY} greatest element",
    "test_reduce_min_empty_set": f"ReduceMin 'ReduceMin_0': {_EMPTY} least element",
    "test_wrap_pad": "Pad 'Pad_0': mode 'wrap' is not supported",
}
"""Cases of operators that are supported but for what these ask; and the whole message they get."""

EMPTY_RESULTS = ("test_slice_start_out_of_bounds", "test_reduce_sum_empty_set", "test_concat_empty")
"""Cases whose result has no elements: folded, but refused on data (an engine has no empty tensors)."""

STATIC_INPUTS = {"Clip": (1, 2), "Pad": (2,), "Dropout": (1, 2), "CastLike": (1,), "Pow": (1,)}
"""Floating-point inputs that must be constants, by operator."""

ELEMENT_TYPES = (
    TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE, TensorProto.INT64,
    TensorProto.INT32, TensorProto.INT8, TensorProto.UINT8, TensorProto.BOOL,
)  # fmt: skip

FOLD_ONLY = ("Ceil", "Equal", "Expand", "Floor", "Gather", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mod",
             "Range", "ReduceMin", "ReduceProd", "Round", "Tile", "Where")  # fmt: skip
"""Operators that are taken on constants only."""


def _cases() -> list[TestCase]:
    """Cases of one node of an operator that some importer knows, on tensors of element types that the IR has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    return [case for case in cases if len(case.model.graph.node) == 1 and _is_in_scope(case.model)]


def _is_in_scope(model: onnx.ModelProto) -> bool:
    (node,) = model.graph.node
    if node.op_type not in importer_table().operators():
        return False
    types = [value.type for value in (*model.graph.input, *model.graph.output)]
    return all(t.HasField("tensor_type") and t.tensor_type.elem_type in ELEMENT_TYPES for t in types)


CASES = _cases()


def test_most_of_the_suite_is_in_scope() -> None:
    assert len(CASES) > 400
    assert set(REFUSED) <= {case.name for case in CASES}


def _bound(case: TestCase, tmp_path: Path, data: tuple[int, ...]) -> tuple[Graph, dict[str, Array]]:
    """The case's graph with the inputs `data` left as inputs and the others as initializers, and their arrays."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for opset in model.opset_import:
        opset.version = max(opset.version, 9)
    inputs, batch = {}, 1
    for index, (value, given) in enumerate(zip(case.model.graph.input, case.data_sets[0][0], strict=True)):
        array = _array(given)
        if index in data:
            inputs[value.name] = array
            batch = array.shape[0] if array.ndim else 1
        else:
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
    path = tmp_path / "case.onnx"
    path.write_bytes(model.SerializeToString())
    graph = load_model(path).bind(batch)
    check(graph)
    return graph, inputs


def _array(given: object) -> Array:
    """A case's tensor, which is an array, a scalar or a protobuf."""
    return np.asarray(numpy_helper.to_array(given) if isinstance(given, TensorProto) else given)


def _assert_outputs(case: TestCase, graph: Graph, inputs: dict[str, Array]) -> None:
    found = reference.evaluate(graph, inputs)
    for value, given in zip(case.model.graph.output, case.data_sets[0][1], strict=True):
        wanted, output = _array(given), found[value.name]
        assert (output.shape, output.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(output.astype(float), wanted.astype(float), rtol=case.rtol, atol=1e-6)
    arrays = [value.constant.array for value in graph.values if value.constant is not None]
    assert parse_graph(format_graph(graph), arrays) == graph


def _data_inputs(case: TestCase) -> tuple[int, ...]:
    """The first floating-point input that may be computed at run time."""
    (node,) = case.model.graph.node
    if node.op_type in FOLD_ONLY or case.name in EMPTY_RESULTS:
        return ()
    static = STATIC_INPUTS.get(node.op_type, ())
    for index, given in enumerate(case.data_sets[0][0]):
        array = _array(given)
        if index not in static and dtype_of(array).is_float and array.size:
            return (index,)
    return ()


def _parameters(cases: list[TestCase]) -> list[object]:
    return [pytest.param(case, id=case.name) for case in cases if case.name not in REFUSED]


@pytest.mark.parametrize("case", _parameters(CASES))
def test_case_folds_to_the_expected_constant(case: TestCase, tmp_path: Path) -> None:
    graph, inputs = _bound(case, tmp_path, ())
    _assert_outputs(case, graph, inputs)


@pytest.mark.parametrize("case", _parameters([case for case in CASES if _data_inputs(case)]))
def test_case_on_data_evaluates_to_the_expected_output(case: TestCase, tmp_path: Path) -> None:
    graph, inputs = _bound(case, tmp_path, _data_inputs(case))
    _assert_outputs(case, graph, inputs)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES if case.name in REFUSED])
def test_case_is_refused_with_its_reason(case: TestCase, tmp_path: Path) -> None:
    with pytest.raises(BoltError) as raised:
        _bound(case, tmp_path, _data_inputs(case))
    assert [d.message for d in raised.value.diagnostics] == [REFUSED[case.name]]


@pytest.mark.parametrize("name", EMPTY_RESULTS[:1])
def test_empty_result_of_data_is_refused(name: str, tmp_path: Path) -> None:
    (case,) = [case for case in CASES if case.name == name]
    with pytest.raises(BoltError) as raised:
        _bound(case, tmp_path, (0,))
    assert [d.message for d in raised.value.diagnostics] == ["Slice 'Slice_0': the result [20, 0, 5] has no elements"]
