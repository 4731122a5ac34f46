"""A graph of the IR that is drawn node by node, over small tensors whose extents are often the same by chance.

`drawn_layers` has what is drawn. Each node is computed as it is added, so that what follows knows its numbers: a graph
has none that a rounding could change much. Random numbers and Hypothesis draw alike: what is drawn is which of so many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeVar

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import type_of
from bolt_build.graph.ir import Array, Constant, Graph, Node, Op, ShapeError, Value, graph_of
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Concat, Transpose
from bolt_build.graph.ops.norms.norm import Norm

T = TypeVar("T")

EXTENTS = (2, 3, 4, 1, 6, 8)
MOST_ELEMENTS, LARGEST = 3000, 50.0
"""Of a tensor; and in magnitude."""


class Dropped(Exception):
    """What was drawn is no layer here: its inputs do not fit, or numbers become too large."""


@dataclass
class Growing:
    """Nodes and values so far; `which` draws a number below the one that it is given."""

    which: Callable[[int], int]
    batch: int = 1
    arrays: dict[str, Array] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    made: int = 0
    slips: bool = False

    # --- decisions ------------------------------------------------------------------------------------------------

    def choose(self, *options: T) -> T:
        """One of these; the first is the simplest. Raises Dropped where there are none."""
        if not options:
            raise Dropped
        return options[self.which(len(options))]

    def chance(self, parts: int = 2) -> bool:
        """True once in so many times."""
        return self.which(parts) == parts - 1

    def order(self, count: int) -> tuple[int, ...]:
        left, found = list(range(count)), []
        while left:
            found.append(left.pop(self.which(len(left))))
        return tuple(found)

    def divisor(self, of: int) -> int:
        return self.choose(*(count for count in range(1, of + 1) if of % count == 0))

    # --- operands -------------------------------------------------------------------------------------------------

    def numbers(self, *shape: int, scale: float = 1.0, low: float | None = None) -> Array:
        """Normally distributed, or uniform from `low` to two; the same for the same draws."""
        random = np.random.default_rng([self.made, *shape])
        found = random.normal(size=shape) * scale if low is None else random.uniform(low, 2.0, shape)
        return found.astype(np.float32)

    def add_input(self, *shape: int) -> str:
        name = f"x{len(self.inputs)}"
        self.made += 1
        self._define(name, self.numbers(*shape))
        self.inputs.append(name)
        return name

    def constant(self, array: Any) -> str:
        self.made += 1
        name, array = f"c{self.made}", np.asarray(array)
        self.values[name] = Value(name, type_of(array), Constant(array))
        self.arrays[name] = array
        return name

    def scalar(self, value: float) -> str:
        return self.constant(np.float32(value))

    def weights(self, *shape: int, of: int = 1) -> str:
        return self.constant(self.numbers(*shape, scale=of**-0.5))

    def factors(self, *shape: int) -> str:
        """Between a half and two: what a division may be by."""
        return self.constant(self.numbers(*shape, low=0.5))

    def shape(self, value: str) -> tuple[int, ...]:
        return self.values[value].type.shape

    def rank(self, value: str) -> int:
        return len(self.shape(value))

    def is_float(self, value: str) -> bool:
        return self.values[value].type.dtype is DType.F32

    def tensors(self, *ranks: int) -> list[str]:
        """Tensors that are no constants, of numbers, of one of these ranks."""
        return [
            name for name, value in self.values.items()
            if value.constant is None and self.is_float(name) and (not ranks or self.rank(name) in ranks)
        ]  # fmt: skip

    def tensor(self, *ranks: int) -> str:
        """One of them, sooner the last one that nothing reads yet."""
        found = self.tensors(*ranks)
        if not found:
            raise Dropped
        new = [name for name in found if name not in self.read]
        return new[-1] if new and not self.chance(3) else self.choose(*reversed(found))

    def broadcastable(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts to this one."""
        match self.choose("channel", "scalar", "last", "some", "all"):
            case "scalar":
                return ()
            case "last":
                return tuple(shape[len(shape) - 1 :])
            case "channel" if len(shape) > 1:
                return (shape[1], *(1,) * (len(shape) - 2))
            case "all":
                return tuple(shape)
        some = tuple(extent if self.chance() else 1 for extent in shape)
        return some[self.which(len(some) + 1) :]

    # --- nodes ----------------------------------------------------------------------------------------------------

    def add(self, op: Op, *inputs: str, hides: bool = False) -> str:
        """The value that a node of one output makes; where layers are drawn with slips, now and then of another
        operator or operand than asked for. Numbers are small, but for those that hide keys. Raises Dropped."""
        if self.slips and self.chance(12):
            op, inputs = self._slipped(op, inputs)
        try:
            (type_,) = op.infer([self.values[name].type for name in inputs])
            if not 0 < type_.elements <= MOST_ELEMENTS or type_.rank > 6:
                raise Dropped
            with np.errstate(all="ignore"):  # what is no number is dropped
                (array,) = op.evaluate([self.arrays[name] for name in inputs])
        except ShapeError as error:
            raise Dropped from error
        largest = (-array if hides else np.abs(array)).max(initial=0.0) if array.dtype.kind == "f" else 0.0
        if not largest <= (np.inf if hides else LARGEST):
            raise Dropped
        self.made += 1
        name = f"v{self.made}"
        self._define(name, array)
        self.nodes.append(Node(f"n{self.made}", op, inputs, (name,), covers=(f"n{self.made}",)))
        self.read.update(inputs)
        return name

    def _slipped(self, op: Op, inputs: tuple[str, ...]) -> tuple[Op, tuple[str, ...]]:
        """Almost the same: what only resembles a form that a pass looks for."""
        at = self.which(len(inputs))
        match self.choose("order", "operand", "number", "read twice", "axis", "function"):
            case "order":
                return op, inputs[::-1]
            case "operand":
                type_ = self.values[inputs[at]].type
                fits = [name for name, value in self.values.items() if value.type == type_]
                return op, (*inputs[:at], self.choose(*fits), *inputs[at + 1 :])
            case "number" if isinstance(op, Binary) and self.values[inputs[at]].constant is not None:
                return op, (*inputs[:at], self.scalar(self.choose(1.0, 0.0, -1.0, 1.7)), *inputs[at + 1 :])
            case "read twice":
                self.read -= set(inputs)  # something else may read it as well, or it is an output
            case "axis" if isinstance(op, Softmax | Concat | Gather):
                return replace(op, axis=self.which(max(1, len(self.shape(inputs[0]))))), inputs
            case "axis" if isinstance(op, Reduce | Norm):
                rank = max(1, len(self.shape(inputs[0])))
                return replace(op, axes=tuple(sorted(self.order(rank)[: len(op.axes)]))), inputs
            case "axis" if isinstance(op, Transpose):
                return Transpose(self.order(len(op.perm))), inputs
            case "function" if isinstance(op, Binary):
                return Binary(self.choose("mul", "add", "sub", "max")), inputs
            case "function" if isinstance(op, Activation):
                return Activation(self.choose("relu", "sigmoid", "tanh", "neg", "square")), inputs
            case "function" if isinstance(op, Reduce):
                return replace(op, mode=self.choose("mean", "sum", "max"), keepdims=not op.keepdims), inputs
        return op, inputs

    def _define(self, name: str, array: Array) -> None:
        self.values[name] = Value(name, type_of(array))
        self.arrays[name] = array

    def attempt(self, layer: Callable[[Growing], object]) -> None:
        """Adds all of a layer, or nothing."""
        before = dict(self.values), dict(self.arrays), len(self.nodes), set(self.read), len(self.inputs)
        try:
            layer(self)
        except Dropped:
            self.values, self.arrays, self.read = before[0], before[1], before[3]
            del self.nodes[before[2] :]
            del self.inputs[before[4] :]

    def finish(self) -> Graph | None:
        """The graph, with what nothing reads as its outputs, and now and then what something reads; None without
        nodes."""
        made = [node.outputs[0] for node in self.nodes]
        outputs = [name for name in made if name not in self.read]
        inner = [name for name in made if name in self.read]
        if inner and self.chance(4):
            outputs.append(self.choose(*inner))
        if not outputs:
            return None
        return graph_of("drawn", self.batch, self.inputs, outputs, self.values.values(), self.nodes)

    def fed(self) -> dict[str, Array]:
        return {name: self.arrays[name] for name in self.inputs}


Layer = Callable[[Growing], object]


def drawn(which: Callable[[int], int], layers: Sequence[Layer], most: int = 8) -> Growing:
    """Up to `most` of the layers over one or two inputs, whose first axis is the batch, or the second one."""
    g = Growing(which)
    g.batch = g.choose(1, 2, 3, 4)
    g.slips = g.chance()
    for _ in range(g.choose(1, 1, 2)):
        extents = [g.choose(*EXTENTS) for _ in range(g.choose(4, 4, 3, 3, 2, 5, 1) - 1)]
        if len(extents) == 3 and g.chance():
            extents[2] = extents[1]  # pixels of a square
        while g.batch * prod(extents) > MOST_ELEMENTS // 4:
            extents = [max(1, extent // 2) for extent in extents]
        at = 1 if extents and g.chance(3) else 0
        g.add_input(*extents[:at], g.batch, *extents[at:])
    for _ in range(1 + g.which(most)):
        g.attempt(g.choose(*layers))
    return g
