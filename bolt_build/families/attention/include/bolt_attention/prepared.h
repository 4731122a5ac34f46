// Attention whose mask is a constant: it is put in the order in which lanes load it when the model is created.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

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

  Index count() const { return images_ * of_image(); }
  /// Elements of an image.
  Index of_image() const { return heads_ * bands_ * band_; }
  int images() const { return images_; }
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
    for (int image = 0; image < images_; ++image) write_image(from, image, to + image * of_image());
  }
  template <typename Element>
  void write_image(const Element* from, int image, Half* to) const {
    std::fill_n(to, of_image(), Half(-INFINITY));
    for (int head = 0; head < heads_; ++head)
      for (int query = 0; query < 16 * bands_; ++query) {
        const Element* const row = from + image * a_.mask_steps[0] + head * a_.mask_steps[1] +
                                   std::min(query, a_.queries - 1) * a_.mask_steps[2];
        write_row(row, query, to + head * bands_ * band_);
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

/// Which of the different masks of images each has: -1 where a mask is nothing but zeros. Of the windows of an image most have
/// none, and others one of three.
class DistinctMasks {
 public:
  /// Of `images` masks of `count` elements each, `step` apart.
  template <typename Element>
  DistinctMasks(const Element* masks, int images, Index step, Index count) {
    for (int image = 0; image < images; ++image) {
      const Element* const own = masks + image * step;
      const auto same = [&](int first) { return std::equal(own, own + count, masks + first * step); };
      const bool none = std::all_of(own, own + count, [](Element x) { return static_cast<float>(x) == 0.0f; });
      const auto found = std::find_if(first_.begin(), first_.end(), same);
      of_image_.push_back(none ? -1 : static_cast<int>(found - first_.begin()));
      if (!none && found == first_.end()) first_.push_back(image);
    }
  }
  const std::vector<int>& of_image() const { return of_image_; }
  /// The first image of each.
  const std::vector<int>& first() const { return first_; }

 private:
  std::vector<int> of_image_, first_;
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

/// Attention with the sum of two masks, of which the second is one of images.
template <typename Tile>
class MaskedTwice {
 public:
  /// `more` is the shape for the second, of which an image has `size` elements.
  template <typename Element, typename More>
  MaskedTwice(const Prepare& p, const Arguments& shape, const Constant<Element>& mask, const Arguments& more,
              const Constant<More>& further, Index size, int padded) {
    const MaskOrder order(shape, padded), behind(more, padded);
    arguments_ = order.arguments();
    const auto fill = [&](void* memory) { order.write(mask.data, static_cast<Half*>(memory)); };
    mask_ = p.shared(std::string("attention/") + mask.name + order.key(), order.count() * sizeof(Half), fill);
    const DistinctMasks distinct(further.data, behind.images(), more.mask_steps[0], size);
    const std::string key = std::string("attention/more/") + further.name + behind.key();
    const auto fill_more = [&](void* memory) {
      Half* to = static_cast<Half*>(memory);
      for (const int image : distinct.first()) behind.write_image(further.data, image, to), to += behind.of_image();
    };
    const Index masks = std::max<Index>(1, distinct.first().size());
    more_ = p.shared(key, masks * behind.of_image() * sizeof(Half), fill_more);
    const std::vector<int>& of_image = distinct.of_image();
    const auto fill_of = [&](void* memory) { std::copy(of_image.begin(), of_image.end(), static_cast<int*>(memory)); };
    of_ = p.shared(key + "/images", of_image.size() * sizeof(int), fill_of);
    const Arguments own = behind.arguments();
    arguments_.mask_images = behind.images();
    arguments_.more_steps[0] = behind.of_image();
    arguments_.more_steps[1] = own.mask_steps[1];
    arguments_.more_steps[2] = own.mask_steps[2];
    arguments_.more = more_.get();
    arguments_.more_of = static_cast<const int*>(of_.get());
  }

  std::size_t scratch_bytes() const { return 0; }

  void run(const Run& r, const void* q, const void* k, const void* v, void* y) const {
    attention::run(r, Tile{}, PreparedTwice{}, arguments_, q, k, v, mask_.get(), y);
  }

 private:
  Arguments arguments_{};
  std::shared_ptr<const void> mask_, more_, of_;
};

/// No sinks.
struct NoSinks {};

/// Attention whose mask is one of distances, a `Relative` within `Mask`. Sinks are copied, as all constants that are read when
/// the model is created.
template <typename Tile, typename Mask>
class Distanced {
 public:
  /// `mask` has `heads` rows of a number for each distance, from the last query's to the first key on.
  template <typename Element, typename Sinks = NoSinks>
  Distanced(const Prepare& p, const Arguments& shape, const Constant<Element>& mask, int heads, const Sinks& sinks = {},
            int count = 0)
      : arguments_(shape) {
    const Index distances = Index{shape.queries} + shape.keys - 1, row = distances + 2 * relative_margin;
    if (heads > 1) arguments_.mask_steps[1] = row;
    const auto fill = [&](void* memory) {
      float* to = static_cast<float*>(memory);
      for (int head = 0; head < heads; ++head) {
        const Element* const own = mask.data + head * distances;
        for (Index i = 0; i < row; ++i)
          for (int next = 0; next < 2; ++next, ++to) {
            const Index at = i - relative_margin + next;
            *to = at < 0 || at >= distances ? 0.0f : static_cast<float>(own[at]) * shape.mask_scale;
          }
      }
    };
    const std::string key = std::string("attention/distances/") + mask.name + "/" +
                            std::to_string(portable::bits_of(shape.mask_scale)) + "/" + std::to_string(shape.queries);
    mask_ = p.shared(key, heads * row * 2 * sizeof(float), fill);
    if constexpr (!std::is_same_v<Sinks, NoSinks>) {
      const std::size_t bytes = count * sizeof(*sinks.data);
      const auto copy = [&](void* memory) { std::memcpy(memory, sinks.data, bytes); };
      sinks_ = p.shared(std::string("attention/sinks/") + sinks.name, bytes, copy);
    }
  }

  std::size_t scratch_bytes() const { return 0; }

  /// `sinks` are those that are no constant.
  void run(const Run& r, const void* q, const void* k, const void* v, void* y, const void* sinks = nullptr) const {
    const float* const first = static_cast<const float*>(mask_.get()) + 2 * (relative_margin + arguments_.queries - 1);
    attention::run(r, Tile{}, Mask{}, arguments_, q, k, v, first, y, sinks_ ? sinks_.get() : sinks);
  }

 private:
  Arguments arguments_;
  std::shared_ptr<const void> mask_, sinks_;
};

}  // namespace bolt::attention
