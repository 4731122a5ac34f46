"""ONNX's MelWeightMatrix: what makes bands of the mel scale of a spectrum."""

from __future__ import annotations

import numpy as np

from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import Array, ShapeError, TensorType
from bolt_build.graph.ops.moves.moving import unsupported_type
from bolt_build.graph.ops.signals.spectrum import TYPES

_NAMES = ("the number of bands", "the length of the transform", "the sample rate", "the lower edge", "the upper edge")


def _bands(bands: int, length: int, rate: int, lowest: float, highest: float) -> Array:
    """[length / 2 + 1, bands]: triangles over the frequencies, whose corners lie one step of the scale apart."""
    low, high = (2595.0 * np.log1p(edge / 700.0) / np.log(10.0) for edge in (lowest, highest))
    # As ONNX defines it, the step is the range over the number of corners, not over that of the steps between them.
    mels = low + np.arange(bands + 2) * ((high - low) / (bands + 2))
    corners = np.floor((length + 1) * (700.0 * np.expm1(mels / 2595.0 * np.log(10.0))) / rate).astype(np.int64)
    bins = length // 2 + 1
    if corners[0] < 0 or corners[-1] > bins or corners[-2] >= bins:
        raise ShapeError(f"bands from {lowest} to {highest} Hz reach beyond the {bins} frequencies at a rate of {rate}")
    left, centre, right = corners[:-2], corners[1:-1], corners[2:]
    at = np.arange(bins)[:, None]
    rising = (at - left) / np.maximum(centre - left, 1)
    falling = (right - at) / np.maximum(right - centre, 1)
    inside = np.where(at < centre, rising, falling)
    return np.where(at == centre, 1.0, np.where((at >= left) & (at < right), inside, 0.0))


def import_mel_weights(node: NodeImport) -> None:
    """A constant: all that it is made of are constants."""
    bands, length, rate = (int(node.static_number(index, _NAMES[index])) for index in range(3))
    lowest, highest = (node.static_number(index, _NAMES[index]) for index in (3, 4))
    number = node.integer("output_datatype", 1)
    if number not in TYPES:
        raise unsupported_type(number)
    if min(bands, length, rate) < 1 or not 0.0 <= lowest < highest:
        raise ShapeError(f"{bands} bands from {lowest} to {highest} Hz of {length} samples at a rate of {rate}")
    dtype = TYPES[number]
    node.fold(
        TensorType(dtype, (length // 2 + 1, bands)),
        lambda: _bands(bands, length, rate, lowest, highest).astype(numpy_dtype(dtype)),
    )


IMPORTERS = (Importer("MelWeightMatrix", (17,), import_mel_weights, folds=True),)
