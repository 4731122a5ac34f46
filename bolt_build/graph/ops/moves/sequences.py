"""Sequences of a batch turned around, each by its own length: ONNX's ReverseSequence."""

from __future__ import annotations

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.example import Data, Example
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import ShapeError
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Compare, Where
from bolt_build.graph.ops.moves.gather import GatherND
from bolt_build.graph.ops.moves.shape import Concat, Reshape


def import_reverse_sequence(node: NodeImport) -> None:
    """A gather: step t of a sequence of n is step n - 1 - t where t < n, else itself. Constant lengths make constant
    indices. A length that is data and above the axis names a step outside, which `graph.ops.moves.gather` says of."""
    shape, lengths = node.type(0).shape, node.type(1)
    time, batch = node.integer("time_axis", 0), node.integer("batch_axis", 1)
    if len(shape) < 2 or {time, batch} != {0, 1}:
        raise ShapeError(f"time_axis {time} and batch_axis {batch} must be the first two axes of {list(shape)}")
    if lengths.shape != (shape[batch],) or lengths.dtype is not DType.I64:
        raise ShapeError(f"lengths {lengths.dtype.value}{list(lengths.shape)} must be i64[{shape[batch]}]")
    known = node.constant(1)
    if known is not None and known.size and not 0 <= known.min() <= known.max() <= shape[time]:
        raise ShapeError(f"a length of {int(known.min())} to {int(known.max())} lies outside of {shape[time]} steps")
    across = (1, shape[batch]) if batch else (shape[batch], 1)
    along = (shape[time], 1) if batch else (1, shape[time])
    steps = np.arange(shape[time], dtype=np.int64).reshape(along)
    here = node.helper(steps, "steps")
    count = node.emit(Reshape(across), [node.input(1)])
    turned = node.emit(Binary("sub"), [count, node.helper(steps + 1, "behind")])
    place = node.emit(Where(), [node.emit(Compare("less"), [here, count]), turned, here])
    column = node.emit(Reshape((*shape[:2], 1)), [place])
    own = np.broadcast_to(np.arange(shape[batch], dtype=np.int64).reshape(across), shape[:2])
    rows = node.helper(np.ascontiguousarray(own)[..., None], "rows")
    indices = node.emit(Concat(2), [column, rows] if batch else [rows, column])
    node.emit(GatherND(), [node.input(0), indices], 0)


IMPORTERS = (
    Importer(
        "ReverseSequence",
        (10, 28),
        import_reverse_sequence,
        example=Example((Data((6, 2, 4)), Data((2,), DType.I64))),
        moves=True,
    ),
)
