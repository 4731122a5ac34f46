// A dense row-major array as files hold it, and the words for element types and shapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bolt_engine.h"

namespace bolt_runner {

struct Array {
  bolt_dtype dtype;
  std::vector<int64_t> shape;
  std::vector<unsigned char> bytes;
};

struct NamedArray {
  std::string name;
  Array array;
};

std::size_t element_bytes(bolt_dtype dtype);
const char* dtype_name(bolt_dtype dtype);
/// For messages: what a file says, with all but printable ASCII as \xNN.
std::string printable(const std::string& text);
/// For messages: UTF-8 text with control characters as \xNN. A model names its inputs and layers, and its names are not to
/// steer a terminal.
std::string on_one_line(const std::string& text);
/// "(1, 3, 224, 224)", as NumPy prints it.
std::string shape_text(const std::vector<int64_t>& shape);
std::vector<int64_t> shape_of(const bolt_tensor& tensor);

}  // namespace bolt_runner
