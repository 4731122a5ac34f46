// launch_conv on WGMMA, with bands of the images that all taps share.
#pragma once

#include "bolt_cutlass/warpgroups/band_kernel.h"

namespace bolt::cutlass_kernels {

/// `volumes` and `padded` as BandLoads has them; `Rows`, made of what is `given` too, says where results lie.
template <bool volumes, bool padded, typename Rows = std::conditional_t<padded, GroupBandRows, BandRows>, int m, int n, int k,
          bool cooperative, int teams, int cluster_m, int rows, int bands, int last, int kernel_h, int kernel_w, int stride,
          int width, int together, typename Element, typename Stages, typename... Given>
void launch_bands(BandTile<m, n, k, cooperative, teams, cluster_m, rows, bands, last, kernel_h, kernel_w, stride, width,
                          together, Element>,
                 const ConvArguments& a, const Stages& stages, void* stream, const Given&... given) {
  using Window = BandWindow<kernel_h, kernel_w, stride>;
  using Products = BandProducts<m, n, k, cooperative, rows, bands, last, Window, width, together, Element>;
  constexpr int taken = bands * Products::band_bytes, stage = Products::stage_bytes;
  using Store = TileStore<m, n, cooperative, Stages, stage, taken, teams, Element, Rows>;
  constexpr int room = shared_bytes - taken - static_cast<int>(sizeof(typename Store::TensorStorage)) - 2048;
  constexpr int ahead = room / (stage + 16) < 16 ? room / (stage + 16) : 16;
  using Loads = BandLoads<rows, n, k, width, cluster_m, volumes, padded>;
  using Kernel = BandKernel<Loads, Products, Store, Window, m, n, k, cooperative, cluster_m, bands, ahead, together, teams>;
  // Of a tile's outputs.
  const int own = a.channels / a.groups, of_group = a.out_channels / a.groups;
  const int channels = !padded && a.groups > 1 && n > of_group ? n / of_group * own : own;
  const int reach_w = reach(a.kernel_w, a.dilation_w), reach_h = reach(a.kernel_h, a.dilation_h);
  const BandShape shape{BandShape::pitch(a.width, a.out_w, a.pad_w, reach_w, stride),
                        BandShape::pitch(a.height, a.out_h, a.pad_h, reach_h, stride)};
  const BandTaps taps{a.dilation_w, a.dilation_h * shape.pitch_w, (channels + k - 1) / k};
  const int halo = reach_h / stride * shape.pitch_w + reach_w / stride;
  const bool others = a.stride_h != stride || a.stride_w != stride || a.kernel_h != kernel_h || a.kernel_w != kernel_w ||
                      (stride > 1 && (a.dilation_h > 1 || a.dilation_w > 1));
  if (others || m + halo > rows || (channels - 1) % k / 16 + 1 != last ||
      (!padded && a.groups > 1 && n % of_group != 0 && of_group % n != 0))
    throw std::runtime_error("could not launch a convolution: its windows are no bands of such positions and channels");
  // Behind the last output of the last image there is nothing to compute.
  const int positions = a.batch * shape.positions() - (shape.pitch_h - a.out_h) * shape.pitch_w - (shape.pitch_w - a.out_w);
  const auto groups = Loads::columns(a);
  int columns = a.out_channels;
  if constexpr (padded) columns = groups.all();
  launch<Kernel>({Loads::params(a, shape, width < k ? width : channels),
                  {a.bias, a.residual, a.y, stages, a.y_row, a.residual_row, Rows(shape, a, groups, given...)},
                  taps, positions, columns, a.swizzle, a.along},
                 a.overlap, stream, "convolution");
}

template <int m, int n, int k, bool cooperative, int teams, int cluster_m, int rows, int bands, int last, int kernel_h,
          int kernel_w, int stride, int width, int together, typename Element, typename Stages>
void launch_conv(BandTile<m, n, k, cooperative, teams, cluster_m, rows, bands, last, kernel_h, kernel_w, stride, width,
                          together, Element> tile,
                 const ConvArguments& a, const Stages& stages, void* stream) {
  launch_bands<false, false>(tile, a, stages, stream);
}

}  // namespace bolt::cutlass_kernels
