"""ONNX's own cases of its operators, as far as they are in scope."""

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
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case import node as node_cases
from onnx.backend.test.case.test_case import TestCase

from bolt_build.graph.arrays import dtype_of
from bolt_build.graph.invariants import check
from bolt_build.graph.ir import Array, Graph
from bolt_build.graph.onnx_import import importer_table, load_model

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
LISTS = frozenset(
    name.lower()
    for name in importer_table().operators()
    if name.startswith(("Sequence", "Optional")) or (name.endswith("Sequence") and not name.startswith("Reverse"))
)
"""Operators whose cases have sequences and optional values as inputs or outputs
(`tests/graph/test_graph_control_flow.py`)."""
MODULES = {
    called: module.name
    for module in pkgutil.iter_modules(node_cases.__path__)
    if (called := module.name.replace("_", "").removesuffix("op")) in map(str.lower, importer_table().operators())
    and called not in LISTS
}
"""The modules of cases of operators that can be imported, by the operator in lower case: "rangeop" is Range's."""


@functools.cache
def cases(module: str) -> tuple[TestCase, ...]:
    """Cases of one node of an operator that some importer knows, on tensors of element types that the IR has."""
    before = {case.name for case in node_cases._NodeTestCases}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(f"{node_cases.__name__}.{module}")
    added = [case for case in node_cases._NodeTestCases if case.name not in before]
    return tuple(case for case in added if len(case.model.graph.node) == 1 and _is_in_scope(case.model))


def _is_in_scope(model: onnx.ModelProto) -> bool:
    (node,) = model.graph.node
    if node.op_type not in importer_table().operators():
        return False
    types = [value.type for value in (*model.graph.input, *model.graph.output)]
    return all(t.HasField("tensor_type") and t.tensor_type.elem_type in ELEMENT_TYPES for t in types)


def bound(case: TestCase, tmp_path: Path, data: tuple[int, ...]) -> tuple[Graph, dict[str, Array]]:
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


def data_inputs(case: TestCase) -> tuple[int, ...]:
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
def named(case: TestCase) -> Iterator[None]:
    """Failures say of which case they are."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in {case.name}")
        raise


def _array(given: object) -> Array:
    """A case's tensor, which is an array, a scalar or a protobuf."""
    return np.asarray(numpy_helper.to_array(given) if isinstance(given, TensorProto) else given)
