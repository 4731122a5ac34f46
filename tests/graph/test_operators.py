"""`bolt-build operators`: what the importers and the kernel families say of each operator."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest

from bolt_build.cli import operators as verb
from bolt_build.cli.main import main
from bolt_build.dtypes import DType
from bolt_build.errors import BoltError
from bolt_build.graph.example import Data
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.nodes.importer_table import ImporterTable
from bolt_build.graph.onnx_import import importer_table
from bolt_build.report.operators import markdown, render
from bolt_build.targets import all_targets
from bolt_build.workflows import operators as workflow
from bolt_build.workflows.operators import OperatorSupport, Range, example_graph, operators, opset_ranges

KNOWN = {
    f"{importer.domain}.{importer.op_type}" if importer.domain else importer.op_type
    for importer in importer_table().importers()
}
PAGE = Path(__file__).parents[2] / "docs" / "operators.md"


@pytest.fixture(scope="module")
def found() -> tuple[OperatorSupport, ...]:
    """All operators, but for their kernels: asking every family for kernels of all element types takes seconds."""
    with mock.patch.object(workflow, "_families", return_value=()):
        return operators(all_targets())


def nothing(node: NodeImport) -> None:
    """An importer of nothing."""


def test_every_operator_is_listed_once(found: tuple[OperatorSupport, ...]) -> None:
    assert {each.name for each in found} == KNOWN
    assert [each.name for each in found] == sorted({each.name for each in found}, key=str.lower)


@pytest.mark.parametrize("importer", importer_table().importers(), ids=lambda importer: importer.op_type)
def test_every_example_is_understood(importer: Importer) -> None:
    """By importers that take data; one that folds refuses it with its own words."""
    if importer.folds:
        with pytest.raises(BoltError, match="on data is not supported"):
            example_graph(importer, DType.F32)
        return
    takes = {"And": DType.BOOL, "Or": DType.BOOL, "Xor": DType.BOOL, "Not": DType.BOOL}
    whole = importer.op_type.startswith("Bit")
    graph = example_graph(importer, takes.get(importer.op_type, DType.I64 if whole else DType.F32))
    assert len(graph.outputs) == importer.example.outputs
    data = [given.shape for given in importer.example.inputs if isinstance(given, Data)]
    assert [graph.type(name).shape for name in graph.inputs] == data


def test_what_is_said_of_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    some = {"Conv", "Squeeze", "Shape", "Where", "And", "Range"}
    table = ImporterTable(each for each in importer_table().importers() if each.op_type in some)
    monkeypatch.setattr(workflow, "importer_table", lambda: table)
    by_name = {each.name: each for each in operators(all_targets())}
    both = (("cpu", ("onednn", "portable")), ("cuda", ("cutlass", "portable")))
    half = ("fp32", "fp16", "bf16")
    every = (*half, "fp64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
    since = (Range(7, None),)
    assert by_name["Conv"] == OperatorSupport("Conv", since, half, both, False, "")
    idle = (("cpu", ()), ("cuda", ()))
    assert by_name["Squeeze"] == OperatorSupport("Squeeze", since, every, idle, False, "constant axes")
    assert by_name["Shape"] == OperatorSupport("Shape", since, every, idle, True, "")
    plain = (("cpu", ("portable",)), ("cuda", ("portable",)))
    assert by_name["Where"] == OperatorSupport("Where", (Range(9, None),), every, plain, False, "")
    assert by_name["And"] == OperatorSupport("And", since, ("bool",), plain, False, "")
    runs = "runs of rows that are put behind each other again, too"
    assert by_name["Range"] == OperatorSupport("Range", (Range(11, None),), (), idle, False, runs)


def test_an_operators_versions_are_ranges_of_opsets() -> None:
    conv = Importer("Conv", (), nothing)  # changed in 11 and 22
    assert opset_ranges(conv, (1, 11, 22)) == (Range(7, None),)
    assert opset_ranges(conv, (1, 22)) == (Range(7, 10), Range(22, None))
    assert opset_ranges(conv, (11,)) == (Range(11, 21),)
    softmax = Importer("Softmax", (), nothing)  # changed in 11 and 13
    assert opset_ranges(softmax, (13, 1, 11)) == (Range(7, None),)
    ours = Importer("Mish", (2, 5), nothing, domain="com.example")
    assert opset_ranges(ours, (2, 5)) == (Range(2, None),)


def test_as_text_and_as_markdown() -> None:
    kernels = (("cpu", ("onednn", "portable")), ("cuda", ("portable",)))
    some = (
        OperatorSupport("Gelu", (Range(20, None),), ("fp32", "bf16"), kernels, False, ""),
        OperatorSupport("Pad", (Range(9, 10), Range(13, 13)), ("fp32",), (("cpu", ()), ("cuda", ())), False, "no wrap"),
        OperatorSupport("Size", (Range(9, None),), ("fp32",), (("cpu", ()), ("cuda", ())), True, ""),
        OperatorSupport("Where", (Range(9, None),), (), (("cpu", ()), ("cuda", ())), False, ""),
    )
    assert (
        render(some, width=None)
        == """\
operator  opsets        data            on CPUs           on GPUs     note
Gelu      20 and newer  fp32, bf16      onednn, portable  portable
Pad       9 to 10, 13   fp32            a view            a view      no wrap
Size      9 and newer   fp32            a constant        a constant
Where     9 and newer   constants only
"""
    )
    assert (
        markdown(some)
        == """\
| operator | opsets | data | on CPUs | on GPUs | note |
| --- | --- | --- | --- | --- | --- |
| Gelu | 20 and newer | fp32, bf16 | onednn, portable | portable |  |
| Pad | 9 to 10, 13 | fp32 | a view | a view | no wrap |
| Size | 9 and newer | fp32 | a constant | a constant |  |
| Where | 9 and newer | constants only |  |  |  |
"""
    )


def test_the_verb_prints_every_operator(
    found: tuple[OperatorSupport, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verb, "operators", lambda targets, names: {(all_targets(), 0): found}[targets, len(names)])
    assert main(["operators"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["operator", "opsets", "data", "on", "CPUs", "on", "GPUs", "note"]
    assert {line.split()[0] for line in lines[1:]} == KNOWN
    assert main(["operators", "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {each["name"] for each in data["operators"]} == KNOWN


def test_the_verb_takes_names_of_operators(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(workflow, "_families", lambda graph, target: ())
    assert main(["operators", "conv", "com.microsoft.FusedConv", "GELU"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["com.microsoft.FusedConv", "com.microsoft.Gelu", "Conv", "Gelu"]


def test_names_of_no_operator_are_all_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operators", "Conf", "Conv", "NegativeLogLikelihoodLoss", "ImageDecoder", "Qqq"]) == 2
    assert capsys.readouterr().err == (
        "error[unknown-operator]: there is no operator 'Conf'\n"
        "  hint: did you mean 'Conv'?\n"
        "error[no-importer]: the operator 'NegativeLogLikelihoodLoss' has no importer: it is imported as the operators "
        "that ONNX defines it by\n"
        "  hint: ask for these\n"
        "error[unsupported-op]: the operator 'ImageDecoder' cannot be imported\n"
        "  hint: 'bolt-build check --model' says of a model what to do about it\n"
        "error[unknown-operator]: there is no operator 'Qqq'\n"
    )


def test_the_page_lists_every_operator() -> None:
    """Rendered by `python benchmarks/repository/operators_page.py`."""
    listed = {line.split("|")[1].strip() for line in PAGE.read_text(encoding="utf-8").splitlines() if "|" in line}
    assert importer_table().operators() - listed == set()
