"""ONNX operators that make constants, or that are taken only where all their inputs are constant: arithmetic on
shapes, which are static once batches and symbolic dimensions are bound."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, isfinite

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import numpy_dtype, type_of
from bolt_build.graph.example import Example, Integers
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, ShapeError, TensorType
from bolt_build.graph.ops.operands import broadcast
from bolt_build.graph.ops.reduce import reduced_axes


def import_constant(node: NodeImport) -> None:
    for name in ("value_string", "value_strings"):
        if node.given(name):
            raise Refusal("unsupported-dtype", "constants of strings are not supported")
    if node.given("sparse_value"):
        raise Refusal("unsupported-attribute", "sparse constants are not supported")
    if node.given("value"):
        node.result(node.tensor("value"))
    elif node.given("value_int"):
        node.result(np.asarray(node.integer("value_int"), np.int64))
    elif node.given("value_ints"):
        node.result(np.asarray(node.integers("value_ints"), np.int64))
    elif node.given("value_float"):
        node.result(np.asarray(node.real("value_float"), np.float32))
    else:
        node.result(np.asarray(node.reals("value_floats"), np.float32))


def import_constant_of_shape(node: NodeImport) -> None:
    shape = node.static_list(0, "the shape")
    _check_extents(shape)
    value = node.tensor("value", np.zeros(1, np.float32)).reshape(-1)
    if value.size != 1:
        raise Refusal("invalid-node", f"the value has {value.size} elements instead of one")
    node.fold(TensorType(type_of(value).dtype, shape), lambda: np.full(shape, value[0]))


def import_shape(node: NodeImport) -> None:
    """The shape is known even where the data is not."""
    shape = node.type(0).shape
    end = node.integer("end") if node.given("end") else None
    node.result(np.asarray(shape[node.integer("start", 0) : end], np.int64))


def import_size(node: NodeImport) -> None:
    node.result(np.asarray(node.type(0).elements, np.int64))


def import_gather(node: NodeImport) -> None:
    data, indices = node.foldable(2)
    axis = node.axis(node.integer("axis", 0), data.ndim)
    extent = data.shape[axis]
    if indices.dtype.kind != "i":
        raise Refusal("invalid-node", f"the indices are of {type_of(indices).dtype.value}, not of integers")
    if indices.size and not (-extent <= indices.min() and indices.max() < extent):
        raise ShapeError(f"an index lies outside the extent {extent} of axis {axis}")
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    node.fold(TensorType(type_of(data).dtype, shape), lambda: np.take(data, indices.astype(np.int64), axis=axis))


def import_range(node: NodeImport) -> None:
    start, limit, delta = (node.static_number(index, what) for index, what in enumerate(("start", "limit", "delta")))
    if delta == 0:
        raise ShapeError("the step of a range is 0")
    count = (limit - start) / delta
    if not isfinite(count):
        raise ShapeError(f"a range from {start} to {limit} by {delta} never ends")
    first, by = node.static(0, "start").reshape(-1)[0], node.static(2, "delta").reshape(-1)[0]
    number = max(ceil(count), 0)
    node.fold(
        TensorType(node.type(0).dtype, (number,)), lambda: np.asarray(first + np.arange(number) * by, first.dtype)
    )


def import_expand(node: NodeImport) -> None:
    (data,) = node.foldable(1)
    wanted = node.static_list(1, "the shape")
    _check_extents(wanted)
    shape = broadcast(data.shape, wanted)
    node.fold(TensorType(type_of(data).dtype, shape), lambda: np.ascontiguousarray(np.broadcast_to(data, shape)))


def import_mod(node: NodeImport) -> None:
    a, b = node.foldable(2)
    function = np.fmod if node.integer("fmod", 0) else np.mod
    if a.dtype != b.dtype:
        raise ShapeError(f"the inputs have different element types: {a.dtype}, {b.dtype}")
    node.fold(TensorType(type_of(a).dtype, broadcast(a.shape, b.shape)), lambda: _quietly(function, a, b))


def import_tile(node: NodeImport) -> None:
    (data,) = node.foldable(1)
    repeats = node.static_list(1, "the repeats")
    _check_extents(repeats)
    if len(repeats) != data.ndim:
        raise ShapeError(f"the repeats {list(repeats)} must have one entry an axis of {list(data.shape)}")
    shape = tuple(extent * times for extent, times in zip(data.shape, repeats, strict=True))
    node.fold(TensorType(type_of(data).dtype, shape), lambda: np.tile(data, repeats))


def import_fold_reduction(node: NodeImport) -> None:
    (data,) = node.foldable(1)
    axes, keep = reduced_axes(node), bool(node.integer("keepdims", 1))
    function = np.prod if node.node.op_type == "ReduceProd" else np.min
    if 0 in data.shape and function is np.min:
        raise ShapeError(f"{list(data.shape)} has no least element")
    with np.errstate(all="ignore"):
        node.result(np.asarray(function(data, axis=axes, keepdims=keep), data.dtype))


def _check_extents(shape: tuple[int, ...]) -> None:
    if any(extent < 0 for extent in shape):
        raise ShapeError(f"the shape {list(shape)} has a negative extent")


def _quietly(function: Callable[..., Array], *arrays: Array) -> Array:
    """What NumPy makes of infinities and zeros, without its warnings."""
    with np.errstate(all="ignore"):
        return np.asarray(function(*arrays))


_FUNCTIONS: dict[str, tuple[int, Callable[..., Array]]] = {
    "Floor": (1, np.floor), "Ceil": (1, np.ceil), "Round": (1, np.round), "Not": (1, np.logical_not),
    "And": (2, np.logical_and), "Or": (2, np.logical_or), "Equal": (2, np.equal), "Less": (2, np.less),
    "Greater": (2, np.greater), "LessOrEqual": (2, np.less_equal), "GreaterOrEqual": (2, np.greater_equal),
    "Where": (3, np.where),
}  # fmt: skip
"""How many inputs each has, and what it computes."""

_BOOLEANS = ("Not", "And", "Or", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
"""Those that make booleans; the others keep the type of their last input."""


def import_function(node: NodeImport) -> None:
    count, function = _FUNCTIONS[node.node.op_type]
    arrays = node.foldable(count)
    dtypes = list(dict.fromkeys(array.dtype for array in arrays[1 if node.node.op_type == "Where" else 0 :]))
    if len(dtypes) > 1:
        raise ShapeError(f"the inputs have different element types: {', '.join(map(str, dtypes))}")
    shape: tuple[int, ...] = ()
    for array in arrays:
        shape = broadcast(shape, array.shape)
    dtype = DType.BOOL if node.node.op_type in _BOOLEANS else type_of(arrays[-1]).dtype
    node.fold(TensorType(dtype, shape), lambda: _quietly(function, *arrays).astype(numpy_dtype(dtype)))


_LATE = (21, 23, 24, 25)

IMPORTERS = (
    Importer("Constant", (9, 11, 12, 13, 19, *_LATE), import_constant, example=Example((), (("value_int", 1),))),
    Importer("ConstantOfShape", (9, 20, *_LATE), import_constant_of_shape, example=Example((Integers((2, 3)),))),
    Importer("Shape", (1, 13, 15, 19, *_LATE), import_shape),
    Importer("Size", (1, 13, 19, *_LATE), import_size),
    Importer("Gather", (1, 11, 13), import_gather, folds=True),
    Importer("Range", (11, 27), import_range, ignores=("stash_type",), folds=True),
    Importer("Expand", (8, 13), import_expand, folds=True),
    Importer("Mod", (10, 13, 28), import_mod, folds=True),
    Importer("Tile", (6, 13), import_tile, folds=True),
    Importer("ReduceProd", (1, 11, 13, 18), import_fold_reduction, folds=True),
    Importer("ReduceMin", (1, 11, 12, 13, 18, 20), import_fold_reduction, folds=True),
    Importer("Floor", (6, 13), import_function, folds=True),
    Importer("Ceil", (6, 13), import_function, folds=True),
    Importer("Round", (11, 22), import_function, folds=True),
    Importer("Not", (1,), import_function, folds=True),
    Importer("And", (7,), import_function, folds=True),
    Importer("Or", (7,), import_function, folds=True),
    Importer("Equal", (7, 11, 13, 19), import_function, folds=True),
    Importer("Less", (9, 13), import_function, folds=True),
    Importer("Greater", (9, 13), import_function, folds=True),
    Importer("LessOrEqual", (12, 16), import_function, folds=True),
    Importer("GreaterOrEqual", (12, 16), import_function, folds=True),
    Importer("Where", (9, 16), import_function, folds=True),
)
