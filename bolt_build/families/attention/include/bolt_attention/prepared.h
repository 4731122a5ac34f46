// Attention whose mask is a constant: it is put in the order in which lanes hold scores when the model is created.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "bolt_attention/launch.h"

namespace bolt::attention {

/// A mask of the weights table by its expression, which names it in every plan of a model.
template <typename Element>
struct Constant {
  const Element* data;
  const char* name;
};

/// A constant mask as `Prepared` of launch.h says, for queries and keys of `shape`, whose steps and scale are those of the
/// mask as it is stored; of each row there are `padded` keys, the last ones hidden.
class MaskOrder {
 public:
  MaskOrder(const Arguments& shape, int padded)
      : a_(shape), images_(shape.mask_steps[0] ? shape.mask_images : 1), heads_(shape.mask_steps[1] ? shape.heads : 1),
        bands_((shape.queries + 15) / 16), band_(Index{16} * padded) {}

  Index count() const { return Index{images_} * heads_ * bands_ * band_; }
  /// What else than the mask's elements it depends on.
  std::string key() const {
    std::string found;
    for (const Index part : {Index{images_}, Index{heads_}, Index{a_.queries}, Index{a_.keys}, band_, a_.mask_steps[0],
                             a_.mask_steps[1], a_.mask_steps[2], a_.mask_steps[3], Index{portable::bits_of(a_.mask_scale)},
                             Index{a_.causal}})
      found += "/" + std::to_string(part);
    return found;
  }
  /// The same arguments for the mask in this order.
  Arguments arguments() const {
    Arguments own = a_;
    own.mask_steps[0] = a_.mask_steps[0] ? heads_ * bands_ * band_ : 0;
    own.mask_steps[1] = a_.mask_steps[1] ? bands_ * band_ : 0;
    own.mask_steps[2] = band_;
    own.mask_steps[3] = 1;
    return own;
  }

  template <typename Element>
  void write(const Element* from, Half* to) const {
    std::fill_n(to, count(), Half(-INFINITY));
    for (Index pair = 0; pair < Index{images_} * heads_; ++pair)
      for (int query = 0; query < 16 * bands_; ++query) {
        const Element* const row = from + pair / heads_ * a_.mask_steps[0] + pair % heads_ * a_.mask_steps[1] +
                                   std::min(query, a_.queries - 1) * a_.mask_steps[2];
        write_row(row, query, to + pair * bands_ * band_);
      }
  }

 private:
  template <typename Element>
  void write_row(const Element* row, int query, Half* of_head) const {
    constexpr float greatest = 65504.0f;  // of finite numbers
    const int end = a_.causal ? std::min(a_.keys, query + 1) : a_.keys;
    const auto at = [&](int key) { return static_cast<float>(row[key * a_.mask_steps[3]]); };
    float most = -INFINITY;
    for (int key = 0; key < end; ++key) most = std::max(most, at(key));
    if (!std::isfinite(most)) most = 0.0f;
    for (int key = 0; key < end; ++key) {
      float x = (at(key) - most) * a_.mask_scale;
      if (std::isfinite(at(key))) x = std::clamp(x, -greatest, greatest);
      // A lane has two neighbours of each eight keys, of two rows that are eight apart.
      const int lane = query % 8 * 4 + key % 8 / 2, place = key % 16 / 8 * 4 + query % 16 / 8 * 2 + key % 2;
      of_head[query / 16 * band_ + key / 16 * 256 + lane * 8 + place] = Half(x);
    }
  }

  Arguments a_;
  int images_, heads_, bands_;
  Index band_;
};

/// Attention with its mask.
template <typename Tile>
class Masked {
 public:
  /// Pointers in `shape` are not looked at.
  template <typename Element>
  Masked(const Prepare& p, const Arguments& shape, const Constant<Element>& mask, int padded) {
    const MaskOrder order(shape, padded);
    arguments_ = order.arguments();
    const auto fill = [&](void* memory) { order.write(mask.data, static_cast<Half*>(memory)); };
    mask_ = p.shared(std::string("attention/") + mask.name + order.key(), order.count() * sizeof(Half), fill);
  }

  std::size_t scratch_bytes() const { return 0; }

  void run(const Run& r, const void* q, const void* k, const void* v, void* y) const {
    attention::run(r, Tile{}, Prepared{}, arguments_, q, k, v, mask_.get(), y);
  }

 private:
  Arguments arguments_{};
  std::shared_ptr<const void> mask_;
};

}  // namespace bolt::attention
