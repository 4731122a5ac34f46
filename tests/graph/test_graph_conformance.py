"""The onnx package's node conformance cases, for every operator that can be imported.

Each case runs twice: with all inputs as initializers, so that import folds it, and with its first floating-point
input as data, so that the graph's nodes are evaluated. Making the cases takes seconds, so a test is a module of them,
which it imports itself.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conformance_cases import _EMPTY, LISTS, MODULES, REFUSED, _array, bound, cases, data_inputs, named
from onnx.backend.test.case.test_case import TestCase

from bolt_build.dtypes import DType
from bolt_build.errors import BoltError
from bolt_build.graph import reference
from bolt_build.graph.arrays import dtype_of
from bolt_build.graph.ir import Array, Graph
from bolt_build.graph.onnx_import import importer_table
from bolt_build.graph.text import format_graph, parse_graph

ROUNDING = {DType.BF16: 2.0**-6, DType.F16: 2.0**-9}
"""What ONNX's reference, which stores every step in half precision, may be off by, relative."""


TRIED = [
    pytest.param(name, marks=[pytest.mark.large] if name in ("averagepool", "lppool") else [])
    for name in MODULES.values()
]
"""ONNX takes seconds to make the cases of these poolings, which are those of MaxPool."""

WITHOUT = {
    "affine", "crop", "globallppool", "imagescaler", "maxroipool", "parametricsoftplus", "scaledtanh",
    "simplifiedlayernormalization",
}  # fmt: skip
"""Operators that ONNX has no cases of."""


def test_every_operator_has_a_module_of_cases() -> None:
    assert set(MODULES) | WITHOUT | LISTS == {name.lower() for name in importer_table().operators()}


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
        _assert_outputs(case, *bound(case, tmp_path, data))
        return
    with pytest.raises(BoltError) as raised:
        bound(case, tmp_path, data)
    assert [diagnostic.message for diagnostic in raised.value.diagnostics] == empty


@pytest.mark.parametrize("module", TRIED)
def test_cases_fold_to_the_expected_constants(module: str, tmp_path: Path) -> None:
    chosen = [case for case in cases(module) if case.name not in REFUSED]
    assert chosen
    for case in chosen:
        with named(case):
            _assert_right_or_empty(case, tmp_path, ())


@pytest.mark.parametrize("module", TRIED)
def test_cases_on_data_evaluate_to_the_expected_outputs(module: str, tmp_path: Path) -> None:
    for case in cases(module):
        if case.name not in REFUSED and (data := data_inputs(case)):
            with named(case):
                _assert_right_or_empty(case, tmp_path, data)


@pytest.mark.parametrize("name", REFUSED)
def test_case_is_refused_with_its_reason(name: str, tmp_path: Path) -> None:
    case = _case(name, REFUSED[name].split()[0])
    with pytest.raises(BoltError) as raised:
        bound(case, tmp_path, data_inputs(case))
    assert [d.message for d in raised.value.diagnostics] == [REFUSED[name]]


@pytest.mark.parametrize("name", REFUSED)
def test_operators_with_refused_cases_have_a_note(name: str) -> None:
    """Which `bolt-build operators` shows; an empty set is the data's fault, not the operator's."""
    (op_type, *_) = REFUSED[name].split()
    notes = {importer.note for importer in importer_table().importers() if importer.op_type == op_type}
    assert any(notes) or _EMPTY in REFUSED[name]


def _case(name: str, op_type: str) -> TestCase:
    (found,) = [case for case in cases(MODULES[op_type.lower()]) if case.name == name]
    return found
