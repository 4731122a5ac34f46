// How weights come to lie as the kernels read them, when an engine loads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace bolt::grouped {

/// Numbers that tell a constant packed in one way from the same one packed in another.
template <typename... Numbers>
std::string in_key(Numbers... numbers) {
  return (... + ("/" + std::to_string(numbers)));
}

/// Filters of one channel, [outputs, 1, taps], to [taps, outputs (then zeros up to to_outputs)].
struct Planes {
  int outputs, taps, to_outputs;

  std::string key() const { return "/planes" + in_key(outputs, taps, to_outputs); }
  std::size_t count() const { return static_cast<std::size_t>(taps) * to_outputs; }
  /// To zeros.
  void write(const std::uint16_t* from, std::uint16_t* to) const {
    for (std::size_t k = 0; k < static_cast<std::size_t>(outputs); ++k)
      for (std::size_t tap = 0; tap < static_cast<std::size_t>(taps); ++tap) to[tap * to_outputs + k] = from[k * taps + tap];
  }
};

/// What a lane holds of the right factors of units, from filters [groups * out_each, in_each, taps]. A unit is `joined`
/// groups; its depth counts taps, and in each the unit's channels in octets, padded with zeros. `instruction` is the depth
/// of a step. Units (up to to_units), steps, runs of 8 results (up to to_tiles), lanes, and a lane's two channels of each
/// octet of the step: lane l has channels l % 4 * 2 and the next of result l / 4. Between different groups all is zero.
struct Fragments {
  int groups, joined, in_each, out_each, taps, to_units, to_tiles, instruction;

  int octets() const { return (joined * in_each + 7) / 8; }
  int of_step() const { return instruction / 8; }
  int steps() const { return (taps * octets() + of_step() - 1) / of_step(); }
  std::string key() const {
    return "/fragments" + in_key(groups, joined, in_each, out_each, taps, to_units, to_tiles, instruction);
  }
  std::size_t count() const {
    return static_cast<std::size_t>(to_units) * steps() * to_tiles * 32 * 2 * of_step();
  }
  /// To zeros.
  void write(const std::uint16_t* from, std::uint16_t* to) const {
    for (int group = 0; group < groups; ++group)
      for (int k = 0; k < out_each; ++k)
        for (int c = 0; c < in_each; ++c)
          for (int tap = 0; tap < taps; ++tap) {
            const int unit = group / joined, result = group % joined * out_each + k;
            const int channel = group % joined * in_each + c, octet = tap * octets() + channel / 8;
            const int step = octet / of_step(), part = octet % of_step();
            const int lane = result % 8 * 4 + channel % 8 / 2, half = channel % 2;
            const std::size_t tile = (static_cast<std::size_t>(unit) * steps() + step) * to_tiles + result / 8;
            to[((tile * 32 + lane) * of_step() + part) * 2 + half] =
                from[((static_cast<std::size_t>(group) * out_each + k) * in_each + c) * taps + tap];
          }
  }
};

}  // namespace bolt::grouped
