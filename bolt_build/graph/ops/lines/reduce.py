"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.moves.shape import Identity
from bolt_build.graph.ops.operands import expect_count, expect_float
from bolt_build.graph.tail import ANYTHING, Padded, PaddingReaches, Tail, Tails

_OF_EMPTY = {"max": "greatest", "min": "least"}
"""Modes that are not defined over no elements, and what there is none of."""


def _sum_of_squares(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    return np.asarray(np.square(x).sum(axis=axes, keepdims=keepdims))


def _mean(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Of integers cut off towards zero, as a quotient of integers is in C++."""
    if x.dtype.kind not in "iu":
        return np.asarray(x.mean(axis=axes, keepdims=keepdims))
    total = np.asarray(x.sum(axis=axes, keepdims=keepdims))
    count = total.dtype.type(x.size // max(total.size, 1))
    with np.errstate(divide="ignore"):
        return np.asarray(np.where(total < 0, -(-total // count), total // count))


def _log_sum_exp(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Of differences from the greatest element, so that no sum overflows. What is equal to it differs by nothing,
    infinities too."""
    top = x.max(axis=axes, keepdims=True, initial=-np.inf)
    total = np.where(x == top, x.dtype.type(0), x - top)
    summed = np.log(np.exp(total).sum(axis=axes, keepdims=True)) + top
    return np.asarray(summed if keepdims else summed.reshape(x.max(axis=axes, initial=-np.inf).shape))


_EVALUATE: dict[str, Callable[[Array, tuple[int, ...], bool], Array]] = {
    "mean": _mean,
    "sum": lambda x, axes, keep: x.sum(axis=axes, keepdims=keep),
    "max": lambda x, axes, keep: x.max(axis=axes, keepdims=keep),
    "min": lambda x, axes, keep: x.min(axis=axes, keepdims=keep),
    "prod": lambda x, axes, keep: x.prod(axis=axes, keepdims=keep),
    "l1": lambda x, axes, keep: np.abs(x).sum(axis=axes, keepdims=keep),
    "l2": lambda x, axes, keep: np.sqrt(_sum_of_squares(x, axes, keep)),
    "sum_square": _sum_of_squares,
    "log_sum": lambda x, axes, keep: np.log(x.sum(axis=axes, keepdims=keep)),
    "log_sum_exp": _log_sum_exp,
}

MODES = tuple(_EVALUATE)
_NOT_ZERO_OF_ZEROS = ("log_sum", "log_sum_exp")
REAL = ("l2", "log_sum", "log_sum_exp")
"""Modes that integers have no result of."""


@dataclass(frozen=True)
class Reduce(Op):
    """`mode` over `axes` (non-negative, sorted): "mean", "sum", "max", "min", "prod" (product), "l1" (sum of
    magnitudes), "sum_square", "l2" (its root), "log_sum" (the sum's logarithm) or "log_sum_exp" (that of
    the exponentials' sum).

    ONNX GlobalAveragePool, GlobalMaxPool and the Reduce operators.
    """

    kind = "reduce"
    mode: str
    axes: tuple[int, ...]
    keepdims: bool = True

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        (x,) = inputs
        if self.mode not in MODES:
            raise ShapeError(f"mode '{self.mode}' is none of {', '.join(MODES)}")
        if self.mode in REAL:
            expect_float(x)
        if self.axes != tuple(sorted(set(self.axes))) or any(not 0 <= axis < x.rank for axis in self.axes):
            raise ShapeError(f"axes {list(self.axes)} must be sorted axes of the input {list(x.shape)}, each once")
        if self.mode in _OF_EMPTY and any(x.shape[axis] == 0 for axis in self.axes):
            raise ShapeError(f"{list(x.shape)} has no {_OF_EMPTY[self.mode]} element")
        if self.keepdims:
            return (TensorType(x.dtype, tuple(1 if i in self.axes else e for i, e in enumerate(x.shape))),)
        return (TensorType(x.dtype, tuple(e for i, e in enumerate(x.shape) if i not in self.axes)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        (x,) = inputs
        with np.errstate(all="ignore"):
            reduced = _EVALUATE[self.mode](widened(x), self.axes, self.keepdims)
        return (narrowed(np.asarray(reduced), x.dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[0].elements

    def tails(self, node: Node, at: Padded) -> Tails:
        (name,), shape, found = node.inputs, at.shape(node.outputs[0]), dict[int, Tail]()
        # Nothing is known of what is padded along two axes at once.
        alone = not any(at.axis(name, step) in self.axes for step in at.tails(name))
        for step, tail in at.tails(name).items():
            axis = at.axis(name, step)
            if axis not in self.axes:
                place = axis if self.keepdims else axis - sum(each < axis for each in self.axes)
                none = alone and tail.value == 0.0 and self.mode not in _NOT_ZERO_OF_ZEROS
                found[at.moved(name, step, shape, place)] = Tail(0.0) if none else ANYTHING
            elif self.mode not in ("sum", "sum_square", "l1", "l2") or tail.value != 0.0:
                raise PaddingReaches(f"takes the {self.mode} over it, and padding counts")
        return found


def import_global_pool(node: NodeImport) -> None:
    rank = node.type(0).rank
    if rank < 3:
        raise ShapeError(f"input {list(node.type(0).shape)} must have batch, channels and at least one spatial axis")
    mode = "mean" if node.node.op_type == "GlobalAveragePool" else "max"
    node.emit(Reduce(mode, tuple(range(2, rank))), [node.input(0)], 0)


def reduced_axes(node: NodeImport) -> tuple[int, ...]:
    """Axes of any ONNX reduction, sorted: attribute or input 1; none given means all, or no axis at all where
    `noop_with_empty_axes` says so."""
    rank = node.type(0).rank
    given = node.static_ints(1, "the list of axes") if node.has(1) else node.integers("axes", ())
    without_axes_none = bool(node.integer("noop_with_empty_axes", 0))
    if not given:
        return () if without_axes_none else tuple(range(rank))
    return tuple(sorted(node.axes(given, rank)))


_ONNX_MODES = {
    "ReduceMean": "mean", "ReduceSum": "sum", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod",
    "ReduceL1": "l1", "ReduceL2": "l2", "ReduceSumSquare": "sum_square", "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "log_sum_exp",
}  # fmt: skip


def import_reduce(node: NodeImport) -> None:
    """Over no axis at all what is reduced is each element by itself."""
    axes, x, keepdims = reduced_axes(node), node.input(0), bool(node.integer("keepdims", 1))
    mode = _ONNX_MODES[node.node.op_type]
    if not axes and node.integer("noop_with_empty_axes", 0) and mode in ("mean", "sum", "max", "min", "prod"):
        node.emit(Identity(), [x], 0)
        return
    node.emit(Reduce(mode, axes, keepdims), [x], 0)


IMPORTERS = (
    Importer("GlobalAveragePool", (1, 22), import_global_pool),
    Importer("GlobalMaxPool", (1, 22), import_global_pool),
    Importer("ReduceMean", (1, 11, 13, 18), import_reduce),
    Importer("ReduceSum", (1, 11, 13), import_reduce),
    Importer("ReduceMax", (1, 11, 12, 13, 18, 20), import_reduce),
    Importer("ReduceMin", (1, 11, 12, 13, 18, 20), import_reduce),
    *(Importer(f"Reduce{mode}", (1, 11, 13, 18), import_reduce) for mode in ("Prod", "L1", "L2", "SumSquare")),
    *(Importer(f"Reduce{mode}", (1, 11, 13, 18, 28), import_reduce) for mode in ("LogSum", "LogSumExp")),
)
