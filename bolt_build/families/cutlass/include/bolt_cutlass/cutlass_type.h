// Element types as CUTLASS calls them.
#pragma once

#include <type_traits>

#include "bolt_portable/element.h"
#include "cutlass/numeric_types.h"

namespace bolt::cutlass_kernels {

/// CUTLASS's type of a tile's elements, f16 or bf16.
template <typename Element>
using CutlassType =
    std::conditional_t<std::is_same_v<Element, portable::bf16>, ::cutlass::bfloat16_t, ::cutlass::half_t>;

/// A tensor whose elements are of that type.
template <typename Half>
Half* tensor(const void* at) {
  return static_cast<Half*>(const_cast<void*>(at));
}

}  // namespace bolt::cutlass_kernels
