"""ONNX operators that move elements: what they become in the IR."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import converted, held_dtype
from bolt_build.graph.example import IMAGE, OF_TWO_IMAGES, Data, Example, Integers
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import ShapeError, TensorType
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.shape import PAD_MODES, Cast, Concat, Identity, Pad, Reshape, Slice, Transpose


def import_reshape(node: NodeImport) -> None:
    shape = node.type(0).shape
    wanted = list(node.static_ints(1, "the new shape"))
    if not node.integer("allowzero", 0):
        if any(extent == 0 and index >= len(shape) for index, extent in enumerate(wanted)):
            raise ShapeError(f"the new shape {wanted} copies an axis that {list(shape)} does not have")
        wanted = [shape[index] if extent == 0 else extent for index, extent in enumerate(wanted)]
    if wanted.count(-1) > 1:
        raise ShapeError(f"the new shape {wanted} leaves more than one axis open")
    if -1 in wanted:
        rest = prod(extent for extent in wanted if extent != -1)
        if rest == 0 or prod(shape) % rest:
            raise ShapeError(f"{list(shape)} cannot be reshaped to {wanted}")
        wanted[wanted.index(-1)] = prod(shape) // rest
    node.emit(Reshape(tuple(wanted)), [node.input(0)], 0)


def import_flatten(node: NodeImport) -> None:
    shape, axis = node.type(0).shape, node.integer("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise ShapeError(f"axis {axis} does not exist in a tensor of rank {len(shape)}")
    axis = axis + len(shape) if axis < 0 else axis
    node.emit(Reshape((prod(shape[:axis]), prod(shape[axis:]))), [node.input(0)], 0)


def _axes_given(node: NodeImport) -> tuple[int, ...] | None:
    """Squeeze's and Unsqueeze's axes: input 1 since version 13, an attribute before; None where left out."""
    if node.version >= 13:
        return node.static_ints(1, "the list of axes") if node.has(1) else None
    return node.integers("axes") if node.given("axes") else None


def import_squeeze(node: NodeImport) -> None:
    shape, given = node.type(0).shape, _axes_given(node)
    if given is None:
        axes = tuple(axis for axis, extent in enumerate(shape) if extent == 1)
    else:
        axes = node.axes(given, len(shape))
    if any(shape[axis] != 1 for axis in axes):
        raise ShapeError(f"axes {list(axes)} of {list(shape)} do not all have extent 1")
    kept = tuple(extent for axis, extent in enumerate(shape) if axis not in axes)
    node.emit(Reshape(kept), [node.input(0)], 0)


def import_unsqueeze(node: NodeImport) -> None:
    shape, given = node.type(0).shape, _axes_given(node)
    if given is None:
        raise Refusal("invalid-node", "the list of axes is missing")
    rank = len(shape) + len(given)
    axes = node.axes(given, rank)
    rest = iter(shape)
    node.emit(Reshape(tuple(1 if axis in axes else next(rest) for axis in range(rank))), [node.input(0)], 0)


def import_transpose(node: NodeImport) -> None:
    node.emit(Transpose(node.integers("perm", range(node.type(0).rank - 1, -1, -1))), [node.input(0)], 0)


def import_concat(node: NodeImport) -> None:
    concatenated(node, node.axis(node.integer("axis"), node.type(0).rank), node.inputs(), 0)


def concatenated(node: NodeImport, axis: int, names: Sequence[str], output: int | None = None) -> str:
    """Tensors behind each other, as output `output`. Those without elements, as what a decoder has seen in front of its
    first token, are none that a kernel copies."""
    op = Concat(axis)
    op.infer([node.type_of(name) for name in names])
    filled = [name for name in names if 0 not in node.type_of(name).shape]
    return node.emit(op, filled or names, output)


def import_slice(node: NodeImport) -> None:
    shape = node.type(0).shape
    if node.version >= 10:
        starts, ends = node.static_ints(1, "the list of starts"), node.static_ints(2, "the list of ends")
        axes = node.static_ints(3, "the list of axes") if node.has(3) else tuple(range(len(starts)))
        steps = node.static_ints(4, "the list of steps") if node.has(4) else (1,) * len(starts)
    else:
        starts, ends = node.integers("starts"), node.integers("ends")
        axes, steps = node.integers("axes", range(len(starts))), (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ShapeError(f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps are given")
    begin, count, step = [0] * len(shape), list(shape), [1] * len(shape)
    for axis, first, last, by in zip(node.axes(axes, len(shape)), starts, ends, steps, strict=True):
        if by == 0:
            raise ShapeError(f"the step of axis {axis} is 0")
        picked = range(*slice(first, last, by).indices(shape[axis]))
        begin[axis], count[axis], step[axis] = picked.start if picked else 0, len(picked), by
    node.emit(Slice(tuple(begin), tuple(count), tuple(step)), [node.input(0)], 0)


def _split_sizes(node: NodeImport, extent: int) -> tuple[int, ...]:
    parts = len(node.node.outputs)
    if node.version >= 13 and node.has(1):
        return node.static_ints(1, "the list of sizes")
    if node.given("split"):
        return node.integers("split")
    if node.given("num_outputs") and node.integer("num_outputs") != parts:
        raise ShapeError(f"num_outputs {node.integer('num_outputs')} is not the number of outputs {parts}")
    if extent % parts and node.version < 18:
        raise ShapeError(f"an axis of {extent} cannot be split into {parts} equal parts")
    size = -(-extent // parts)
    return (*(size,) * (parts - 1), extent - size * (parts - 1))


def import_split(node: NodeImport) -> None:
    """One slice an output that is named."""
    shape = node.type(0).shape
    axis = node.axis(node.integer("axis", 0), len(shape))
    sizes = _split_sizes(node, shape[axis])
    if sum(sizes) != shape[axis] or len(sizes) != len(node.node.outputs) or min(sizes) < 0:
        raise ShapeError(f"sizes {list(sizes)} do not divide an axis of {shape[axis]} among the outputs")
    begin = [0] * len(shape)
    for index, size in enumerate(sizes):
        count = (*shape[:axis], size, *shape[axis + 1 :])
        if node.node.outputs[index]:
            node.emit(Slice(tuple(begin), count, (1,) * len(shape)), [node.input(0)], index)
        begin[axis] += size


def import_pad(node: NodeImport) -> None:
    value = 0.0
    if node.version >= 11:
        pads = node.static_ints(1, "the list of pads")
        if node.has(2) and node.text("mode", "constant") == "constant":
            value = node.static_number(2, "the padding value")
    else:
        pads, value = node.integers("pads"), node.real("value", 0.0)
    padded(node, pads, value)


def padded(node: NodeImport, pads: Sequence[int], value: float) -> None:
    """Input 0 with pads at the begin and the end of all axes, or of those of input 3. Raises Refusal and ShapeError."""
    rank, mode = node.type(0).rank, node.text("mode", "constant")
    if mode not in PAD_MODES:
        raise Refusal("unsupported-attribute", f"mode '{mode}' is not supported")
    axes = node.axes(node.static_ints(3, "the list of axes"), rank) if node.has(3) else tuple(range(rank))
    if len(pads) != 2 * len(axes):
        raise ShapeError(f"pads {list(pads)} must have two entries for each of {len(axes)} axes")
    begin, end = [0] * rank, [0] * rank
    for index, axis in enumerate(axes):
        begin[axis], end[axis] = pads[index], pads[index + len(axes)]
    node.emit(Pad(tuple(begin), tuple(end), mode, value), [node.input(0)], 0)


def import_center_crop_pad(node: NodeImport) -> None:
    """The middle of long axes, and zeros around short ones; what is odd of them is at the end."""
    shape, wanted = node.type(0).shape, node.static_list(1, "the shape")
    axes = node.axes(node.integers("axes", range(len(shape))), len(shape))
    if len(wanted) != len(axes) or any(extent < 0 for extent in wanted):
        raise ShapeError(f"the shape {list(wanted)} must have an extent for each of {len(axes)} axes")
    extents = dict(zip(axes, wanted, strict=True))
    more = [extents.get(axis, extent) - extent for axis, extent in enumerate(shape)]
    begin = tuple(max(-each, 0) // 2 for each in more)
    count = tuple(extent + min(each, 0) for extent, each in zip(shape, more, strict=True))
    front = tuple(max(each, 0) // 2 for each in more)
    behind = tuple(max(each, 0) - each_front for each, each_front in zip(more, front, strict=True))
    middle = Slice(begin, count, (1,) * len(shape))
    if any(front + behind):
        x = node.input(0) if count == shape else node.emit(middle, [node.input(0)])
        node.emit(Pad(front, behind), [x], 0)
    else:
        node.emit(Identity() if count == shape else middle, [node.input(0)], 0)


def import_identity(node: NodeImport) -> None:
    node.emit(Identity(), [node.input(0)], 0)


def import_dropout(node: NodeImport) -> None:
    """The input; the mask, output 1, is true everywhere. So it is in training where nothing is dropped."""
    trains = node.version >= 12 and node.has(2) and bool(node.static_number(2, "training_mode"))
    if trains and not (node.has(1) and node.static_number(1, "the ratio") == 0.0):
        raise Refusal(
            "unsupported-attribute", "training_mode=1 is not supported", "export the model in evaluation mode"
        )
    node.emit(Identity(), [node.input(0)], 0)
    if len(node.node.outputs) > 1 and node.node.outputs[1]:
        kept = node.helper(np.ones((), np.bool_), "kept")
        node.emit(Expand(node.type(0).shape), [kept], 1)


def cast_to(node: NodeImport, to: DType) -> None:
    """Output 0 as input 0 in another element type."""
    array = node.constant(0)
    if array is not None and node.has_room(made := TensorType(to, array.shape)):
        node.fold(made, lambda: converted(array, held_dtype(to)))
        return
    node.emit(Identity() if to == node.type(0).dtype else Cast(to), [node.input(0)], 0)


def import_cast_like(node: NodeImport) -> None:
    cast_to(node, node.type(1).dtype)


def import_cast(node: NodeImport) -> None:
    to = ONNX_DTYPES.get(node.integer("to"))
    if to is None:
        raise unsupported_type(node.integer("to"))
    cast_to(node, to)


def unsupported_type(number: int) -> Refusal:
    """Says that an element type is not supported, which TensorProto gives this number."""
    known = ONNX_DTYPES.get(number)
    name = known.value if known is not None else _OTHERS.get(number, f"{number} of ONNX's TensorProto")
    return Refusal("unsupported-dtype", f"element type {name} is not supported", NARROW if number >= 17 else None)


NARROW = (
    "constants alone may be float8 or of fewer than 8 bits: leave tensors of data in floating point, or quantise them "
    "to integers of 8 bits"
)
"""What helps where a tensor of data is to have a type that none has."""
_OTHERS = {
    8: "string", 14: "complex64", 15: "complex128", 17: "float8e4m3fn", 18: "float8e4m3fnuz", 19: "float8e5m2",
    20: "float8e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4e2m1", 24: "float8e8m0", 25: "uint2", 26: "int2",
    27: "float6e2m3", 28: "float6e3m2",
}  # fmt: skip

ONNX_DTYPES = {
    1: DType.F32, 2: DType.U8, 3: DType.I8, 4: DType.U16, 5: DType.I16, 6: DType.I32, 7: DType.I64, 9: DType.BOOL,
    10: DType.F16, 11: DType.F64, 12: DType.U32, 13: DType.U64, 16: DType.BF16,
}  # fmt: skip

_LATE = (21, 23, 24, 25)


def _with(*integers: tuple[int, ...]) -> Example:
    """An image, and constants of integers."""
    return Example((Data(IMAGE), *(Integers(values) for values in integers)))


_CAST = Example((Data(IMAGE),), (("to", 1),))  # to float

IMPORTERS = (
    Importer("Reshape", (5, 13, 14, 19, *_LATE), import_reshape, example=_with((1, 144)), note="a constant shape"),
    Importer("Flatten", (1, 9, 11, 13, *_LATE), import_flatten),
    Importer("Squeeze", (1, 11, 13, *_LATE), import_squeeze, example=_with((0,)), note="constant axes"),
    Importer("Unsqueeze", (1, 11, 13, *_LATE), import_unsqueeze, example=_with((0,)), note="constant axes"),
    Importer("Transpose", (1, 13, *_LATE), import_transpose),
    Importer("Concat", (4, 11, 13), import_concat, example=Example((Data(IMAGE), Data(IMAGE)), (("axis", 1),))),
    Importer("Slice", (1, 10, 11, 13), import_slice, example=_with((1,), (3,), (1,)), note="constant bounds"),
    Importer(
        "Split", (2, 11, 13, 18), import_split, example=Example((Data(IMAGE),), (("axis", 1), ("num_outputs", 2)), 2)
    ),
    Importer(
        "Pad",
        (2, 11, 13, 18, 19, *_LATE),
        import_pad,
        example=_with((0, 0, 1, 1, 0, 0, 1, 1)),
        note="constant pads",
    ),
    Importer("CenterCropPad", (18,), import_center_crop_pad, example=_with((1, 4, 9, 3)), note="a constant shape"),
    Importer("Identity", (1, 13, 14, 16, 19, *_LATE), import_identity),
    Importer(
        "Dropout", (7, 10, 12, 13, 22), import_dropout, ignores=("ratio", "seed"), note="inference, or nothing dropped"
    ),
    Importer("Cast", (6, 9, 13, 19, *_LATE, 28), import_cast, ignores=("saturate", "round_mode"), example=_CAST),
    Importer("CastLike", (15, 19, *_LATE), import_cast_like, ignores=("saturate", "round_mode"), example=OF_TWO_IMAGES),
)
