// Patches of images that are put back at their places, and added up where they overlap.
#pragma once

#include "bolt_portable/divisor.h"
#include "bolt_portable/each.h"
#include "bolt_portable/element.h"

namespace bolt::portable {

/// Along depth, height and width, 1 where there is none: cells of the image and of a patch, patches, how far apart these begin and
/// their cells lie, and how far outside the first begins. Patches are [image, cell of a patch, place].
struct Patches {
  Index images;
  std::int32_t image[3], block[3], count[3], stride[3], gap[3], pad[3];

  BOLT_HD Index cells() const { return Index{block[0]} * block[1] * block[2]; }
  BOLT_HD Index places() const { return Index{count[0]} * count[1] * count[2]; }
  /// Which patch has its cell `cell` at `place` along an axis; none where it is not one of them.
  BOLT_HD std::int32_t patch(int axis, std::int32_t place, std::int32_t cell) const {
    const std::int32_t from = place + pad[axis] - cell * gap[axis];
    if (from < 0 || from % stride[axis] != 0) return -1;
    const std::int32_t found = from / stride[axis];
    return found < count[axis] ? found : -1;
  }
};

/// Sums of what patches have of each cell, in float.
template <typename In, typename Out>
void patch_sum(const Run& r, const Patches& p, const void* input, void* output) {
  const In* from = static_cast<const In*>(input);
  Out* to = static_cast<Out*>(output);
  const Divisor across(p.image[2]), down(p.image[1]), deeper(p.image[0]);
  for_each_item(
      r, p.images * p.image[0] * p.image[1] * p.image[2], p.cells(),
      [=] BOLT_BODY(Index item) {
        const Position rows = static_cast<Position>(item) / across.by, x = static_cast<Position>(item) - rows * across.by;
        const Position planes = rows / down.by, y = rows - planes * down.by;
        const Position image = planes / deeper.by, z = planes - image * deeper.by;
        const In* const own = from + Index{image} * p.cells() * p.places();
        float sum = 0.0f;
        Index cell = 0;
        for (std::int32_t i = 0; i < p.block[0]; ++i) {
          const std::int32_t pz = p.patch(0, static_cast<std::int32_t>(z), i);
          for (std::int32_t j = 0; j < p.block[1]; ++j) {
            const std::int32_t py = p.patch(1, static_cast<std::int32_t>(y), j);
            for (std::int32_t k = 0; k < p.block[2]; ++k, ++cell) {
              const std::int32_t px = p.patch(2, static_cast<std::int32_t>(x), k);
              if (pz < 0 || py < 0 || px < 0) continue;
              sum += load(own + cell * p.places() + (Index{pz} * p.count[1] + py) * p.count[2] + px);
            }
          }
        }
        store(to + item, sum);
      },
      "patches");
}

}  // namespace bolt::portable
