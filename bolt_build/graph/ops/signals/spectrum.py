"""Fourier transforms: ONNX's DFT as a product with a constant matrix, STFT as a gather of frames in front of one, and
windows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.example import Data, Example, Integers
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.moving import unsupported_type
from bolt_build.graph.ops.moves.shape import Reshape, Slice, Transpose
from bolt_build.graph.ops.products.matmul import MatMul

_MOST = 1 << 24
"""Elements of the matrix, and of the table of frames."""


def _fourier(length: int, bins: int, parts: int) -> Array:
    """[length * parts, bins * 2]: real and imaginary parts of each frequency, of numbers of one part or two."""
    turns = np.outer(np.arange(length), np.arange(bins)) % length
    cosine, sine = np.cos(2 * np.pi * turns / length), np.sin(2 * np.pi * turns / length)
    of_real = np.stack([cosine, -sine], -1)
    of_both = np.stack([of_real, np.stack([sine, cosine], -1)], 1) if parts == 2 else of_real[:, None]
    return of_both.reshape(length * parts, bins * 2)


def _back_to_real(length: int, taken: int) -> Array:
    """[taken * 2, length]: real numbers of the parts of the first frequencies, the others being their conjugates."""
    turns = np.outer(np.arange(taken), np.arange(length)) % length
    alone = (np.arange(taken) == 0) | (2 * np.arange(taken) == length)
    parts = np.stack([np.cos(2 * np.pi * turns / length), -np.sin(2 * np.pi * turns / length)], 1)
    return np.asarray(parts * np.where(alone, 1.0, 2.0)[:, None, None] / length).reshape(taken * 2, length)


def import_stft(node: NodeImport) -> None:
    shape, dtype = node.type(0).shape, node.type(0).dtype
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 2)):
        raise ShapeError(f"the signal {list(shape)} must be [batch, length], with one or two parts behind")
    parts = shape[2] if len(shape) == 3 else 1
    step = int(node.static_number(1, "the step between frames"))
    if node.has(3):
        length = int(node.static_number(3, "the length of a frame"))
    elif node.has(2):
        length = node.type(2).elements
    else:
        raise Refusal("invalid-node", "neither a window nor the length of a frame is given")
    if step < 1 or not 1 <= length <= shape[1]:
        raise ShapeError(f"a signal of {shape[1]} has no frames of {length} by steps of {step}")
    if node.has(2) and node.type(2).shape != (length,):
        raise ShapeError(f"the window {list(node.type(2).shape)} is not of {length}")
    onesided = bool(node.integer("onesided", 1))
    if onesided and parts == 2:
        raise Refusal("unsupported-attribute", "onesided=1 of complex numbers is not supported")
    frames, bins = (shape[1] - length) // step + 1, length // 2 + 1 if onesided else length
    if max(length * bins * 2 * parts, frames * length) > _MOST:
        raise Refusal("model-too-large", f"{frames} frames of {length} are more than a product is made of")
    matrix = _fourier(length, bins, parts)
    window = node.constant(2) if node.has(2) else None
    if window is not None:
        matrix = np.repeat(window.astype(np.float64), parts)[:, None] * matrix
    places = np.arange(frames)[:, None] * step + np.arange(length)
    taken = node.emit(Gather(1), [node.input(0), node.helper(places, "frames")])
    if node.has(2) and window is None:
        taken = node.emit(Reshape((shape[0], frames, length, parts)), [taken])
        factors = node.emit(Reshape((length, 1)), [node.input(2)])
        taken = node.emit(Binary("mul"), [taken, factors])
    rows = node.emit(Reshape((shape[0], frames, length * parts)), [taken])
    product = node.emit(MatMul(), [rows, node.helper(matrix.astype(numpy_dtype(dtype)), "fourier")])
    node.emit(Reshape((shape[0], frames, bins, 2)), [product], 0)


def import_dft(node: NodeImport) -> None:
    """Of [..., length, ..., parts] along one axis, of real numbers or of complex ones, of both parts then."""
    shape, dtype = node.type(0).shape, node.type(0).dtype
    if len(shape) < 2 or shape[-1] not in (1, 2):
        raise ShapeError(f"the signal {list(shape)} must have one or two parts along its last axis")
    if node.version >= 20:
        given = int(node.static_number(2, "the axis")) if node.has(2) else -2
    else:
        given = node.integer("axis", 1)
    axis, parts = node.axis(given, len(shape)), shape[-1]
    if axis == len(shape) - 1:
        raise ShapeError(f"axis {given} is that of the parts")
    inverse, onesided = bool(node.integer("inverse", 0)), bool(node.integer("onesided", 0))
    if onesided and parts != (2 if inverse else 1):
        what = "an inverse transform of real numbers" if inverse else "complex numbers"
        raise Refusal("unsupported-attribute", f"onesided=1 of {what} is not supported")
    own = 2 * (shape[axis] - 1) if onesided and inverse else shape[axis]
    length = int(node.static_number(1, "the length")) if node.has(1) else own
    if length < 1:
        raise ShapeError(f"a transform of {length} elements")
    half = length // 2 + 1
    taken = min(half if onesided and inverse else length, shape[axis])
    bins, to = (length, 1) if onesided and inverse else (half if onesided else length, 2)
    if max(length, taken) * bins * to * parts > _MOST:
        raise Refusal("model-too-large", f"a transform of {length} elements is more than a product is made of")
    if onesided and inverse:
        matrix = _back_to_real(length, taken)
    else:
        matrix = _fourier(length, bins, parts)[: taken * parts]
    if inverse and not onesided:
        matrix = matrix.reshape(taken, parts, bins, 2)[:, :, -np.arange(bins) % bins].reshape(matrix.shape) / length
    x = node.input(0)
    if taken < shape[axis]:
        count = (*shape[:axis], taken, *shape[axis + 1 :])
        x = node.emit(Slice((0,) * len(shape), count, (1,) * len(shape)), [x])
    rank = len(shape)
    perm = (*(index for index in range(rank - 1) if index != axis), axis, rank - 1)
    turned = x if perm == tuple(range(rank)) else node.emit(Transpose(perm), [x])
    others = tuple(shape[index] for index in perm[:-2])
    rows = node.emit(Reshape((*others, taken * parts)), [turned])
    product = node.emit(MatMul(), [rows, node.helper(matrix.astype(numpy_dtype(dtype)), "fourier")])
    back = tuple(perm.index(index) for index in range(rank))
    if perm == tuple(range(rank)):
        node.emit(Reshape((*others, bins, to)), [product], 0)
    else:
        node.emit(Transpose(back), [node.emit(Reshape((*others, bins, to)), [product])], 0)


_WINDOWS: dict[str, Callable[[Array], Array]] = {
    "HannWindow": lambda turn: 0.5 - 0.5 * np.cos(turn),
    "HammingWindow": lambda turn: 25.0 / 46.0 - 21.0 / 46.0 * np.cos(turn),
    "BlackmanWindow": lambda turn: 0.42 - 0.5 * np.cos(turn) + 0.08 * np.cos(2.0 * turn),
}
TYPES = {1: DType.F32, 10: DType.F16, 11: DType.F64, 16: DType.BF16}
"""By TensorProto's number."""


def import_window(node: NodeImport) -> None:
    """A constant: the size is one."""
    size = int(node.static_number(0, "the size"))
    number = node.integer("output_datatype", 1)
    if number not in TYPES:
        raise unsupported_type(number)
    if size < 1:
        raise ShapeError(f"a window of {size} elements")
    last = size if node.integer("periodic", 1) else max(size - 1, 1)
    function, dtype = _WINDOWS[node.node.op_type], TYPES[number]
    node.fold(
        TensorType(dtype, (size,)),
        lambda: np.asarray(function(2 * np.pi * np.arange(size) / last), numpy_dtype(dtype)),
    )


IMPORTERS = (
    Importer(
        "DFT",
        (17, 20),
        import_dft,
        example=Example((Data((1, 16, 1)),)),
        note="a constant length and axis",
    ),
    Importer(
        "STFT",
        (17,),
        import_stft,
        example=Example((Data((1, 32, 1)), Integers((8,), scalar=True), Data((16,)))),
        note="a constant step and length of frames",
    ),
    *(Importer(name, (17,), import_window, folds=True) for name in _WINDOWS),
)
