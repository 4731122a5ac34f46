// How constants of a model come to lie as kernels read them, when an engine loads them.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bolt/plan.h"

namespace bolt::cutlass_kernels {

/// A tensor of the weights table by its expression, which names it in every plan of a model; null where there is none.
struct Constant {
  const void* data;
  const char* name;
};

/// Numbers that tell a constant packed in one way from the same one packed in another.
template <typename... Numbers>
std::string in_key(Numbers... numbers) {
  return (... + ("/" + std::to_string(numbers)));
}

/// Weights of two bytes each, [outputs, channels, taps], to [outputs, taps (then zeros up to to_taps), channels (then zeros
/// up to to_channels)]. `rows` of kernel positions are padded one by one: taps and to_taps count those of one row.
struct Filter {
  int outputs, channels, rows, taps, to_taps, to_channels;

  std::string key() const { return in_key(outputs, channels, rows, taps, to_taps, to_channels); }
  std::size_t count() const { return static_cast<std::size_t>(outputs) * rows * to_taps * to_channels; }
  /// To zeros.
  void write(const std::uint16_t* from, std::uint16_t* to) const {
    const std::size_t window = static_cast<std::size_t>(rows) * taps;
    for (std::size_t k = 0; k < static_cast<std::size_t>(outputs); ++k)
      for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c)
        for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row)
          for (std::size_t tap = 0; tap < static_cast<std::size_t>(taps); ++tap)
            to[((k * rows + row) * to_taps + tap) * to_channels + c] =
                from[(k * channels + c) * window + row * taps + tap];
  }
};

/// Filters over `depths` of volumes, [outputs, channels, depths, taps], to [outputs, taps, depths, channels].
struct VolumeFilter {
  int outputs, channels, depths, taps;

  std::string key() const { return "/volume" + in_key(outputs, channels, depths, taps); }
  std::size_t count() const { return static_cast<std::size_t>(outputs) * channels * depths * taps; }
  void write(const std::uint16_t* from, std::uint16_t* to) const {
    for (std::size_t k = 0; k < static_cast<std::size_t>(outputs); ++k)
      for (int c = 0; c < channels; ++c)
        for (int depth = 0; depth < depths; ++depth)
          for (int tap = 0; tap < taps; ++tap)
            to[((k * taps + tap) * depths + depth) * channels + c] = from[((k * channels + c) * depths + depth) * taps + tap];
  }
};

/// Filters of a convolution with groups, [outputs, channels of a group, taps], to [outputs, taps, `row`]: where a group's
/// channels lie among those of all groups of `span` neighbouring outputs, zeros elsewhere.
struct GroupedFilter {
  int outputs, of_group, channels, taps, row, span;

  std::string key() const { return "/grouped" + in_key(outputs, of_group, channels, taps, row, span); }
  std::size_t count() const { return static_cast<std::size_t>(outputs) * taps * row; }
  /// To zeros.
  void write(const std::uint16_t* from, std::uint16_t* to) const {
    for (int k = 0; k < outputs; ++k) {
      const int begin = (k / of_group - k / span * span / of_group) * channels;
      for (int c = 0; c < channels; ++c)
        for (int tap = 0; tap < taps; ++tap)
          to[(static_cast<std::size_t>(k) * taps + tap) * row + begin + c] =
              from[(static_cast<std::size_t>(k) * channels + c) * taps + tap];
    }
  }
};

/// The same for two neighbouring results at once: [2, outputs, rows, to_taps, to_channels], where the windows of the second
/// begin one tap later.
struct FilterBeside {
  int outputs, channels, rows, taps, to_taps, to_channels;

  std::string key() const { return "/beside" + in_key(outputs, channels, rows, taps, to_taps, to_channels); }
  std::size_t count() const { return 2 * static_cast<std::size_t>(outputs) * rows * to_taps * to_channels; }
  /// To zeros.
  void write(const std::uint16_t* from, std::uint16_t* to) const {
    for (int result = 0; result < 2; ++result)
      for (int k = 0; k < outputs; ++k)
        for (int c = 0; c < channels; ++c)
          for (int row = 0; row < rows; ++row)
            for (int tap = 0; tap < taps; ++tap) {
              const std::size_t line = (static_cast<std::size_t>(result) * outputs + k) * rows + row;
              to[(line * to_taps + result + tap) * to_channels + c] =
                  from[((static_cast<std::size_t>(k) * channels + c) * rows + row) * taps + tap];
            }
  }
};

/// The same of [outputs, channels, kernel_h, kernel_w] to [outputs, rows, taps, 2, 2, 4]: cells of two by two
/// positions, four channels each; what the kernel has not is zero.
struct FoldedFilter {
  int outputs, channels, kernel_h, kernel_w, rows, taps;

  std::string key() const { return "/folded" + in_key(outputs, channels, kernel_h, kernel_w); }
  std::size_t count() const { return static_cast<std::size_t>(outputs) * rows * taps * 16; }
  /// To zeros.
  void write(const std::uint16_t* from, std::uint16_t* to) const {
    for (int k = 0; k < outputs; ++k)
      for (int c = 0; c < channels; ++c)
        for (int y = 0; y < kernel_h; ++y)
          for (int x = 0; x < kernel_w; ++x) {
            const std::size_t cell = (static_cast<std::size_t>(k) * rows + y / 2) * taps + x / 2;
            to[cell * 16 + (y % 2 * 2 + x % 2) * 4 + c] =
                from[((static_cast<std::size_t>(k) * channels + c) * kernel_h + y) * kernel_w + x];
          }
  }
};

/// What a thread holds of weights [outputs, taps_h, taps_w, depth]: groups of 64 outputs, columns of the window, its rows,
/// and steps of 16 channels, each as 128 threads' four registers of a left factor: two channels of an output and of the
/// eighth one below it, then of the eight channels behind. What is not there is zero.
struct Fragments {
  int outputs, taps_h, taps_w, depth, groups, steps;

  std::string key() const { return "/fragments" + in_key(outputs, taps_h, taps_w, depth, groups, steps); }
  std::size_t count() const { return static_cast<std::size_t>(groups) * taps_h * taps_w * steps * 1024; }
  void write(const std::uint16_t* from, std::uint16_t* to) const {
    for (std::size_t i = 0; i < count(); ++i) {
      const int half = static_cast<int>(i % 2), word = static_cast<int>(i / 2 % 4), lane = static_cast<int>(i / 8 % 32);
      const int warp = static_cast<int>(i / 256 % 4);
      const std::size_t line = i / 1024, step = line % steps, row = line / steps % taps_h;
      const std::size_t column = line / steps / taps_h % taps_w, group = line / steps / taps_h / taps_w;
      const std::size_t k = group * 64 + warp * 16 + word % 2 * 8 + lane / 4;
      const std::size_t c = step * 16 + word / 2 * 8 + lane % 4 * 2 + half;
      const bool there = k < static_cast<std::size_t>(outputs) && c < static_cast<std::size_t>(depth);
      to[i] = there ? from[((k * taps_h + row) * taps_w + column) * depth + c] : std::uint16_t{0};
    }
  }
};

/// Weights as a layout packs them, [outputs, taps_h, taps_w, depth] to a kernel, and then as ResidentTile's threads hold
/// them.
template <typename Layout>
struct ResidentFilter {
  Layout layout;
  Fragments fragments;

  ResidentFilter(const Layout& packed, const Fragments& held) : layout(packed), fragments(held) {}
  std::string key() const { return layout.key() + fragments.key(); }
  std::size_t count() const { return fragments.count(); }
  /// Throws std::length_error where the layout has not as many weights.
  void write(const std::uint16_t* from, std::uint16_t* to) const {
    const Fragments& f = fragments;
    if (layout.count() != static_cast<std::size_t>(f.outputs) * f.taps_h * f.taps_w * f.depth)
      throw std::length_error("could not pack weights for registers: their layout has others");
    std::vector<std::uint16_t> packed(layout.count());
    layout.write(from, packed.data());
    fragments.write(packed.data(), to);
  }
};

/// Weights as a layout packs them, [n, k] to a kernel, and then as ThinTile's lanes read them: runs of 32 columns, then of 16 and
/// of 8; in each such runs of the depth; eights of columns; lanes, of which each has a fourth of the run of the depth in its row.
template <typename Layout>
struct ThinFilter {
  Layout layout;
  int n, k;

  ThinFilter(const Layout& packed, int columns, int depth) : layout(packed), n(columns), k(depth) {}
  std::string key() const { return layout.key() + "/thin" + in_key(n, k); }
  std::size_t count() const { return static_cast<std::size_t>(n) * k; }
  /// Throws std::length_error where the layout has not as many weights.
  void write(const std::uint16_t* from, std::uint16_t* to) const {
    if (layout.count() != count()) throw std::length_error("could not pack weights for thin rows: their layout has others");
    std::vector<std::uint16_t> packed(count());
    layout.write(from, packed.data());
    const auto run = [](int left) { return left >= 32 ? 32 : left >= 16 ? 16 : 8; };
    for (int first = 0, columns = 0; first < n; first += columns) {
      columns = run(n - first);
      for (int begin = 0, size = 0; begin < k; begin += size) {
        size = run(k - begin);
        for (int eight = 0; eight < columns / 8; ++eight)
          for (int lane = 0; lane < 32; ++lane) {
            // A lane's sums of neighbouring eights are neighbours in the run.
            const int row = first + lane / 8 * (columns / 4) + eight * 2 + lane / 4 % 2;
            for (int i = 0; i < size / 4; ++i)
              *to++ = packed[static_cast<std::size_t>(row) * k + begin + lane % 4 * (size / 4) + i];
          }
      }
    }
  }
};

/// Weights [outputs, channels, rows, taps] as a lane's two registers of a right factor: steps of eight words, eights of outputs,
/// lanes. A word is two neighbours of a row of the window, pixel after pixel or, in `planes`, of one channel after the other,
/// behind `lead` zeros; zeros fill a row's last word. Of `neighbours` eights a lane's outputs lie beside each other.
struct StemFilter {
  int outputs, channels, rows, taps, steps, planes, lead, neighbours;

  std::string key() const { return "/stem" + in_key(outputs, channels, rows, taps, steps, planes, lead, neighbours); }
  std::size_t count() const { return static_cast<std::size_t>(steps) * outputs * 16; }
  /// To zeros.
  void write(const std::uint16_t* from, std::uint16_t* to) const {
    const int inner = channels / planes, line = taps * inner, words = (lead + line + 1) / 2;
    for (int i = 0; i < static_cast<int>(count()); ++i) {
      const int lane = i / 4 % 32, eight = i / 128 % (outputs / 8), step = i / 128 / (outputs / 8);
      const int pair = lane / 8 * neighbours + eight % neighbours, word = step * 8 + i / 2 % 2 * 4 + lane % 4;
      const int output = eight / neighbours * 8 * neighbours + pair * 2 + lane / 4 % 2;
      const int row = word / words, place = word % words * 2 + i % 2 - lead;
      if (row >= planes * rows || place < 0 || place >= line) continue;
      const int channel = row / rows + place % inner;
      to[i] = from[((static_cast<std::size_t>(output) * channels + channel) * rows + row % rows) * taps + place / inner];
    }
  }
};

/// The right factor of a product: stored [k, n] to [n, to_k], as if it were stored [n, k].
struct Factor {
  int n, k, to_k;

  std::string key() const { return "/transposed" + in_key(n, k, to_k); }
  std::size_t count() const { return static_cast<std::size_t>(n) * to_k; }
  /// To zeros.
  void write(const std::uint16_t* from, std::uint16_t* to) const {
    for (std::size_t row = 0; row < static_cast<std::size_t>(k); ++row)
      for (std::size_t column = 0; column < static_cast<std::size_t>(n); ++column)
        to[column * to_k + row] = from[row * n + column];
  }
};

/// Packs weights of two bytes each as one of the layouts above says.
template <typename Layout>
std::shared_ptr<const void> pack(const Prepare& p, const Constant& weights, const Layout& layout) {
  const std::size_t bytes = layout.count() * sizeof(std::uint16_t);
  return p.shared(std::string("cutlass/") + weights.name + layout.key(), bytes, [&](void* memory) {
    std::memset(memory, 0, bytes);
    layout.write(static_cast<const std::uint16_t*>(weights.data), static_cast<std::uint16_t*>(memory));
  });
}

/// `count` floats, null where `bias` has no data; `times` one behind the other.
inline std::shared_ptr<const void> copy(const Prepare& p, const Constant& bias, int count, int times = 1) {
  if (!bias.data) return nullptr;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  const std::string key = std::string("cutlass/") + bias.name + "/f32" + (times == 1 ? "" : "/" + std::to_string(times));
  return p.shared(key, bytes * times, [&](void* memory) {
    for (int i = 0; i < times; ++i) std::memcpy(static_cast<std::byte*>(memory) + i * bytes, bias.data, bytes);
  });
}

/// What is read of a channel's constants behind the last one: a tile's columns at most.
constexpr int channels_beyond = 256;

/// `count` floats, `times` one behind the other, and zeros behind them.
inline std::shared_ptr<const void> copy_channels(const Prepare& p, const Constant& values, int count, int times = 1) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  const std::string key = std::string("cutlass/") + values.name + "/channels/" + std::to_string(times);
  return p.shared(key, bytes * times + channels_beyond * sizeof(float), [&](void* memory) {
    std::memset(memory, 0, bytes * times + channels_beyond * sizeof(float));
    for (int i = 0; i < times; ++i) std::memcpy(static_cast<std::byte*>(memory) + i * bytes, values.data, bytes);
  });
}

/// The numbers of `count` columns as bits of floats.
inline std::shared_ptr<const void> ordinals(const Prepare& p, int count) {
  return p.shared("cutlass/ordinals/" + std::to_string(count), static_cast<std::size_t>(count) * sizeof(int), [&](void* memory) {
    for (int i = 0; i < count; ++i) static_cast<int*>(memory)[i] = i;
  });
}

}  // namespace bolt::cutlass_kernels
