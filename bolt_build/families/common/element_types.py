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
