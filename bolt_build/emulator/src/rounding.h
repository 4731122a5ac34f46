// Rounding other than to the nearest.
#pragma once

#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <string_view>

#include "decode.h"
#include "operations.h"

namespace emulator {

/// As words of instructions name it: rn, rz, rm, rp, and with an i behind where whole numbers are meant.
enum class Round : int { nearest, zero, down, up };

inline Round round_of(const Statement& s) {
  for (const std::string_view word : s.modifiers) {
    if (word == "rz" || word == "rzi") return Round::zero;
    if (word == "rm" || word == "rmi") return Round::down;
    if (word == "rp" || word == "rpi") return Round::up;
  }
  return Round::nearest;
}

/// This thread rounds so while it lives. The compiler knows nothing of it: what is computed meanwhile stands in a
/// function that it does not see.
class Rounding {
 public:
  explicit Rounding(Round how) {
    constexpr int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    std::fesetround(modes[static_cast<int>(how)]);
  }
  ~Rounding() { std::fesetround(FE_TONEAREST); }
  Rounding(const Rounding&) = delete;
  Rounding& operator=(const Rounding&) = delete;
};

/// fp32 of a number that more digits are known of, "rounded to odd": what is lost shows in the last bit, which no later
/// rounding mistakes for a tie.
template <typename Exact>
float single_to_odd(Exact exact) {
  const float near = static_cast<float>(exact);
  if (!(std::fabs(exact) <= static_cast<Exact>(std::numeric_limits<float>::max()))) {
    // Of two numbers around it, infinity is the even one.
    return std::isinf(exact) || std::isnan(exact) ? near : std::copysign(std::numeric_limits<float>::max(), near);
  }
  if (static_cast<Exact>(near) == exact) return near;
  if ((std::bit_cast<u32>(near) & 1) != 0) return near;
  const bool below = static_cast<Exact>(near) < exact;
  return std::nextafterf(near, below ? std::numeric_limits<float>::infinity() : -std::numeric_limits<float>::infinity());
}

}  // namespace emulator
