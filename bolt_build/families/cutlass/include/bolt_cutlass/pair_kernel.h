// Pairs of products on tensor-core instructions of one warp: mainloops of CUTLASS's example of two fused products, in a
// kernel that finishes as those of single products do, with fp32 biases, any function and a residual.
#pragma once

#include "bolt_cutlass/output_op.h"
#include "bolt_cutlass/whole_rows.h"
#include "cutlass/epilogue/threadblock/default_epilogue_simt.h"
#include "cutlass/epilogue/threadblock/default_epilogue_tensor_op.h"
#include "cutlass/gemm/threadblock/threadblock_swizzle.h"
// Behind the epilogues, which it needs and does not include.
#include "cutlass/epilogue/threadblock/default_epilogue_with_broadcast.h"

namespace bolt::cutlass_kernels {

/// between(sums + bias) rounded to `Half`, the sums of one instruction at a time, as the example's mainloops call it.
template <typename Between, typename Half>
class BetweenOp {
 public:
  static_assert(!Between::reads_residual, "a residual is read after the second product alone");
  using ElementOutput = Half;
  using ElementAccumulator = float;
  using ElementCompute = float;
  static int const kCount = 4;
  static ::cutlass::epilogue::thread::ScaleType::Kind const kScale =
      ::cutlass::epilogue::thread::ScaleType::OnlyAlphaScaling;

  using FragmentOutput = ::cutlass::Array<Half, kCount>;
  using FragmentAccumulator = ::cutlass::Array<float, kCount>;
  using FragmentCompute = ::cutlass::Array<float, kCount>;
  using FragmentScaleBias = ::cutlass::Array<float, kCount>;

  struct Params {
    Between between;
  };

  CUTLASS_HOST_DEVICE explicit BetweenOp(const Params& params) : between_(params.between) {}
  CUTLASS_HOST_DEVICE bool is_source_needed() const { return false; }

  CUTLASS_HOST_DEVICE FragmentOutput operator()(const FragmentAccumulator& sums, const FragmentScaleBias&,
                                                const FragmentScaleBias& bias) const {
    FragmentCompute y;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kCount; ++i) y[i] = between_(sums[i] + bias[i], 0.0f);
    return ::cutlass::NumericArrayConverter<Half, float, kCount>()(y);
  }

 private:
  Between between_;
};

/// A `Pair` in CUTLASS's terms.
template <typename P>
struct PairShapes;
template <int m, int n0, int n1, int k, int warp_m, int warp_n0, int warp_n1, int stages, bool shared, int access,
          int instruction_k, typename Element>
struct PairShapes<Pair<m, n0, n1, k, warp_m, warp_n0, warp_n1, stages, shared, access, instruction_k, Element>> {
  using Half = CutlassType<Element>;
  using Threadblock = ::cutlass::gemm::GemmShape<m, n0, k>;
  using SecondThreadblock = ::cutlass::gemm::GemmShape<m, n1, k>;
  using Warp = ::cutlass::gemm::GemmShape<warp_m, warp_n0, k>;
  using SecondWarp = ::cutlass::gemm::GemmShape<warp_m, warp_n1, k>;
  using Instruction = ::cutlass::gemm::GemmShape<16, 8, instruction_k>;
  using Arch = ::cutlass::platform::conditional_t<instruction_k == 8, ::cutlass::arch::Sm75, ::cutlass::arch::Sm80>;
  using Swizzle = ::cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<1>;
  static constexpr int kStages = stages;
  static constexpr bool kShared = shared;
  template <typename After>
  using Op = OutputOp<After, access, Half>;
  // Asked for by the example's definitions, whose own epilogue is not used.
  using UnusedOp = ::cutlass::epilogue::thread::LinearCombination<Half, access, float, float>;

  static_assert(m / warp_m * (n0 / warp_n0) == m / warp_m * (n1 / warp_n1), "both products take the same warps");
  static_assert(shared || (warp_n0 == n0 && warp_n1 == n1), "rows in registers are whole rows of a warp");
  static_assert(n0 % k == 0, "the second product's steps are whole");
  // CUTLASS 4.2's mainloops go wrong with wider warps of the second product; with three warps, results stay unwritten.
  static_assert(warp_n1 <= 64, "warps of the second product are at most 64 columns wide");
  static constexpr int kWarps = m / warp_m * (n0 / warp_n0);
  static_assert((kWarps & (kWarps - 1)) == 0, "warps are a power of two");
};

/// One block: m rows of both products. `Factors` says how the mainloop reads the factors.
template <typename Factors, typename S, typename After>
struct PairKernel {
  using Half = typename S::Half;
  using Mma = typename Factors::Mma;
  using First = typename Mma::OutputOp;
  using Last = typename S::template Op<After>;
  using WarpCount = typename Mma::WarpCount0;
  using Epilogue = typename ::cutlass::epilogue::threadblock::DefaultEpilogueWithBroadcastTensorOp<
      typename S::SecondThreadblock, typename Mma::Policy1::Operator, 1, Half, Half, float, Last,
      Last::kElementsPerAccess>::Epilogue;

  struct Params {
    Factors factors;
    ::cutlass::gemm::GemmCoord grid_tiled_shape;
    int rows, columns, second_columns;
    const float* bias;
    const float* second_bias;
    Half* residual;
    Half* y;
    typename Epilogue::OutputTileIterator::Params added, stored;
    typename First::Params first;
    typename Last::Params last;
  };
  union SharedStorage {
    typename Mma::B2bMmaSharedStorage main_loop;
    typename Epilogue::SharedStorage epilogue;
  };

  CUTLASS_DEVICE void operator()(const Params& params, SharedStorage& storage) {
    using Bias = typename Mma::IteratorAccumulatorScaleBias;
    const int thread = threadIdx.x, lane = threadIdx.x % 32;
    const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);  // the same for all lanes, and known to be
    const ::cutlass::MatrixCoord corner(typename S::Swizzle().get_tile_offset(0).m() * S::Threadblock::kM, 0);

    typename Mma::FragmentC0 none;
    typename Mma::FragmentC1 sums;
    none.clear();
    sums.clear();
    const Bias scale(nullptr, {1, 0}, thread, warp, {0, 0});
    const Bias bias(const_cast<float*>(params.bias), {1, params.bias == nullptr ? 0 : params.columns}, thread, warp,
                    {0, 0});
    params.factors.multiply(storage.main_loop, corner, thread, warp, lane, sums, scale, bias, none,
                            First(params.first));

    const ::cutlass::MatrixCoord extent(params.rows, params.second_columns);
    using Out = typename Epilogue::OutputTileIterator;
    typename Epilogue::TensorTileIterator nothing(params.added, nullptr, extent, thread, corner);
    Epilogue(storage.epilogue, thread, warp, lane)(
        Last(params.last), params.second_bias, Out(params.stored, params.y, extent, thread, corner), sums,
        Out(params.added, params.residual, extent, thread, corner), nothing, extent, corner);
  }
};

/// Queues the kernel of a pair of products of `rows` and `columns`. Throws std::runtime_error naming `what`.
template <typename Factors, typename S, typename Arguments, typename Between, typename After>
void launch_pair(const Factors& factors, const Arguments& a, int rows, int columns, const SecondArguments& second,
                 const Between& between, const After& after, void* stream, const char* what) {
  using Kernel = PairKernel<Factors, S, After>;
  require_whole_rows<S::Threadblock::kN, S::SecondThreadblock::kN>(columns, second.n);
  const ::cutlass::gemm::GemmCoord blocks((rows + S::Threadblock::kM - 1) / S::Threadblock::kM, 1, 1);
  const ::cutlass::layout::RowMajor added(a.residual_row == 0 ? second.n : a.residual_row),
      stored(a.y_row == 0 ? second.n : a.y_row);
  const typename Kernel::Params params{
      factors, blocks, rows, columns, second.n, a.bias, second.bias,
      tensor<typename S::Half>(a.residual), tensor<typename S::Half>(a.y), {added}, {stored}, {between}, {after}};
  launch_kernel<Kernel, typename S::Swizzle>(params, stream, what);
}

}  // namespace bolt::cutlass_kernels
