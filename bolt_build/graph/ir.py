"""The typed graph that every stage between import and emission reads.

Shapes are always logical, in ONNX's axis order (NCHW for images), and static: batches and symbolic dimensions are
bound before a graph exists. How a tensor lies in memory is a `Layout`, chosen late (`planner/resolve.py`); no pass
permutes axes to get NHWC. A value imported from ONNX keeps its ONNX tensor name through every pass, so that a
name is enough to compare it with another runtime; a value that a pass makes is `synthetic`.
"""

from __future__ import annotations

import hashlib
import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bolt_build.digest import UNSAID
from bolt_build.dtypes import DType
from bolt_build.graph.tail import Padded, PaddingReaches, Tails
from bolt_build.layouts import Layout as Layout
from bolt_build.sizes import Dims

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Quantization:
    """Room for quantised tensors: real = (stored - zero_point) * scale, along `axis` or for the whole tensor."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None


@dataclass(frozen=True)
class TensorType:
    """Element type and static logical shape; `quantization` where the values stand for others."""

    dtype: DType
    shape: tuple[int, ...]
    quantization: Quantization | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * self.dtype.nbytes


class ShapeError(ValueError):
    """Input types do not fit an op; the text says which and why, without the node's name."""


@dataclass(frozen=True)
class Op(ABC):
    """What a node computes: a frozen dataclass with typed attributes, one subclass an operator.

    `kind` is its name in text IR. Subclasses register themselves by existing; plans name them by class name.
    `in_graphs`: it stands in graphs, not in kernel problems alone. `factors`: how many of its first inputs are stored
    in the layer's precision where they are constants, as weights are; others are stored in fp32. `moves`: what it makes
    are elements of its inputs, as they are stored. `shaped`: its own numbers are shapes, which differ where extents do.
    `keeps`: of several operators one behind the other, what the first leaves is stored as well, as the first output.
    `scales`: inputs (-1: the output) that are stored in fp32 whatever the layer's precision: scales of integers and
    places in images, for which half precision has too few bits.
    """

    kind: ClassVar[str]
    in_graphs: ClassVar[bool] = True
    factors: ClassVar[int] = 0
    moves: ClassVar[bool] = False
    shaped: ClassVar[bool] = False
    keeps: ClassVar[bool] = False
    scales: ClassVar[tuple[int, ...]] = ()

    @abstractmethod
    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        """Types of the outputs. Raises ShapeError."""

    @abstractmethod
    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """NumPy reference: logical row-major arrays in and out, computed in the inputs' precision or better."""

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        """Floating-point operations (a multiply-add counts two); one an output element unless said."""
        return sum(t.elements for t in outputs)

    def workspace(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        """Elements that `evaluate` may hold in a wider type at once; its inputs and outputs unless said."""
        return sum(t.elements for t in (*inputs, *outputs))

    @property
    def sequence(self) -> tuple[Member, ...]:
        """The operators that it stands for, one behind the other: itself, unless said."""
        return (Member(self),)

    @property
    def reads_sizes(self) -> bool:
        """Whether its kernels ask the run how much of padded inputs there is; no, unless said."""
        return False

    def unread(self, inputs: Sequence[TensorType]) -> int:
        """Elements of input 0 that no output depends on, wherever strides leave some out; none unless said."""
        return 0

    def indices(self, inputs: Sequence[TensorType]) -> Mapping[int, int]:
        """Inputs whose elements are indices, each with the least extent that it counts in; none unless said."""
        return {}

    def ascending(self, inputs: Sequence[TensorType]) -> Mapping[int, tuple[int, int]]:
        """Inputs that are tables of indices in ascending order in nearly all networks, each with the first and the last
        element that such tables have about; none unless said. Tuning measures kernels with tables like these."""
        return {}

    def of_stored(self, stored: Stored) -> Stored | None:
        """The integers that its result is stored as where its input is; None unless said."""
        return None

    def tails(self, node: Node, at: Padded) -> Tails:
        """What is known of its result behind the real part, where inputs of `node` are padded. Raises PaddingReaches
        where padding would change the real part, and unless said."""
        raise PaddingReaches(f"is '{self.kind}', an operator that has no rule for padding")


@dataclass(frozen=True)
class Member:
    """One of several operators that follow each other: `own` inputs of all are its own (those behind its input 0, where
    that is what the one before leaves; None: all that are left), and the stages `between` it and the next."""

    op: Op
    own: int | None = None
    between: tuple[EpilogueOp, ...] = ()


@dataclass(frozen=True)
class EpilogueOp:
    """One elementwise stage applied to a node's result before it is stored.

    `op` is an `Activation` (operand None) or a `Binary`; for the latter `operand` is the index in the node's inputs
    of the other side, and `swapped` says that the operand is the left side (operand - x, operand / x).
    """

    op: Op
    operand: int | None = None
    swapped: bool = False


@dataclass(frozen=True, eq=False)
class Stored:
    """Integers of 8 bits that stand for real numbers, (q - zero) * scale: `scale` and `zero` broadcast to `q`."""

    q: Array
    scale: Array
    zero: Array


@dataclass(frozen=True)
class Constant:
    """An immutable array with its digest (element type, shape and bytes), and what the model has it stored as, where
    that is integers."""

    array: Array = field(compare=False, repr=False)
    digest: str = field(init=False)
    stored: Stored | None = field(default=None, compare=False, repr=False, metadata=UNSAID)

    def __post_init__(self) -> None:
        array = np.ascontiguousarray(self.array).reshape(np.shape(self.array))
        array.setflags(write=False)
        object.__setattr__(self, "array", array)
        hashed = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
        hashed.update(array.reshape(-1).view(np.uint8).data)  # no copy: weights may be large
        object.__setattr__(self, "digest", hashed.hexdigest())


@dataclass(frozen=True)
class Value:
    """A tensor of the graph: a graph input, a constant, or one node's output.

    A constant's array is of `type`; of half precision that was computed, in fp32 (`arrays.held_dtype`).
    """

    name: str
    type: TensorType
    constant: Constant | None = None
    synthetic: bool = False


@dataclass(frozen=True)
class Node:
    """One operation. `covers` names the ONNX nodes that it stands for (for messages and comments).

    `epilogue` stages apply in order to output 0; their operands stand in `inputs` behind the op's own.
    """

    name: str
    op: Op
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    epilogue: tuple[EpilogueOp, ...] = ()
    covers: tuple[str, ...] = ()

    @property
    def op_inputs(self) -> tuple[str, ...]:
        """The inputs without the epilogue's operands."""
        operands = {stage.operand for stage in self.epilogue if stage.operand is not None}
        return tuple(name for i, name in enumerate(self.inputs) if i not in operands)


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order over named values. Build one with `graph_of`; check with `graph.invariants`."""

    name: str
    batch: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: tuple[Value, ...]
    nodes: tuple[Node, ...]
    dims: Dims = field(default=(), metadata=UNSAID)
    """Of the dimensions of which the engine has several extents the one that this graph is for."""

    @cached_property
    def _values(self) -> dict[str, Value]:
        return {value.name: value for value in self.values}

    @cached_property
    def _producers(self) -> dict[str, Node]:
        return {output: node for node in self.nodes for output in node.outputs}

    @cached_property
    def _consumers(self) -> dict[str, tuple[Node, ...]]:
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                found.setdefault(name, []).append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    def value(self, name: str) -> Value:
        """The value called `name`. Raises KeyError."""
        return self._values[name]

    def has(self, name: str) -> bool:
        return name in self._values

    def type(self, name: str) -> TensorType:
        return self._values[name].type

    def constant(self, name: str) -> Array | None:
        """The array of a constant value, None for any other."""
        constant = self._values[name].constant
        return None if constant is None else constant.array

    def producer(self, name: str) -> Node | None:
        return self._producers.get(name)

    def consumers(self, name: str) -> tuple[Node, ...]:
        """Nodes that read the value, in order, each once."""
        return self._consumers.get(name, ())


def live(nodes: Sequence[Node], outputs: Iterable[str]) -> list[Node]:
    """The nodes that an output depends on, of nodes in a topological order."""
    needed = set(outputs)
    found = []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            found.append(node)
    return found[::-1]


def graph_of(
    name: str,
    batch: int,
    inputs: Iterable[str],
    outputs: Iterable[str],
    values: Iterable[Value],
    nodes: Iterable[Node],
    dims: Dims = (),
) -> Graph:
    """A graph with its nodes in a stable topological order and without values that nothing refers to.

    Raises ValueError where nodes form a cycle or a name is defined twice.
    """
    inputs, outputs, nodes = tuple(inputs), tuple(outputs), tuple(nodes)
    by_name: dict[str, Value] = {}
    for value in values:
        if value.name in by_name:
            raise ValueError(f"value '{value.name}' is defined twice")
        by_name[value.name] = value
    ordered = _in_order(nodes)
    used = dict.fromkeys([*inputs, *(n for node in ordered for n in (*node.inputs, *node.outputs)), *outputs])
    return Graph(name, batch, inputs, outputs, tuple(by_name[n] for n in used), ordered, dims)


def _in_order(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Kahn's algorithm that keeps the given order wherever the edges allow it."""
    produced = {output: index for index, node in enumerate(nodes) for output in node.outputs}
    waits = [len({produced[i] for i in node.inputs if i in produced}) for node in nodes]
    readers: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        for source in {produced[i] for i in node.inputs if i in produced}:
            readers.setdefault(source, []).append(index)
    ready = [index for index, count in enumerate(waits) if count == 0]
    heapq.heapify(ready)
    ordered: list[Node] = []
    while ready:
        index = heapq.heappop(ready)
        ordered.append(nodes[index])
        for reader in readers.get(index, ()):
            waits[reader] -= 1
            if waits[reader] == 0:
                heapq.heappush(ready, reader)
    if len(ordered) != len(nodes):
        raise ValueError("the nodes form a cycle")
    return tuple(ordered)
