#include "summary.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <numeric>

namespace bolt_runner {
namespace {

constexpr std::size_t kGreatest = 5, kRows = 4;

template <class T>
double as(const unsigned char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<double>(value);
}

double half(const unsigned char* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double value = exponent == 31 ? (fraction ? NAN : INFINITY)
                                : exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -value : value;
}

double brain(const unsigned char* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

double value_at(bolt_dtype dtype, const unsigned char* at) {
  switch (dtype) {
    case BOLT_F32: return as<float>(at);
    case BOLT_F16: return half(at);
    case BOLT_BF16: return brain(at);
    case BOLT_F64: return as<double>(at);
    case BOLT_I64: return as<std::int64_t>(at);
    case BOLT_I32: return as<std::int32_t>(at);
    case BOLT_I16: return as<std::int16_t>(at);
    case BOLT_I8: return as<std::int8_t>(at);
    case BOLT_U64: return as<std::uint64_t>(at);
    case BOLT_U32: return as<std::uint32_t>(at);
    case BOLT_U16: return as<std::uint16_t>(at);
    case BOLT_U8:
    case BOLT_BOOL: return as<std::uint8_t>(at);
  }
  return NAN;
}

std::vector<double> values_of(const Array& array) {
  const std::size_t width = element_bytes(array.dtype);
  std::vector<double> found(array.bytes.size() / width);
  for (std::size_t i = 0; i < found.size(); ++i) found[i] = value_at(array.dtype, array.bytes.data() + i * width);
  return found;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// "2: 0.91  7: 0.05": the greatest of a row. NaN is greater than none, and stands last.
std::string greatest(const double* row, std::size_t width) {
  std::vector<std::size_t> order(width);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t count = std::min(kGreatest, width);
  const auto key = [&](std::size_t i) { return std::isnan(row[i]) ? -INFINITY : row[i]; };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](std::size_t a, std::size_t b) { return key(a) > key(b) || (key(a) == key(b) && a < b); });
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += (i ? "  " : "") + std::to_string(order[i]) + ": " + number(row[order[i]]);
  return text;
}

std::string place(std::size_t row, const std::vector<int64_t>& shape) {
  std::string text;
  for (std::size_t axis = shape.size() - 1; axis-- > 0;) {
    const auto extent = static_cast<std::size_t>(shape[axis]);
    text = std::to_string(row % extent) + ", " + text;
    row /= extent;
  }
  return "[" + text + ":]";
}

std::string described(const Array& array) {
  const std::vector<double> values = values_of(array);
  const std::size_t wrong =
      static_cast<std::size_t>(std::count_if(values.begin(), values.end(), [](double v) { return !std::isfinite(v); }));
  std::vector<double> good;
  std::copy_if(values.begin(), values.end(), std::back_inserter(good), [](double v) { return std::isfinite(v); });
  std::string text;
  if (!good.empty()) {
    const auto [least, most] = std::minmax_element(good.begin(), good.end());
    const double mean = std::accumulate(good.begin(), good.end(), 0.0) / static_cast<double>(good.size());
    text = ": from " + number(*least) + " to " + number(*most) + ", mean " + number(mean);
  }
  if (wrong)
    text +=
        (text.empty() ? ": " : ", ") + std::to_string(wrong) + " of " + std::to_string(values.size()) + " infinite or no number";
  text += "\n";
  if (array.shape.size() < 2 || values.empty()) return text;
  const auto width = static_cast<std::size_t>(array.shape.back());
  const std::size_t rows = values.size() / width;
  for (std::size_t row = 0; row < std::min(rows, kRows); ++row)
    text += "  " + place(row, array.shape) + " greatest " + greatest(values.data() + row * width, width) + "\n";
  if (rows > kRows) text += "  and " + std::to_string(rows - kRows) + " more rows\n";
  return text;
}

}  // namespace

std::string summary(const std::vector<NamedArray>& outputs) {
  std::string text;
  for (const NamedArray& entry : outputs)
    text += on_one_line(entry.name) + " " + dtype_name(entry.array.dtype) + " " + shape_text(entry.array.shape) +
            described(entry.array);
  return text;
}

}  // namespace bolt_runner
