// NumPy's .npy format, versions 1 to 3.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "array.h"

namespace bolt_runner {

/// Reads one array; Fortran order and big-endian elements come out row-major and little-endian. Elements of the type V2
/// are bf16, which is how NumPy writes what ml_dtypes calls bfloat16. `what` names the file in Problems.
Array parse_npy(const unsigned char* data, std::size_t bytes, const std::string& what);

/// The bytes of a .npy file, as numpy.save would write it.
std::vector<unsigned char> npy_bytes(const Array& array);

}  // namespace bolt_runner
