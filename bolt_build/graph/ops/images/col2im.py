"""Patches put back at their places in an image, and added up where they overlap: ONNX's Col2Im, torch's `fold`."""

from __future__ import annotations

from math import prod

import numpy as np

from bolt_build.dtypes import PRECISIONS
from bolt_build.graph.example import Data, Example, Integers
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, ShapeError
from bolt_build.graph.ops.images.patch_sum import PatchSum
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Pad, Reshape, Transpose

_MOST_PLACES = 1 << 24
"""Entries of the table of where each sum's parts are: 128 MiB."""


def import_col2im(node: NodeImport) -> None:
    """Each cell of the image is the sum of the elements that the patches have of it. Patches beside each other are
    moved alone. Integers, doubles and images of more than three axes are gathered and added: of cells that fewer
    patches have the missing ones are a zero behind the elements.
    """
    image, block = node.static_list(1, "the image's shape"), node.static_list(2, "the patches' shape")
    rank = len(image)
    ones, zeros = (1,) * rank, (0,) * rank
    strides, dilations = node.integers("strides", ones), node.integers("dilations", ones)
    pads = node.integers("pads", (*zeros, *zeros))
    if not len(block) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise ShapeError(f"an image of {rank} axes has other numbers of patches' axes, strides, dilations or pads")
    if min((*image, *block, *strides, *dilations)) < 1 or min(pads) < 0:
        raise ShapeError("extents, strides and dilations must be at least 1, pads at least 0")
    shape = node.type(0).shape
    counts = [
        (extent + pads[axis] + pads[axis + rank] - dilations[axis] * (block[axis] - 1) - 1) // strides[axis] + 1
        for axis, extent in enumerate(image)
    ]
    taps, places = prod(block), prod(counts)
    if len(shape) != 3 or min(counts) < 1 or shape[2] != places or shape[1] % taps:
        raise ShapeError(f"{list(shape)} are no patches {list(block)} at {list(counts)} places")
    batch, channels = shape[0], shape[1] // taps
    if strides == block and not any(pads) and not any(n * b - e for n, b, e in zip(counts, block, image, strict=True)):
        _move(node, channels, block, counts, image)
        return
    if node.type(0).dtype in PRECISIONS.values() and rank <= 3:
        op = PatchSum(image, block, strides, dilations, pads[:rank], tuple(counts))
        node.emit(op, [node.input(0)], 0)
        return
    if taps * places > _MOST_PLACES or prod(image) > _MOST_PLACES:
        raise Refusal("model-too-large", f"{taps * places} elements of patches are more than can be put back")
    table = _table(image, block, counts, strides, dilations, pads[:rank])
    rows = node.emit(Reshape((batch, channels, taps * places)), [node.input(0)])
    if (table == taps * places).any():
        rows = node.emit(Pad((0, 0, 0), (0, 0, 1)), [rows])
    parts = node.emit(Gather(2), [rows, node.helper(table.reshape(-1), "places")])
    if table.shape[1] > 1:
        apart = node.emit(Reshape((batch, channels, *table.shape)), [parts])
        parts = node.emit(Reduce("sum", (3,), False), [apart])
    node.emit(Reshape((batch, channels, *image)), [parts], 0)


def _move(node: NodeImport, channels: int, block: tuple[int, ...], counts: list[int], image: tuple[int, ...]) -> None:
    """Cells of patches beside each other."""
    batch, rank = node.type(0).shape[0], len(block)
    apart = node.emit(Reshape((batch, channels, *block, *counts)), [node.input(0)])
    perm = (
        0,
        1,
        *(axis for pair in zip(range(2 + rank, 2 + 2 * rank), range(2, 2 + rank), strict=True) for axis in pair),
    )
    node.emit(Reshape((batch, channels, *image)), [node.emit(Transpose(perm), [apart])], 0)


def _table(
    image: tuple[int, ...], block: tuple[int, ...], counts: list[int], strides: tuple[int, ...],
    dilations: tuple[int, ...], begin: tuple[int, ...],
) -> Array:  # fmt: skip
    """[cells of the image, most patches of one]: the places in a row of a cell's elements; behind the row for none."""
    places = np.indices(counts).reshape(len(counts), -1)
    cells = []
    for tap in np.ndindex(*block):
        at = [p * strides[axis] + tap[axis] * dilations[axis] - begin[axis] for axis, p in enumerate(places)]
        inside = np.logical_and.reduce([(p >= 0) & (p < extent) for p, extent in zip(at, image, strict=True)])
        flat = np.ravel_multi_index([np.where(inside, p, 0) for p in at], image)
        cells.append(np.where(inside, flat, -1))
    owner = np.concatenate(cells)
    order = np.argsort(owner, kind="stable")
    order = order[owner[order] >= 0]
    owners = owner[order]
    starts = np.searchsorted(owners, np.arange(prod(image)))
    turn = np.arange(len(owners)) - starts[owners]
    table = np.full((prod(image), max(1, int(turn.max(initial=0)) + 1)), len(owner), np.int64)
    table[owners, turn] = order
    return table


IMPORTERS = (
    Importer(
        "Col2Im",
        (18,),
        import_col2im,
        example=Example((Data((1, 8, 9)), Integers((4, 4)), Integers((2, 2)))),
        note="a constant shape",
    ),
)
