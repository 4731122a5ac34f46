// The epilogue as CUTLASS's "with broadcast" epilogues call it: fp32 accumulators, a vector of biases, a residual.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>
#include <type_traits>

#include "bolt_cutlass/cutlass_type.h"
#include "bolt_cutlass/launch.h"
#include "cutlass/arch/arch.h"
#include "cutlass/array.h"
#include "cutlass/cutlass.h"
#include "cutlass/device_kernel.h"
#include "cutlass/epilogue/thread/linear_combination.h"
#include "cutlass/gemm/gemm.h"
#include "cutlass/numeric_conversion.h"
#include "cutlass/numeric_types.h"

namespace bolt::cutlass_kernels {

/// Functions of many instructions: epilogues with one are not unrolled over the whole tile.
template <typename Function>
inline constexpr bool is_long = false;
template <>
inline constexpr bool is_long<portable::Sigmoid> = true;
template <>
inline constexpr bool is_long<portable::Tanh> = true;
template <>
inline constexpr bool is_long<portable::Softplus> = true;
template <>
inline constexpr bool is_long<portable::Gelu> = true;
template <>
inline constexpr bool is_long<portable::GeluTanh> = true;
template <>
inline constexpr bool is_long<portable::Erf> = true;
template <>
inline constexpr bool is_long<portable::Silu> = true;
template <>
inline constexpr bool is_long<portable::Swish> = true;
template <>
inline constexpr bool is_long<portable::Exp> = true;
template <typename Function>
inline constexpr bool is_long<Map<Function>> = is_long<Function>;
template <typename... Stages>
inline constexpr bool is_long<Epilogue<Stages...>> = (is_long<Stages> || ...);

/// y = epilogue(accumulator + bias, residual), `access` neighbouring channels at a time, stored as CUTLASS's type `Half`.
template <typename Stages, int access, typename Half>
class OutputOp {
 public:
  using ElementOutput = Half;
  using ElementC = Half;
  using ElementAccumulator = float;
  using ElementCompute = float;
  using ElementVector = float;
  using ElementZ = Half;
  using ElementT = Half;
  static int const kElementsPerAccess = access;
  static int const kCount = access;
  static bool const kIsSingleSource = true;
  static bool const kIsHeavy = is_long<Stages>;
  static bool const kStoreZ = true;
  static bool const kStoreT = false;

  using FragmentAccumulator = ::cutlass::Array<float, access>;
  using FragmentCompute = ::cutlass::Array<float, access>;
  using FragmentC = ::cutlass::Array<Half, access>;
  using FragmentOutput = ::cutlass::Array<Half, access>;
  using FragmentZ = FragmentOutput;
  using FragmentT = FragmentOutput;

  struct Params {
    Stages stages;
  };

  CUTLASS_HOST_DEVICE explicit OutputOp(const Params& params) : stages_(params.stages) {}
  CUTLASS_HOST_DEVICE bool is_source_needed() const { return Stages::reads_residual; }
  CUTLASS_HOST_DEVICE void set_k_partition(int, int) {}

  CUTLASS_HOST_DEVICE void operator()(FragmentZ& z, FragmentT&, const FragmentAccumulator& sums,
                                      const FragmentC& residual, const FragmentCompute& bias) const {
    const FragmentCompute wide = ::cutlass::NumericArrayConverter<float, Half, access>()(residual);
    FragmentCompute y;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < access; ++i) y[i] = result(sums[i], bias[i], wide[i]);
    z = ::cutlass::NumericArrayConverter<Half, float, access>()(y);
  }

  CUTLASS_HOST_DEVICE void operator()(FragmentZ& z, FragmentT&, const FragmentAccumulator& sums,
                                      const FragmentCompute& bias) const {
    FragmentCompute y;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < access; ++i) y[i] = result(sums[i], bias[i], 0.0f);
    z = ::cutlass::NumericArrayConverter<Half, float, access>()(y);
  }

 private:
  /// CUTLASS does not say which column it stores. Where stages read constants of channels, what it has for a bias is the
  /// bits of the column's number (`ordinals` of packing.h), and the bias is the first of the stages.
  CUTLASS_HOST_DEVICE float result(float sum, float bias, float residual) const {
    if constexpr (Stages::channels == 0) {
      return stages_(sum + bias, residual);
    } else {
      return stages_(sum, residual, reinterpret_cast<const int&>(bias));
    }
  }

  Stages stages_;
};

/// A `Tile` in CUTLASS's terms.
template <typename T>
struct Shapes;
template <int m, int n, int k, int warp_m, int warp_n, int stages, int access, int instruction_k, int loads, typename Element>
struct Shapes<Tile<m, n, k, warp_m, warp_n, stages, access, instruction_k, loads, Element>> {
  using Half = CutlassType<Element>;
  using Threadblock = ::cutlass::gemm::GemmShape<m, n, k>;
  using Warp = ::cutlass::gemm::GemmShape<warp_m, warp_n, k>;
  using Instruction = ::cutlass::gemm::GemmShape<16, 8, instruction_k>;
  // Instructions of k 16 came with asynchronous copies to shared memory: more than two stages.
  using Arch = ::cutlass::platform::conditional_t<instruction_k == 8, ::cutlass::arch::Sm75, ::cutlass::arch::Sm80>;
  static constexpr int kStages = stages;
  static constexpr int kLoads = loads;
  template <typename Stages>
  using Op = OutputOp<Stages, access, Half>;
  // Sums as they are, 16 bytes at once where a row allows it.
  using PartialOp =
      ::cutlass::epilogue::thread::LinearCombination<float, (access < 4 ? access : 4), float, float,
                                                     ::cutlass::epilogue::thread::ScaleType::Nothing>;
};

/// Throws where a call of CUTLASS failed: `what` is the kind of kernel.
inline void require(::cutlass::Status status, const char* what) {
  if (status == ::cutlass::Status::kSuccess) return;
  const cudaError_t error = cudaGetLastError();
  const char* reason = error == cudaSuccess ? ::cutlass::cutlassGetStatusString(status) : cudaGetErrorString(error);
  throw std::runtime_error(std::string("could not launch a ") + what + ": " + reason);
}

/// Queues a kernel of tiles by their grid alone. Throws std::runtime_error.
template <typename Kernel, typename Swizzle>
void launch_kernel(const typename Kernel::Params& params, void* stream, const char* what) {
  constexpr int shared = static_cast<int>(sizeof(typename Kernel::SharedStorage)), threads = 32 * Kernel::WarpCount::kCount;
  cudaError_t error = cudaSuccess;
  if (shared >= 48 << 10)
    error = cudaFuncSetAttribute(::cutlass::Kernel<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  if (error == cudaSuccess) {
    const dim3 grid = Swizzle().get_grid_shape(params.grid_tiled_shape);
    ::cutlass::Kernel<Kernel><<<grid, threads, shared, static_cast<cudaStream_t>(stream)>>>(params);
    error = cudaGetLastError();
  }
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("could not launch a ") + what + ": " + cudaGetErrorString(error));
}

}  // namespace bolt::cutlass_kernels
