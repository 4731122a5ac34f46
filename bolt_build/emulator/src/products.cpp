// Matrix instructions: of one warp, of four, and the loads and stores of 8 x 8 matrices that go with them.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "decode.h"
#include "half.h"

namespace emulator {
namespace {

using Half = std::uint16_t;
constexpr int rows = 16, depth = 16;

/// Every lane of the warp, or none: what all of these instructions ask for.
bool whole(Warp& warp, Mask mask) {
  if (mask == all_lanes) return true;
  if (warp.live() != all_lanes) warp.fail("an instruction of whole warps, of which lanes have left");
  return false;
}

using Widen = float(std::uint16_t);

/// 16 rows of 16 halves, as registers of lanes hold a left factor.
template <Widen wide>
void left_of_registers(Warp& warp, const std::vector<std::uint32_t>& registers, float left[rows][depth]) {
  for (std::size_t r = 0; r < registers.size(); ++r) {
    const std::uint32_t* const x = warp.at<std::uint32_t>(registers[r]);
    for (int lane = 0; lane < lanes; ++lane) {
      const int row = lane / 4 + (r % 2 == 0 ? 0 : 8), k = lane % 4 * 2 + (r < 2 ? 0 : 8);
      left[row][k] = wide(static_cast<Half>(x[lane]));
      left[row][k + 1] = wide(static_cast<Half>(x[lane] >> 16));
    }
  }
}

/// sums[16 rows, n] += left * right, sums as registers of lanes hold them.
void multiply(Warp& warp, const std::vector<std::uint32_t>& sums, const float left[rows][depth], const float* right,
              int n, int k, bool fresh) {
  alignas(64) static thread_local float total[rows][256];
  for (std::size_t r = 0; r < sums.size(); ++r) {
    const float* const x = warp.at<float>(sums[r]);
    const int column = static_cast<int>(r / 4) * 8 + static_cast<int>(r % 2), row = r % 4 < 2 ? 0 : 8;
    for (int lane = 0; lane < lanes; ++lane) total[row + lane / 4][column + lane % 4 * 2] = fresh ? 0.0f : x[lane];
  }
  for (int row = 0; row < rows; ++row)
    for (int step = 0; step < k; ++step) {
      const float factor = left[row][step];
      const float* const line = right + step * n;
      float* const to = total[row];
      for (int column = 0; column < n; ++column) to[column] += factor * line[column];
    }
  for (std::size_t r = 0; r < sums.size(); ++r) {
    float* const x = warp.at<float>(sums[r]);
    const int column = static_cast<int>(r / 4) * 8 + static_cast<int>(r % 2), row = r % 4 < 2 ? 0 : 8;
    for (int lane = 0; lane < lanes; ++lane) x[lane] = total[row + lane / 4][column + lane % 4 * 2];
  }
}

/// mma.m16n8k16 (or k8): d = a * b + c.
template <Widen wide>
bool warp_product(Warp& warp, const Instruction& i, Mask mask) {
  if (!whole(warp, mask)) return false;
  float left[rows][depth] = {}, right[depth * 8];
  const std::vector<std::uint32_t> d(i.list.begin(), i.list.begin() + 4), c(i.list.begin() + 4, i.list.end());
  const int registers = i.bytes / 8;  // of b: k / 8
  left_of_registers<wide>(warp, {i.second.begin(), i.second.end() - registers}, left);
  for (int r = 0; r < registers; ++r) {
    const std::uint32_t* const x = warp.at<std::uint32_t>(*(i.second.end() - registers + r));
    for (int lane = 0; lane < lanes; ++lane) {
      const int k = lane % 4 * 2 + r * 8, column = lane / 4;
      right[k * 8 + column] = wide(static_cast<Half>(x[lane]));
      right[(k + 1) * 8 + column] = wide(static_cast<Half>(x[lane] >> 16));
    }
  }
  if (d != c)
    for (int r = 0; r < 4; ++r) std::memcpy(warp.at<float>(d[r]), warp.at<float>(c[r]), lanes * sizeof(float));
  multiply(warp, d, left, right, 8, i.bytes, false);
  return true;
}

/// Where rows of halves lie in shared memory, by the descriptor that WGMMA is given: 16-byte chunks,
/// whose place within 128, 64 or 32 bytes is mixed with bits of the address.
class Described {
 public:
  Described(Warp& warp, std::uint64_t bits) : warp_(warp) {
    start_ = static_cast<std::uint32_t>(bits & 0x3fff) << 4;
    leading_ = static_cast<std::uint32_t>(bits >> 16 & 0x3fff) << 4;
    stride_ = static_cast<std::uint32_t>(bits >> 32 & 0x3fff) << 4;
    const auto layout = bits >> 62;
    row_ = layout == 0 ? 16 : layout == 1 ? 128 : layout == 2 ? 64 : 32;
    mix_ = layout == 0 ? 0 : row_ / 16 - 1;
    swizzled_ = layout != 0;
    if ((bits >> 49 & 7) != 0) warp.fail("a matrix that begins within a pattern of swizzled rows");
  }

  /// One of `columns` of a row of the depth, where such rows lie below each other: groups of eight rows are a stride apart,
  /// and columns that fill a row of the swizzle are followed by the next ones a leading stride behind.
  Half transposed(int k, int column) const {
    const std::uint32_t span = row_ / sizeof(Half), at = static_cast<std::uint32_t>(column);
    if (!swizzled_) warp_.fail("a factor with the depth downwards that is not swizzled");
    std::uint32_t address = start_ + at / span * leading_ + static_cast<std::uint32_t>(k / 8) * stride_ +
                            static_cast<std::uint32_t>(k % 8) * row_ + at % span * static_cast<std::uint32_t>(sizeof(Half));
    address ^= (address >> 7 & mix_) << 4;
    Half found;
    std::memcpy(&found, warp_.block.shared(address, sizeof found), sizeof found);
    return found;
  }

  /// Eight halves of a row, from the eighth one on where `second`.
  const Half* chunk(int row, bool second) const {
    std::uint32_t address = start_ + static_cast<std::uint32_t>(row / 8) * stride_ + static_cast<std::uint32_t>(row % 8) * row_;
    if (second) address += swizzled_ ? 16 : leading_;
    if (swizzled_) address ^= (address >> 7 & mix_) << 4;
    return reinterpret_cast<const Half*>(warp_.block.shared(address, 16));
  }

 private:
  Warp& warp_;
  std::uint32_t start_, leading_, stride_, row_, mix_;
  bool swizzled_;
};

template <Widen wide>
void widen(const Half* from, float* to);
template <>
void widen<float_of_half>(const Half* from, float* to) {
  _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}
template <>
void widen<float_of_bfloat>(const Half* from, float* to) {
  for (int i = 0; i < 8; ++i) to[i] = float_of_bfloat(from[i]);
}

/// One warp's sixteen rows of wgmma.m64nNk16: the left factor from registers (`form` 1) or from shared memory.
template <Widen wide>
void four_warp_product(Warp& warp, const Instruction& i, bool fresh, std::uint64_t left_bits, std::uint64_t right_bits) {
  const int n = static_cast<int>(i.list.size()) * 2;
  float left[rows][depth];
  if (i.form == 1) {
    left_of_registers<wide>(warp, i.second, left);
  } else {
    const Described described(warp, left_bits);
    for (int row = 0; row < rows; ++row)
      for (int half = 0; half < 2; ++half)
        widen<wide>(described.chunk(static_cast<int>(warp.number % 4) * rows + row, half != 0), left[row] + half * 8);
  }
  alignas(64) static thread_local float right[depth * 256];
  const Described described(warp, right_bits);
  for (int column = 0; i.bytes != 0 && column < n; ++column)
    for (int k = 0; k < depth; ++k) right[k * n + column] = wide(described.transposed(k, column));
  for (int column = 0; i.bytes == 0 && column < n; ++column)
    for (int half = 0; half < 2; ++half) {
      float values[8];
      widen<wide>(described.chunk(column, half != 0), values);
      for (int k = 0; k < 8; ++k) right[(half * 8 + k) * n + column] = values[k];
    }
  multiply(warp, i.list, left, right, n, depth, fresh);
}

template <Widen wide>
bool wgmma(Warp& warp, const Instruction& i, Mask mask) {
  if (!whole(warp, mask)) return false;
  const bool fresh = i.number == 0 ? false : (warp.predicate(i.at[2]) & 1) == 0;
  const std::uint64_t left = i.form == 1 ? 0 : warp.at<std::uint64_t>(i.at[0])[0];
  const std::uint64_t right = warp.at<std::uint64_t>(i.at[1])[0];
  const auto happen = [&warp, &i, fresh, left, right] { four_warp_product<wide>(warp, i, fresh, left, right); };
  if (warp.block.cluster.shuffled())
    warp.products.push_back({happen, warp.product_group});
  else
    happen();
  return true;
}

bool commit_products(Warp& warp, const Instruction&, Mask mask) {
  if (!whole(warp, mask)) return false;
  ++warp.product_group;
  // At once, or as late as a wait allows.
  if (warp.block.cluster.shuffled() && warp.block.cluster.random() % 2 == 0)
    for (; !warp.products.empty(); warp.products.pop_front()) warp.products.front().happen();
  return true;
}

/// The four warps' products are one: who waits for his own waits for all of them. CUTLASS frees a buffer on one warp's word.
bool await_products(Warp& warp, const Instruction& i, Mask mask) {
  if (!whole(warp, mask)) return false;
  const auto left = static_cast<std::uint64_t>(i.number);
  const std::uint64_t done = warp.product_group > left ? warp.product_group - left : 0;
  const auto& warps = warp.block.warps;
  const std::size_t first = warp.number / 4 * 4, end = std::min<std::size_t>(first + 4, warps.size());
  for (std::size_t n = first; n < end; ++n)
    if (warps[n]->product_group < done) return false;
  for (std::size_t n = first; n < end; ++n)
    for (auto& products = warps[n]->products; !products.empty() && products.front().group < done; products.pop_front())
      products.front().happen();
  return true;
}

void no_product(Warp&, const Instruction&, Mask) {}

/// Four (or two, or one) 8 x 8 matrices, whose rows lie where the lanes say, eight lanes a matrix.
template <bool loads, bool transposed>
bool matrices(Warp& warp, const Instruction& i, Mask mask) {
  if (!whole(warp, mask)) return false;
  const std::size_t count = i.list.size();
  for (std::size_t matrix = 0; matrix < count; ++matrix) {
    Half* row[8];
    for (int r = 0; r < 8; ++r) {
      const int lane = static_cast<int>(matrix) * 8 + r;
      const std::uint64_t base = i.form != 0 ? warp.at<std::uint64_t>(i.at[0])[lane] : warp.at<std::uint32_t>(i.at[0])[lane];
      const std::uint64_t address = base + static_cast<std::uint64_t>(i.number);
      row[r] = reinterpret_cast<Half*>(warp.resolve(shared_block, address, 16, !loads, lane));
      if (address % 16 != 0) warp.fail("a row of a matrix that is not 16-byte aligned");
    }
    std::uint32_t* const x = warp.at<std::uint32_t>(i.list[matrix]);
    for (int lane = 0; lane < lanes; ++lane)
      for (int half = 0; half < 2; ++half) {
        const int outer = lane / 4, inner = lane % 4 * 2 + half;
        Half& cell = transposed ? row[inner][outer] : row[outer][inner];
        const int shift = 16 * half;
        if constexpr (loads)
          x[lane] = (x[lane] & ~(0xffffu << shift)) | static_cast<std::uint32_t>(cell) << shift;
        else
          cell = static_cast<Half>(x[lane] >> shift);
      }
  }
  return true;
}

/// A matrix of 8 x 8, two neighbours of a row in each lane, the other way round.
bool turned_matrix(Warp& warp, const Instruction& i, Mask mask) {
  if (!whole(warp, mask)) return false;
  std::uint32_t given[lanes];
  std::memcpy(given, warp.at<std::uint32_t>(i.at[1]), sizeof given);
  std::uint32_t* const made = warp.at<std::uint32_t>(i.at[0]);
  for (int lane = 0; lane < lanes; ++lane) {
    made[lane] = 0;
    for (int half = 0; half < 2; ++half) {
      const int row = lane % 4 * 2 + half, column = lane / 4;
      made[lane] |= (given[row * 4 + column / 2] >> 16 * (column % 2) & 0xffffu) << 16 * half;
    }
  }
  return true;
}

bool decode_turned(Reader& reader, const Statement& s, Instruction& i) {
  if (!s.has("m8n8") || !s.has("trans") || s.type() != "b16") return false;
  i.at[0] = reader.reg(s.operands.at(0)).offset;
  i.at[1] = reader.source(s.operands.at(1), {'b', 4});
  i.attempt = turned_matrix;
  return true;
}

bool decode_matrices(Reader& reader, const Statement& s, Instruction& i) {
  const bool loads = s.base == "ldmatrix", transposed = s.has("trans");
  if (!s.has("m8n8") || s.type() != "b16") return false;
  const Reader::Address at = reader.address(s.operands.at(loads ? 1 : 0));
  i.at[0] = at.offset;
  i.form = at.wide ? 1 : 0;
  i.number = at.displacement;
  for (const auto word : elements(s.operands.at(loads ? 0 : 1))) i.list.push_back(reader.source(word, {'b', 4}));
  i.attempt = loads ? (transposed ? matrices<true, true> : matrices<true, false>)
                    : (transposed ? matrices<false, true> : matrices<false, false>);
  return true;
}

bool decode_wgmma(Reader& reader, const Statement& s, Instruction& i) {
  if (s.has("fence")) {
    i.execute = no_product;
  } else if (s.has("commit_group")) {
    i.attempt = commit_products;
  } else if (s.has("wait_group")) {
    i.number = reader.integer(s.operands.at(0));
    i.attempt = await_products;
  } else if (s.has("mma_async")) {
    const std::size_t types = s.modifiers.size();
    if (types < 7 || s.modifiers[types - 3] != "f32" || (s.type() != "f16" && s.type() != "bf16")) return false;
    if (s.modifiers[types - 2] != s.type()) return false;
    for (const auto word : elements(s.operands.at(0))) i.list.push_back(reader.reg(word).offset);
    i.form = s.operands.at(1)[0] == '{' ? 1 : 0;
    if (i.form == 1)
      for (const auto word : elements(s.operands[1])) i.second.push_back(reader.reg(word).offset);
    else
      i.at[0] = reader.source(s.operands[1], {'u', 8});
    i.at[1] = reader.source(s.operands.at(2), {'u', 8});
    i.at[2] = reader.predicate(s.operands.at(3));
    i.number = 1;
    // Signs of the factors, then whether either is stored the other way round: the right one may be.
    const std::size_t right = s.operands.size() - 1;
    for (std::size_t n = 4; n < s.operands.size(); ++n)
      if (s.operands[n] != (n < 6 ? "1" : "0") && (n != right || n < 6 || s.operands[n] != "1")) return false;
    i.bytes = right >= 6 && s.operands[right] == "1" ? 1 : 0;
    i.attempt = s.type() == "f16" ? wgmma<float_of_half> : wgmma<float_of_bfloat>;
  }
  return i.execute != nullptr || i.attempt != nullptr;
}

}  // namespace

bool decode_products(Reader& reader, const Statement& s, Instruction& i) {
  if (s.base == "wgmma") return decode_wgmma(reader, s, i);
  if (s.base == "ldmatrix" || s.base == "stmatrix") return decode_matrices(reader, s, i);
  if (s.base == "movmatrix") return decode_turned(reader, s, i);
  if (s.base != "mma" || !s.has("row") || !s.has("col")) return false;
  const bool long_step = s.has("m16n8k16");
  if (!long_step && !s.has("m16n8k8")) return false;
  // Types of d, a, b and c.
  const auto& m = s.modifiers;
  if (m.size() < 4 || m[m.size() - 4] != "f32" || m[m.size() - 1] != "f32") return false;
  const std::string_view factors = m[m.size() - 3];
  if ((factors != "f16" && factors != "bf16") || m[m.size() - 2] != factors) return false;
  i.bytes = long_step ? 16 : 8;
  for (const auto word : elements(s.operands.at(0))) i.list.push_back(reader.reg(word).offset);
  for (const auto word : elements(s.operands.at(3))) i.list.push_back(reader.source(word, {'f', 4}));
  for (int n = 1; n < 3; ++n)
    for (const auto word : elements(s.operands.at(static_cast<std::size_t>(n)))) i.second.push_back(reader.reg(word).offset);
  i.attempt = factors == "f16" ? warp_product<float_of_half> : warp_product<float_of_bfloat>;
  return true;
}

}  // namespace emulator
