"""One run over a model's nodes with bound inputs: what each becomes, and all that is in the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bolt_build.errors import BoltError, Diagnostic
from bolt_build.graph.arrays import type_of
from bolt_build.graph.budget import Budget
from bolt_build.graph.graph_builder import GraphBuilder
from bolt_build.graph.importing import DATA_DECIDE, Branch, Importer, NodeImport, OnnxNode, Refusal
from bolt_build.graph.ir import Graph, Node, ShapeError, Value, graph_of, live
from bolt_build.graph.limits import MOST_FILE_NODES, MOST_NODES
from bolt_build.graph.nodes.branches import captured, placed
from bolt_build.graph.nodes.chosen import Chosen
from bolt_build.graph.nodes.chosen_rules import Rows
from bolt_build.graph.nodes.control_flow import TURNS_DECIDED, Undecided, unrolled
from bolt_build.graph.nodes.cuts import cut
from bolt_build.graph.nodes.deciding import given_value, remedy
from bolt_build.graph.nodes.import_state import ImportState, state_of
from bolt_build.graph.nodes.importer_table import ImporterTable
from bolt_build.graph.nodes.missing import COUNTED, all_nodes, as_key, ended, ends_at_data, missing_operators
from bolt_build.graph.nodes.row_runs import STRAYED
from bolt_build.graph.onnx_model.binding import Binding
from bolt_build.graph.onnx_model.narrow import READERS
from bolt_build.graph.onnx_model.onnx_findings import listed
from bolt_build.graph.onnx_model.parsed_model import ParsedModel
from bolt_build.graph.ops.moves.moving import NARROW
from bolt_build.graph.ops.moves.shape import Identity
from bolt_build.sizes import Dims

_ON_DATA = "{} on data is not supported (only on constants)"
_FOLD = "it is computed where its inputs are constants: bind what they depend on (model.dims), or export without it"


_OF_SHAPES = ("Shape", "Size")
"""Operators whose results follow from shapes alone: where they cannot be had, the reason is that no shape is known."""


class ModelImport:
    """One run over a model's nodes with bound inputs. What cannot be had is left out, and the rest still imported."""

    def __init__(self, model: ParsedModel, binding: Binding, table: ImporterTable) -> None:
        self._model, self._binding, self._table = model, binding, table
        names = [name for node in model.nodes for name in (*node.inputs, *node.outputs)]
        names += [*model.input_names] + [value.name for value in model.constants]
        # Integers of 8 bits and fewer stand for weights in fp32.
        budget = Budget(max(value.type.nbytes, 4 * value.type.elements) for value in model.constants)
        self.builder = GraphBuilder(names, [node.name for node in model.nodes], budget)
        self.builder.narrow.update(model.narrow)
        self._used = {name for node in model.nodes for name in node.inputs} | set(model.outputs)
        self._met: list[OnnxNode] = []
        """The model's nodes, graphs inside nodes in the place of these."""
        self._problems: dict[tuple[str, str, str, str | None], list[str]] = {}
        self._lost: dict[str, bool] = {}
        """Values that could not be had, and whether they depend on data."""
        self._chosen = Chosen(self.builder)
        self._placed = 0
        """How often a graph inside a node was imported."""

    def graph(self, batch: int, chosen: Dims) -> Graph:
        for name, type_ in self._binding.types:
            self.builder.define(name, type_)
        for value in self._model.constants:
            self.builder.values[value.name] = value
        known = {*self.builder.values, *(name for node in self._model.nodes for name in node.outputs)}
        # An input without a type is data; a constant without one is an initializer of an unsupported type.
        self._lost.update((name, True) for name in self._model.input_names if name not in known)
        self._lost.update((name, False) for name in self._used if name and name not in known and name not in self._lost)
        self._used.update(captured(self._model.nodes))
        for node in self._model.nodes:
            self._import(node)
        for name in self._model.outputs:
            if (rows := self._chosen.among(name)) is not None:
                self._lose_chosen(rows.source, rows)
                self._lost[name] = True
        self._finish_outputs()
        diagnostics = self._diagnostics()
        if diagnostics:
            raise BoltError(diagnostics)
        nodes = live(self.builder.nodes, self._model.outputs)
        if len(nodes) > MOST_NODES:
            message = f"{len(nodes)} nodes of the model compute with data; supported are {MOST_NODES}"
            subject = str(self._model.path)
            raise BoltError([Diagnostic("model-too-large", message, hint="give it in parts", subject=subject)])
        return graph_of(
            self._model.path.stem,
            batch,
            [name for name, _ in self._binding.types],
            self._model.outputs,
            self.builder.values.values(),
            nodes,
            chosen,
        )

    def _diagnostics(self) -> list[Diagnostic]:
        """All that was found, each once: nodes of one operator with one problem share a line."""
        found = [*self._model.problems, *self._binding.problems, *self._missing()]
        for (code, subject, message, hint), names in self._problems.items():
            where = f"{subject} {listed(names)}: " if subject else ""
            found.append(Diagnostic(code, f"{where}{message}", hint=hint))
        ends = self._cut() if any(each.hint == COUNTED for each in found) else ()
        return [replace(ended(each, ends), subject=str(self._model.path)) for each in found]

    def _cut(self) -> tuple[str, ...]:
        """The tensors at which the model can end."""

        def lost(name: str) -> bool:
            return name in self._lost or self._chosen.among(name) is not None

        def data(name: str) -> bool:
            return name in self.builder.values and self.builder.values[name].constant is None

        return cut(self._model.nodes, self._model.outputs, lost, data)

    def _sizes(self) -> dict[str, int]:
        """How many numbers each input has that may say how large something is; 0 of one of data."""
        found = dict.fromkeys(self._model.input_names, 0)
        for name in self._model.input_names:
            type_ = self.builder.values[name].type if name in self.builder.values else None
            if type_ is not None and (type_.elements == 1 or not type_.dtype.is_float):
                found[name] = type_.elements
        return found

    def _given(self, names: Sequence[str]) -> str | None:
        """What helps where values must be constants and follow from inputs of a few numbers."""
        data = [name for name in names if name and self._is_data(name)]
        return given_value(data, [*all_nodes(self._model.nodes), *self._met], self._sizes())

    def _missing(self) -> list[Diagnostic]:
        sizes = self._sizes()
        nodes = [*all_nodes(self._model.nodes), *self._met]
        bound = not self._binding.problems
        named = {name for node in self._model.nodes for name in node.outputs}
        return missing_operators(self._met, self._table, lambda same: remedy(same, nodes, sizes, bound=bound), named)

    def _import(self, node: OnnxNode) -> None:
        """Imports one node; where that fails, what depends on it is left out without further complaint."""
        if node.branches and (rows := self._chosen.among(*node.inputs, *captured([node]))) is not None:
            self._lose_chosen(node, rows)
            return
        if node.branches and self._place_inside(node):
            return
        importer = self._table.find(node)
        if importer is None and self._chosen.among(*node.inputs) is None and self._write_out(node):
            return
        self._met.append(node)
        self._chosen.met(node)
        if importer is not None and importer.folds and any(self._is_data(name) for name in node.inputs if name):
            known = all(name in self.builder.values for name in node.inputs if name)
            if node.op_type in ("NonZero", "Range") and known and self._chosen.begin(node):
                return
            helps = self._given(node.inputs) or ends_at_data(node) or _FOLD
            self.report(node, "unsupported-op", _ON_DATA.format(node.op_type), helps)
            return
        if importer is None or not self._lost.keys().isdisjoint(node.inputs):
            self.lose(node)
            return
        narrow = next((name for name in node.inputs if name in self.builder.narrow), None)
        if narrow is not None and node.op_type not in READERS:
            message = f"'{narrow}' is of {self.builder.narrow[narrow]}, which is taken only by {', '.join(READERS)}"
            self.report(node, "unsupported-dtype", message, NARROW)
            return
        if node.op_type == "Split" and self._chosen.split(node):
            return
        node = self._chosen.counted(node)
        rows = self._chosen.among(*node.inputs)
        try:
            if rows is None:
                self._run(node, importer)
            else:
                self._chosen.follow(node, lambda given: self._run(given, importer))
        except Exception as error:  # whatever NumPy, or another package's importer, raises of what does not fit
            if rows is not None:
                self._lose_chosen(node, rows)
            elif isinstance(error, Refusal):
                given = self._given(node.inputs[1:]) if error.hint in (None, DATA_DECIDE) else None
                self.report(node, error.code, error.message, given or error.hint)
            elif isinstance(error, ShapeError):
                self.report(node, "shape-mismatch", str(error))
            else:
                self.report(node, "invalid-node", f"cannot be imported: {str(error) or type(error).__name__}")

    def _run(self, node: OnnxNode, importer: Importer) -> None:
        running = NodeImport(node, self.builder, self._used)
        importer.run(running)
        self._check_outputs(node)
        for name in running.unread():
            if name not in importer.ignores:
                raise Refusal("unsupported-attribute", f"attribute '{name}' is not understood")

    def _lose_chosen(self, node: OnnxNode, rows: Rows) -> None:
        """Says of what chose the rows that a node reads that data decide how many there are."""
        if rows.source.outputs[0] not in self._lost:
            helps = self._given(rows.source.inputs) if rows.between else None
            helps = helps or (ends_at_data(rows.source) if rows.between is None else STRAYED)
            self.report(rows.source, "unsupported-op", _ON_DATA.format(rows.source.op_type), helps)
        self._lost.update((name, True) for name in node.outputs if name)

    def _place_inside(self, node: OnnxNode) -> bool:
        """Imports what a node with graphs inside it does. False where data decide that."""
        if any(self._lost.get(name) is False for name in node.inputs):  # what made it so is reported
            self.lose(node)
            return True
        if node.op_type != "If" and not self._lost.keys().isdisjoint(node.inputs):
            self.lose(node)
            return True
        begun = state_of(self.builder, self._problems, self._lost, len(self._met), self._placed)
        try:
            unrolled(self, node)
        except Undecided:
            self._go_back(begun)
            return False
        except Refusal as refusal:
            asked = {DATA_DECIDE: node.inputs, TURNS_DECIDED: node.inputs[:2]}.get(refusal.hint or "")
            given = self._given(asked) if asked is not None else None
            self.report(node, refusal.code, refusal.message, given or refusal.hint)
        except ShapeError as error:
            self.report(node, "shape-mismatch", str(error))
        except ValueError as error:
            self.report(node, "unsupported-dtype", str(error))
        return True

    def _go_back(self, to: ImportState) -> None:
        """Forgets what was imported since."""
        self.builder.values, self.builder.sequences = to.values, to.sequences
        self._problems, self._lost, self._placed = to.problems, to.lost, to.placed
        del self.builder.nodes[to.nodes :]
        del self._met[to.met :]

    def _write_out(self, node: OnnxNode) -> bool:
        """Imports an operator without an importer as the function that defines it. False where it has none."""
        if node.domain not in ("", "com.microsoft"):
            return False
        if not self._lost.keys().isdisjoint(node.inputs) or not self.builder.sequences.keys().isdisjoint(node.inputs):
            return False
        # onnx takes a third of a second to import, and most models have no such operator.
        from bolt_build.graph.onnx_model.onnx_bodies import body_of, is_function

        types = [self.builder.values[name].type if name else None for name in node.inputs]
        try:
            body = body_of(node, types, self._model.opset)
            if body is None:
                return False
            inside = (each for each in body.nodes if self._table.find(each) is None and not each.branches)
            if not all(is_function(each.op_type, self._model.opset) for each in inside):
                return False
            self.give(node, self.place(node, body, {}, node.name, node.outputs))
        except Refusal as refusal:
            self.report(node, refusal.code, refusal.message, refusal.hint)
        except Exception as error:  # C++ of onnx that raises whatever does not fit
            self.report(node, "invalid-node", f"cannot be written out: {error}")
        return True

    def known(self, name: str) -> bool:
        """Whether a tensor or sequence of that name could be had."""
        return name in self.builder.values or name in self.builder.sequences

    def define(self, branch: Branch) -> dict[str, str]:
        """Defines the constants of a graph inside a node, under names that are new. Returns these by its own names."""
        found = {}
        for name, array in branch.constants:
            found[name] = self.builder.fresh(name)
            self.builder.define(found[name], type_of(array), array, synthetic=True)
        return found

    def place(
        self, node: OnnxNode, branch: Branch, given: Mapping[str, str], prefix: str, wanted: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Imports a graph inside `node` once (see `branches.placed`). Returns what its outputs are called, each of
        which may be lost. Raises Refusal where the model becomes too large."""
        found = placed(prefix, branch, given, wanted, self.builder.fresh, self.builder.label)
        self._placed += 1
        if self._placed + len(self._met) + len(found.nodes) > MOST_FILE_NODES:
            message = f"with what is inside it the model has more than {MOST_FILE_NODES} nodes"
            raise Refusal("model-too-large", message)
        for name, array in found.constants:
            self.builder.define(name, type_of(array), array, synthetic=True)
        self._used.update(name for inner in found.nodes for name in inner.inputs)
        self._used.update(captured(found.nodes))
        self._used.update(found.results)
        for inner in found.nodes:
            missing = next((name for name in inner.inputs if name and not self._is_there(name)), None)
            if missing is not None:
                self.report(inner, "undefined-tensor", f"it reads '{missing}', which nothing in front of it defines")
                continue
            self._import(inner)
            for name in inner.outputs:
                if name in self.builder.values and name not in wanted:
                    # Inside a node no other runtime shows it.
                    self.builder.values[name] = replace(self.builder.values[name], synthetic=True)
        for name in found.results:
            if not self._is_there(name):
                raise Refusal("undefined-tensor", f"a graph inside it gives '{name}', which nothing defines")
        return found.results

    def give(self, node: OnnxNode, results: Sequence[str]) -> None:
        """Defines the outputs of `node` as values that are there, or lost; "" where nothing reads one. Raises Refusal
        where there are too few."""
        outputs = node.outputs
        if len(results) < len(outputs):
            message = f"a branch has {len(results)} outputs where {len(outputs)} are used"
            raise Refusal("invalid-node", message)
        for source, output in zip(results, outputs, strict=False):
            if not output or not source or source == output:
                continue
            if source in self.builder.sequences:
                self.builder.sequences[output] = self.builder.sequences[source]
            elif source in self._lost:
                self._lost[output] = self._lost[source]
            else:
                self._copy(node, source, output)

    def _copy(self, node: OnnxNode, source: str, output: str) -> None:
        value = self.builder.values[source]
        self.builder.values[output] = replace(value, name=output, synthetic=False)
        if value.constant is None:
            label = self.builder.label(f"{node.name}.copy")
            self.builder.nodes.append(Node(label, Identity(), (source,), (output,), covers=(node.name,)))

    def is_lost(self, name: str) -> bool:
        return name in self._lost

    def is_used(self, name: str) -> bool:
        """Whether something reads a value of that name."""
        return name in self._used

    def _is_there(self, name: str) -> bool:
        return self.known(name) or name in self._lost or self._chosen.among(name) is not None

    def _is_data(self, name: str) -> bool:
        """True of a value that is only known at run time."""
        if name in self._lost:
            return self._lost[name]
        if name in self.builder.sequences:
            return any(map(self._is_data, self.builder.sequences[name]))
        if self._chosen.among(name) is not None:  # a run of rows has no value of its own
            return True
        return self.builder.values[name].constant is None

    def _check_outputs(self, node: OnnxNode) -> None:
        for index, name in enumerate(node.outputs):
            if name and name in self._used and not self.known(name):
                raise Refusal("unsupported-output", f"its output {index} ('{name}') is used, which is not supported")

    def lose(self, node: OnnxNode) -> None:
        data = node.op_type not in _OF_SHAPES and any(self._is_data(name) for name in node.inputs if name)
        self._lost.update((name, data) for name in node.outputs if name)

    def report(self, node: OnnxNode, code: str, message: str, hint: str | None = None) -> None:
        self.lose(node)
        self._problems.setdefault((code, node.op_type, message, hint), []).append(node.name)

    def _no_output(self, name: str) -> str | None:
        """What the value is that no engine can give; None of one that can be given."""
        if name in self._model.input_names:
            return "a graph input: there is nothing to compute for it"
        if name in self.builder.sequences:
            return "a sequence; an engine's outputs are tensors"
        shape = self.builder.values[name].type.shape
        return f"{list(shape)}, which has no elements" if 0 in shape else None

    def _finish_outputs(self) -> None:
        """A constant that is an output gets a node that copies it; an input that is one is refused."""
        copied: dict[str, str] = {}
        for name in self._model.outputs:
            if name in self._lost and name not in self._model.input_names:
                continue
            if (why := self._no_output(name)) is not None:
                rest = [each for each in self._model.outputs if each != name]
                hint = f"leave it out of the outputs{as_key('outputs', rest)}"
                self._problems["unsupported-output", "", f"the output '{name}' is {why}", hint] = []
            elif self.builder.values[name].constant is not None:
                copied[name] = self.builder.fresh(f"{name}.constant")
        for index, node in enumerate(self.builder.nodes):
            if not copied.keys().isdisjoint(node.inputs):
                inputs = tuple(copied.get(name, name) for name in node.inputs)
                self.builder.nodes[index] = replace(node, inputs=inputs)
        for name, source in copied.items():
            value = self.builder.values[name]
            self.builder.values[source] = Value(source, value.type, value.constant, synthetic=True)
            self.builder.values[name] = Value(name, value.type)
            self.builder.nodes.append(Node(self.builder.label(f"{name}.copy"), Identity(), (source,), (name,)))
