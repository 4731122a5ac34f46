"""LSTM with quantised weights, as onnxruntime's quantiser writes it: DynamicQuantizeLSTM of the domain com.microsoft.

Defined in onnxruntime's docs/ContribOperators.md: weights of 8 bits with their scales, and everything else of an LSTM.
onnxruntime also rounds x and the states to 8 bits, by ranges of as many rows as one of its threads takes. No definition
asks for that, and how many these are depends on the machine: here they stay real numbers.
"""

from __future__ import annotations

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.example import Bytes, Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import Array, ShapeError
from bolt_build.graph.ops.recurrent.recurrent_import import recurrent_layer


def import_quantized_lstm(node: NodeImport) -> None:
    recurrent_layer(node, "lstm", _real(node, 1, 8, "W"), _real(node, 2, 10, "R"))


def _real(node: NodeImport, index: int, scale: int, what: str) -> str:
    """Weights [directions, inputs, gates] of 8 bits as numbers [directions, gates, inputs]; input `scale` has their
    scales and the one behind it their zero points, by direction or by column too. Raises Refusal and ShapeError."""
    q = node.static(index, what)
    if q.ndim != 3:
        raise ShapeError(f"{what} {list(q.shape)} must have three axes")
    scales = _spread(node.static(scale, f"the scale of {what}"), q, f"the scale of {what}")
    zeros = np.zeros((), np.float32)
    if node.has(scale + 1):
        zeros = _spread(node.static(scale + 1, f"the zero point of {what}"), q, f"the zero point of {what}")
    real = (q.astype(np.float32) - zeros.astype(np.float32)) * scales.astype(np.float32)
    return node.helper(np.ascontiguousarray(real.transpose(0, 2, 1)), "weights")


def _spread(array: Array, q: Array, what: str) -> Array:
    """One number, one a direction, or one a column of each, as what broadcasts to the weights. Raises ShapeError."""
    directions, _, columns = q.shape
    if array.size == 1:
        return array.reshape(())
    if array.size not in (directions, directions * columns):
        shape = list(array.shape)
        raise ShapeError(f"{what} {shape} must be one, or one for each of {directions} directions or their columns")
    return array.reshape(directions, 1, -1)


IMPORTERS = (
    Importer(
        "DynamicQuantizeLSTM", (1,), import_quantized_lstm, domain="com.microsoft",
        note="x and states are not rounded to 8 bits",
        example=Example(
            (
                Data((5, 2, 4)), Bytes((1, 4, 12)), Bytes((1, 3, 12)), Weights((1, 24)), Data((2,), DType.I32),
                Weights((1, 2, 3)), Weights((1, 2, 3)), Weights((1, 9)), Weights((1,)), Bytes((1,)), Weights((1,)),
                Bytes((1,)),
            ),
            (("hidden_size", 3),),
        ),
    ),
)  # fmt: skip
