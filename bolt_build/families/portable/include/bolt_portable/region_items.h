// Which part of the output of images of regions an item is.
#pragma once

#include "bolt_portable/each.h"
#include "bolt_portable/indices.h"

namespace bolt::portable {

/// One channel of a cell of a region of an image.
struct RoiItem {
  Index region, channel, row, column, image;

  /// Where the image and channel begin in the input.
  template <typename Regions>
  BOLT_HD Index read(const Regions& p) const {
    return image * p.in_image + channel * p.in_channel;
  }
  template <typename Regions>
  BOLT_HD Index stored(const Regions& p) const {
    return region * p.out_region + channel * p.out_channel + row * p.out_row + column * p.out_column;
  }
};

/// Neighbouring items are channels of a cell where these lie beside each other (`last`), and cells of a channel elsewhere.
/// `of` names the image of each region.
template <typename Regions, typename I>
BOLT_HD inline RoiItem roi_item(const Regions& p, bool last, Index item, const I* of, std::uint32_t* fault, std::uint32_t mark) {
  const Position one = static_cast<Position>(item), channels = static_cast<Position>(p.channels);
  const Position cells = static_cast<Position>(p.height * p.width), width = static_cast<Position>(p.width);
  const Position region = one / (channels * cells), rest = one % (channels * cells);
  const Index channel = last ? rest % channels : rest / cells;
  const Position cell = last ? rest / channels : rest % cells;
  const Index row = cell / width, column = cell % width;
  return {region, channel, row, column, inside(static_cast<Index>(of[region]), p.images, fault, mark)};
}

}  // namespace bolt::portable
