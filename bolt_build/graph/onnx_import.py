"""Import of ONNX models: load once, bind batch and dimensions, get a `Graph`.

Operators are looked up by (domain, op_type, since_version) in the tables `IMPORTERS` of `graph.ops` and of other
packages (`graph.operators`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bolt_build.errors import BoltError, Diagnostic
from bolt_build.graph.arrays import type_of
from bolt_build.graph.binding import INPUT_DTYPES, Binding, bind_inputs, own_batch
from bolt_build.graph.branches import captured, taken
from bolt_build.graph.budget import Budget
from bolt_build.graph.importing import Builder, Importer, NodeImport, OnnxNode, Refusal
from bolt_build.graph.ir import Constant, Graph, Node, ShapeError, Value, graph_of
from bolt_build.graph.limits import MOST_FILE_NODES, MOST_NODES
from bolt_build.graph.narrow import READERS, is_narrow, wider
from bolt_build.graph.onnx_findings import listed
from bolt_build.graph.operators import importers
from bolt_build.graph.ops.shape import Identity
from bolt_build.plugins import remembered
from bolt_build.sizes import Dims, Lengths, all_sizes

if TYPE_CHECKING:
    from bolt_build.graph.onnx_file import OnnxInput

_CONTROL_FLOW = ("If", "Loop", "Scan", "SequenceMap")


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

    def folds(self, op_type: str) -> bool:
        """Whether ONNX's operator of that name is taken on constants alone, in every version."""
        return all(importer.folds for importer in self._found[("", op_type)].values())

    def importers(self) -> tuple[Importer, ...]:
        """Each once, by domain and operator, the newest versions first."""
        found = [
            (key, -max(importer.versions), importer) for key, by in self._found.items() for importer in by.values()
        ]
        return tuple(dict.fromkeys(importer for _, _, importer in sorted(found, key=lambda each: each[:2])))

    def versions(self, node: OnnxNode) -> tuple[int, ...]:
        """The versions of the node's operator that can be imported."""
        return tuple(sorted(self._found.get((node.domain, node.op_type), {})))

    def find(self, node: OnnxNode) -> Importer | None:
        """The importer for the node. In a domain of its own, without schemas, the newest that is not too new."""
        versions = self._found.get((node.domain, node.op_type), {})
        if not node.domain:
            return versions.get(node.since_version)
        return versions.get(max((v for v in versions if v <= node.since_version), default=-1))


@remembered
def importer_table() -> ImporterTable:
    """The importers of this package and of the installed ones that offer some.

    Raises BoltError where an offer cannot be loaded or claims what another one has.
    """
    return ImporterTable(importers())


@dataclass(frozen=True)
class OnnxModel:
    """A parsed model: plain data. `files` are all that it was read from; `problems` what is known already to be in the
    way of importing it, which `bind` reports with all else."""

    path: Path
    files: tuple[Path, ...]
    opset: int
    inputs: tuple[OnnxInput, ...]
    outputs: tuple[str, ...]
    constants: tuple[Value, ...]
    nodes: tuple[OnnxNode, ...]
    problems: tuple[Diagnostic, ...] = ()
    narrow: tuple[tuple[str, str], ...] = ()
    """Constants that are read as a wider type than the model has them in (`graph.narrow`), with the name of that."""

    def batches(self, asked: tuple[int, ...]) -> tuple[int, ...]:
        """The batches that are `asked` for; where none is, the one that the model itself has (see `own_batch`)."""
        return asked or (own_batch(self.inputs),)

    def graphs(self, asked: tuple[int, ...], dims: Dims, lengths: Lengths) -> tuple[Graph, ...]:
        """The graphs of an engine: of each batch (see `batches`) with each extent of the dimensions that have several.
        Raises BoltError as `bind` does.
        """
        return tuple(self.bind(each.batch, dims, each.dims) for each in all_sizes(self.batches(asked), lengths))

    def bind(self, batch: int, dims: Dims = (), chosen: Dims = ()) -> Graph:
        """The graph for one batch, symbolic dimensions set by `dims`, and by `chosen` where the engine has several
        extents of one; constants are shared between graphs.

        Raises BoltError with everything that is in the way: inputs, dimensions that cannot be bound, operators that are
        not supported, and every node that does not fit.
        """
        table = importer_table()
        return _Import(self, bind_inputs(self.inputs, batch, (*dims, *chosen)), table).graph(batch, chosen)


def load_model(path: Path) -> OnnxModel:
    """Reads an ONNX file. Raises BoltError with everything that makes it no model."""
    # onnx takes a third of a second to import, and nothing else of this module needs it.
    from bolt_build.graph.onnx_file import read_onnx

    contents = read_onnx(path)
    problems = _check_inputs(contents.inputs)
    constants = []
    narrow = tuple((name, array.dtype.name) for name, array in contents.initializers if is_narrow(array))
    for name, given in contents.initializers:
        array = wider(given)
        try:
            constants.append(Value(name, type_of(array), Constant(array)))
        except ValueError as error:
            problems.append(Diagnostic("unsupported-dtype", f"the initializer '{name}': {error}"))
    return OnnxModel(
        path, contents.files, dict(contents.opsets)[""], contents.inputs, contents.outputs, tuple(constants),
        contents.nodes, tuple(problems), narrow,
    )  # fmt: skip


def _check_inputs(inputs: Iterable[OnnxInput]) -> list[Diagnostic]:
    found = []
    for value in inputs:
        if value.dtype not in INPUT_DTYPES:
            message = f"the input '{value.name}' is of type {value.dtype}; supported are {', '.join(INPUT_DTYPES)}"
            found.append(Diagnostic("unsupported-dtype", message))
        elif value.dims is None:
            message = f"the input '{value.name}' does not say how many dimensions it has"
            found.append(Diagnostic("unknown-rank", message, hint="export the model with a shape for each input"))
    return found


def _missing_operators(nodes: Iterable[OnnxNode], table: ImporterTable) -> list[Diagnostic]:
    """One diagnostic an operator that cannot be imported, with the names of its nodes."""
    groups: dict[tuple[str, str], list[OnnxNode]] = {}
    for node in nodes:
        if table.find(node) is None:
            groups.setdefault((node.domain, node.op_type), []).append(node)
    found = []
    for (domain, op_type), same in sorted(groups.items()):
        label = f"{domain}.{op_type}" if domain else op_type
        where = f"{'node' if len(same) == 1 else 'nodes'} {listed([node.name for node in same])}"
        versions = table.versions(same[0])
        if versions:
            known = ", ".join(map(str, versions))
            message = f"version {same[0].since_version} of operator {label} is not supported (known: {known}): {where}"
            found.append(Diagnostic("unsupported-op-version", message, hint=_CONVERT))
        elif op_type in _CONTROL_FLOW and not domain:
            message = f"control flow is not supported: operator {label}, {where}"
            found.append(Diagnostic("unsupported-op", message, hint=_UNROLL))
        else:
            message = f"operator {label} is not supported: {where}"
            found.append(Diagnostic("unsupported-op", message, hint=_REPLACE))
    return found


_CONVERT = "convert the model to an opset with a known version: onnx.version_converter.convert_version"
_UNROLL = "export the model traced, with its branches taken and its loops unrolled"
_REPLACE = "export the model without it, or offer an importer for it (entry points of bolt_build.ops)"
_FOLD = "it is computed where its inputs are constants: bind what they depend on (model.dims), or export without it"


class _Import:
    """One run over a model's nodes with bound inputs. What cannot be had is left out, and the rest still imported."""

    def __init__(self, model: OnnxModel, binding: Binding, table: ImporterTable) -> None:
        self._model, self._binding, self._table = model, binding, table
        names = [name for node in model.nodes for name in (*node.inputs, *node.outputs)]
        names += [value.name for value in model.inputs] + [value.name for value in model.constants]
        # Integers of 8 bits and fewer stand for weights in fp32.
        budget = Budget(max(value.type.nbytes, 4 * value.type.elements) for value in model.constants)
        self._builder = Builder(names, [node.name for node in model.nodes], budget)
        self._used = {name for node in model.nodes for name in node.inputs} | set(model.outputs)
        self._met: list[OnnxNode] = []
        """The model's nodes, a branch that is taken in the place of its If."""
        self._problems: dict[tuple[str, str, str, str | None], list[str]] = {}
        self._lost: dict[str, bool] = {}
        """Values that could not be had, and whether they depend on data."""

    def graph(self, batch: int, chosen: Dims) -> Graph:
        for name, type_ in self._binding.types:
            self._builder.define(name, type_)
        for value in self._model.constants:
            self._builder.values[value.name] = value
        known = {*self._builder.values, *(name for node in self._model.nodes for name in node.outputs)}
        # An input without a type is data; a constant without one is an initializer of an unsupported type.
        self._lost.update((value.name, True) for value in self._model.inputs if value.name not in known)
        self._lost.update((name, False) for name in self._used if name and name not in known and name not in self._lost)
        self._used.update(captured(self._model.nodes))
        for node in self._model.nodes:
            self._import(node)
        self._finish_outputs()
        diagnostics = self._diagnostics()
        if diagnostics:
            raise BoltError(diagnostics)
        nodes = _live(self._builder.nodes, self._model.outputs)
        if len(nodes) > MOST_NODES:
            message = f"{len(nodes)} nodes of the model compute with data; supported are {MOST_NODES}"
            subject = str(self._model.path)
            raise BoltError([Diagnostic("model-too-large", message, hint="give it in parts", subject=subject)])
        return graph_of(
            self._model.path.stem,
            batch,
            [name for name, _ in self._binding.types],
            self._model.outputs,
            self._builder.values.values(),
            nodes,
            chosen,
        )

    def _diagnostics(self) -> list[Diagnostic]:
        """All that was found, each once: nodes of one operator with one problem share a line."""
        found = [*self._model.problems, *self._binding.problems, *_missing_operators(self._met, self._table)]
        for (code, subject, message, hint), names in self._problems.items():
            where = f"{subject} {listed(names)}: " if subject else ""
            found.append(Diagnostic(code, f"{where}{message}", hint=hint))
        return [replace(each, subject=str(self._model.path)) for each in found]

    def _import(self, node: OnnxNode) -> None:
        """Imports one node; where that fails, what depends on it is left out without further complaint."""
        if node.branches and self._take(node):
            return
        self._met.append(node)
        importer = self._table.find(node)
        if importer is not None and importer.folds and any(self._is_data(name) for name in node.inputs if name):
            message = f"{node.op_type} on data is not supported (only on constants)"
            self._report(node, "unsupported-op", message, _FOLD)
            return
        if importer is None or not self._lost.keys().isdisjoint(node.inputs):
            self._lose(node)
            return
        narrow = next((pair for pair in self._model.narrow if pair[0] in node.inputs), None)
        if narrow is not None and node.op_type not in READERS:
            message = f"'{narrow[0]}' is of {narrow[1]}, which is taken only by {', '.join(READERS)}"
            self._report(node, "unsupported-dtype", message)
            return
        try:
            running = NodeImport(node, self._builder, self._used)
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

    def _take(self, node: OnnxNode) -> bool:
        """Imports the branch that an If takes. False where data decide."""
        name = node.inputs[0] if node.inputs else ""
        if self._lost.get(name) is False:  # what made it so is reported
            self._lose(node)
            return True
        condition = None if name in self._lost or name not in self._builder.values else self._builder.constant(name)
        if condition is None or condition.size != 1:
            return False
        branch = node.branches[0 if condition.reshape(-1)[0] else 1]
        try:
            found = taken(node, branch, self._builder.fresh, self._builder.label)
            if len(self._met) + len(found.nodes) > MOST_FILE_NODES:
                raise Refusal("model-too-large", f"with its branch the model has more than {MOST_FILE_NODES} nodes")
            for name, array in found.constants:
                self._builder.define(name, type_of(array), array, synthetic=True)
        except (Refusal, ValueError) as error:
            code, hint = (error.code, error.hint) if isinstance(error, Refusal) else ("unsupported-dtype", None)
            self._report(node, code, str(error), hint)
            return True
        self._used.update(name for inner in found.nodes for name in inner.inputs)
        self._used.update(source for source, _ in found.copied)
        for inner in found.nodes:
            known = self._builder.values.keys() | self._lost.keys()
            missing = next((name for name in inner.inputs if name and name not in known), None)
            if missing is not None:
                self._report(inner, "undefined-tensor", f"it reads '{missing}', which nothing in front of it defines")
                continue
            self._import(inner)
            for name in inner.outputs:
                if name in self._builder.values and name not in node.outputs:
                    # Inside a branch no other runtime shows it.
                    self._builder.values[name] = replace(self._builder.values[name], synthetic=True)
        for source, output in found.copied:
            self._copy(node, source, output)
        return True

    def _copy(self, node: OnnxNode, source: str, output: str) -> None:
        """Defines the output of an If whose branch gives a value of somewhere else."""
        if source in self._lost or source not in self._builder.values:
            self._lost[output] = self._lost.get(source, False)
            return
        value = self._builder.values[source]
        self._builder.values[output] = replace(value, name=output)
        if value.constant is None:
            label = self._builder.label(f"{node.name}.copy")
            self._builder.nodes.append(Node(label, Identity(), (source,), (output,), covers=(node.name,)))

    def _is_data(self, name: str) -> bool:
        """True of a value that is only known at run time."""
        if name in self._lost:
            return self._lost[name]
        return self._builder.values[name].constant is None

    def _check_outputs(self, node: OnnxNode) -> None:
        for index, name in enumerate(node.outputs):
            if name and name in self._used and name not in self._builder.values:
                raise Refusal("unsupported-output", f"its output {index} ('{name}') is used, which is not supported")

    def _lose(self, node: OnnxNode) -> None:
        data = any(self._is_data(name) for name in node.inputs if name)
        self._lost.update((name, data) for name in node.outputs if name)

    def _report(self, node: OnnxNode, code: str, message: str, hint: str | None = None) -> None:
        self._lose(node)
        self._problems.setdefault((code, node.op_type, message, hint), []).append(node.name)

    def _finish_outputs(self) -> None:
        """A constant that is an output gets a node that copies it; an input that is one is refused."""
        given = {value.name for value in self._model.inputs}
        copied: dict[str, str] = {}
        for name in self._model.outputs:
            if name in given:
                message = f"the output '{name}' is a graph input: there is nothing to compute for it"
                hint = "leave it out of the outputs"
                self._problems[("unsupported-output", "", message, hint)] = []
            elif name in self._lost:
                continue
            elif 0 in (shape := self._builder.values[name].type.shape):
                message = f"the output '{name}' is {list(shape)}, which has no elements"
                self._problems[("unsupported-output", "", message, "leave it out of the outputs")] = []
            elif self._builder.values[name].constant is not None:
                copied[name] = self._builder.fresh(f"{name}.constant")
        for index, node in enumerate(self._builder.nodes):
            if not copied.keys().isdisjoint(node.inputs):
                inputs = tuple(copied.get(name, name) for name in node.inputs)
                self._builder.nodes[index] = replace(node, inputs=inputs)
        for name, source in copied.items():
            value = self._builder.values[name]
            self._builder.values[source] = Value(source, value.type, value.constant, synthetic=True)
            self._builder.values[name] = Value(name, value.type)
            self._builder.nodes.append(Node(self._builder.label(f"{name}.copy"), Identity(), (source,), (name,)))


def _live(nodes: list[Node], outputs: tuple[str, ...]) -> list[Node]:
    """The nodes that an output depends on: arithmetic on shapes leaves others behind."""
    needed = set(outputs)
    found = []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            found.append(node)
    return found[::-1]
