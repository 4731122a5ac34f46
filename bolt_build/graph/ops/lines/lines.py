"""What walks along one axis: running sums and products, places of the greatest and least, one-hot lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.example import IMAGE, Data, Example, Integers
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Compare, Logic, Where
from bolt_build.graph.ops.moves.gather import GatherElements
from bolt_build.graph.ops.moves.shape import Cast, Reshape, Slice
from bolt_build.graph.ops.operands import expect_axis, expect_count
from bolt_build.graph.tail import ANYTHING, Padded, PaddingReaches, Tails


@dataclass(frozen=True)
class CumSum(Op):
    """Sums along `axis` of what stands before each element, itself included unless `exclusive`; from the end of
    the axis where `reverse`."""

    kind = "cumsum"
    axis: int
    exclusive: bool = False
    reverse: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        expect_axis(self.axis, inputs[0])
        if inputs[0].dtype is DType.BOOL:
            raise ShapeError("takes numbers, not bool")
        return (inputs[0],)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x = widened(inputs[0])
        turned = np.flip(x, self.axis) if self.reverse else x
        with np.errstate(invalid="ignore"):  # infinity less infinity is no number
            sums = np.cumsum(turned, self.axis, dtype=x.dtype)
        if self.exclusive:
            # Less each element, numbers beside far larger or infinite ones would be lost.
            sums = np.roll(sums, 1, self.axis)
            np.moveaxis(sums, self.axis, 0)[:1] = 0
        return (narrowed(np.flip(sums, self.axis) if self.reverse else sums, inputs[0].dtype),)

    def tails(self, node: Node, at: Padded) -> Tails:
        """A sum of all in front: padding is behind."""
        along = [at.axis(node.inputs[0], step) == self.axis for step in at.tails(node.inputs[0])]
        if any(along) and self.reverse:
            raise PaddingReaches("adds up from its end")
        return dict.fromkeys(at.tails(node.inputs[0]), ANYTHING)


@dataclass(frozen=True)
class CumProd(Op):
    """Products along `axis`, as CumSum adds up; the product of none is one. Integers wrap around."""

    kind = "cumprod"
    axis: int
    exclusive: bool = False
    reverse: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        return CumSum(self.axis).infer(inputs)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x = np.moveaxis(widened(inputs[0]), self.axis, 0)
        factors = np.flip(x, 0) if self.reverse else x
        if self.exclusive:
            factors = np.concatenate([np.ones_like(x[:1]), factors[:-1]])
        with np.errstate(all="ignore"):
            found = np.cumprod(factors, 0, dtype=x.dtype)
        made = np.moveaxis(np.flip(found, 0) if self.reverse else found, 0, self.axis)
        return (narrowed(np.ascontiguousarray(made), inputs[0].dtype),)


@dataclass(frozen=True)
class Places(Op):
    """Indices (i64) along `axis` of its `count` greatest elements, the greatest first, or of the least; of equal ones
    in their order, or the other way round where `last`. NaN comes before all."""

    kind = "places"
    axis: int
    count: int
    greatest: bool = True
    last: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        (x,) = inputs
        expect_axis(self.axis, x)
        if not 1 <= self.count <= x.shape[self.axis]:
            raise ShapeError(f"axis {self.axis} of {list(x.shape)} does not have {self.count} elements to find")
        return (TensorType(DType.I64, (*x.shape[: self.axis], self.count, *x.shape[self.axis + 1 :])),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x = np.moveaxis(inputs[0], self.axis, -1)
        keys = np.unique(x, return_inverse=True)[1].reshape(x.shape).astype(np.int64)  # NaN are the last
        nan = np.isnan(x.astype(np.float64)) if x.dtype.kind not in "iub" else np.zeros(x.shape, np.bool_)
        order = -keys if self.greatest else keys
        order = np.where(nan, np.iinfo(np.int64).min, order)
        extent = x.shape[-1]
        if self.last:
            found = extent - 1 - np.argsort(order[..., ::-1], -1, kind="stable")
        else:
            found = np.argsort(order, -1, kind="stable")
        return (np.ascontiguousarray(np.moveaxis(found[..., : self.count], -1, self.axis)).astype(np.int64),)

    def tails(self, node: Node, at: Padded) -> Tails:
        """Lines beside each other are searched apart."""
        (name,), shape = node.inputs, at.shape(node.outputs[0])
        axes = {step: at.axis(name, step) for step in at.tails(name)}
        if self.axis in axes.values():
            raise PaddingReaches("finds the greatest or least along it, and padding may be that")
        return {at.moved(name, step, shape, axis): ANYTHING for step, axis in axes.items()}


@dataclass(frozen=True)
class TopElements(Places):
    """The elements that `Places` finds and, `with_places`, their places too: two outputs.

    It stands in kernel problems; graphs hold the places and the elements there apart.
    """

    kind = "top_elements"
    in_graphs = False
    with_places: bool = True

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        (places,) = super().infer(inputs)
        values = TensorType(inputs[0].dtype, places.shape)
        return (values, places) if self.with_places else (values,)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        (places,) = super().evaluate(inputs)
        values = np.take_along_axis(inputs[0], places, self.axis)
        return (values, places) if self.with_places else (values,)


def import_running(node: NodeImport) -> None:
    """CumSum and CumProd."""
    axis = node.axis(int(node.static_number(1, "the axis")), node.type(0).rank)
    op = CumSum if node.node.op_type == "CumSum" else CumProd
    node.emit(op(axis, bool(node.integer("exclusive", 0)), bool(node.integer("reverse", 0))), [node.input(0)], 0)


def import_arg(node: NodeImport) -> None:
    """ArgMax and ArgMin."""
    shape = node.type(0).shape
    axis = node.axis(node.integer("axis", 0), len(shape))
    op = Places(axis, 1, node.node.op_type == "ArgMax", bool(node.integer("select_last_index", 0)))
    if node.integer("keepdims", 1):
        node.emit(op, [node.input(0)], 0)
        return
    node.emit(Reshape((*shape[:axis], *shape[axis + 1 :])), [node.emit(op, [node.input(0)])], 0)


def import_topk(node: NodeImport) -> None:
    count = node.integer("k") if node.version < 10 else node.static_ints(1, "the number of elements")[0]
    axis = node.axis(node.integer("axis", -1), node.type(0).rank)
    node.integer("sorted", 1)  # sorted they are in any case
    named = len(node.node.outputs) > 1 and bool(node.node.outputs[1])
    places = node.emit(Places(axis, count, bool(node.integer("largest", 1))), [node.input(0)], 1 if named else None)
    if node.node.outputs[0]:
        node.emit(GatherElements(axis), [node.input(0), places], 0)


_FEW_PLACES = 12
"""Places of a one-hot axis up to which they are asked for twice: to look for negative indices first moves more."""


def import_one_hot(node: NodeImport) -> None:
    """Each index beside all of its axis; negative ones count from the end, others that lie outside are nowhere."""
    shape, depth = node.type(0).shape, int(node.static_number(1, "the depth"))
    axis = node.axis(node.integer("axis", -1), len(shape) + 1)
    indices = node.input(0) if node.type(0).dtype is DType.I64 else node.emit(Cast(DType.I64), [node.input(0)])
    apart = node.emit(Reshape((*shape[:axis], 1, *shape[axis:])), [indices])
    count = np.arange(depth, dtype=np.int64).reshape(-1, *(1,) * (len(shape) - axis))

    def asked(places: Array, index: str) -> str:
        return node.emit(Compare("equal"), [index, node.helper(places, "places")])

    if depth > _FEW_PLACES:
        behind = node.emit(Binary("add"), [apart, node.helper(np.array(depth, np.int64), "depth")])
        negative = node.emit(Compare("less"), [apart, node.helper(np.array(0, np.int64), "zero")])
        hot = asked(count, node.emit(Where(), [negative, behind, apart]))
    else:
        hot = node.emit(Logic("or"), [asked(each, apart) for each in (count, count - depth)])
    off, on = (node.emit(Reshape(()), [node.emit(Slice((i,), (1,), (1,)), [node.input(2)])]) for i in (0, 1))
    node.emit(Where(), [hot, on, off], 0)


IMPORTERS = (
    Importer(
        "CumProd", (26,), import_running, example=Example((Data(IMAGE), Integers((1,), scalar=True))),
        note="a constant axis",
    ),
    Importer(
        "CumSum", (11, 14), import_running, example=Example((Data(IMAGE), Integers((1,), scalar=True))),
        note="a constant axis",
    ),
    Importer("ArgMax", (1, 11, 12, 13), import_arg),
    Importer("ArgMin", (1, 11, 12, 13), import_arg),
    Importer(
        "TopK", (1, 10, 11, 24), import_topk, example=Example((Data(IMAGE), Integers((2,))), (), 2), note="a constant k"
    ),
    Importer(
        "OneHot", (9, 11, 28), import_one_hot,
        example=Example((Data((1, 4), DType.I64), Integers((5,), scalar=True), Data((2,)))), note="a constant depth",
    ),
)  # fmt: skip
