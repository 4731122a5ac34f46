"""Elements taken by indices that are known at run time.

Indices count from the end where they are negative. One that lies outside of its axis is an error of the run on a host;
on a device the nearest that lies inside is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.example import Data, Example
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.operands import expect_axis, expect_count, expect_indices
from bolt_build.graph.tail import ANYTHING, Padded, PaddingReaches, Tails, stride


@dataclass(frozen=True)
class Gather(Op):
    """Of inputs (data, indices) the slices of data along `axis` that the indices name: their shape stands in the place
    of that axis."""

    kind = "gather"
    moves = True
    axis: int

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 2)
        data, indices = inputs
        expect_axis(self.axis, data)
        expect_indices(indices)
        if not data.shape[self.axis] and indices.elements:
            raise ShapeError(f"axis {self.axis} of {list(data.shape)} has nothing to take")
        return (TensorType(data.dtype, (*data.shape[: self.axis], *indices.shape, *data.shape[self.axis + 1 :])),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        data, indices = inputs
        return (np.asarray(np.take(data, within(indices, data.shape[self.axis]), axis=self.axis)),)

    def indices(self, inputs: Sequence[TensorType]) -> Mapping[int, int]:
        return {1: inputs[0].shape[self.axis]}

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 0

    def unread(self, inputs: Sequence[TensorType]) -> int:
        """Slices that no index can name: there are fewer indices than slices."""
        data, indices = inputs
        extent = data.shape[self.axis]
        return data.elements // max(extent, 1) * max(extent - indices.elements, 0)

    def tails(self, node: Node, at: Padded) -> Tails:
        (data, indices), shape, axis = node.inputs, at.shape(node.outputs[0]), self.axis
        found = {at.moved(indices, s, shape, at.axis(indices, s) + axis): ANYTHING for s in at.tails(indices)}
        picked = at.constant(indices)
        for step in at.tails(data):
            own = at.axis(data, step)
            if own != axis:
                place = own if own < axis else own - 1 + len(at.shape(indices))
                found[at.moved(data, step, shape, place)] = ANYTHING
            elif picked is None or picked.any() or step != stride(at.shape(data), axis):
                raise PaddingReaches("looks up other positions along it than the first")
        return found


@dataclass(frozen=True)
class GatherElements(Op):
    """Of inputs (data, indices) of one rank: output[i][j][k] = data[i][indices[i][j][k]][k] for `axis` 1."""

    kind = "gather_elements"
    moves = True
    axis: int

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 2)
        expect_elementwise(self.axis, *inputs)
        return (TensorType(inputs[0].dtype, inputs[1].shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        data, indices = inputs
        rows = data[tuple(slice(n) if axis != self.axis else slice(None) for axis, n in enumerate(indices.shape))]
        return (np.take_along_axis(rows, within(indices, data.shape[self.axis]), self.axis),)

    def indices(self, inputs: Sequence[TensorType]) -> Mapping[int, int]:
        return {1: inputs[0].shape[self.axis]}

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 0

    def tails(self, node: Node, at: Padded) -> Tails:
        """Each element is read where its own indices say, along other axes in its own place."""
        data, indices = node.inputs
        if any(at.axis(data, step) == self.axis for step in at.tails(data)):
            raise PaddingReaches("looks up positions along it")
        shape = at.shape(node.outputs[0])
        return {at.moved(indices, s, shape, at.axis(indices, s)): ANYTHING for s in at.tails(indices)}


@dataclass(frozen=True)
class GatherND(Op):
    """Of inputs (data, indices): each row of the indices' last axis names a slice of data by its first axes, behind
    `batch_dims` axes that both have in common."""

    kind = "gather_nd"
    moves = True
    batch_dims: int = 0

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 2)
        data, indices = inputs
        expect_tuples(data, indices, self.batch_dims)
        depth = indices.shape[-1]
        return (TensorType(data.dtype, (*indices.shape[:-1], *data.shape[self.batch_dims + depth :])),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        data, indices = inputs
        shared, depth = data.shape[: self.batch_dims], indices.shape[-1]
        rows = indices.reshape(*shared, -1, depth)
        columns = [within(rows[..., i], data.shape[self.batch_dims + i]) for i in range(depth)]
        batches = np.ix_(*map(np.arange, shared), np.arange(rows.shape[-2]))[:-1]
        shape = (*indices.shape[:-1], *data.shape[self.batch_dims + depth :])
        return (np.asarray(data[(*batches, *columns)]).reshape(shape),)

    def indices(self, inputs: Sequence[TensorType]) -> Mapping[int, int]:
        depth = inputs[1].shape[-1]
        return {1: min(inputs[0].shape[self.batch_dims : self.batch_dims + depth])}

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 0


def within(indices: Array, extent: int) -> Array:
    """Indices of an axis, none negative. Raises ShapeError for one that lies outside."""
    if indices.size and not (-extent <= indices.min() and indices.max() < extent):
        raise ShapeError(f"an index lies outside of an axis of {extent}")
    return np.where(indices < 0, indices + extent, indices).astype(np.int64)


def expect_elementwise(axis: int, data: TensorType, indices: TensorType) -> None:
    """Raises ShapeError unless indices pick elements of data along `axis`, row by row."""
    expect_axis(axis, data)
    expect_indices(indices)
    sides = zip(data.shape, indices.shape, strict=False)
    if indices.rank != data.rank or any(n > m for i, (m, n) in enumerate(sides) if i != axis):
        raise ShapeError(f"indices {list(indices.shape)} do not lie in {list(data.shape)} but for axis {axis}")


def expect_tuples(data: TensorType, indices: TensorType, batch_dims: int) -> None:
    """Raises ShapeError unless rows of indices name slices of data."""
    expect_indices(indices)
    shared = min(data.rank, indices.rank - 1)
    if indices.rank < 1 or not 0 <= batch_dims <= shared or data.shape[:batch_dims] != indices.shape[:batch_dims]:
        raise ShapeError(f"{list(data.shape)} and {list(indices.shape)} do not share {batch_dims} batch axes")
    if not 1 <= indices.shape[-1] <= data.rank - batch_dims:
        raise ShapeError(f"{indices.shape[-1]} indices do not name a slice of {list(data.shape)}")


def import_gather(node: NodeImport) -> None:
    axis = node.axis(node.integer("axis", 0), node.type(0).rank)
    node.emit(Gather(axis), [node.input(0), node.input(1)], 0)


def import_gather_elements(node: NodeImport) -> None:
    axis = node.axis(node.integer("axis", 0), node.type(0).rank)
    node.emit(GatherElements(axis), [node.input(0), node.input(1)], 0)


def import_gather_nd(node: NodeImport) -> None:
    node.emit(GatherND(node.integer("batch_dims", 0)), [node.input(0), node.input(1)], 0)


_TABLE = Data((8, 4))

IMPORTERS = (
    Importer("Gather", (1, 11, 13), import_gather, example=Example((_TABLE, Data((1, 3), DType.I64))), moves=True),
    Importer(
        "GatherElements", (11, 13), import_gather_elements, example=Example((_TABLE, Data((3, 4), DType.I64))),
        moves=True,
    ),
    Importer(
        "GatherND", (11, 12, 13), import_gather_nd, example=Example((_TABLE, Data((3, 1), DType.I64))), moves=True
    ),
)  # fmt: skip
