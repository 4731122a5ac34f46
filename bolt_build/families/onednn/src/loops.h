// Elementwise functions that oneDNN computes slower than a loop over them does.
#pragma once

#include <cstdint>

#include "bolt/plan.h"
#include "bolt_onednn/types.h"

namespace bolt::onednn {

/// Whether reading once more what a kernel has stored is worth it, because oneDNN's own function takes up to twice as long
/// as `loop`.
bool is_looped(const Stage& stage, Type type);

/// function(in) for `count` elements side by side; `in` may be `out`. With AVX-512 where this CPU has it.
void loop(const Run& r, const Stage& stage, const float* in, float* out, std::int64_t count);

}  // namespace bolt::onednn
