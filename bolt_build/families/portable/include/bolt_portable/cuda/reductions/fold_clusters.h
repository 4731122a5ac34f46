// Reductions over the pixels of images whose blocks are a cluster each (fold_pixels.h).
#pragma once

#include "bolt_portable/cuda/reductions/fold_pixels.h"

namespace bolt::portable {

/// As fold_pixels, by `cluster` blocks an image, which read each other's totals: no block waits for memory once more, and nobody
/// keeps counters.
template <int threads, int columns, int cluster, typename Fold, typename Results>
void fold_clusters(const Run& r, const Reduce& p, Index, const void* input, const Results& put) {
  using Pixels = FoldPixels<threads, columns, Fold, Results, cluster>;
  const Index elements = fold_elements(p), length = p.reduced[0] * columns;
  if (elements == 0) return;
  const Index images = elements / length;
  Launch how{.blocks = counted(images * cluster, "reduction"), .threads = threads};
  how.overlap = r.overlap;
  how.cluster = cluster;
  how.stream = r.stream;
  const SharedResults<typename Fold::Total> none{1, nullptr, nullptr};
  queue("reduction", how, blocks_kernel<threads, Pixels::resident, Pixels>,
        pixels_of<Pixels, Fold>(r, p, cluster, images, length, input, put, none));
}

}  // namespace bolt::portable
