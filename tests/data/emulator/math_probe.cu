// Instructions and functions of numbers, and functions that kernels call: each on the device, compared with the host.
#include <cmath>
#include <cstring>

#include "call_probes.h"
#include "function_probes.h"
#include "instruction_probes.h"
#include "paired_probes.h"

/// Its limit at minus infinity, where the definition multiplies it by 0.
static double gelu(double x) { return x < -30 ? 0 : x / 2 * std::erfc(-x / std::sqrt(2.0)); }

int main(int, char** arguments) {
  const auto is = [&](const char* name) { return std::strcmp(name, arguments[1]) == 0; };
  if (is("instructions of fp32")) instructions<float>(), finish("compared");
  if (is("instructions of fp64")) instructions<double>(), finish("compared");
  if (is("instructions of halves")) halves(), finish("compared");
  if (is("instructions of bits")) bits(), finish("compared");
  if (is("conversions")) conversions(), finish("compared");
  if (is("functions of fp32")) functions<float>(), finish("compared");
  if (is("functions of fp64")) functions<double>(), finish("compared");
  if (is("pairs near zero")) pairs<bolt::portable::Gelu>(gelu, 0, 1), finish("compared");
  if (is("pairs")) pairs<bolt::portable::Gelu>(gelu, 0x1p-14, 65505), finish("compared");
  if (is("calls")) calls(), finish("compared");
  if (is("a function that calls itself")) itself<<<1, 1>>>(numbers(1), 3), finish("ended");
  if (is("a function without a body")) bodiless<<<1, 1>>>(), finish("ended");
}
