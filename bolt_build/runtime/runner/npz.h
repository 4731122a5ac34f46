// NumPy's .npz: a zip archive of stored .npy files.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "array.h"

namespace bolt_runner {

/// Reads every array, names without ".npy". Refuses compressed archives and those of more than 4 GiB.
std::vector<NamedArray> parse_npz(const unsigned char* data, std::size_t bytes, const std::string& what);

/// The bytes of an archive, the same for the same arrays (no times).
std::vector<unsigned char> npz_bytes(const std::vector<NamedArray>& arrays, const std::string& what);

}  // namespace bolt_runner
