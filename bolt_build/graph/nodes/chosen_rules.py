"""What becomes of chosen rows (`graph.nodes.chosen`) behind each operator: where they lie, and how many a place has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from bolt_build.graph.graph_builder import GraphBuilder
from bolt_build.graph.importing import OnnxNode
from bolt_build.graph.ops.elementwise.activation import IMPORTERS

Key = tuple[object, ...]
"""What a value is computed by: equal ones are equal values."""
_TO_THE_END = 2**31 - 1
"""The end of a slice that takes all."""


class Escapes(Exception):
    """A node makes something of chosen rows that depends on how many they are, or on each other."""


@dataclass(frozen=True)
class Rows:
    """A value of chosen places: along `axis` it has `each` rows of every place of the mask `key`, in the order of its
    elements. `counts`: it is a shape whose entry `axis` says how many they are. `source` is the NonZero.

    `between` are the bounds of rows that are a run instead (`graph.nodes.row_runs`), whose `source` is a Range."""

    key: Key
    source: OnnxNode
    axis: int
    each: int = 1
    counts: bool = False
    between: tuple[str, str] | None = None

    def like(self, other: Rows) -> bool:
        return (self.key, self.each, self.counts) == (other.key, other.each, other.counts)


@dataclass(frozen=True)
class Asked:
    """A node that was imported, with all places chosen."""

    node: OnnxNode
    builder: GraphBuilder
    rows: Mapping[str, Rows]

    def of(self, index: int) -> Rows | None:
        return self.rows.get(self.node.inputs[index]) if index < len(self.node.inputs) else None

    def shape(self, index: int) -> tuple[int, ...]:
        return self.builder.values[self.node.inputs[index]].type.shape

    @property
    def made(self) -> tuple[int, ...]:
        """The shape of the result."""
        return self.builder.values[self.node.outputs[0]].type.shape

    def number(self, name: str, default: int) -> int:
        value = dict(self.node.attributes).get(name, default)
        return value if isinstance(value, int) else default

    def integers(self, name: str, index: int) -> tuple[int, ...] | None:
        """Of an attribute, or a constant input; None where neither is there."""
        value = dict(self.node.attributes).get(name)
        if isinstance(value, tuple):
            return tuple(int(each) for each in value)
        if index >= len(self.node.inputs) or not self.node.inputs[index]:
            return None
        array = self.builder.constant(self.node.inputs[index])
        if array is None:
            raise Escapes
        return tuple(int(each) for each in array.reshape(-1))

    def only(self, index: int) -> Rows:
        """The rows of input `index`, where no other input has any. Raises Escapes."""
        others = (self.of(other) for other in range(len(self.node.inputs)) if other != index)
        rows = self.of(index)
        if rows is None or any(other is not None for other in others):
            raise Escapes
        return rows


Rule = Callable[[Asked], Rows | None]
"""What rows the result has, None where it has none. Raises Escapes."""


def _alike(found: Sequence[Rows]) -> Rows:
    first, *rest = found
    if not all(each.like(first) for each in rest):
        raise Escapes
    return first


def _element_by_element(asked: Asked) -> Rows | None:
    """Of operands that broadcast only operands with chosen rows have more than one along these."""
    if any((rows := asked.of(index)) is not None and rows.counts for index in range(len(asked.node.inputs))):
        return _counted(asked)
    sides = [
        (asked.of(index), asked.shape(index)) for index in range(len(asked.node.inputs)) if asked.node.inputs[index]
    ]
    rows = _alike([each for each, _ in sides if each is not None])
    behind = {len(shape) - each.axis for each, shape in sides if each is not None}
    if len(behind) > 1:
        raise Escapes
    (place,) = behind
    if any(each is None and len(shape) >= place and shape[-place] != 1 for each, shape in sides):
        raise Escapes
    return replace(rows, axis=len(asked.made) - place)


def _counted(asked: Asked) -> Rows | None:
    """A shape stays what it is. It is no negative number, and where a constant says so it is not taken: torch-script
    asks whether it is -1 in front of every Expand."""
    count, kind = len(asked.node.inputs), asked.node.op_type
    if count == 1 and kind in _AS_IT_IS:
        return asked.only(0)
    others = [asked.builder.constant(name) for name in asked.node.inputs if name not in asked.rows]
    if kind == "Equal" and len(others) == 1 and others[0] is not None and (others[0] < 0).all():
        return None
    chooses = asked.builder.constant(asked.node.inputs[0]) if kind == "Where" and asked.of(0) is None else None
    if chooses is None or not chooses.size or not (chooses == chooses.flat[0]).all():
        raise Escapes
    side = 1 if chooses.flat[0] else 2
    if asked.made != asked.shape(side):
        raise Escapes
    return asked.of(side)


def _quantised(asked: Asked) -> Rows:
    """One scale and one zero point are of all rows."""
    rows = asked.only(0)
    if rows.counts or any(prod(asked.shape(index)) != 1 for index in range(1, len(asked.node.inputs))):
        raise Escapes
    return rows


def _transpose(asked: Asked) -> Rows:
    rows, perm = asked.only(0), asked.integers("perm", 9)
    if rows.counts:
        raise Escapes
    order = tuple(reversed(range(len(asked.made)))) if perm is None else perm
    return replace(rows, axis=order.index(rows.axis))


def _unsqueeze(asked: Asked) -> Rows:
    rows, axes, rank = asked.only(0), asked.integers("axes", 1), len(asked.made)
    if rows.counts:
        return replace(rows, axis=0)
    added = {axis % rank for axis in axes or ()}
    return replace(rows, axis=[axis for axis in range(rank) if axis not in added][rows.axis])


def _squeeze(asked: Asked) -> Rows:
    rows, axes, shape = asked.only(0), asked.integers("axes", 1), asked.shape(0)
    if rows.counts:
        return replace(rows, axis=0)
    gone = {axis % len(shape) for axis in axes or ()} if axes else {axis for axis, n in enumerate(shape) if n == 1}
    if rows.axis in gone:
        raise Escapes
    return replace(rows, axis=[axis for axis in range(len(shape)) if axis not in gone].index(rows.axis))


def _reshape(asked: Asked) -> Rows:
    """Rows of places become more or fewer, which lie together."""
    rows, before, after = asked.of(0), asked.shape(0), asked.made
    if rows is None:
        raise Escapes
    if rows.counts:
        if prod(before) != 1 and before != after:
            raise Escapes
        return replace(rows, axis=rows.axis if before == after else 0)
    if rows.axis != 0 or not after or not _follows(asked, rows):
        raise Escapes
    places, rest = divmod(before[0], rows.each)
    each, left = divmod(after[0], places)
    if rest or left or not each:
        raise Escapes
    return replace(rows, each=each)


def _follows(asked: Asked, rows: Rows) -> bool:
    """Whether the first extent of a reshape is as many rows as there are, in any run that the model allows: it is
    counted, left to be found (-1) or kept (0). One that a constant gives may be as large as the mask by chance: with -1
    behind it rows of places come apart."""
    counts = asked.of(1)
    if counts is not None:
        return counts.axis == 0 and counts.key == rows.key and counts.between == rows.between
    wanted = asked.integers("shape", 1) or (0,)
    return wanted[0] in (-1, 0) or -1 not in wanted


def _expand(asked: Asked) -> Rows:
    rows, counts, made = asked.of(0), asked.of(1), asked.made
    if rows is not None:
        place = len(asked.shape(0)) - rows.axis
        if rows.counts or made[-place] != asked.shape(0)[-place]:
            raise Escapes
        wanted = asked.integers("shape", 1) or ()
        counted = counts is not None and counts.key == rows.key and len(wanted) - counts.axis == place
        # A single row would be broadcast to as many as a constant says.
        if len(wanted) >= place and wanted[-place] != 1 and not counted:
            raise Escapes
        return replace(rows, axis=len(made) - place)
    if counts is None or not counts.counts:
        raise Escapes
    axis = len(made) - (prod(asked.shape(1)) - counts.axis)
    place, shape = len(made) - axis, asked.shape(0)
    if len(shape) >= place and shape[-place] != 1:
        raise Escapes
    return replace(counts, axis=axis, counts=False)


def _shape(asked: Asked) -> Rows | None:
    rows, rank = asked.only(0), len(asked.shape(0))
    if rows.counts:
        return None
    start = asked.number("start", 0)
    axis = rows.axis - max(0, start + rank if start < 0 else start)
    return replace(rows, axis=axis, counts=True) if 0 <= axis < prod(asked.made) else None


def _gather(asked: Asked) -> Rows | None:
    data, index, rank = asked.of(0), asked.of(1), len(asked.shape(0))
    axis = asked.number("axis", 0) % rank
    if data is not None and data.counts:
        (entry, *more) = asked.integers("", 1) or (0, 0)
        if index is not None or more:
            raise Escapes
        return replace(data, axis=0) if entry % asked.shape(0)[0] == data.axis else None
    if data is None and index is not None and not index.counts:
        return replace(index, axis=axis + index.axis)
    if data is None or index is not None or axis == data.axis:
        raise Escapes
    return replace(data, axis=data.axis if data.axis < axis else data.axis + len(asked.shape(1)) - 1)


def _gather_nd(asked: Asked) -> Rows:
    rows = asked.only(1)
    if rows.counts or rows.axis == len(asked.shape(1)) - 1 or asked.number("batch_dims", 0):
        raise Escapes
    return rows


def _slice(asked: Asked) -> Rows | None:
    rows, begins, ends = asked.of(0), asked.integers("starts", 1), asked.integers("ends", 2)
    if rows is None or begins is None or ends is None:
        raise Escapes
    rank = len(asked.shape(0))
    axes = asked.integers("axes", 3) or tuple(range(len(begins)))
    if rows.counts:
        kept = list(np.arange(asked.shape(0)[0])[begins[0] : ends[0]])
        if set(asked.integers("steps", 4) or (1,)) != {1}:
            raise Escapes
        return replace(rows, axis=kept.index(rows.axis)) if rows.axis in kept else None
    for begin, end, axis in zip(begins, ends, axes, strict=True):
        count = asked.of(2)
        whole = end >= _TO_THE_END if count is None else rows.like(replace(count, counts=False))
        if axis % rank == rows.axis and (begin or not whole):
            raise Escapes
    if asked.made[rows.axis] != asked.shape(0)[rows.axis]:
        raise Escapes
    return rows


def _concat(asked: Asked) -> Rows:
    sides = [asked.of(index) for index in range(len(asked.node.inputs))]
    found = [each for each in sides if each is not None]
    axis = asked.number("axis", 0) % len(asked.made)
    if any(each.counts for each in found):
        if len(found) > 1:
            raise Escapes
        place = sides.index(found[0])
        return replace(found[0], axis=sum(asked.shape(index)[0] for index in range(place)) + found[0].axis)
    rows = _alike(found)
    if len(found) < len(sides) or axis == rows.axis or len({each.axis for each in found}) > 1:
        raise Escapes
    return rows


def _split(asked: Asked) -> Rows:
    rows = asked.only(0)
    if rows.counts or asked.number("axis", 0) % len(asked.shape(0)) == rows.axis:
        raise Escapes
    return rows


def _product(asked: Asked) -> Rows:
    """Rows are multiplied with one matrix, or matrices of places with matrices of the same places."""
    sides = [rows for rows in (asked.of(0), asked.of(1)) if rows is not None]
    if len(sides) == 2:
        rows, rank = _alike(sides), len(asked.made)
        ranks = {len(asked.shape(0)), len(asked.shape(1))}
        if rows.counts or ranks != {rank} or rows.axis >= rank - 2 or sides[1].axis != rows.axis:
            raise Escapes
        return rows
    rows, bias = asked.only(0), asked.shape(2) if len(asked.node.inputs) > 2 and asked.node.inputs[2] else ()
    if rows.counts or len(asked.shape(1)) != 2 or rows.axis == len(asked.shape(0)) - 1 or asked.number("transA", 0):
        raise Escapes
    if len(bias) > 1 and bias[0] != 1:
        raise Escapes
    return rows


def _along_rows(asked: Asked) -> Rows:
    """Softmax and LayerNorm of axes behind those that rows lie along."""
    rows, rank = asked.only(0), len(asked.shape(0))
    if rows.counts or asked.number("axis", -1) % rank <= rows.axis or asked.node.since_version < 13:
        raise Escapes
    return rows


def _images(asked: Asked) -> Rows:
    """Convolutions, poolings and normalisations of each image by itself, which give no places or statistics."""
    rows = asked.only(0)
    if rows.counts or rows.axis or any(asked.node.outputs[1:]) or asked.number("training_mode", 0):
        raise Escapes
    return rows


def _regions(asked: Asked) -> Rows:
    """Each region of an image is cut out by itself."""
    boxes, images = asked.of(1), asked.of(2)
    if asked.of(0) is not None or boxes is None or images is None:
        raise Escapes
    rows = _alike([boxes, images])
    if rows.counts or boxes.axis or images.axis:
        raise Escapes
    return rows


def _reduce(asked: Asked) -> Rows:
    rows, rank = asked.only(0), len(asked.shape(0))
    axes = {axis % rank for axis in asked.integers("axes", 1) or ()}
    if rows.counts or not axes or rows.axis in axes:
        raise Escapes
    before = sum(axis < rows.axis for axis in axes)
    return rows if asked.number("keepdims", 1) else replace(rows, axis=rows.axis - before)


_AS_IT_IS = ("Cast", "Identity", "Max", "Min")
"""What leaves one number as it is."""
_ELEMENTWISE = (
    *dict.fromkeys(importer.op_type for importer in IMPORTERS),
    "Add", "And", "Cast", "Div", "Equal", "Greater", "GreaterOrEqual", "Identity", "IsInf", "IsNaN", "Less",
    "LessOrEqual", "Max", "Min", "Mod", "Mul", "Not", "Or", "PRelu", "Pow", "Sub", "Where", "Xor",
)  # fmt: skip
RULES: dict[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE, _element_by_element),
    **dict.fromkeys(("ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"), _reduce),
    **dict.fromkeys(("LayerNormalization", "LogSoftmax", "Softmax"), _along_rows),
    **dict.fromkeys(("Gemm", "MatMul"), _product),
    **dict.fromkeys((
        "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "GlobalAveragePool", "GlobalMaxPool",
        "GroupNormalization", "InstanceNormalization", "MaxPool"), _images),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantised),
    "Concat": _concat, "Expand": _expand, "Gather": _gather, "GatherND": _gather_nd, "Reshape": _reshape,
    "RoiAlign": _regions, "Shape": _shape, "Slice": _slice, "Split": _split, "Squeeze": _squeeze,
    "Transpose": _transpose, "Unsqueeze": _unsqueeze,
}  # fmt: skip
