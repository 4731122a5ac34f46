"""Tensors made larger by repeating what they hold, and rearranged in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.graph.example import IMAGE, Data, Example, Integers
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.graph.ops.folding import check_extents
from bolt_build.graph.ops.moves.shape import Identity, Pad, Reshape, Transpose
from bolt_build.graph.ops.operands import broadcast, expect_count
from bolt_build.graph.tail import Padded, Tail, Tails, stride


@dataclass(frozen=True)
class Expand(Op):
    """Broadcasts the input to `shape`, which is the result's."""

    kind = "expand"
    moves = True
    shaped = True
    shape: tuple[int, ...]

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        (x,) = inputs
        if broadcast(x.shape, self.shape) != self.shape:
            raise ShapeError(f"{list(x.shape)} does not broadcast to {list(self.shape)}")
        return (TensorType(x.dtype, self.shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        return (np.ascontiguousarray(np.broadcast_to(inputs[0], self.shape)).reshape(self.shape),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 0

    def tails(self, node: Node, at: Padded) -> Tails:
        """Axes that it adds or repeats have the dimension where they differ."""
        (name,), (result,) = node.inputs, node.outputs
        shape, lead = at.shape(result), len(at.shape(result)) - len(at.shape(name))
        found = {at.moved(name, s, shape, at.axis(name, s) + lead): tail for s, tail in at.tails(name).items()}
        added = {stride(shape, axis): Tail(at.uniform(name)) for axis in at.differing(result)}
        return {**added, **found}


def import_expand(node: NodeImport) -> None:
    wanted = node.static_list(1, "the shape")
    check_extents(wanted)
    shape = broadcast(node.type(0).shape, wanted)
    node.emit(Identity() if shape == node.type(0).shape else Expand(shape), [node.input(0)], 0)


def import_tile(node: NodeImport) -> None:
    """The input again and again along each axis: padded with itself, or broadcast where only single elements repeat."""
    shape, repeats = node.type(0).shape, node.static_list(1, "the repeats")
    check_extents(repeats)
    if len(repeats) != len(shape):
        raise ShapeError(f"the repeats {list(repeats)} must have one entry an axis of {list(shape)}")
    if all(times == 1 or (extent == 1 and times > 0) for extent, times in zip(shape, repeats, strict=True)):
        wanted = tuple(times * extent for extent, times in zip(shape, repeats, strict=True))
        node.emit(Identity() if wanted == tuple(shape) else Expand(wanted), [node.input(0)], 0)
        return
    end = tuple((times - 1) * extent for extent, times in zip(shape, repeats, strict=True))
    node.emit(Pad((0,) * len(shape), end, "wrap"), [node.input(0)], 0)


def import_trilu(node: NodeImport) -> None:
    """The upper or lower triangle of matrices, and zeros."""
    shape = node.type(0).shape
    if len(shape) < 2:
        raise ShapeError(f"{list(shape)} has no matrices")
    offset = node.static_ints(1, "the diagonal")[0] if node.has(1) else 0
    keep = np.tri(shape[-2], shape[-1], offset - 1 if node.integer("upper", 1) else offset, dtype=np.bool_)
    mask = node.helper(~keep if node.integer("upper", 1) else keep, "mask")
    node.emit(Where(), [mask, node.input(0), node.scalar_like(0, node.input(0))], 0)


def _blocks(node: NodeImport) -> tuple[int, tuple[int, ...]]:
    shape, size = node.type(0).shape, node.integer("blocksize")
    if len(shape) != 4 or size < 1:
        raise ShapeError(f"{list(shape)} cannot be cut into blocks of {size} x {size}")
    return size, shape


def import_depth_to_space(node: NodeImport) -> None:
    size, (batch, channels, height, width) = _blocks(node)
    if channels % (size * size):
        raise ShapeError(f"{channels} channels are no multiple of {size} x {size}")
    rest, mode = channels // (size * size), node.text("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise Refusal("unsupported-attribute", f"mode '{mode}' is neither DCR nor CRD")
    split = (batch, size, size, rest, height, width) if mode == "DCR" else (batch, rest, size, size, height, width)
    perm = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    blocks = node.emit(Transpose(perm), [node.emit(Reshape(split), [node.input(0)])])
    node.emit(Reshape((batch, rest, height * size, width * size)), [blocks], 0)


def import_space_to_depth(node: NodeImport) -> None:
    size, (batch, channels, height, width) = _blocks(node)
    if height % size or width % size:
        raise ShapeError(f"an image of {height} x {width} cannot be cut into blocks of {size} x {size}")
    split, mode = (batch, channels, height // size, size, width // size, size), node.text("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise Refusal("unsupported-attribute", f"mode '{mode}' is neither DCR nor CRD")
    perm = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    blocks = node.emit(Transpose(perm), [node.emit(Reshape(split), [node.input(0)])])
    node.emit(Reshape((batch, channels * size * size, height // size, width // size)), [blocks], 0)


_BLOCKS = Example((Data(IMAGE),), (("blocksize", 2),))

IMPORTERS = (
    Importer(
        "Expand", (8, 13), import_expand, example=Example((Data((1, 4, 1, 1)), Integers(IMAGE))),
        moves=True, note="a constant shape",
    ),
    Importer(
        "Tile", (6, 13), import_tile, example=Example((Data(IMAGE), Integers((1, 2, 1, 1)))), note="constant repeats",
        moves=True,
    ),
    Importer("Trilu", (14,), import_trilu, note="a constant diagonal", moves=True),
    Importer("DepthToSpace", (1, 11, 13, 28), import_depth_to_space, example=_BLOCKS, moves=True),
    Importer("SpaceToDepth", (1, 13, 28), import_space_to_depth, example=_BLOCKS, moves=True),
)  # fmt: skip
