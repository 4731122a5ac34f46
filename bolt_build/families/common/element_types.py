"""Element types of tensors as C++ types of kernels."""

from __future__ import annotations

from bolt_build.dtypes import DType

COMPUTED = {
    DType.F32: "float",
    DType.F16: "bolt::portable::f16",
    DType.BF16: "bolt::portable::bf16",
}
"""C++ types of the elements that kernels compute with (in float)."""

MOVED = {1: "std::uint8_t", 2: "std::uint16_t", 4: "std::uint32_t", 8: "std::uint64_t"}
"""C++ types, by size, of elements that are only moved."""

HALVES = (DType.F16, DType.BF16)
"""Types of two bytes, which tensor cores multiply."""


def element(dtype: DType) -> str:
    """What the parameters of a kernel's C++ type end with where it computes in another half precision than f16."""
    return "" if dtype is DType.F16 else f", {COMPUTED[dtype]}"


def refuse_half(computed: tuple[DType, ...], dtype: DType) -> str | None:
    """Why kernels that compute in some half precisions do not compute in `dtype`, None where they do."""
    if dtype in computed:
        return None
    return f"computes in {' and '.join(each.value for each in computed)}, not in {dtype.value}"
