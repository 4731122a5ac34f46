"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.operands import expect_count
from bolt_build.graph.ops.shape import Identity

MODES = ("mean", "sum", "max")


@dataclass(frozen=True)
class Reduce(Op):
    """`mode` is "mean", "sum" or "max" over `axes` (non-negative, sorted).

    ONNX GlobalAveragePool, GlobalMaxPool, ReduceMean, ReduceSum, ReduceMax.
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
        if self.axes != tuple(sorted(set(self.axes))) or any(not 0 <= axis < x.rank for axis in self.axes):
            raise ShapeError(f"axes {list(self.axes)} must be sorted axes of the input {list(x.shape)}, each once")
        if self.mode == "max" and any(x.shape[axis] == 0 for axis in self.axes):
            raise ShapeError(f"{list(x.shape)} has no greatest element")
        if self.keepdims:
            return (TensorType(x.dtype, tuple(1 if i in self.axes else e for i, e in enumerate(x.shape))),)
        return (TensorType(x.dtype, tuple(e for i, e in enumerate(x.shape) if i not in self.axes)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        (x,) = inputs
        reduced = getattr(widened(x), self.mode)(axis=self.axes, keepdims=self.keepdims)
        return (narrowed(reduced, x.dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[0].elements


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


def import_reduce(node: NodeImport) -> None:
    axes, x, keepdims = reduced_axes(node), node.input(0), bool(node.integer("keepdims", 1))
    if not axes and node.integer("noop_with_empty_axes", 0):
        node.emit(Identity(), [x], 0)
        return
    mode = node.node.op_type.removeprefix("Reduce").lower()
    node.emit(Reduce(mode, axes, keepdims), [x], 0)


IMPORTERS = (
    Importer("GlobalAveragePool", (1, 22), import_global_pool),
    Importer("GlobalMaxPool", (1, 22), import_global_pool),
    Importer("ReduceMean", (1, 11, 13, 18), import_reduce),
    Importer("ReduceSum", (1, 11, 13), import_reduce),
    Importer("ReduceMax", (1, 11, 12, 13, 18, 20), import_reduce),
)
