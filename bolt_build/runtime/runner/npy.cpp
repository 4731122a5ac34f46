#include "npy.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "problem.h"

namespace bolt_runner {
namespace {

struct Kind {
  const char* code;
  bolt_dtype dtype;
};

constexpr Kind kKinds[] = {{"f4", BOLT_F32}, {"f2", BOLT_F16}, {"V2", BOLT_BF16}, {"f8", BOLT_F64}, {"i8", BOLT_I64},
                           {"i4", BOLT_I32}, {"i1", BOLT_I8},  {"u1", BOLT_U8},   {"b1", BOLT_BOOL}, {"i2", BOLT_I16},
                           {"u2", BOLT_U16}, {"u4", BOLT_U32},  {"u8", BOLT_U64}};

constexpr std::size_t kMostAxes = 64;  // NumPy's own limit

// The header: a Python dict literal with the keys descr, fortran_order and shape, in any order and spacing.
class Header {
 public:
  Header(const char* text, std::size_t size, const std::string& what) : at_(text), end_(text + size), what_(what) { parse(); }

  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;

 private:
  void parse() {
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!take('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        if (peek() == '[') fail("structured arrays are not supported");
        descr = string();
        has_descr = true;
      } else if (key == "fortran_order") {
        fortran_order = boolean();
        has_order = true;
      } else if (key == "shape") {
        shape.clear();
        tuple();
        has_shape = true;
      } else {
        fail("unknown key '" + printable(key) + "' in its header");
      }
      if (!take(',') && peek() != '}') fail("its header is malformed");
    }
    if (peek() != '\0' || at_ != end_) fail("its header is malformed");
    if (!has_descr || !has_order || !has_shape) fail("its header lacks descr, fortran_order or shape");
  }

  void tuple() {
    expect('(');
    while (!take(')')) {
      if (shape.size() == kMostAxes) fail("it has more than 64 axes");
      shape.push_back(integer());
      if (!take(',') && peek() != ')') fail("its header is malformed");
    }
  }

  int64_t integer() {
    constexpr int kMostDigits = 18;  // more may not fit
    int64_t value = 0;
    int digits = 0;
    for (peek(); at_ < end_ && *at_ >= '0' && *at_ <= '9'; ++at_, ++digits) {
      if (digits == kMostDigits) fail("an extent in its header has more than 18 digits");
      value = value * 10 + (*at_ - '0');
    }
    if (digits == 0) fail("its header is malformed");
    if (at_ < end_ && *at_ == 'L') ++at_;  // written by Python 2
    return value;
  }

  bool boolean() {
    for (const char* word : {"True", "False"}) {
      const auto length = static_cast<std::ptrdiff_t>(std::strlen(word));
      if (peek() == word[0] && end_ - at_ >= length && std::memcmp(at_, word, static_cast<std::size_t>(length)) == 0) {
        at_ += length;
        return word[0] == 'T';
      }
    }
    fail("its header is malformed");
  }

  std::string string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail("its header is malformed");
    const char* first = ++at_;
    while (at_ < end_ && *at_ != quote) ++at_;
    if (at_ == end_) fail("its header is malformed");
    return {first, at_++};
  }

  char peek() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
    return at_ < end_ ? *at_ : '\0';
  }
  bool take(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) fail("its header is malformed");
  }
  [[noreturn]] void fail(const std::string& why) const { throw Problem(kInvalid, what_ + ": " + why); }

  const char* at_;
  const char* end_;
  const std::string& what_;
};

std::optional<bolt_dtype> dtype_of(const std::string& descr) {
  const std::string code = std::strchr("<>=|", descr.empty() ? 'x' : descr[0]) != nullptr ? descr.substr(1) : descr;
  for (const Kind& kind : kKinds) {
    if (code == kind.code) return kind.dtype;
  }
  return std::nullopt;
}

void swap_bytes(Array& array) {
  const std::size_t width = element_bytes(array.dtype);
  for (std::size_t at = 0; at < array.bytes.size(); at += width) std::reverse(&array.bytes[at], &array.bytes[at] + width);
}

// Column-major to row-major: walks the destination in order, the source by strides.
void to_row_major(Array& array) {
  const std::size_t width = element_bytes(array.dtype), rank = array.shape.size();
  std::vector<std::size_t> index(rank, 0), stride(rank, width);
  for (std::size_t axis = 1; axis < rank; ++axis) stride[axis] = stride[axis - 1] * static_cast<std::size_t>(array.shape[axis - 1]);
  std::vector<unsigned char> moved(array.bytes.size());
  for (std::size_t to = 0; to < moved.size(); to += width) {
    std::size_t from = 0;
    for (std::size_t axis = 0; axis < rank; ++axis) from += index[axis] * stride[axis];
    std::memcpy(&moved[to], &array.bytes[from], width);
    for (std::size_t axis = rank; axis-- > 0;) {
      if (++index[axis] < static_cast<std::size_t>(array.shape[axis])) break;
      index[axis] = 0;
    }
  }
  array.bytes = std::move(moved);
}

// Bytes of the elements, or nothing where no file can hold so many.
std::optional<std::size_t> data_bytes(const std::vector<int64_t>& shape, std::size_t width) {
  std::size_t total = width;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(total, static_cast<std::size_t>(extent), &total)) return std::nullopt;
  }
  return total;
}

}  // namespace

Array parse_npy(const unsigned char* data, std::size_t bytes, const std::string& what) {
  if (bytes < 10 || std::memcmp(data, "\x93NUMPY", 6) != 0) throw Problem(kInvalid, what + ": not a .npy file");
  const int version = data[6];
  if (version < 1 || version > 3) throw Problem(kInvalid, what + ": .npy version " + std::to_string(version) + " is not supported");
  const std::size_t start = version == 1 ? 10 : 12;
  if (bytes < start) throw Problem(kInvalid, what + ": truncated within its header");
  std::size_t length = data[8] | data[9] << 8;
  if (version > 1) length |= static_cast<std::size_t>(data[10]) << 16 | static_cast<std::size_t>(data[11]) << 24;
  if (bytes - start < length) throw Problem(kInvalid, what + ": truncated within its header");
  const Header header(reinterpret_cast<const char*>(data) + start, length, what);
  const std::optional<bolt_dtype> dtype = dtype_of(header.descr);
  if (!dtype) throw Problem(kInvalid, what + ": element type '" + printable(header.descr) + "' is not supported");
  const std::optional<std::size_t> expected = data_bytes(header.shape, element_bytes(*dtype));
  const std::size_t found = bytes - start - length;
  if (!expected || *expected != found) {
    throw Problem(kInvalid, what + ": " + std::to_string(found) + " bytes of data do not make " + dtype_name(*dtype) +
                                " of shape " + shape_text(header.shape));
  }
  Array array{*dtype, header.shape, {data + start + length, data + bytes}};
  if (header.descr[0] == '>') swap_bytes(array);
  if (header.fortran_order && array.shape.size() > 1) to_row_major(array);
  return array;
}

std::vector<unsigned char> npy_bytes(const Array& array) {
  const auto* kind = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return k.dtype == array.dtype; });
  const char* order = element_bytes(array.dtype) == 1 ? "|" : "<";
  std::string header =
      std::string("{'descr': '") + order + kind->code + "', 'fortran_order': False, 'shape': " + shape_text(array.shape) + ", }";
  header.append(63 - (10 + header.size()) % 64, ' ');  // data begin at a multiple of 64
  header += '\n';
  const char head[] = {
      '\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, static_cast<char>(header.size() & 0xFF), static_cast<char>(header.size() >> 8)};
  header.insert(0, head, sizeof head);
  std::vector<unsigned char> file(header.size() + array.bytes.size());
  std::copy(array.bytes.begin(), array.bytes.end(), std::copy(header.begin(), header.end(), file.begin()));
  return file;
}

}  // namespace bolt_runner
