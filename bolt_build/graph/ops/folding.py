"""ONNX operators that make constants, or that are taken only where all their inputs are constant: arithmetic on
shapes, which are static once batches and symbolic dimensions are bound."""

from __future__ import annotations

from math import ceil, isfinite

import numpy as np

from bolt_build.graph.arrays import type_of
from bolt_build.graph.example import Example, Integers
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import ShapeError, TensorType


def import_constant(node: NodeImport) -> None:
    for name in ("value_string", "value_strings"):
        if node.given(name):
            raise Refusal("unsupported-dtype", "constants of strings are not supported")
    if node.given("sparse_value"):
        node.result(node.tensor("sparse_value"))
    elif node.given("value"):
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
    check_extents(shape)
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


def import_range(node: NodeImport) -> None:
    start, limit = (node.static_number(index, what) for index, what in enumerate(("start", "limit")))
    delta = node.static_number(2, "delta") if node.has(2) else 1.0  # which com.microsoft may leave out
    if delta == 0:
        raise ShapeError("the step of a range is 0")
    count = (limit - start) / delta
    if not isfinite(count):
        raise ShapeError(f"a range from {start} to {limit} by {delta} never ends")
    first = node.static(0, "start").reshape(-1)[0]
    by = node.static(2, "delta").reshape(-1)[0] if node.has(2) else first.dtype.type(1)
    number = max(ceil(count), 0)
    node.fold(
        TensorType(node.type(0).dtype, (number,)), lambda: np.asarray(first + np.arange(number) * by, first.dtype)
    )


def check_extents(shape: tuple[int, ...]) -> None:
    """Raises ShapeError where an extent is negative."""
    if any(extent < 0 for extent in shape):
        raise ShapeError(f"the shape {list(shape)} has a negative extent")


_LATE = (21, 23, 24, 25)

IMPORTERS = (
    Importer("Constant", (1, 9, 11, 12, 13, 19, *_LATE), import_constant, example=Example((), (("value_int", 1),))),
    Importer("ConstantOfShape", (9, 20, *_LATE), import_constant_of_shape, example=Example((Integers((2, 3)),))),
    Importer("Shape", (1, 13, 15, 19, *_LATE), import_shape),
    Importer("Size", (1, 13, 19, *_LATE), import_size),
    Importer("Range", (1,), import_range, domain="com.microsoft", folds=True),
    Importer(
        "Range", (11, 27), import_range, ignores=("stash_type",), folds=True,
        note="runs of rows that are put behind each other again, too",
    ),
)  # fmt: skip
