// Memory through which blocks of a step tell each other their totals.
#pragma once

#include <cstddef>

#include "bolt/plan.h"

namespace bolt::portable {

/// What a plan holds of a step whose blocks share results or lines: how much memory their totals take.
class SharedTotals {
 public:
  SharedTotals(const Prepare&, std::size_t bytes) : bytes_(bytes) {}
  std::size_t scratch_bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
};

}  // namespace bolt::portable
