"""ONNX's RotaryEmbedding: pairs of elements of each head turned by angles that grow with the row."""

from __future__ import annotations

from bolt_build.graph.example import Data, Example
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import ShapeError
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Concat, Reshape, Slice


def import_rotary(node: NodeImport) -> None:
    """x1 cos - x2 sin and x2 cos + x1 sin of the first elements of each head: halves, or neighbours if interleaved."""
    shape, heads = node.type(0).shape, node.integer("num_heads", 0)
    if len(shape) == 3:
        if heads < 1 or shape[2] % heads:
            raise ShapeError(f"rows of {shape[2]} elements cannot be cut in {heads} heads")
        batch, rows, depth = shape[0], shape[1], shape[2] // heads
        x, apart = node.emit(Reshape((batch, rows, heads, depth)), [node.input(0)]), (batch, rows, 1)
    elif len(shape) == 4:
        (batch, _, rows, depth), x = shape, node.input(0)
        apart = (batch, 1, rows)
    else:
        raise ShapeError(f"input {list(shape)} must have three or four axes")
    turned = node.integer("rotary_embedding_dim", 0) or depth
    interleaved = bool(node.integer("interleaved", 0))
    if turned % 2 or not 0 < turned <= depth:
        raise ShapeError(f"{turned} elements of heads of {depth} cannot be turned in pairs")
    cos, sin = (_angles(node, index, (batch, rows, turned // 2), apart) for index in (1, 2))
    node.emit(Reshape(shape), [rotated(node, x, cos, sin, interleaved)], 0)


def rotated(node: NodeImport, x: str, cos: str, sin: str, interleaved: bool) -> str:
    """`x` of four axes, of whose heads as many pairs are turned as `cos` and `sin` have angles along the last axis."""
    depth, turned = node.type_of(x).shape[3], 2 * node.type_of(cos).shape[-1]
    first, second = (_half(node, x, turned, part, interleaved) for part in (0, 1))

    def pair(function: str, a: str, b: str) -> str:
        return node.emit(Binary(function), [node.emit(Binary("mul"), [a, cos]), node.emit(Binary("mul"), [b, sin])])

    halves = [pair("sub", first, second), pair("add", second, first)]
    outer = node.type_of(x).shape[:3]
    if interleaved:
        columns = [node.emit(Reshape((*outer, turned // 2, 1)), [half]) for half in halves]
        parts = [node.emit(Reshape((*outer, turned)), [node.emit(Concat(4), columns)])]
    else:
        parts = halves
    if turned < depth:
        parts.append(node.emit(Slice((0, 0, 0, turned), (*outer, depth - turned), (1,) * 4), [x]))
    return parts[0] if len(parts) == 1 else node.emit(Concat(3), parts)


def _angles(node: NodeImport, index: int, wanted: tuple[int, ...], apart: tuple[int, ...]) -> str:
    """Cosines or sines as they are multiplied with all heads; rows of a table where positions are given."""
    name = node.input(index)
    if node.has(3):
        name = node.emit(Gather(0), [name, node.input(3)])
    shape = node.type_of(name).shape
    if shape != wanted:
        raise ShapeError(f"angles {list(shape)} must be {list(wanted)}")
    return node.emit(Reshape((*apart, wanted[-1])), [name])


def _half(node: NodeImport, x: str, turned: int, part: int, interleaved: bool) -> str:
    """The first or second elements of all pairs."""
    outer, half = node.type_of(x).shape[:3], turned // 2
    begin, step = (part, 2) if interleaved else (part * half, 1)
    return node.emit(Slice((0, 0, 0, begin), (*outer, half), (1, 1, 1, step)), [x])


_ANGLES = Data((1, 4, 4))

IMPORTERS = (
    Importer("RotaryEmbedding", (23,), import_rotary, example=Example((Data((1, 2, 4, 8)), _ANGLES, _ANGLES))),
)  # fmt: skip
