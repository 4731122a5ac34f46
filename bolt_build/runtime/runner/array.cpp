#include "array.h"

#include <cstdio>

namespace bolt_runner {

std::size_t element_bytes(bolt_dtype dtype) {
  switch (dtype) {
    case BOLT_F64:
    case BOLT_I64:
    case BOLT_U64: return 8;
    case BOLT_F32:
    case BOLT_I32:
    case BOLT_U32: return 4;
    case BOLT_F16:
    case BOLT_BF16:
    case BOLT_I16:
    case BOLT_U16: return 2;
    case BOLT_I8:
    case BOLT_U8:
    case BOLT_BOOL: return 1;
  }
  return 0;
}

const char* dtype_name(bolt_dtype dtype) {
  switch (dtype) {
    case BOLT_F32: return "f32";
    case BOLT_F16: return "f16";
    case BOLT_BF16: return "bf16";
    case BOLT_F64: return "f64";
    case BOLT_I64: return "i64";
    case BOLT_I32: return "i32";
    case BOLT_I8: return "i8";
    case BOLT_U8: return "u8";
    case BOLT_BOOL: return "bool";
    case BOLT_I16: return "i16";
    case BOLT_U16: return "u16";
    case BOLT_U32: return "u32";
    case BOLT_U64: return "u64";
  }
  return "unknown";
}

namespace {

std::string escaped(char byte) {
  char text[5];
  std::snprintf(text, sizeof text, "\\x%02x", static_cast<unsigned char>(byte));
  return text;
}

}  // namespace

std::string printable(const std::string& text) {
  std::string shown;
  for (const char byte : text) shown += byte >= 0x20 && byte < 0x7F ? std::string(1, byte) : escaped(byte);
  return shown;
}

std::string on_one_line(const std::string& text) {
  std::string shown;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]), next = static_cast<unsigned char>(text[i + 1 < text.size() ? i + 1 : i]);
    // U+0080 to U+009F are control characters too, in two bytes.
    const bool wide = byte == 0xC2 && next >= 0x80 && next < 0xA0;
    shown += byte < 0x20 || byte == 0x7F || wide ? escaped(text[i]) : std::string(1, text[i]);
    if (wide) shown += escaped(text[++i]);
  }
  return shown;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::vector<int64_t> shape_of(const bolt_tensor& tensor) { return {tensor.shape, tensor.shape + tensor.rank}; }

}  // namespace bolt_runner
