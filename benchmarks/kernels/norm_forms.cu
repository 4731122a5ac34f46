// How fast normalisations are in every form that candidates have: images channels last in slabs and in passes, rows by the
// plain kernel and in turns. Times in microseconds, and the largest error beside sums in double.
//
//     nvcc -O3 -std=c++17 --expt-relaxed-constexpr --extended-lambda -gencode arch=compute_90a,code=sm_90a \
//       -Ibolt_build/families/portable/include -Ibolt_build/runtime/include benchmarks/kernels/norm_forms.cu -o norm_forms
//     ./norm_forms > norm_forms.json
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "bolt_portable/norm.h"

using namespace bolt::portable;

namespace {

struct Case {
  const char* name;
  Index images, channels, positions, group;
};
constexpr Case cases[] = {
    {"instance_56", 256, 64, 56 * 56, 1}, {"instance_128", 32, 128, 128 * 128, 1}, {"instance_64", 32, 256, 64 * 64, 1},
    {"group_64", 32, 320, 64 * 64, 10},   {"group_32", 32, 640, 32 * 32, 20},      {"group_16", 32, 1280, 16 * 16, 40},
};

struct RowCase {
  const char* name;
  Index rows, columns;
};
constexpr RowCase row_cases[] = {{"rms_4096", 32 * 512, 4096}, {"layer_16384", 32 * 64, 16384}, {"layer_768", 32 * 197, 768}};

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

// Device memory that goes when it does.
struct Memory {
  explicit Memory(Index bytes) { check(cudaMalloc(&at, static_cast<std::size_t>(bytes))); }
  ~Memory() { cudaFree(at); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  template <typename T>
  T* as() const { return static_cast<T*>(at); }
  void* at = nullptr;
};

class Bench {
 public:
  explicit Bench(int repeats) : repeats(repeats), counters_(static_cast<Index>(bolt::counter_bytes)) {
    check(cudaStreamCreate(&stream_));
    check(cudaEventCreate(&begin_));
    check(cudaEventCreate(&stop_));
    check(cudaMemset(counters_.at, 0, bolt::counter_bytes));
    r.stream = stream_;
    r.counters = counters_.as<std::uint32_t>();
  }

  // `errs` compares what lies on the device with what should.
  void report(const std::string& name, const std::string& how, Index bytes, void* out, const std::function<void()>& run,
              const std::function<double()>& errs) {
    check(cudaMemsetAsync(out, 0xff, static_cast<std::size_t>(bytes), stream_));
    try {
      run();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s %s: %s\n", name.c_str(), how.c_str(), error.what());
      return;
    }
    check(cudaStreamSynchronize(stream_));
    const double error = errs();
    float best = 1e9f;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      check(cudaEventRecord(begin_, stream_));
      for (int i = 0; i < launches; ++i) run();
      check(cudaEventRecord(stop_, stream_));
      check(cudaEventSynchronize(stop_));
      float taken;
      check(cudaEventElapsedTime(&taken, begin_, stop_));
      best = std::fmin(best, taken / launches);
    }
    std::printf("%s\n {\"case\": \"%s\", %s, \"us\": %.2f, \"terabytes_per_second\": %.3f, \"error\": %.5f}", comma_ ? "," : "",
                name.c_str(), how.c_str(), 1e3 * best, 2e-9 * static_cast<double>(bytes) / best, error);
    std::fflush(stdout);
    comma_ = true;
  }

  bolt::Run r{};
  const int repeats;

 private:
  static constexpr int launches = 10;
  Memory counters_;
  cudaStream_t stream_;
  cudaEvent_t begin_, stop_;
  bool comma_ = false;
};

std::string said(const char* form, const std::vector<std::pair<const char*, Index>>& settings) {
  std::string text = std::string("\"form\": \"") + form + "\"";
  for (const auto& [name, value] : settings) text += std::string(", \"") + name + "\": " + std::to_string(value);
  return text;
}

std::vector<f16> drawn(Index elements) {
  std::vector<f16> x(static_cast<std::size_t>(elements));
  std::uint32_t state = 1;
  for (auto& value : x) {
    state = state * 1664525u + 1013904223u;
    store(&value, static_cast<float>(state >> 8) / (1 << 24) * 2.0f + 3.0f);
  }
  return x;
}

struct Vectors {
  explicit Vectors(Index count) : scale(4 * count), bias(4 * count) {
    const std::vector<float> ones(static_cast<std::size_t>(count), 1.0f);  // read all the same
    check(cudaMemcpy(scale.at, ones.data(), ones.size() * 4, cudaMemcpyHostToDevice));
    check(cudaMemset(bias.at, 0, ones.size() * 4));
  }
  Memory scale, bias;
};

void images(const Case& c, Bench& bench) {
  const Index elements = c.images * c.channels * c.positions, bytes = elements * 2;
  const std::vector<f16> x = drawn(elements);
  std::vector<f16> y(x.size());
  const Memory in(bytes), out(bytes), scratch(64 << 20);
  check(cudaMemcpy(in.at, x.data(), x.size() * 2, cudaMemcpyHostToDevice));
  bench.r.scratch_base = scratch.as<std::byte>();
  const Vectors vectors(c.channels);
  const NormEnd<float, float, decltype(chain())> end{vectors.scale.as<float>(), vectors.bias.as<float>(), chain()};
  Norm p{};
  p.kept_rank = p.reduced_rank = 1;
  p.kept[0] = {c.images, c.positions * c.channels, 0, 0, 0};
  p.reduced[0] = {c.positions, c.channels, 0, 0, 0};
  p.epsilon = 1e-5f;
  const auto errs = [&] {
    check(cudaMemcpy(y.data(), out.at, y.size() * 2, cudaMemcpyDeviceToHost));
    double error = error_of(c, x, y, 0, 0);
    error = std::fmax(error, error_of(c, x, y, c.images - 1, c.channels / c.group - 1));
    return std::fmax(error, error_of(c, x, y, c.images / 2, c.channels / c.group / 2));
  };
  const f16* from = in.as<f16>();
  f16* to = out.as<f16>();
  const NormLoop channels{c.channels, 1, 1, 1, 0};
  for (Index across = 1; across <= c.channels / wide && across <= 40; ++across) {
    if (c.channels / wide % across != 0 || across * wide % c.group != 0) continue;
    if (across < 4 && c.channels / wide % 4 == 0 && c.group == 1 && bench.repeats > 0) continue;  // less than 64 bytes
    for (Index cluster = 1; cluster <= 8; cluster *= 2)
      for (Index threads : {128, 256, 512}) {
        if (threads < across || (bench.repeats == 0 && threads == 256)) continue;
        const Index share = (c.positions + cluster - 1) / cluster;
        NormSlab s{across, cluster, share, share, c.group, threads, channels};
        const auto how = [&] {
          return said("slabs", {{"across", across}, {"cluster", cluster}, {"threads", threads}, {"chunk", s.chunk}});
        };
        if (slab_bytes(s, 2) <= 227 << 10 || bench.repeats == 0) {
          if (bench.repeats == 0) s.chunk = (share + 2) / 3;
          bench.report(c.name, how(), bytes, to,
                       [&] { norm_slabs<true, NormOperands::fixed, NormVariance>(bench.r, p, s, from, to, end); }, errs);
        }
      }
  }
  for (Index threads : {128, 256}) {
    Index across = c.channels / wide;
    while (across > threads || c.channels / wide % across != 0 || across * wide % c.group != 0) --across;
    const Index slab = c.positions * across * wide * 2, items = c.images * c.channels / (across * wide);
    for (Index part : {16, 32, 64, 128})
      for (Index megabytes : {4, 8, 12, 16, 24}) {
        const Index rows = std::max<Index>(1, (part << 10) / (across * wide * 2));
        const Index ahead = std::min(items, (megabytes << 20) / slab + 1);
        const NormPasses s{across, std::min(rows, c.positions), c.group, threads, ahead, channels};
        bench.report(
            c.name, said("passes", {{"across", across}, {"share", s.share}, {"threads", threads}, {"ahead", ahead}}), bytes, to,
            [&] { norm_passes<NormOperands::fixed, NormVariance>(bench.r, p, s, from, to, end); }, errs);
      }
  }
}

template <typename Statistic, int columns, typename Bias>
class Rows {
 public:
  Rows(const RowCase& c, Bench& bench)
      : c_(c), bench_(bench), x_(drawn(c.rows * columns)), y_(x_.size()), in_(2 * c.rows * columns),
        out_(2 * c.rows * columns), vectors_(columns) {
    check(cudaMemcpy(in_.at, x_.data(), x_.size() * 2, cudaMemcpyHostToDevice));
    p_.kept_rank = p_.reduced_rank = 1;
    p_.kept[0] = {c.rows, columns, 0, 0, 0};
    p_.reduced[0] = {columns, 1, 1, 1, 0};
    p_.epsilon = 1e-5f;
  }

  template <int loads, int threads>
  void plain() {
    report(said("direct", {{"threads", threads}}), [&] {
      norm<loads, threads, 1, true, Statistic, f16, float, Bias, f16>(bench_.r, p_, in_.at, vectors_.scale.at, bias(), out_.at,
                                                                      chain());
    });
  }

  template <int threads, NormKeeps keeps>
  void turns() {
    constexpr int loads = (columns + threads * wide - 1) / (threads * wide);
    for (Index resident : {1, 2, 3, 4, 6, 8}) {
      if (resident * turn_threads(threads, keeps) > 2048 || resident * (keeps == NormKeeps::shared ? 8 * columns : 0) > 220 << 10)
        break;
      report(said("turns", {{"threads", threads}, {"keeps", static_cast<int>(keeps)}, {"blocks", 132 * resident}}), [&] {
        norm_in_turns<loads, threads, keeps, true, Statistic, f16, float, Bias, f16>(
            bench_.r, p_, 132 * resident, in_.at, vectors_.scale.at, bias(), out_.at, chain());
      });
    }
  }

 private:
  const void* bias() const { return std::is_same_v<Bias, float> ? vectors_.bias.at : nullptr; }

  void report(const std::string& how, const std::function<void()>& run) {
    bench_.report(c_.name, how, 2 * c_.rows * columns, out_.at, run, [&] {
      check(cudaMemcpy(y_.data(), out_.at, y_.size() * 2, cudaMemcpyDeviceToHost));
      double most = 0;
      for (const Index row : {Index{0}, c_.rows / 2, c_.rows - 1}) most = std::fmax(most, error(row));
      return most;
    });
  }

  double error(Index row) const {
    const f16 *x = x_.data() + row * columns, *y = y_.data() + row * columns;
    double mean = 0, squares = 0, most = 0;
    for (int k = 0; Statistic::centred && k < columns; ++k) mean += load(&x[k]) / columns;
    for (int k = 0; k < columns; ++k) squares += (load(&x[k]) - mean) * (load(&x[k]) - mean);
    const double factor = 1 / std::sqrt(squares / columns + 1e-5);
    for (int k = 0; k < columns; ++k) most = std::fmax(most, std::fabs((load(&x[k]) - mean) * factor - load(&y[k])));
    return most;
  }

  RowCase c_;
  Bench& bench_;
  std::vector<f16> x_, y_;
  Memory in_, out_;
  Vectors vectors_;
  Norm p_{};
};

void rows(const RowCase (&cases)[3], Bench& bench) {
  {
    Rows<NormMeanSquare, 4096, Zeros> of(cases[0], bench);
    of.plain<2, 256>();
    of.turns<64, NormKeeps::registers>();
    of.turns<128, NormKeeps::registers>();
    of.turns<128, NormKeeps::shared>();
    of.turns<256, NormKeeps::registers>();
    of.turns<256, NormKeeps::shared>();
    of.turns<512, NormKeeps::registers>();
    of.turns<128, NormKeeps::cache>();
    of.turns<256, NormKeeps::cache>();
  }
  {
    Rows<NormVariance, 16384, float> of(cases[1], bench);
    of.turns<256, NormKeeps::registers>();
    of.turns<512, NormKeeps::registers>();
    of.turns<512, NormKeeps::shared>();
    of.turns<1024, NormKeeps::shared>();
    of.turns<256, NormKeeps::cache>();
    of.turns<512, NormKeeps::cache>();
    of.turns<1024, NormKeeps::cache>();
  }
  Rows<NormVariance, 768, float> of(cases[2], bench);
  of.plain<3, 32>();
  of.turns<16, NormKeeps::registers>();
  of.turns<32, NormKeeps::registers>();
  of.turns<32, NormKeeps::shared>();
}

}  // namespace

// Few rows and small images where an argument is given: to find out whether kernels are right.
int main(int count, char**) {
  Bench bench(count > 1 ? 0 : 3);
  std::printf("[");
  RowCase few[3];
  for (int i = 0; i < 3; ++i) few[i] = {row_cases[i].name, count > 1 ? 45 : row_cases[i].rows, row_cases[i].columns};
  rows(few, bench);
  for (Case c : cases) {
    if (count > 1) c = {c.name, 2, c.group == 1 ? 64 : 8 * c.group, c.positions == 56 * 56 ? 63 : 17, c.group};
    images(c, bench);
  }
  std::printf("\n]\n");
}
