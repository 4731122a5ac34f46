"""The onnx package's node cases as graphs: each with its inputs as data, as far as they may be."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, numpy_helper

from bolt_build.errors import BoltError
from bolt_build.graph.ir import Graph
from bolt_build.graph.onnx_import import load_model

Array = npt.NDArray[Any]

GIVEN, PART, CONSTANT = "data", "first", "constants"
"""How a case is tried: with all its inputs as data, as it is given; with as many as data as can be imported so, and the
others (shapes, axes and the like) as initializers; and with all of them as initializers, which import folds."""

_WRITTEN_OUT = "_expanded"

FORMS = (GIVEN, PART, CONSTANT)


@dataclass(frozen=True)
class Case:
    """One case: a model, its inputs and what it must compute. A value that is no tensor is None.

    `operator` is what the case is about. Operators that are functions have each of their cases a second time, with the
    function's body in the operator's place: those are `written_out`.
    """

    name: str
    operator: str
    written_out: bool
    model: onnx.ModelProto
    inputs: tuple[Array | None, ...]
    outputs: tuple[Array | None, ...]
    rtol: float
    atol: float


@dataclass(frozen=True)
class Form:
    """A case in one form that could be imported: its graph, and the arrays of the graph's inputs."""

    case: Case
    form: str
    graph: Graph
    data: tuple[tuple[str, Array], ...]


@dataclass(frozen=True)
class Refused:
    """A case in one form that could not be imported, and all that was said."""

    case: Case
    form: str
    reasons: tuple[str, ...]


def node_cases() -> list[Case]:
    """Every node case of the installed onnx package."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    operators = {case.name: _operator(case.model) for case in found if _WRITTEN_OUT not in case.name}
    return [
        Case(
            case.name, operators.get(case.name.partition(_WRITTEN_OUT)[0]) or _operator(case.model),
            _WRITTEN_OUT in case.name, case.model, tuple(map(_array, case.data_sets[0][0])),
            tuple(map(_array, case.data_sets[0][1])), case.rtol, case.atol,
        )
        for case in found
    ]  # fmt: skip


def imported(case: Case) -> list[Form | Refused]:
    """The case in every form that differs from those before it."""
    filled = [index for index, array in enumerate(case.inputs) if array is not None and array.size]
    everything = range(len(case.inputs))
    found = [_attempt(case, GIVEN, everything)]
    if len(case.inputs) > 1 and filled:
        found.append(_most(case, filled))
    if case.inputs:
        found.append(_attempt(case, CONSTANT, ()))
    return found


def _most(case: Case, filled: Sequence[int]) -> Form | Refused:
    """The case with as many of its inputs as data as possible, floating-point ones before others."""
    ordered = sorted(filled, key=lambda index: (not _is_float(case.inputs[index]), index))
    taken: list[int] = []
    found = refused = _attempt(case, PART, ordered[:1])
    for index in ordered:
        each = _attempt(case, PART, [*taken, index])
        if isinstance(each, Form):
            taken.append(index)
            found = each
    return found if isinstance(found, Form) else refused


def _attempt(case: Case, form: str, data: Iterable[int]) -> Form | Refused:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    given, batch = [], None
    for index, (value, array) in enumerate(zip(case.model.graph.input, case.inputs, strict=True)):
        if index not in data:
            if array is None:
                return Refused(case, form, (f"the input '{value.name}' is no tensor",))
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
        elif array is not None:
            given.append((value.name, array))
            batch = array.shape[0] if batch is None and array.ndim else batch
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.onnx"
        path.write_bytes(model.SerializeToString())
        try:
            graph = load_model(path).bind(batch or 1)
        except BoltError as error:
            return Refused(case, form, tuple(diagnostic.message for diagnostic in error.diagnostics))
    return Form(case, form, graph, tuple(given))


def _operator(model: onnx.ModelProto) -> str:
    """The operator of a case's first node that is no constant."""
    node = next((node for node in model.graph.node if node.op_type != "Constant"), model.graph.node[0])
    return f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)


def _is_float(array: Array | None) -> bool:
    return array is not None and (array.dtype.kind == "f" or array.dtype.name == "bfloat16")


def _array(given: object) -> Array | None:
    """A case's value where it is a tensor: an array, a scalar or a protobuf."""
    if given is None or isinstance(given, list | onnx.SparseTensorProto | onnx.SequenceProto | onnx.OptionalProto):
        return None
    return np.asarray(numpy_helper.to_array(given) if isinstance(given, TensorProto) else given)
