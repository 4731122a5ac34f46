"""Element types, by the names that the text IR, plans and manifests use."""

from __future__ import annotations

from enum import Enum


class DType(Enum):
    """An element type; the value is its name in text, plans and C++ (`bolt_dtype` in bolt_engine.h)."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    F64 = "f64"
    I64 = "i64"
    I32 = "i32"
    I8 = "i8"
    U8 = "u8"
    BOOL = "bool"
    I16 = "i16"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"

    @property
    def nbytes(self) -> int:
        """Bytes of one element."""
        return _BYTES[self]

    @property
    def is_float(self) -> bool:
        return self in (DType.F32, DType.F16, DType.BF16, DType.F64)

    @property
    def is_integer(self) -> bool:
        """True of whole numbers, with and without a sign; booleans are none."""
        return not self.is_float and self is not DType.BOOL


_BYTES = {
    DType.F64: 8, DType.I64: 8, DType.F32: 4, DType.I32: 4, DType.F16: 2, DType.BF16: 2,
    DType.I8: 1, DType.U8: 1, DType.BOOL: 1, DType.I16: 2, DType.U16: 2, DType.U32: 4, DType.U64: 8,
}  # fmt: skip

PRECISIONS = {"fp32": DType.F32, "fp16": DType.F16, "bf16": DType.BF16}
"""Names that recipes use for what a layer computes in, and the element type that this stores."""
