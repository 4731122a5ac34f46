// Division by a number that is known before many others are divided by it.
#pragma once

#include "bolt_portable/element.h"

namespace bolt::portable {

/// Divides counts below 2^31 by a number that is known where a kernel is launched, with one product and a shift: a GPU's
/// division is some twenty instructions, which would take longer than memory does.
struct Divisor {
  std::uint32_t by, factor, shift;

  Divisor() = default;
  explicit Divisor(Index number) : by(static_cast<std::uint32_t>(number)), shift(0) {
    while ((std::uint64_t{1} << shift) < by) ++shift;
    factor = static_cast<std::uint32_t>((std::uint64_t{1} << (31 + shift)) / (by > 0 ? by : 1) + 1);
  }

  BOLT_HD std::uint32_t quotient(std::uint32_t count) const {
    return static_cast<std::uint32_t>(static_cast<std::uint64_t>(2 * count) * factor >> 32) >> shift;
  }
};

}  // namespace bolt::portable
