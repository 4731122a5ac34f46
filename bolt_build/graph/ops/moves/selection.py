"""ONNX operators whose result's extent is known where what selects is constant: NonZero, Compress; and EyeLike."""

from __future__ import annotations

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.example import Data, Example, Integers
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import ShapeError, TensorType
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.moving import ONNX_DTYPES, unsupported_type
from bolt_build.graph.ops.moves.shape import Reshape


def import_non_zero(node: NodeImport) -> None:
    """The places of what is not zero, one column each. Of rank 0, the scalar counts as one of a single axis."""
    (array,) = node.foldable(1)
    places = np.asarray(np.nonzero(np.atleast_1d(array)), np.int64).reshape(max(array.ndim, 1), -1)
    node.fold(TensorType(DType.I64, places.shape), lambda: places)


def import_compress(node: NodeImport) -> None:
    """Slices along an axis, or elements of all of it, where a constant condition holds; behind its end, none."""
    shape, condition = node.type(0).shape, node.static(1, "the condition").reshape(-1)
    chosen = np.flatnonzero(condition)
    if node.given("axis"):
        axis, name = node.axis(node.integer("axis"), len(shape)), node.input(0)
        extent = shape[axis]
    else:
        axis, extent = 0, node.type(0).elements
        name = node.emit(Reshape((extent,)), [node.input(0)])
    if chosen.size and chosen[-1] >= extent:
        raise ShapeError(f"the condition names element {chosen[-1]} of an axis of {extent}")
    if not chosen.size:
        raise ShapeError("the condition holds nowhere: the result has no elements")
    node.emit(Gather(axis), [name, node.helper(chosen.astype(np.int64), "chosen")], 0)


def import_eye_like(node: NodeImport) -> None:
    """Only the shape of its input is read."""
    shape = node.type(0).shape
    if len(shape) != 2:
        raise ShapeError(f"{list(shape)} is no matrix")
    dtype = ONNX_DTYPES.get(node.integer("dtype")) if node.given("dtype") else node.type(0).dtype
    if dtype is None:
        raise unsupported_type(node.integer("dtype"))
    offset = node.integer("k", 0)
    node.fold(TensorType(dtype, shape), lambda: np.eye(*shape, k=offset).astype(numpy_dtype(dtype)))


IMPORTERS = (
    Importer(
        "NonZero", (9, 13), import_non_zero, folds=True,
        note="masks of data whose rows are put back in their places, too",
    ),
    Importer(
        "Compress", (9, 11, 28), import_compress, example=Example((Data((3, 4)), Integers((1, 0, 1))), (("axis", 0),)),
        note="a constant condition", moves=True,
    ),
    Importer("EyeLike", (9, 22), import_eye_like, example=Example((Data((3, 4)),))),
)  # fmt: skip
