"""The onnx package's node conformance cases, for every operator that can be imported.

Each case runs twice: with all inputs as initializers, so that import folds it, and with its first floating-point
input as data, so that the graph's nodes are evaluated. Making the cases takes seconds, so a test is a module of them,
which it imports itself.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case import node as node_cases
from onnx.backend.test.case.test_case import TestCase

from bolt_build.dtypes import DType
from bolt_build.errors import BoltError
from bolt_build.graph import reference
from bolt_build.graph.arrays import dtype_of
from bolt_build.graph.invariants import check
from bolt_build.graph.ir import Array, Graph
from bolt_build.graph.onnx_import import importer_table, load_model
from bolt_build.graph.text import format_graph, parse_graph

_TRAINING = "training_mode=1 is not supported"
_EMPTY = "[2, 0, 4] has no"
_PRECISION = "softmax_precision 11 is not supported (softmax is in fp32)"

REFUSED = {
    "test_training_dropout": f"Dropout 'Dropout_0': {_TRAINING}",
    "test_training_dropout_default": f"Dropout 'Dropout_0': {_TRAINING}",
    "test_training_dropout_default_mask": f"Dropout 'Dropout_0': {_TRAINING}",
    "test_training_dropout_mask": f"Dropout 'Dropout_0': {_TRAINING}",
    "test_attention_local_window_gqa_rank4_mask": f"Attention 'Attention_0': {_PRECISION}",
    "test_maxunpool_export_with_output_shape": (
        "MaxUnpool 'MaxUnpool_0': the output [1, 1, 5, 5] is not [1, 1, 4, 4]: of which the indices are, "
        "runtimes disagree"
    ),
    "test_reduce_max_empty_set": f"ReduceMax 'ReduceMax_0': {_EMPTY} greatest element",
    "test_reduce_max_empty_set_bool": f"ReduceMax 'ReduceMax_0': {_EMPTY} greatest element",
    "test_reduce_min_empty_set": f"ReduceMin 'ReduceMin_0': {_EMPTY} least element",
}
"""Cases of operators that are supported but for what these ask; and the whole message they get."""

STATIC_INPUTS = {"Pad": (2,), "Dropout": (1, 2), "CastLike": (1,), "OneHot": (1,)}
"""Floating-point inputs that must be constants, by operator."""

ELEMENT_TYPES = (
    TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE, TensorProto.INT64,
    TensorProto.INT32, TensorProto.INT16, TensorProto.INT8, TensorProto.UINT64, TensorProto.UINT32, TensorProto.UINT16,
    TensorProto.UINT8, TensorProto.BOOL,
)  # fmt: skip

ROUNDING = {DType.BF16: 2.0**-6, DType.F16: 2.0**-9}
"""What ONNX's reference, which stores every step in half precision, may be off by, relative."""

LISTS = frozenset(
    name.lower()
    for name in importer_table().operators()
    if name.startswith(("Sequence", "Optional")) or (name.endswith("Sequence") and not name.startswith("Reverse"))
)
"""Operators whose cases have sequences and optional values as inputs or outputs (tests/test_graph_control_flow.py)."""

MODULES = {
    called: module.name
    for module in pkgutil.iter_modules(node_cases.__path__)
    if (called := module.name.replace("_", "").removesuffix("op")) in map(str.lower, importer_table().operators())
    and called not in LISTS
}
"""The modules of cases of operators that can be imported, by the operator in lower case: "rangeop" is Range's."""


TRIED = [
    pytest.param(name, marks=[pytest.mark.large] if name in ("averagepool", "lppool") else [])
    for name in MODULES.values()
]
"""ONNX takes seconds to make the cases of these poolings, which are those of MaxPool."""

WITHOUT = {"globallppool", "simplifiedlayernormalization"}
"""Operators that ONNX has no cases of."""


@functools.cache
def _cases(module: str) -> tuple[TestCase, ...]:
    """Cases of one node of an operator that some importer knows, on tensors of element types that the IR has."""
    before = {case.name for case in node_cases._NodeTestCases}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(f"{node_cases.__name__}.{module}")
    cases = [case for case in node_cases._NodeTestCases if case.name not in before]
    return tuple(case for case in cases if len(case.model.graph.node) == 1 and _is_in_scope(case.model))


def _is_in_scope(model: onnx.ModelProto) -> bool:
    (node,) = model.graph.node
    if node.op_type not in importer_table().operators():
        return False
    types = [value.type for value in (*model.graph.input, *model.graph.output)]
    return all(t.HasField("tensor_type") and t.tensor_type.elem_type in ELEMENT_TYPES for t in types)


def test_every_operator_has_a_module_of_cases() -> None:
    assert set(MODULES) | WITHOUT | LISTS == {name.lower() for name in importer_table().operators()}


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
        rounding = ROUNDING.get(dtype_of(wanted), 0.0)
        np.testing.assert_allclose(
            output.astype(float), wanted.astype(float), rtol=max(case.rtol, rounding), atol=max(1e-6, rounding / 10)
        )
    arrays = [value.constant.array for value in graph.values if value.constant is not None]
    assert parse_graph(format_graph(graph), arrays) == graph


def _assert_right_or_empty(case: TestCase, tmp_path: Path, data: tuple[int, ...]) -> None:
    """Outputs without elements are refused, all of them: an engine has no empty tensors."""
    made = zip(case.model.graph.output, case.data_sets[0][1], strict=True)
    shapes = {value.name: list(_array(given).shape) for value, given in made}
    empty = [f"the output '{name}' is {shape}, which has no elements" for name, shape in shapes.items() if 0 in shape]
    if not empty:
        _assert_outputs(case, *_bound(case, tmp_path, data))
        return
    with pytest.raises(BoltError) as raised:
        _bound(case, tmp_path, data)
    assert [diagnostic.message for diagnostic in raised.value.diagnostics] == empty


def _data_inputs(case: TestCase) -> tuple[int, ...]:
    """The first floating-point input that may be computed at run time."""
    (node,) = case.model.graph.node
    if importer_table().folds(node.op_type):
        return ()
    static = STATIC_INPUTS.get(node.op_type, ())
    for index, given in enumerate(case.data_sets[0][0]):
        array = _array(given)
        if index not in static and dtype_of(array).is_float and array.size:
            return (index,)
    return ()


@contextmanager
def _named(case: TestCase) -> Iterator[None]:
    """Failures say of which case they are."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in {case.name}")
        raise


@pytest.mark.parametrize("module", TRIED)
def test_cases_fold_to_the_expected_constants(module: str, tmp_path: Path) -> None:
    chosen = [case for case in _cases(module) if case.name not in REFUSED]
    assert chosen
    for case in chosen:
        with _named(case):
            _assert_right_or_empty(case, tmp_path, ())


@pytest.mark.parametrize("module", TRIED)
def test_cases_on_data_evaluate_to_the_expected_outputs(module: str, tmp_path: Path) -> None:
    for case in _cases(module):
        if case.name not in REFUSED and (data := _data_inputs(case)):
            with _named(case):
                _assert_right_or_empty(case, tmp_path, data)


@pytest.mark.parametrize("name", REFUSED)
def test_case_is_refused_with_its_reason(name: str, tmp_path: Path) -> None:
    case = _case(name, REFUSED[name].split()[0])
    with pytest.raises(BoltError) as raised:
        _bound(case, tmp_path, _data_inputs(case))
    assert [d.message for d in raised.value.diagnostics] == [REFUSED[name]]


@pytest.mark.parametrize("name", REFUSED)
def test_operators_with_refused_cases_have_a_note(name: str) -> None:
    """Which `bolt-build operators` shows; an empty set is the data's fault, not the operator's."""
    (op_type, *_) = REFUSED[name].split()
    notes = {importer.note for importer in importer_table().importers() if importer.op_type == op_type}
    assert any(notes) or _EMPTY in REFUSED[name]


def _case(name: str, op_type: str) -> TestCase:
    (found,) = [case for case in _cases(MODULES[op_type.lower()]) if case.name == name]
    return found
