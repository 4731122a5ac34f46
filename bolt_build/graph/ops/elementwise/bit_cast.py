"""Elements whose bits are read as another type: ONNX's BitCast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.example import IMAGE, Data, Example
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.moves.moving import ONNX_DTYPES, unsupported_type
from bolt_build.graph.ops.operands import expect_count

HALVES = (DType.F16, DType.BF16)
"""Types whose numbers engines store in the precision of a layer."""


@dataclass(frozen=True)
class BitCast(Op):
    """The input's bits as elements of `to`, as many bytes each. Floating point is read and written in fp32 whatever the
    layer's precision, for bits are those of a type."""

    kind = "bit_cast"
    scales = (0, -1)
    to: DType

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        (x,) = inputs
        if x.dtype.nbytes != self.to.nbytes:
            raise ShapeError(f"elements of {x.dtype.value} have not as many bytes as those of {self.to.value}")
        return (TensorType(self.to, x.shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        return (np.ascontiguousarray(inputs[0]).view(numpy_dtype(self.to)).reshape(inputs[0].shape),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 0


def import_bit_cast(node: NodeImport) -> None:
    to, source = ONNX_DTYPES.get(node.integer("to")), node.type(0).dtype
    if to is None:
        raise unsupported_type(node.integer("to"))
    if (half := next((each for each in (source, to) if each in HALVES), None)) is not None:
        message = f"bits of {half.value} depend on the precision in which an engine stores it"
        raise Refusal("unsupported-op", message, "let the model have them as integers, or as float32")
    if node.constant(0) is None and to is DType.BOOL and source is not to:
        raise Refusal("unsupported-op", "bytes that are data are no booleans: they may be neither 0 nor 1")
    node.emit(BitCast(to), [node.input(0)], 0)


IMPORTERS = (
    Importer(
        "BitCast", (26,), import_bit_cast, example=Example((Data(IMAGE, DType.I32),), (("to", 12),)),
        note="of integers, float32 and float64",
    ),
)  # fmt: skip
