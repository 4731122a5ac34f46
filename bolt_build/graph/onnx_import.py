"""Import of ONNX models: load once, bind batch and dimensions, get a `Graph`.

Operators are looked up by (domain, op_type, since_version) in the tables `IMPORTERS` of `graph.ops` and of packages
that offer one through the entry-point group `bolt_build.ops`.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bolt_build.errors import BoltError, Diagnostic
from bolt_build.graph.arrays import type_of
from bolt_build.graph.binding import INPUT_DTYPES, bind_inputs
from bolt_build.graph.importing import Builder, Importer, NodeImport, OnnxNode, Refusal
from bolt_build.graph.ir import Constant, Graph, Node, ShapeError, TensorType, Value, graph_of
from bolt_build.graph.ops import (
    activation,
    arithmetic,
    conv,
    folding,
    matmul,
    moving,
    normalization,
    pool,
    reduce,
    softmax,
)
from bolt_build.graph.ops.shape import Identity

if TYPE_CHECKING:
    from bolt_build.graph.onnx_file import OnnxContents, OnnxInput

ENTRY_POINTS = "bolt_build.ops"
_CONTROL_FLOW = ("If", "Loop", "Scan", "SequenceMap")
_GROUPS = (activation, arithmetic, conv, folding, matmul, moving, normalization, pool, reduce, softmax)


class ImporterTable:
    """Importers by domain, operator and since_version. Raises ValueError where two claim the same."""

    def __init__(self, importers: Iterable[Importer]) -> None:
        self._found: dict[tuple[str, str], dict[int, Importer]] = {}
        for importer in importers:
            versions = self._found.setdefault((importer.domain, importer.op_type), {})
            for version in importer.versions:
                if version in versions:
                    raise ValueError(f"two importers for version {version} of {importer.op_type}")
                versions[version] = importer

    def operators(self) -> frozenset[str]:
        """ONNX's own operators that can be imported in some version."""
        return frozenset(op_type for domain, op_type in self._found if not domain)

    def versions(self, node: OnnxNode) -> tuple[int, ...]:
        """The versions of the node's operator that can be imported."""
        return tuple(sorted(self._found.get((node.domain, node.op_type), {})))

    def find(self, node: OnnxNode) -> Importer | None:
        """The importer for the node. In a domain of its own, without schemas, the newest that is not too new."""
        versions = self._found.get((node.domain, node.op_type), {})
        if not node.domain:
            return versions.get(node.since_version)
        return versions.get(max((v for v in versions if v <= node.since_version), default=-1))


@functools.cache
def importer_table() -> ImporterTable:
    """The importers of this package and of the installed ones that offer some.

    Raises BoltError where an offer cannot be loaded or claims what another one has.
    """
    offered = [importer for group in _GROUPS for importer in group.IMPORTERS]
    table = ImporterTable(offered)
    for entry in sorted(importlib.metadata.entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        try:
            offered.extend(entry.load())
            table = ImporterTable(offered)
        except Exception as error:  # another package's code: whatever it raises, the user must learn which one it is
            message = f"the entry point '{entry.name}' ({entry.value}) of {ENTRY_POINTS} cannot be used: {error}"
            raise BoltError([Diagnostic("broken-entry-point", message)]) from error
    return table


@dataclass(frozen=True)
class OnnxModel:
    """A parsed model: plain data, every operator known to have an importer. `files` are all that it was read from."""

    path: Path
    files: tuple[Path, ...]
    opset: int
    inputs: tuple[OnnxInput, ...]
    outputs: tuple[str, ...]
    constants: tuple[Value, ...]
    nodes: tuple[OnnxNode, ...]

    def bind(self, batch: int, dims: tuple[tuple[str, int], ...] = ()) -> Graph:
        """The graph for one batch, symbolic dimensions set by `dims`; constants are shared between graphs.

        Raises BoltError with every dimension that cannot be bound, or every node that does not fit.
        """
        inputs = bind_inputs(self.path, self.inputs, batch, dims)
        return _Import(self, inputs, importer_table()).graph(batch)


def load_model(path: Path) -> OnnxModel:
    """Reads and checks an ONNX file. Raises BoltError with everything that is wrong, unsupported operators included."""
    from bolt_build.graph.onnx_file import read_onnx

    contents = read_onnx(path)
    diagnostics = [
        *_check_inputs(contents.path, contents.inputs),
        *_check_operators(contents, importer_table()),
    ]
    constants = []
    for name, array in contents.initializers:
        try:
            constants.append(Value(name, type_of(array), Constant(array)))
        except ValueError as error:
            diagnostics.append(_diagnostic(path, "unsupported-dtype", f"the initializer '{name}': {error}"))
    if diagnostics:
        raise BoltError(diagnostics)
    opset = dict(contents.opsets)[""]
    return OnnxModel(
        path, contents.files, opset, contents.inputs, contents.outputs, tuple(constants), contents.nodes
    )  # fmt: skip


def _diagnostic(path: Path, code: str, message: str, hint: str | None = None) -> Diagnostic:
    return Diagnostic(code, message, hint=hint, subject=str(path))


def _check_inputs(path: Path, inputs: Iterable[OnnxInput]) -> list[Diagnostic]:
    found = []
    for value in inputs:
        if value.dtype not in INPUT_DTYPES:
            message = f"the input '{value.name}' is of type {value.dtype}; supported are {', '.join(INPUT_DTYPES)}"
            found.append(_diagnostic(path, "unsupported-dtype", message))
        elif value.dims is None:
            message = f"the input '{value.name}' does not say how many dimensions it has"
            found.append(_diagnostic(path, "unknown-rank", message, "export the model with a shape for each input"))
    return found


def _check_operators(contents: OnnxContents, table: ImporterTable) -> list[Diagnostic]:
    """One diagnostic an operator that cannot be imported, each with the names of all its nodes."""
    groups: dict[tuple[str, str], list[OnnxNode]] = {}
    for node in contents.nodes:
        if table.find(node) is None:
            groups.setdefault((node.domain, node.op_type), []).append(node)
    found = []
    for (domain, op_type), nodes in sorted(groups.items()):
        names = ", ".join(f"'{node.name}'" for node in nodes)
        label = f"{domain}.{op_type}" if domain else op_type
        where = f"{'node' if len(nodes) == 1 else 'nodes'} {names}"
        versions = table.versions(nodes[0])
        if versions:
            known = ", ".join(map(str, versions))
            message = f"version {nodes[0].since_version} of operator {label} is not supported (known: {known}): {where}"
            found.append(_diagnostic(contents.path, "unsupported-op-version", message))
        elif op_type in _CONTROL_FLOW and not domain:
            message = f"control flow is not supported: operator {label}, {where}"
            found.append(_diagnostic(contents.path, "unsupported-op", message))
        else:
            found.append(_diagnostic(contents.path, "unsupported-op", f"operator {label} is not supported: {where}"))
    return found


class _Import:
    """One run over a model's nodes with bound inputs."""

    def __init__(self, model: OnnxModel, inputs: tuple[tuple[str, TensorType], ...], table: ImporterTable) -> None:
        self._model, self._inputs, self._table = model, inputs, table
        names = [name for node in model.nodes for name in (*node.inputs, *node.outputs)]
        names += [name for name, _ in inputs] + [value.name for value in model.constants]
        self._builder = Builder(names, [node.name for node in model.nodes])
        self._used = {name for node in model.nodes for name in node.inputs} | set(model.outputs)
        self._diagnostics: list[Diagnostic] = []
        self._lost: set[str] = set()

    def graph(self, batch: int) -> Graph:
        for name, type_ in self._inputs:
            self._builder.define(name, type_)
        for value in self._model.constants:
            self._builder.values[value.name] = value
        for node in self._model.nodes:
            self._import(node)
        self._finish_outputs()
        if self._diagnostics:
            raise BoltError(self._diagnostics)
        return graph_of(
            self._model.path.stem,
            batch,
            [name for name, _ in self._inputs],
            self._model.outputs,
            self._builder.values.values(),
            _live(self._builder.nodes, self._model.outputs),
        )

    def _import(self, node: OnnxNode) -> None:
        """Imports one node; where that fails, what depends on it is left out without further complaint."""
        if not self._lost.isdisjoint(node.inputs):
            self._lose(node)
            return
        importer = self._table.find(node)
        assert importer is not None, node.op_type
        try:
            running = NodeImport(node, self._builder)
            importer.run(running)
            self._check_outputs(node)
            for name in running.unread():
                if name not in importer.ignores:
                    raise Refusal("unsupported-attribute", f"attribute '{name}' is not understood")
        except Refusal as refusal:
            self._report(node, refusal.code, refusal.message, refusal.hint)
        except ShapeError as error:
            self._report(node, "shape-mismatch", str(error))
        except Exception as error:  # whatever NumPy, or another package's importer, raises of what does not fit
            self._report(node, "invalid-node", f"cannot be imported: {str(error) or type(error).__name__}")

    def _check_outputs(self, node: OnnxNode) -> None:
        for index, name in enumerate(node.outputs):
            if name and name in self._used and name not in self._builder.values:
                raise Refusal("unsupported-output", f"its output {index} ('{name}') is used, which is not supported")

    def _lose(self, node: OnnxNode) -> None:
        self._lost.update(name for name in node.outputs if name)

    def _report(self, node: OnnxNode, code: str, message: str, hint: str | None = None) -> None:
        self._lose(node)
        text = f"{node.op_type} '{node.name}': {message}"
        self._diagnostics.append(_diagnostic(self._model.path, code, text, hint))

    def _finish_outputs(self) -> None:
        """A constant that is an output gets a node that copies it; an input that is one is refused."""
        given = {name for name, _ in self._inputs}
        for name in self._model.outputs:
            if name in given:
                message = f"the output '{name}' is a graph input: there is nothing to compute for it"
                self._diagnostics.append(_diagnostic(self._model.path, "unsupported-output", message))
                continue
            value = self._builder.values.get(name)
            if value is not None and value.constant is not None:
                self._copy_constant(value)

    def _copy_constant(self, value: Value) -> None:
        source = self._builder.fresh(f"{value.name}.constant")
        self._builder.values[source] = Value(source, value.type, value.constant, synthetic=True)
        for index, node in enumerate(self._builder.nodes):
            inputs = tuple(source if name == value.name else name for name in node.inputs)
            self._builder.nodes[index] = Node(node.name, node.op, inputs, node.outputs, node.epilogue, node.covers)
        self._builder.values[value.name] = Value(value.name, value.type)
        label = self._builder.label(f"{value.name}.copy")
        self._builder.nodes.append(Node(label, Identity(), (source,), (value.name,)))


def _live(nodes: list[Node], outputs: tuple[str, ...]) -> list[Node]:
    """The nodes that an output depends on: arithmetic on shapes leaves others behind."""
    needed = set(outputs)
    found = []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            found.append(node)
    return found[::-1]
