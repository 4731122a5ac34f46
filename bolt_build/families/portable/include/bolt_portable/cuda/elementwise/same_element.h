// A copy as a function of one tensor, element by element.
#pragma once

#include "bolt_portable/move.h"
#include "bolt_portable/pointwise.h"

namespace bolt::portable {

/// The element itself, as a copy keeps or converts it.
struct SameElement {};
template <typename Out, typename In>
BOLT_HD inline void point(const SameElement&, Out* out, const In* in) {
  *out = converted<In, Out>(*in);
}

}  // namespace bolt::portable
