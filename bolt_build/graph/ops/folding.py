"""ONNX operators that make constants, or that are taken only where all their inputs are constant: arithmetic on
shapes, which are static once batches and symbolic dimensions are bound."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, ShapeError
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
    shape = node.static_ints(0, "the shape")
    if any(extent < 0 for extent in shape):
        raise ShapeError(f"the shape {list(shape)} has a negative extent")
    value = node.tensor("value", np.zeros(1, np.float32)).reshape(-1)
    if value.size != 1:
        raise Refusal("invalid-node", f"the value has {value.size} elements instead of one")
    node.result(np.full(shape, value[0]))


def import_shape(node: NodeImport) -> None:
    """The shape is known even where the data is not."""
    shape = node.type(0).shape
    end = node.integer("end") if node.given("end") else None
    node.result(np.asarray(shape[node.integer("start", 0) : end], np.int64))


def import_size(node: NodeImport) -> None:
    node.result(np.asarray(node.type(0).elements, np.int64))


def import_gather(node: NodeImport) -> None:
    data, indices = node.foldable()
    axis = node.axis(node.integer("axis", 0), data.ndim)
    extent = data.shape[axis]
    if indices.size and not (-extent <= indices.min() and indices.max() < extent):
        raise ShapeError(f"an index lies outside the extent {extent} of axis {axis}")
    node.result(np.take(data, indices.astype(np.int64), axis=axis))


def import_range(node: NodeImport) -> None:
    start, limit, delta = (array.reshape(-1)[0] for array in node.foldable())
    if delta == 0:
        raise ShapeError("the step of a range is 0")
    count = max(int(np.ceil((float(limit) - float(start)) / float(delta))), 0)
    node.result((start + np.arange(count) * delta).astype(start.dtype))


def import_expand(node: NodeImport) -> None:
    data, shape = node.foldable()
    wanted = tuple(int(extent) for extent in shape)
    try:
        node.result(np.ascontiguousarray(np.broadcast_to(data, np.broadcast_shapes(data.shape, wanted))))
    except ValueError:
        raise ShapeError(f"{list(data.shape)} does not broadcast to {list(wanted)}") from None


def import_mod(node: NodeImport) -> None:
    a, b = node.foldable()
    with np.errstate(all="ignore"):
        node.result((np.fmod if node.integer("fmod", 0) else np.mod)(a, b))


def import_tile(node: NodeImport) -> None:
    data, repeats = node.foldable()
    node.result(np.tile(data, [int(count) for count in repeats]))


def import_fold_reduction(node: NodeImport) -> None:
    data = node.foldable()[0]
    axes = reduced_axes(node)
    function = np.prod if node.node.op_type == "ReduceProd" else np.min
    node.result(np.asarray(function(data, axis=axes, keepdims=bool(node.integer("keepdims", 1))), data.dtype))


_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "Floor": np.floor, "Ceil": np.ceil, "Round": np.round, "Not": np.logical_not, "And": np.logical_and,
    "Or": np.logical_or, "Equal": np.equal, "Less": np.less, "Greater": np.greater, "LessOrEqual": np.less_equal,
    "GreaterOrEqual": np.greater_equal, "Where": np.where,
}  # fmt: skip


def import_function(node: NodeImport) -> None:
    arrays = node.foldable()
    try:
        node.result(np.asarray(_FUNCTIONS[node.node.op_type](*arrays)))
    except ValueError:
        raise ShapeError(f"shapes {', '.join(str(list(a.shape)) for a in arrays)} do not broadcast") from None


_LATE = (21, 23, 24, 25)

IMPORTERS = (
    Importer("Constant", (9, 11, 12, 13, 19, *_LATE), import_constant),
    Importer("ConstantOfShape", (9, 20, *_LATE), import_constant_of_shape),
    Importer("Shape", (1, 13, 15, 19, *_LATE), import_shape),
    Importer("Size", (1, 13, 19, *_LATE), import_size),
    Importer("Gather", (1, 11, 13), import_gather),
    Importer("Range", (11, 27), import_range, ignores=("stash_type",)),
    Importer("Expand", (8, 13), import_expand),
    Importer("Mod", (10, 13, 28), import_mod),
    Importer("Tile", (6, 13), import_tile),
    Importer("ReduceProd", (1, 11, 13, 18), import_fold_reduction),
    Importer("ReduceMin", (1, 11, 12, 13, 18, 20), import_fold_reduction),
    Importer("Floor", (6, 13), import_function),
    Importer("Ceil", (6, 13), import_function),
    Importer("Round", (11, 22), import_function),
    Importer("Not", (1,), import_function),
    Importer("And", (7,), import_function),
    Importer("Or", (7,), import_function),
    Importer("Equal", (7, 11, 13, 19), import_function),
    Importer("Less", (9, 13), import_function),
    Importer("Greater", (9, 13), import_function),
    Importer("LessOrEqual", (12, 16), import_function),
    Importer("GreaterOrEqual", (12, 16), import_function),
    Importer("Where", (9, 16), import_function),
)
