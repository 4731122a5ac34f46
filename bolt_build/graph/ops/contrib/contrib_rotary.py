"""RotaryEmbedding of the domain com.microsoft: angles are rows of a table, which positions name.

Defined in onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.example import Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import ShapeError
from bolt_build.graph.ops.attention.rotary import rotated
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Reshape


def import_contrib_rotary(node: NodeImport) -> None:
    """Of rows [N, S, heads D] or heads [N, heads, S, D]; positions are [N, S], or the first row's alone [1]."""
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
    places = positions(node, node.input(1), batch, rows)
    apart = (batch, 1, rows) if len(shape) == 4 else (batch, rows, 1)
    cos, sin = (angles(node, node.input(index), places, (*apart, turned // 2)) for index in (2, 3))
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
)  # fmt: skip
