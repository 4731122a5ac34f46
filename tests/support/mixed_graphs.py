"""A random ONNX graph under construction, of whatever operators: each node is run by onnxruntime as it is added, so
that what follows knows its inputs' values. `mixed_models` says what is promised of the whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import helper, numpy_helper

Array = npt.NDArray[Any]

OPSETS = (13, 15, 17, 18, 19, 20, 21)
MOST_ELEMENTS, LARGEST = 6000, 1e4
"""Of a tensor; and in magnitude."""
KINDS = tuple(map(np.dtype, (np.float32, np.int64, np.int32, np.uint8, np.int8, np.bool_)))


class Dropped(Exception):
    """What was drawn is no node: its inputs do not fit, or onnxruntime does not take it."""


@dataclass(frozen=True)
class Value:
    """A tensor of the graph. `exact` where no operator in front of it rounds: only then is it known on which side of a
    comparison, a floor or a greatest element each library finds it."""

    name: str
    array: Array
    exact: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim

    @property
    def is_float(self) -> bool:
        return self.array.dtype == np.float32


Operand = Value | str


class Growing:
    """Nodes, constants and values so far, and the source of decisions."""

    def __init__(self, seed: int) -> None:
        self.random, self.draws = Random(seed), np.random.RandomState(seed)
        self.opset = self.choose(*OPSETS)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[Value] = []
        self.values: list[Value] = []
        self._read: set[str] = set()
        self._names = 0
        for _ in range(self.choose(1, 1, 2, 3)):
            self._add_input(self._image())
        if self.chance(0.4):
            self._add_input(self._whole())

    def choose(self, *options: Any) -> Any:
        return self.random.choice(options)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def integer(self, low: int, high: int) -> int:
        """Uniform in [low, high]."""
        return self.random.randint(low, high)

    def _image(self) -> Array:
        shape = tuple(self.choose(1, 2, 3, 4, 5, 6, 8, 8, 16) for _ in range(self.choose(2, 3, 3, 4, 4, 4, 5)))
        while math.prod(shape) > 4000:
            shape = tuple(max(1, extent // 2) for extent in shape)
        return self.draws.normal(size=shape).astype(np.float32)

    def _whole(self) -> Array:
        shape = tuple(self.choose(1, 2, 3, 4, 6, 8) for _ in range(self.choose(1, 2, 2, 3)))
        kind = self.choose(np.int64, np.int64, np.int32, np.uint8, np.bool_)
        return self.draws.randint(0, 2 if kind is np.bool_ else 5, shape).astype(kind)

    def _add_input(self, array: Array) -> None:
        value = Value(f"x{len(self.inputs)}", array, True)
        self.inputs.append(value)
        self.values.append(value)

    def unread(self) -> list[Value]:
        """What nodes made and none reads: the outputs."""
        return [value for value in self.values if value.name not in self._read and value not in self.inputs]

    def attempt(self, add: Callable[[Growing], object]) -> None:
        """Adds all nodes of `add`, or none."""
        before = len(self.nodes), len(self.constants), len(self.values), set(self._read)
        try:
            add(self)
        except Dropped:
            del self.nodes[before[0] :]
            del self.constants[before[1] :]
            del self.values[before[2] :]
            self._read = before[3]

    # --- operands -------------------------------------------------------------------------------------------------

    def constant(self, array: object) -> str:
        self._names += 1
        name = f"c{self._names}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.asarray(values, np.int64))

    def scalar(self, value: float) -> str:
        return self.constant(np.float32(value))

    def weights(self, *shape: int, of: int = 1) -> str:
        """Normally distributed, such that sums of `of` products stay near one."""
        return self.constant((self.draws.normal(size=shape) * of**-0.5).astype(np.float32))

    def factors(self, count: int) -> str:
        """Between a half and two."""
        return self.constant(self.draws.uniform(0.5, 2, count).astype(np.float32))

    def one_of(self, values: Iterable[Value]) -> Value:
        """One of these, sooner one that nothing reads yet."""
        found = list(values)
        if not found:
            raise Dropped
        new = [value for value in found if value.name not in self._read]
        return self.choose(*(new if new and self.chance(0.6) else found))

    def floats(self, *ranks: int, exact: bool = False) -> Value:
        """A tensor of floating-point numbers, of one of these ranks."""
        return self.one_of(
            value for value in self.values
            if value.is_float and (not ranks or value.rank in ranks) and (value.exact or not exact)
        )  # fmt: skip

    def beside(self, x: Value, exact: bool = False) -> Operand:
        """An operand that broadcasts together with `x`, and has its type: a tensor or a constant."""
        fitting = [
            value for value in self.values
            if value.array.dtype == x.array.dtype and (value.exact or not exact) and value is not x
            and broadcasts(value.shape, x.shape)
        ]  # fmt: skip
        if fitting and self.chance(0.6):
            return self.choose(*fitting)
        return self.constant(self.filled(self.broadcastable(x.shape), x.array.dtype))

    def filled(self, shape: tuple[int, ...], kind: Any) -> Array:
        """No integer is zero: some divide."""
        if kind == np.float32:
            return self.draws.normal(size=shape).astype(np.float32)
        return self.draws.randint(0 if kind == np.bool_ else 1, 2 if kind == np.bool_ else 5, size=shape).astype(kind)

    def broadcastable(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to `shape`, as often as not a scalar's."""
        kind = self.choose("scalar", "same rank", "same rank", "last axes", "some axes")
        if kind == "scalar":
            return ()
        some = tuple(extent if self.chance(0.6) else 1 for extent in shape)
        return some[self.integer(0, len(some)) :] if kind == "last axes" else some

    # --- nodes ----------------------------------------------------------------------------------------------------

    def node(self, op: str, *inputs: Operand, exact: bool = False, **attributes: Any) -> Value:
        """A node of one output; `exact` where it does not round what is exact. Raises Dropped."""
        (made,) = self.split(op, 1, *inputs, exact=exact, **attributes)
        return made

    def split(self, op: str, count: int, *inputs: Operand, exact: bool = False, **attributes: Any) -> list[Value]:
        """A node of `count` outputs. Raises Dropped."""
        self._names += count
        outputs = [f"v{self._names - index}" for index in range(count)]
        names = [each.name if isinstance(each, Value) else each for each in inputs]
        node = helper.make_node(op, names, outputs, f"{op}_{outputs[0]}", **attributes)
        read = [each for each in inputs if isinstance(each, Value)]
        arrays = self._ran(node, read)
        if any(not _is_usable(array) for array in arrays):
            raise Dropped
        self.nodes.append(node)
        self._read |= set(names)
        keeps = exact and all(value.exact for value in read)
        made = [Value(name, array, keeps) for name, array in zip(outputs, arrays, strict=True)]
        self.values += made
        return made

    def _ran(self, node: onnx.NodeProto, read: list[Value]) -> list[Array]:
        distinct = {value.name: value for value in read}
        graph = helper.make_graph(
            [node], "one", [type_of(value, value.shape) for value in distinct.values()],
            [helper.make_empty_tensor_value_info(name) for name in node.output],
            [constant for constant in self.constants if constant.name in node.input],
        )  # fmt: skip
        try:
            onnx.checker.check_node(node, _context(self.opset))
            proto = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", self.opset)])
            return list(map(np.asarray, ran(proto, {name: value.array for name, value in distinct.items()}).values()))
        except (onnx.checker.ValidationError, *REFUSALS) as error:
            raise Dropped from error


REFUSALS = tuple(
    getattr(onnxruntime.capi.onnxruntime_pybind11_state, name)
    for name in ("Fail", "InvalidArgument", "InvalidGraph", "NotImplemented", "RuntimeException", "InvalidProtobuf")
)
"""How onnxruntime says that it does not take a model."""


def ran(proto: onnx.ModelProto, inputs: dict[str, Array]) -> dict[str, Array]:
    """What onnxruntime makes of a model, node by node as it stands, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    given = [each.name for each in session.get_inputs()]
    return dict(zip(names, session.run(None, {name: inputs[name] for name in given}), strict=True))


def type_of(value: Value, shape: Iterable[int | str] | None) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(value.array.dtype)
    return helper.make_tensor_value_info(value.name, kind, None if shape is None else list(shape))


def broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        return math.prod(np.broadcast_shapes(a, b)) <= MOST_ELEMENTS
    except ValueError:
        return False


def _is_usable(array: Array) -> bool:
    if array.dtype not in KINDS or not 0 < array.size <= MOST_ELEMENTS:
        return False
    return array.dtype != np.float32 or bool(np.isfinite(array).all() and np.abs(array).max() <= LARGEST)


def _context(opset: int) -> Any:
    context = onnx.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = 9, {"": opset}
    return context
