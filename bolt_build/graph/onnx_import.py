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
from bolt_build.graph.importing import OnnxNode
from bolt_build.graph.ir import Constant, Graph, Value
from bolt_build.graph.nodes.importer_table import ImporterTable as ImporterTable
from bolt_build.graph.nodes.model_import import ModelImport
from bolt_build.graph.onnx_model.binding import INPUT_DTYPES, bind_inputs, own_batch
from bolt_build.graph.onnx_model.narrow import is_narrow, wider
from bolt_build.graph.operators import importers
from bolt_build.plugins import remembered
from bolt_build.sizes import Dims, Lengths, all_sizes

if TYPE_CHECKING:
    from bolt_build.graph.onnx_model.onnx_file import OnnxInput


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
    """Constants that are read as a wider type than the model has them in (`narrow`), with the name of that."""

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(value.name for value in self.inputs)

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
        try:
            return self._bound(batch, dims, chosen)
        except BoltError as error:
            misfits = [each for each in error.diagnostics if each.code == _MISFIT and each.hint is None]
            if batch == 1 or not misfits or not self._binds_one(dims, chosen):
                raise
            told = [replace(each, hint=_OF_ONE) if each in misfits else each for each in error.diagnostics]
            raise BoltError(told, error.exit_code) from error

    def _bound(self, batch: int, dims: Dims, chosen: Dims) -> Graph:
        table = importer_table()
        return ModelImport(self, bind_inputs(self.inputs, batch, (*dims, *chosen)), table).graph(batch, chosen)

    def _binds_one(self, dims: Dims, chosen: Dims) -> bool:
        """Whether the model can be bound for batch 1."""
        try:
            self._bound(1, dims, chosen)
        except BoltError:
            return False
        return True


_MISFIT = "shape-mismatch"
_OF_ONE = (
    "at batch 1 it fits: the file holds the extents of the example that it was exported with; export it with a batch "
    "that is symbolic everywhere, or set model.batch to 1"
)
"""What helps where shapes do not fit for a batch, as exporters leave them that trace an example."""


def load_model(path: Path) -> OnnxModel:
    """Reads an ONNX file. Raises BoltError with everything that makes it no model."""
    # onnx takes a third of a second to import, and nothing else of this module needs it.
    from bolt_build.graph.onnx_model.onnx_file import read_onnx

    contents = read_onnx(path)
    problems = _check_inputs(contents.inputs)
    constants = []
    narrow = tuple((name, array.dtype.name) for name, array in contents.initializers if is_narrow(array))
    for name, given in contents.initializers:
        array = wider(given)
        try:
            constants.append(Value(name, type_of(array), Constant(array)))
        except ValueError as error:
            hint = _STRINGS if array.dtype.kind == "O" else None
            problems.append(Diagnostic("unsupported-dtype", f"the initializer '{name}': {error}", hint=hint))
    return OnnxModel(
        path, contents.files, dict(contents.opsets)[""], contents.inputs, contents.outputs, tuple(constants),
        contents.nodes, tuple(problems), narrow,
    )  # fmt: skip


_STRINGS = "engines compute numbers: begin or end the model at numbers (model.inputs, model.outputs)"
_HELPS = {
    "string": _STRINGS,
    "optional": "export the model once with it and once without, each with tensors alone",
    "sequence": "export the model with a tensor for each that it holds, or begin it behind (model.inputs)",
}
"""What helps where an input is of one of these types."""


def _check_inputs(inputs: Iterable[OnnxInput]) -> list[Diagnostic]:
    found = []
    for value in inputs:
        if value.dtype not in INPUT_DTYPES:
            message = f"the input '{value.name}' is of type {value.dtype}; supported are {', '.join(INPUT_DTYPES)}"
            hint = _HELPS.get(value.dtype)
            found.append(Diagnostic("unsupported-dtype", message, hint=hint))
        elif value.dims is None:
            message = f"the input '{value.name}' does not say how many dimensions it has"
            found.append(Diagnostic("unknown-rank", message, hint="export the model with a shape for each input"))
    return found
