"""RotaryEmbedding and MRotaryEmbedding of the domain com.microsoft: angles are rows of a table, which positions name.

Defined in onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.example import Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, ShapeError
from bolt_build.graph.ops.attention.rotary import rotated
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Reshape, Slice


def import_contrib_rotary(node: NodeImport) -> None:
    """Of rows [N, S, heads D] or heads [N, heads, S, D]; positions are [N, S], or the first row's alone [1]."""

    def tables(batch: int, rows: int, shape: tuple[int, ...]) -> tuple[str, str]:
        places = positions(node, node.input(1), batch, rows)
        cos, sin = (angles(node, node.input(index), places, shape) for index in (2, 3))
        return cos, sin

    _turned(node, tables)


def import_contrib_rotary_of_images(node: NodeImport) -> None:
    """The same, of positions [3, N, S] in time, rows and columns; each has its section of the angles."""

    def tables(batch: int, rows: int, shape: tuple[int, ...]) -> tuple[str, str]:
        found, wide = node.type(1).shape, shape[-1]
        if found != (3, batch, rows):
            raise ShapeError(f"positions {list(found)} must be {[3, batch, rows]}")
        section_of = _sections(node, wide)
        along = [
            node.emit(
                Reshape((batch, rows)), [node.emit(Slice((i, 0, 0), (1, batch, rows), (1, 1, 1)), [node.input(1)])]
            )
            for i in range(3)
        ]
        made = []
        for index in (2, 3):
            parts = [angles(node, node.input(index), places, shape) for places in along]
            for which in (1, 2):
                mask = node.helper(section_of == which, "section")
                parts[0] = node.emit(Where(), [mask, parts[which], parts[0]])
            made.append(parts[0])
        return made[0], made[1]

    _turned(node, tables)


def _sections(node: NodeImport, wide: int) -> Array:
    """Which of the three positions each of `wide` angles is of. Raises Refusal and ShapeError."""
    sections, layout = node.integers("mrope_section"), node.integer("mrope_layout", 0)
    if layout not in (0, 1):
        raise Refusal("unsupported-attribute", f"mrope_layout={layout} is neither 0 nor 1")
    if len(sections) != 3 or min(sections) < 0 or sum(sections) != wide:
        raise ShapeError(f"mrope_section {list(sections)} must be three numbers that add up to {wide}")
    if layout == 0:
        return np.repeat(np.arange(3), sections)
    found = np.zeros(wide, np.int64)
    for which in (1, 2):
        found[which : 3 * sections[which] : 3] = which
    return found


def _turned(node: NodeImport, tables: Callable[[int, int, tuple[int, ...]], tuple[str, str]]) -> None:
    """Input 0 turned by what `tables` has of a batch, its rows and the shape of angles."""
    shape, heads = node.type(0).shape, node.integer("num_heads", 0)
    node.real("scale", 1.0)  # onnxruntime reads and does not use it
    if node.integer("is_packed_batching", 0):
        raise Refusal("unsupported-attribute", "is_packed_batching=1 is not supported")
    if len(shape) == 4:
        (batch, _, rows, depth), x = shape, node.input(0)
    elif len(shape) == 3:
        batch, rows, width = shape
        given = node.integer("rotary_embedding_dim", 0) > 0
        depth = width // max(heads, 1) if given else 2 * node.type(2).shape[-1]
        if (given and heads < 1) or not depth or width % depth:
            raise ShapeError(f"rows of {width} elements cannot be cut in heads of {depth}")
        x = node.emit(Reshape((batch, rows, width // depth, depth)), [node.input(0)])
    else:
        raise ShapeError(f"input {list(shape)} must have three or four axes")
    turned = node.integer("rotary_embedding_dim", 0) or depth
    apart = (batch, 1, rows) if len(shape) == 4 else (batch, rows, 1)
    cos, sin = tables(batch, rows, (*apart, turned // 2))
    node.emit(Reshape(shape), [rotated(node, x, cos, sin, bool(node.integer("interleaved", 0)))], 0)


def positions(node: NodeImport, name: str, batch: int, rows: int) -> str:
    """Of every row of each image, [N, S]: `name` has these, or the first row's, [1], from which the others count."""
    shape = node.type_of(name).shape
    if shape == (batch, rows):
        return name
    if shape != (1,):
        raise ShapeError(f"positions {list(shape)} must be [1] or {[batch, rows]}")
    dtype = np.int64 if node.type_of(name).dtype is DType.I64 else np.int32
    counted = node.helper(np.tile(np.arange(rows, dtype=dtype), (batch, 1)), "rows")
    return node.emit(Binary("add"), [counted, name])


def angles(node: NodeImport, table: str, places: str, shape: tuple[int, ...]) -> str:
    """The rows of `table` that `places` name, as `shape`. Raises ShapeError."""
    width = node.type_of(table).shape[-1]
    if width != shape[-1]:
        raise ShapeError(f"a table of {width} angles in a row must have {shape[-1]}")
    return node.emit(Reshape(shape), [node.emit(Gather(0), [table, places])])


IMPORTERS = (
    Importer(
        "RotaryEmbedding", (1,), import_contrib_rotary, domain="com.microsoft",
        example=Example((Data((1, 2, 4, 8)), Data((1, 4), DType.I64), Weights((16, 4)), Weights((16, 4)))),
    ),
    Importer(
        "MRotaryEmbedding", (1,), import_contrib_rotary_of_images, domain="com.microsoft",
        example=Example(
            (Data((1, 2, 4, 8)), Data((3, 1, 4), DType.I64), Weights((16, 4)), Weights((16, 4))),
            (("mrope_section", (2, 1, 1)),),
        ),
    ),
)  # fmt: skip
