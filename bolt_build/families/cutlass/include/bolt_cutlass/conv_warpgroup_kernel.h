// launch_conv on warpgroup instructions. CUTLASS has a collective that loads windows through the tensor copy engine, but
// runs it only in a kernel that keeps no block for a second tile; here it runs in the persistent kernels of products.
#pragma once

#include "bolt_cutlass/warpgroup.h"
#include "cutlass/conv/collective/detail.hpp"
#include "cutlass/conv/convnd_problem_shape.hpp"
#include "cutlass/conv/convolution.h"
#include "cutlass/conv/dispatch_policy.hpp"

namespace cutlass::conv::collective {
// What collective_conv.hpp declares before it includes the collectives of all architectures.
template <class Policy, class Tile, class X, class Weights, class Mma, class TraitsX, class TraitsWeights>
struct CollectiveConv;
}  // namespace cutlass::conv::collective

// Behind the declaration, which it needs and does not include.
#include "cutlass/conv/collective/sm90_implicit_gemm_gmma_ss_warpspecialized.hpp"

namespace bolt::cutlass_kernels {

using ConvShape = ::cutlass::conv::ConvProblemShape<::cutlass::conv::Operator::kFprop, 2>;

/// How one of the two tensors comes to shared memory, as the collective asks for it.
template <typename Copy, typename Layout>
struct Loaded {
  using GmemTiledCopy = Copy;
  using SmemLayout = Layout;
};

template <typename W, int m, int n, int k, int cluster_n>
using WindowsOf = ::cutlass::conv::collective::CollectiveConv<
    ::cutlass::conv::MainloopSm90TmaGmmaWarpSpecializedImplicitGemm<::cutlass::conv::Operator::kFprop, W::depth, 2,
                                                                    typename W::Cluster, typename W::Schedule>,
    cute::Shape<cute::Int<m>, cute::Int<n>, cute::Shape<cute::Int<k>>>, Half, Half, typename W::Mma,
    Loaded<std::conditional_t<cluster_n == 1, cute::SM90_TMA_LOAD_IM2COL, cute::SM90_TMA_LOAD_IM2COL_MULTICAST>,
           decltype(cute::tile_to_shape(
               typename W::AtomX{},
               cute::make_shape(cute::Int<m>{}, cute::Shape<cute::Int<k>>{}, cute::Int<W::depth>{}),
               cute::Step<cute::_2, cute::_1, cute::_3>{}))>,
    Loaded<typename W::LoadWeights,
           decltype(cute::tile_to_shape(
               typename W::AtomWeights{},
               cute::make_shape(cute::Int<n>{}, cute::Shape<cute::Int<k>>{}, cute::Int<W::depth>{}),
               cute::Step<cute::_2, cute::_1, cute::_3>{}))>>;

/// The collective that loads windows, as a persistent kernel of matrix products calls its mainloop: to the kernel the
/// depth is a plain number, and slices of it are products of a batch.
template <typename W, int m, int n, int k, int cluster_n>
struct WindowedMainloop : WindowsOf<W, m, n, k, cluster_n> {
  using Windows = WindowsOf<W, m, n, k, cluster_n>;
  using TileShape = typename W::BlockTile;
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
  struct Params : Windows::Params {
    int channels, taps_w, taps_h;
  };

  template <typename Problem>
  static Params to_underlying_arguments(const Problem&, const Arguments& a, void* workspace) {
    // Extents of the weights: K, R, S, C.
    return {Windows::to_underlying_arguments(a.shape, typename Windows::Arguments{a.x, a.weights}, workspace),
            a.shape.shape_B[3], a.shape.shape_B[2], a.shape.shape_B[1]};
  }
  /// The kernel looks at the shapes of the first two tensors: tiles of rows or columns, steps of a slice, slices.
  template <typename Problem>
  CUTLASS_DEVICE auto load_init(const Problem& problem, const Params& params) {
    const int rows = cute::get<0>(problem), columns = cute::get<1>(problem);
    const int steps = cute::get<2>(problem) / k, slices = cute::get<3>(problem);
    const auto depth = cute::make_shape(params.channels, params.taps_w, params.taps_h);
    auto [x, weights] = Windows::load_init(cute::make_shape(rows, columns, depth, cute::_1{}), params);
    const auto shown = [&](int tiles) {
      return cute::make_tensor(cute::make_gmem_ptr(static_cast<Half*>(nullptr)),
                               cute::make_layout(cute::make_shape(cute::_1{}, cute::_1{}, tiles, steps, slices)));
    };
    return cute::make_tuple(shown((rows + m - 1) / m), shown((columns + n - 1) / n), x, weights);
  }
  template <typename Tensors, typename Steps, typename Block>
  CUTLASS_DEVICE void load(const Params& params, typename Windows::MainloopPipeline pipeline,
                           typename Windows::PipelineState state, const Tensors& tensors, const Block& block, Steps,
                           int count, int thread, std::uint32_t rank, typename Windows::TensorStorage& storage) {
    const auto& x = cute::get<2>(tensors);
    const auto all = cute::shape<3>(x);
    const auto first = cute::idx2crd(static_cast<int>(cute::get<3>(block)) * count, all);
    Windows::load(params, pipeline, state, cute::make_tuple(x, cute::get<3>(tensors)), block,
                  cute::make_coord_iterator(first, all), count, thread, rank, storage);
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

template <int m, int n, int k, bool cooperative, int cluster_m, int cluster_n, typename Stages>
void launch_conv(WarpgroupTile<m, n, k, cooperative, cluster_m, cluster_n>, const ConvArguments& a,
                 const Stages& stages, void* stream) {
  using W = Warpgroups<m, n, k, cooperative, cluster_m, cluster_n, Stages>;
  using Mainloop = WindowedMainloop<W, m, n, k, cluster_n>;
  using Kernel = ::cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, typename W::Store,
                                                        ::cutlass::gemm::PersistentScheduler>;
  const ConvShape shape = conv_shape(a);
  if (shape.shape_C[1] != a.out_h || shape.shape_C[2] != a.out_w)
    throw std::runtime_error("could not launch a convolution: its windows do not make up its output");
  if (!Mainloop::Windows::can_implement(shape, {}))
    throw std::runtime_error("could not launch a convolution: the tensor copy engine does not reach its windows");
  const int steps = (a.channels + k - 1) / k * a.kernel_w * a.kernel_h;
  if (steps % a.slices != 0)
    throw std::runtime_error("could not launch a convolution: slices of its depth would not be alike");
  typename Kernel::Arguments arguments{
      ::cutlass::gemm::GemmUniversalMode::kGemm,
      {a.batch * a.out_h * a.out_w, a.out_channels, steps / a.slices * k, a.slices},
      {static_cast<const Half*>(a.x), static_cast<const Half*>(a.weights), shape},
      W::Finish::arguments(a, stages), hardware(), order<Kernel>(a)};
  launch<Kernel>(arguments, a.overlap, stream, "convolution");
}

}  // namespace bolt::cutlass_kernels
