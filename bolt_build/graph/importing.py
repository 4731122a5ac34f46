"""What an operator's importer sees of an ONNX model: one node with decoded attributes, types and constants.

Nothing here knows protobuf; `graph.onnx_import` decodes and calls. An op's file lists its importers in a tuple
`IMPORTERS`; another package offers such a tuple through the entry-point group `bolt_build.ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bolt_build.graph.arrays import held, held_dtype, narrowed, numpy_dtype, type_of
from bolt_build.graph.example import OF_AN_IMAGE, Example
from bolt_build.graph.graph_builder import GraphBuilder
from bolt_build.graph.ir import Array, Node, Op, ShapeError, Stored, TensorType
from bolt_build.graph.limits import LEAST_REPEATS, MOST_ENTRIES, MOST_REPEATED_BYTES, too_large

_Kind = type | tuple[type, ...]

NO_SCHEMA = 0
"""The version of an operator in ONNX's own domain that the model's opset does not have. onnxruntime's optimiser writes
LayerNormalization so into models of any opset, and SimplifiedLayerNormalization, which no opset has."""

DATA_DECIDE = (
    "data decide it, and shapes and weights are static: end the model in front of it (model.outputs), or "
    "export it for one value"
)
"""What helps where an input must be constant, and no input of a few numbers decides it."""

Attribute = int | float | str | Array | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]


class Refusal(Exception):
    """A node that cannot be imported; the text is a sentence about it without its name."""

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        self.code, self.message, self.hint = code, message, hint
        super().__init__(message)


@dataclass(frozen=True)
class OnnxNode:
    """One ONNX node. `name` is unique in the model; an input or output left out is "".

    `since_version` is the operator set that last changed the operator at the model's opset. `unreadable` names
    attributes of kinds that have no decoded form (graphs, sparse tensors). `branches` are the graphs inside it: of an
    If what it is where the condition is true, and where it is false; of Loop, Scan and SequenceMap the body.
    """

    name: str
    domain: str
    op_type: str
    since_version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
    unreadable: tuple[str, ...] = ()
    branches: tuple[Branch, ...] = ()


@dataclass(frozen=True)
class Branch:
    """A graph inside a node: it may read names of the graphs around it, and hide them by defining its own. `rows` are
    the inputs that it declares with one axis: a loop's turns may be numbered so."""

    nodes: tuple[OnnxNode, ...]
    constants: tuple[tuple[str, Array], ...]
    outputs: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()


_SAME_MEMORY = ("identity", "reshape")
"""Operators whose result, of a constant, takes no memory of its own."""
_OF_ANY_NUMBERS = ("binary", "cast", "compare", "logic")
"""Operators that kernels compute of integers and booleans too, beside those that only move."""


class NodeImport:
    """One node being imported: questions about it, and `emit` to add what it becomes.

    Whatever is emitted from constants alone is evaluated at once and becomes a constant.
    """

    def __init__(self, node: OnnxNode, builder: GraphBuilder, used: Container[str] | None = None) -> None:
        """`used` are the values that something reads; None where that is not known."""
        self.node = node
        self._builder = builder
        self._used = used
        self._attributes = dict(node.attributes)
        self._read: set[str] = set()

    # -- inputs ------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        return self.node.since_version

    def count(self) -> int:
        """Number of inputs, trailing omitted ones not counted."""
        given = [index for index, name in enumerate(self.node.inputs) if name]
        return given[-1] + 1 if given else 0

    def has(self, index: int) -> bool:
        return index < len(self.node.inputs) and self.node.inputs[index] != ""

    def input(self, index: int) -> str:
        """Name of an input that must be there. Raises Refusal."""
        if not self.has(index):
            raise Refusal("invalid-node", f"input {index} is missing")
        return self.node.inputs[index]

    def inputs(self) -> tuple[str, ...]:
        """Names of all inputs, each of which must be there. Raises Refusal."""
        return tuple(self.input(index) for index in range(len(self.node.inputs)))

    def wants(self, output: int) -> bool:
        """Whether something reads output `output`."""
        name = self.node.outputs[output] if output < len(self.node.outputs) else ""
        return name != "" and (self._used is None or name in self._used)

    def type(self, index: int) -> TensorType:
        return self.type_of(self.input(index))

    def type_of(self, name: str) -> TensorType:
        """The type of a tensor. Raises Refusal where the name is a sequence's."""
        if name in self._builder.sequences:
            raise Refusal("invalid-node", f"it takes a tensor, and '{name}' is a sequence")
        return self._builder.values[name].type

    def sequence(self, index: int) -> tuple[str, ...]:
        """The tensors of input `index`, a sequence. Raises Refusal where it is none."""
        name = self.input(index)
        if name not in self._builder.sequences:
            raise Refusal("invalid-node", f"it takes a sequence, and '{name}' is a tensor")
        return self._builder.sequences[name]

    def is_sequence(self, index: int) -> bool:
        return self.input(index) in self._builder.sequences

    def sequence_of(self, tensors: Sequence[str], output: int = 0) -> None:
        """Defines output `output` as the sequence of `tensors`. Raises Refusal where there are too many."""
        if len(tensors) > MOST_ENTRIES:
            raise Refusal("model-too-large", f"a sequence of {len(tensors)} tensors; supported are {MOST_ENTRIES}")
        self._builder.sequences[self.node.outputs[output]] = tuple(tensors)

    def constant(self, index: int) -> Array | None:
        """The array of input `index`, None where it is computed at run time."""
        self.type(index)
        return self._builder.constant(self.input(index))

    def array(self, name: str) -> Array | None:
        """The array of a value, None where it is computed at run time."""
        return self._builder.constant(name)

    def is_narrow(self, index: int) -> bool:
        """Whether the model has input `index` in a type that is read as a wider one."""
        return self.input(index) in self._builder.narrow

    def static(self, index: int, what: str) -> Array:
        """The array of input `index`, which must be constant. Raises Refusal."""
        array = self.constant(index)
        if array is None:
            raise Refusal("unsupported-op", f"{what} ('{self.input(index)}') is not a constant", DATA_DECIDE)
        return array

    def static_ints(self, index: int, what: str) -> tuple[int, ...]:
        """The integers of input `index`, a constant of one axis or none. Raises Refusal and ShapeError."""
        array = self.static(index, what)
        if array.dtype.kind != "i":
            kind = self.type(index).dtype.value
            raise Refusal("invalid-node", f"{what} ('{self.input(index)}') is of {kind}, not of integers")
        if array.ndim > 1 or array.size > MOST_ENTRIES:
            raise ShapeError(f"{what} of shape {list(array.shape)} must have one axis, of at most {MOST_ENTRIES}")
        return tuple(int(item) for item in array.reshape(-1))

    def static_list(self, index: int, what: str) -> tuple[int, ...]:
        """The same of exactly one axis."""
        if self.type(index).rank != 1:
            raise ShapeError(f"{what} of shape {list(self.type(index).shape)} must have one axis")
        return self.static_ints(index, what)

    def static_number(self, index: int, what: str) -> float:
        """The only element of input `index`, a constant. Raises Refusal and ShapeError."""
        array = self.static(index, what)
        if array.size != 1:
            raise ShapeError(f"{what} has {array.size} elements instead of one")
        return float(array.reshape(-1)[0])

    def foldable(self, count: int) -> tuple[Array, ...]:
        """The arrays of the first `count` inputs, which must be constant: this operator only folds. Raises Refusal."""
        return tuple(self.static(index, "an input") for index in range(count))

    def axis(self, value: int, rank: int) -> int:
        """`value` as a non-negative axis of a tensor of `rank`. Raises ShapeError."""
        if not -rank <= value < rank:
            raise ShapeError(f"axis {value} does not exist in a tensor of rank {rank}")
        return value % rank

    def axes(self, values: Sequence[int], rank: int) -> tuple[int, ...]:
        """`values` as non-negative axes in the order given, each once. Raises ShapeError."""
        found = tuple(self.axis(int(value), rank) for value in values)
        if len(set(found)) != len(found):
            raise ShapeError(f"axes {list(values)} name an axis twice")
        return found

    # -- attributes --------------------------------------------------------------------------------------------

    def _attribute(self, name: str, kind: _Kind, default: Any) -> Any:
        self._read.add(name)
        if name in self.node.unreadable:
            raise Refusal("unsupported-attribute", f"attribute '{name}' is of a kind that is not supported")
        value = self._attributes.get(name, default)
        if value is None:
            raise Refusal("invalid-node", f"attribute '{name}' is missing")
        if not isinstance(value, kind):
            raise Refusal("invalid-node", f"attribute '{name}' is of the wrong kind")
        return value

    def unread(self) -> tuple[str, ...]:
        """Attributes that the node has and nobody asked for."""
        return tuple(sorted({*self._attributes, *self.node.unreadable} - self._read))

    def given(self, name: str) -> bool:
        return name in self._attributes or name in self.node.unreadable

    def integer(self, name: str, default: int | None = None) -> int:
        return int(self._attribute(name, int, default))

    def real(self, name: str, default: float | None = None) -> float:
        """A float attribute, which ONNX stores as float32: the shortest decimal that reads back as it."""
        return float(str(np.float32(self._attribute(name, (float, int), default))))

    def text(self, name: str, default: str | None = None) -> str:
        return str(self._attribute(name, str, default))

    def integers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        return tuple(int(i) for i in self._attribute(name, tuple, None if default is None else tuple(default)))

    def reals(self, name: str) -> tuple[float, ...]:
        return tuple(float(i) for i in self._attribute(name, tuple, None))

    def texts(self, name: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        return tuple(str(i) for i in self._attribute(name, tuple, None if default is None else tuple(default)))

    def tensor(self, name: str, default: Array | None = None) -> Array:
        array: Array = self._attribute(name, np.ndarray, default)
        return array

    # -- results -----------------------------------------------------------------------------------------------

    def emit(self, op: Op, inputs: Sequence[str], output: int | None = None) -> str:
        """Adds a node that computes output `output` of the ONNX node (None: a helper). Returns the value's name.

        A result without elements is a constant, whatever the data are. Raises ShapeError where the inputs do not fit,
        and ValueError for an operator with several outputs: of these, each becomes an operator of its own.
        """
        types = [self.type_of(name) for name in inputs]
        result, *more = op.infer(types)
        if more:
            raise ValueError(f"{op.kind} has {1 + len(more)} outputs: emit an operator for each output that is wanted")
        reason = too_large(result)
        if reason is not None:
            raise Refusal("model-too-large", reason)
        arrays = [self._builder.constant(name) for name in inputs]
        known = [array for array in arrays if array is not None]
        name = self._output_name(output, op.kind)
        if len(known) == len(arrays) and self._folds(op, types, result):
            (array,) = op.evaluate([held(array) for array in known])
            return self._builder.define(
                name, result, narrowed(array, held_dtype(result.dtype)), output is None, self._moved(op, inputs)
            )
        if 0 in result.shape:
            nothing: Array = np.empty(result.shape, held_dtype(result.dtype))
            return self._builder.define(name, result, nothing, synthetic=output is None)
        empty = next((each for each in types if 0 in each.shape), None)
        if empty is not None:
            raise ShapeError(f"an input, {list(empty.shape)}, has no elements")
        self._builder.define(name, result, synthetic=output is None)
        label = self.node.name
        if output != 0:
            label = self._builder.label(f"{label}.{op.kind if output is None else output}")
        self._builder.nodes.append(Node(label, op, tuple(inputs), (name,), covers=(self.node.name,)))
        return name

    def _moved(self, op: Op, inputs: Sequence[str]) -> Stored | None:
        """What `op` makes of the integers that its only input is stored as, where it moves them alone."""
        constant = self._builder.values[inputs[0]].constant if len(inputs) == 1 else None
        return None if constant is None or constant.stored is None else op.of_stored(constant.stored)

    def _folds(self, op: Op, types: Sequence[TensorType], result: TensorType) -> bool:
        """Whether what `op` makes of constants is computed now. Raises Refusal where it is too much and nothing
        that a kernel could compute."""
        many = result.elements >= LEAST_REPEATS * sum(each.elements for each in types)
        if op.moves and many and not result.dtype.is_float and result.nbytes > MOST_REPEATED_BYTES:
            return False
        if op.kind in _SAME_MEMORY:
            return True
        refused = self._builder.budget.refuse(op, types, result)
        kernels = result.dtype.is_float or op.moves or op.kind in _OF_ANY_NUMBERS
        if refused is not None and not kernels:
            raise Refusal("model-too-large", refused)
        if refused is None:
            self._builder.budget.take(result.nbytes)
        return refused is None

    def helper(self, array: Array, what: str) -> str:
        """Adds a synthetic constant. Returns its name."""
        name = self._builder.fresh(f"{self.node.name}.{what}")
        return self._builder.define(name, type_of(array), array, synthetic=True)

    def scalar_like(self, value: float, name: str) -> str:
        """A rank-0 synthetic constant of `value` in the element type of value `name`."""
        return self.helper(np.asarray(value, numpy_dtype(self.type_of(name).dtype)), "scalar")

    def has_room(self, type_: TensorType) -> bool:
        """Whether `fold` would take a constant of this type."""
        return too_large(type_) is None and self._builder.budget.refuse_bytes(type_.nbytes) is None

    def fold(self, type_: TensorType, compute: Callable[[], Array], stored: Stored | None = None) -> None:
        """Defines output 0 as the constant that `compute` makes, of this type, which the model has as `stored`. Raises
        Refusal where that is too large, before it is computed."""
        reason = too_large(type_)
        if reason is None:
            reason = self._builder.budget.refuse_bytes(type_.nbytes)
        if reason is not None:
            raise Refusal("model-too-large", reason)
        self._builder.budget.take(type_.nbytes)
        self._builder.define(self.node.outputs[0], type_, held(compute()), stored=stored)

    def result(self, array: Array, output: int = 0) -> None:
        """Defines output `output` as a constant that is small, or was in the model."""
        array = np.asarray(array)
        try:
            type_ = type_of(array)
        except ValueError as error:
            raise Refusal("unsupported-dtype", str(error)) from None
        self._builder.define(self.node.outputs[output], type_, array)

    def _output_name(self, output: int | None, kind: str) -> str:
        if output is None:
            return self._builder.fresh(f"{self.node.name}.{kind}")
        return self.node.outputs[output]


@dataclass(frozen=True)
class Importer:
    """How versions of one ONNX operator are imported: `versions` are the since_versions that `run` understands.

    `run` emits nodes or constants for every output that it supports; it raises Refusal or ShapeError. An attribute that
    it does not ask for is an error, unless it stands in `ignores`: those say nothing about the supported outputs.
    `folds`: it takes constants alone; a node with any other input is refused without being run. `moves`: each output's
    elements are some of input 0's, whatever the other inputs say; verification takes any other operator that it has no
    rule for as one that rounds.
    `example` is a node that is understood; `note` says in a few words what of the operator is not.
    """

    op_type: str
    versions: tuple[int, ...]
    run: Callable[[NodeImport], None]
    domain: str = ""
    ignores: tuple[str, ...] = ()
    folds: bool = False
    example: Example = OF_AN_IMAGE
    note: str = ""
    moves: bool = False
