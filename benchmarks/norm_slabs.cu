// How fast normalisations of images are, channels last, in slabs of every shape: times in microseconds, and the largest
// error beside sums in double.
//
//     nvcc -O3 -std=c++17 --expt-relaxed-constexpr --extended-lambda -gencode arch=compute_90a,code=sm_90a \
//       -Ibolt_build/families/portable/include -Ibolt_build/runtime/include benchmarks/norm_slabs.cu -o norm_slabs
//     ./norm_slabs > norm_slabs.json
#include <cstdio>
#include <cmath>
#include <vector>

#include "bolt_portable/norm.h"

using namespace bolt::portable;

namespace {

struct Case {
  const char* name;
  Index images, channels, positions, group;
};
constexpr Case cases[] = {
    {"instance_56", 256, 64, 56 * 56, 1},    {"instance_128", 32, 128, 128 * 128, 1},
    {"instance_64", 32, 256, 64 * 64, 1},    {"group_64", 16, 320, 64 * 64, 10},
    {"group_32", 32, 640, 32 * 32, 20},      {"group_16", 64, 1280, 16 * 16, 40},
    {"group_96", 8, 512, 96 * 96, 16},
};

void check(cudaError_t error) {
  if (error != cudaSuccess) {
    std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
    std::exit(1);
  }
}

// Of one image, one statistic: exact by sums in double.
double error_of(const Case& c, const std::vector<f16>& x, const std::vector<f16>& y, Index image, Index statistic) {
  const Index first = image * c.positions * c.channels + statistic * c.group;
  double sum = 0, squares = 0, most = 0;
  const double many = static_cast<double>(c.positions * c.group);
  const auto each = [&](const auto& body) {
    for (Index k = 0; k < c.positions; ++k)
      for (Index i = 0; i < c.group; ++i) body(first + k * c.channels + i);
  };
  each([&](Index at) { sum += load(&x[at]); });
  each([&](Index at) { squares += (load(&x[at]) - sum / many) * (load(&x[at]) - sum / many); });
  const double factor = 1 / std::sqrt(squares / many + 1e-5);
  each([&](Index at) { most = std::fmax(most, std::fabs((load(&x[at]) - sum / many) * factor - load(&y[at]))); });
  return most;
}

void measure(const Case& c, int repeats, bool& comma) {
  const Index elements = c.images * c.channels * c.positions, bytes = elements * 2;
  std::vector<f16> x(elements), y(elements);
  std::uint32_t state = 1;
  for (auto& value : x) {
    state = state * 1664525u + 1013904223u;
    const float drawn = static_cast<float>(state >> 8) / (1 << 24) * 2.0f + 3.0f;
    store(&value, drawn);
  }
  f16 *in, *out;
  check(cudaMalloc(&in, bytes));
  check(cudaMalloc(&out, bytes));
  check(cudaMemcpy(in, x.data(), bytes, cudaMemcpyHostToDevice));
  cudaStream_t stream;
  check(cudaStreamCreate(&stream));
  cudaEvent_t begin, stop;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&stop));
  bolt::Run r{};
  r.stream = stream;
  const auto report = [&](const auto& run, const NormSlab& s) {
    check(cudaMemsetAsync(out, 0xff, bytes, stream));
    try {
      run();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s across %d cluster %d: %s\n", c.name, int(s.across), int(s.cluster), error.what());
      return;
    }
    check(cudaStreamSynchronize(stream));
    check(cudaMemcpy(y.data(), out, bytes, cudaMemcpyDeviceToHost));
    double error = error_of(c, x, y, 0, 0);
    error = std::fmax(error, error_of(c, x, y, c.images - 1, c.channels / c.group - 1));
    error = std::fmax(error, error_of(c, x, y, c.images / 2, c.channels / c.group / 2));
    float best = 1e9f;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      check(cudaEventRecord(begin, stream));
      for (int i = 0; i < 20; ++i) run();
      check(cudaEventRecord(stop, stream));
      check(cudaEventSynchronize(stop));
      float taken;
      check(cudaEventElapsedTime(&taken, begin, stop));
      best = std::fmin(best, taken / 20);
    }
    std::printf("%s\n {\"case\": \"%s\", \"across\": %d, \"cluster\": %d, \"threads\": %d, \"shared\": %d, \"chunk\": %d, \"clusters\": %d, "
                "\"us\": %.2f, \"terabytes_per_second\": %.3f, \"error\": %.5f}",
                comma ? "," : "", c.name, int(s.across), int(s.cluster), int(s.threads),
                int(slab_bytes(s, 2)), int(s.chunk), int(s.clusters), 1e3 * best,
                2e-9 * bytes / best, error);
    comma = true;
  };
  // Scales are 1 and biases are 0, and are read all the same.
  const std::vector<float> ones(c.channels, 1.0f);
  float *scale, *bias;
  check(cudaMalloc(&scale, 4 * c.channels));
  check(cudaMalloc(&bias, 4 * c.channels));
  check(cudaMemcpy(scale, ones.data(), 4 * c.channels, cudaMemcpyHostToDevice));
  check(cudaMemset(bias, 0, 4 * c.channels));
  const NormEnd<float, float, decltype(chain())> end{scale, bias, chain()};
  Norm slabs{};
  slabs.kept_rank = slabs.reduced_rank = 1;
  slabs.kept[0] = {c.images, c.positions * c.channels, 0, 0, 0};
  slabs.reduced[0] = {c.positions, c.channels, 0, 0, 0};
  slabs.epsilon = 1e-5f;
  for (Index across = 1; across <= c.channels / wide && across <= 40; ++across) {
    if (c.channels / wide % across != 0 || across * wide % c.group != 0) continue;
    for (Index cluster = 1; cluster <= 8; cluster *= 2)
      for (Index threads : {128, 256, 512}) {
        if (threads < across || (repeats == 0 && threads == 256)) continue;
        const Index share = (c.positions + cluster - 1) / cluster;
        NormSlab s{across, cluster, share, share, c.group, threads, 0, {c.channels, 1, 1, 1, 0}};
        const Index items = c.images * c.channels / (across * wide);
        // As much as a block has room for; less, with two blocks a multiprocessor; two slabs, one after the other.
        Index chunk = 0;
        for (const Index most : {Index{227} << 10, Index{112} << 10}) {
          s.chunk = repeats == 0 && chunk > 0 ? (share + 2) / 3 : share;
          for (Index parts = 2; slab_bytes(s, 2) > most; ++parts) s.chunk = (share + parts - 1) / parts;
          if (s.chunk == chunk) break;
          chunk = s.chunk;
          report([&] { norm_slabs<false, NormOperands::fixed, NormVariance>(r, slabs, s, in, out, end); }, s);
        }
        s.chunk = share;
        for (const Index resident : {1, 2, 3, 4}) {
          s.clusters = repeats == 0 ? 3 : 132 * resident / cluster;
          if (slab_bytes(s, 2) + 1024 > (228 << 10) / resident || threads * resident > 640 || s.clusters >= items) break;
          report([&] { norm_slabs<true, NormOperands::fixed, NormVariance>(r, slabs, s, in, out, end); }, s);
          if (repeats == 0) break;
        }
      }
  }
  check(cudaFree(in));
  check(cudaFree(out));
  check(cudaFree(scale));
  check(cudaFree(bias));
}

}  // namespace

// Small images where an argument is given: to find out whether kernels are right.
int main(int count, char**) {
  bool comma = false;
  std::printf("[");
  for (Case c : cases) {
    if (count > 1) c = {c.name, 2, c.group == 1 ? 64 : 8 * c.group, c.positions == 56 * 56 ? 63 : 17, c.group};
    measure(c, count > 1 ? 0 : 5, comma);
    std::fflush(stdout);
  }
  std::printf("\n]\n");
}
