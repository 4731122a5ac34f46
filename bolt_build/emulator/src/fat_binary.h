// The PTX that nvcc embeds in an object file.
#pragma once

#include <string_view>

namespace emulator {

/// The text for sm_90 in what __cudaRegisterFatBinary is given. Throws Unsupported where it is compressed, or absent.
std::string_view ptx_of(const void* wrapper);

}  // namespace emulator
