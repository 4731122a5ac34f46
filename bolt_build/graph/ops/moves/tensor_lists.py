"""ONNX's sequences of tensors, and optional values, whose lengths are known at import: nothing of them is left in a
graph, only their tensors."""

from __future__ import annotations

import numpy as np

from bolt_build.graph.example import IMAGE, Data, Example, Integers
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import ShapeError
from bolt_build.graph.limits import MOST_ENTRIES
from bolt_build.graph.ops.moves.shape import Concat, Identity, Reshape, Slice


def import_construct(node: NodeImport) -> None:
    for index in range(node.count()):
        node.type(index)
    node.sequence_of(node.inputs())


def import_empty(node: NodeImport) -> None:
    """Its element type says nothing that its tensors do not."""
    node.integer("dtype", 1)
    node.sequence_of(())


def _position(node: NodeImport, index: int, length: int, most: int) -> int:
    """A constant place from -length to `most`. Raises Refusal and ShapeError."""
    place = int(node.static_number(index, "the position"))
    if not -length <= place <= most:
        raise ShapeError(f"position {place} lies outside of a sequence of {length} tensors")
    return place + length if place < 0 else place


def import_insert(node: NodeImport) -> None:
    """The tensor in front of the one at a place, or behind all."""
    tensors = node.sequence(0)
    node.type(1)
    at = _position(node, 2, len(tensors), len(tensors)) if node.has(2) else len(tensors)
    node.sequence_of((*tensors[:at], node.input(1), *tensors[at:]))


def import_erase(node: NodeImport) -> None:
    tensors = node.sequence(0)
    at = _position(node, 1, len(tensors), len(tensors) - 1) if node.has(1) else len(tensors) - 1
    if not tensors:
        raise ShapeError("an empty sequence has nothing to erase")
    node.sequence_of((*tensors[:at], *tensors[at + 1 :]))


def import_at(node: NodeImport) -> None:
    tensors = node.sequence(0)
    at = _position(node, 1, len(tensors), len(tensors) - 1)
    node.emit(Identity(), [tensors[at]], 0)


def import_length(node: NodeImport) -> None:
    node.result(np.asarray(len(node.sequence(0)), np.int64))


def import_concat_from(node: NodeImport) -> None:
    """Side by side along an axis, which is a new one where `new_axis` says so."""
    tensors, new = list(node.sequence(0)), node.integer("new_axis", 0)
    if not tensors:
        raise ShapeError("an empty sequence has no shape to be joined to")
    rank = node.type_of(tensors[0]).rank + new
    axis = node.axis(node.integer("axis"), rank)
    if new:
        shapes = [node.type_of(name).shape for name in tensors]
        cells = [(*shape[:axis], 1, *shape[axis:]) for shape in shapes]
        tensors = [node.emit(Reshape(cell), [name]) for cell, name in zip(cells, tensors, strict=True)]
    node.emit(Concat(axis), tensors, 0)


def import_split_to(node: NodeImport) -> None:
    """Parts of constant extents along an axis: those of a list, or all of one but for the last. Without any, each
    position by itself, without the axis where `keepdims` is 0. So runtimes take a single 1, as PyTorch writes it."""
    shape = node.type(0).shape
    axis = node.axis(node.integer("axis", 0), len(shape))
    extent, keep = shape[axis], bool(node.integer("keepdims", 1)) or node.has(1)
    if not node.has(1):
        sizes: tuple[int, ...] = (1,) * min(extent, MOST_ENTRIES + 1)
    elif node.type(1).rank == 0:
        size = int(node.static_number(1, "the extent of parts"))
        if size < 1:
            raise ShapeError(f"parts of {size} positions")
        keep = keep if size != 1 else bool(node.integer("keepdims", 1))
        whole, rest = divmod(extent, size)
        sizes = (size,) * min(whole, MOST_ENTRIES + 1) + ((rest,) if rest else ())
    else:
        sizes = node.static_ints(1, "the list of extents")
    if len(sizes) > MOST_ENTRIES:
        raise Refusal("model-too-large", f"a sequence of more than {MOST_ENTRIES} tensors")
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        raise ShapeError(f"extents {list(sizes)} do not divide an axis of {extent}")
    found, begin = [], 0
    for size in sizes:
        start = tuple(begin if index == axis else 0 for index in range(len(shape)))
        count = (*shape[:axis], size, *shape[axis + 1 :])
        part = node.emit(Slice(start, count, (1,) * len(shape)), [node.input(0)])
        found.append(part if keep else node.emit(Reshape((*shape[:axis], *shape[axis + 1 :])), [part]))
        begin += size
    node.sequence_of(found)


def import_has_element(node: NodeImport) -> None:
    """True of any tensor or sequence: an optional value that may be empty is no value here."""
    node.result(np.asarray(node.has(0), np.bool_))


def import_value(node: NodeImport) -> None:
    """Optional, and what takes its value out again: the value itself."""
    if not node.has(0):
        raise Refusal("unsupported-op", "an optional value without an element is not supported")
    if node.is_sequence(0):
        node.sequence_of(node.sequence(0))
    else:
        node.emit(Identity(), [node.input(0)], 0)


_SEVERAL = Data(IMAGE)
_KNOWN = "a length that is known at import"

IMPORTERS = (
    Importer(
        "SequenceConstruct", (11,), import_construct, example=Example((_SEVERAL, _SEVERAL), joined=True), note=_KNOWN
    ),
    Importer("SequenceEmpty", (11,), import_empty, folds=True),
    Importer(
        "SequenceInsert", (11,), import_insert, example=Example((_SEVERAL, _SEVERAL), listed=1, joined=True),
        note="a constant position",
    ),
    Importer(
        "SequenceErase", (11,), import_erase, example=Example((_SEVERAL, _SEVERAL), listed=2, joined=True),
        note="a constant position",
    ),
    Importer(
        "SequenceAt", (11,), import_at, example=Example((_SEVERAL, _SEVERAL, Integers((1,), scalar=True)), listed=2),
        note="a constant position", moves=True,
    ),
    Importer("SequenceLength", (11,), import_length, example=Example((_SEVERAL, _SEVERAL), listed=2), note=_KNOWN),
    Importer(
        "ConcatFromSequence", (11,), import_concat_from,
        example=Example((_SEVERAL, _SEVERAL), (("axis", 1),), listed=2), note=_KNOWN, moves=True,
    ),
    Importer(
        "SplitToSequence", (11, 24), import_split_to,
        example=Example((_SEVERAL, Integers((2, 2))), (("axis", 1),), joined=True), note="constant extents",
    ),
    Importer("Optional", (15, 28), import_value, ignores=("type",), note="with an element", moves=True),
    Importer("OptionalHasElement", (15, 18, 28), import_has_element),
    Importer("OptionalGetElement", (15, 18, 28), import_value, note="with an element", moves=True),
)  # fmt: skip
