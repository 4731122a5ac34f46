// launch_conv on warpgroup instructions. CUTLASS has a collective that loads windows through the tensor copy engine, but
// runs it only in a kernel that keeps no block for a second tile; here it runs in the persistent kernels of products.
#pragma once

#include "bolt_cutlass/warpgroup.h"
#include "cutlass/conv/collective/collective_builder.hpp"
#include "cutlass/conv/convnd_problem_shape.hpp"
#include "cutlass/conv/convolution.h"
#include "cutlass/conv/dispatch_policy.hpp"
#include "cutlass/conv/kernel/conv_universal.hpp"
// Behind the kernels, which it needs and does not include.
#include "cutlass/conv/device/conv_universal_adapter.hpp"

namespace bolt::cutlass_kernels {

using ConvShape = ::cutlass::conv::ConvProblemShape<::cutlass::conv::Operator::kFprop, 2>;

/// The collective that loads windows, as a persistent kernel of matrix products calls its mainloop.
template <typename Windows>
struct WindowedMainloop : Windows {
  // Looked at only for their ranks.
  using StrideA = cute::Stride<std::int64_t, cute::_1, std::int64_t>;
  using StrideB = cute::Stride<std::int64_t, cute::_1, std::int64_t>;
  static constexpr int NumProducerThreadEvents = 1;
  // Tiles swizzled over 128 bytes lie on multiples of 1024; the collective asks for 128 alone.
  struct alignas(1024) TensorStorage : Windows::TensorStorage {};
  struct Arguments {
    const Half* x = nullptr;
    const Half* weights = nullptr;
    ConvShape shape{};
  };
  using Params = typename Windows::Params;

  template <typename Problem>
  static Params to_underlying_arguments(const Problem&, const Arguments& a, void* workspace) {
    return Windows::to_underlying_arguments(a.shape, typename Windows::Arguments{a.x, a.weights}, workspace);
  }
  template <typename Problem>
  static bool can_implement(const Problem&, const Arguments& a) {
    return Windows::can_implement(a.shape, typename Windows::Arguments{a.x, a.weights});
  }
  /// The kernel looks at the shapes of the first two tensors, which must have an axis of batches.
  template <typename Problem>
  CUTLASS_DEVICE auto load_init(const Problem& problem, const Params& params) {
    auto [x, weights] = Windows::load_init(problem, params);
    const auto batched = [](const auto& tensor) {
      return cute::make_tensor(cute::make_gmem_ptr(static_cast<Half*>(nullptr)),
                               cute::make_layout(cute::append(cute::shape(tensor), cute::_1{})));
    };
    return cute::make_tuple(batched(x), batched(weights), x, weights);
  }
  template <typename Loaded, typename Steps, typename Block>
  CUTLASS_DEVICE void load(const Params& params, typename Windows::MainloopPipeline pipeline,
                           typename Windows::PipelineState state, const Loaded& loaded, const Block& block, Steps steps,
                           int count, int thread, std::uint32_t rank, typename Windows::TensorStorage& storage) {
    Windows::load(params, pipeline, state, cute::make_tuple(cute::get<2>(loaded), cute::get<3>(loaded)), block, steps,
                  count, thread, rank, storage);
  }
};

inline ConvShape conv_shape(const ConvArguments& a) {
  // Padding behind the image, as far as windows reach.
  const int below = (a.out_h - 1) * a.stride_h + (a.kernel_h - 1) * a.dilation_h + 1 - a.height - a.pad_h;
  const int right = (a.out_w - 1) * a.stride_w + (a.kernel_w - 1) * a.dilation_w + 1 - a.width - a.pad_w;
  const std::int64_t tap = a.channels, row = tap * a.kernel_w, filter = row * a.kernel_h;
  return ConvShape(::cutlass::conv::Mode::kCrossCorrelation, {a.batch, a.height, a.width, a.channels},
                   {a.x_image, a.x_row, a.x_column, std::int64_t{1}},
                   {a.out_channels, a.kernel_h, a.kernel_w, a.channels}, {filter, row, tap, std::int64_t{1}},
                   {a.pad_h, a.pad_w}, {below > 0 ? below : 0, right > 0 ? right : 0}, {a.stride_h, a.stride_w},
                   {a.dilation_h, a.dilation_w}, 1);
}

template <int m, int n, int k, bool cooperative, typename Stages>
void launch_conv(WarpgroupTile<m, n, k, cooperative>, const ConvArguments& a, const Stages& stages, void* stream) {
  namespace conv = ::cutlass::conv;
  using namespace cute;
  using W = Warpgroups<m, n, k, cooperative, Stages>;
  using Store = typename W::Store;
  using WindowTile = Shape<Int<m>, Int<n>, Shape<Int<k>>>;
  using Mma = decltype(make_tiled_mma(
      GMMA::ss_op_selector<Half, Half, float, WindowTile, GMMA::Major::K, GMMA::Major::K>(),
      Layout<Shape<Int<cooperative ? 2 : 1>, _1, _1>>{}));
  using LoadX = decltype(conv::collective::detail::sm90_cluster_shape_to_im2col_tma_atom(_1{}));
  using LoadWeights = decltype(::cutlass::gemm::collective::detail::sm90_cluster_shape_to_tma_atom(_1{}));
  using AtomX = decltype(::cutlass::gemm::collective::detail::ss_smem_selector<GMMA::Major::K, Half, Int<m>, Int<k>>());
  using AtomWeights =
      decltype(::cutlass::gemm::collective::detail::ss_smem_selector<GMMA::Major::K, Half, Int<n>, Int<k>>());
  // What 227 KiB leave beside the output's tile and the barriers.
  constexpr int depth = (227 * 1024 - static_cast<int>(sizeof(typename Store::SharedStorage)) - 3072) /
                        ((m + n) * k * 2 + 16);
  using LayoutX =
      decltype(tile_to_shape(AtomX{}, make_shape(Int<m>{}, Shape<Int<k>>{}, Int<depth>{}), Step<_2, _1, _3>{}));
  using LayoutWeights =
      decltype(tile_to_shape(AtomWeights{}, make_shape(Int<n>{}, Shape<Int<k>>{}, Int<depth>{}), Step<_2, _1, _3>{}));
  using Policy = conv::MainloopSm90TmaGmmaWarpSpecializedImplicitGemm<conv::Operator::kFprop, depth, 2,
                                                                     typename W::Cluster, typename W::Sch::Mainloop>;
  using Windows = conv::collective::CollectiveConv<
      Policy, WindowTile, Half, Half, Mma, conv::collective::detail::Sm90ImplicitGemmTileTraits<LoadX, LayoutX>,
      conv::collective::detail::Sm90ImplicitGemmTileTraits<LoadWeights, LayoutWeights>>;
  using Problem = Shape<int, int, Shape<int, int, int>, int>;
  using Kernel = ::cutlass::gemm::kernel::GemmUniversal<Problem, WindowedMainloop<Windows>, Store,
                                                        ::cutlass::gemm::PersistentScheduler>;
  using Device = conv::device::ConvUniversalAdapter<Kernel>;

  const ConvShape shape = conv_shape(a);
  if (shape.shape_C[1] != a.out_h || shape.shape_C[2] != a.out_w)
    throw std::runtime_error("could not launch a convolution: its windows do not make up its output");
  const std::int64_t columns = a.out_channels, none = 0;
  typename Device::Arguments arguments{
      ::cutlass::gemm::GemmUniversalMode::kGemm,
      Problem{a.batch * a.out_h * a.out_w, a.out_channels, {a.channels, a.kernel_w, a.kernel_h}, 1},
      {static_cast<const Half*>(a.x), static_cast<const Half*>(a.weights), shape},
      {W::Visit::arguments(a.bias, stages),
       static_cast<const Half*>(Stages::reads_residual ? a.residual : nullptr),
       {columns, _1{}, none},
       static_cast<Half*>(a.y),
       {columns, _1{}, none}}};
  arguments.hw_info = hardware();
  require_success(Device::can_implement(arguments), "convolution");
  Device device;
  require_success(device.initialize(arguments, nullptr, static_cast<cudaStream_t>(stream)), "convolution");
  require_success(device.run(static_cast<cudaStream_t>(stream)), "convolution");
}

}  // namespace bolt::cutlass_kernels
