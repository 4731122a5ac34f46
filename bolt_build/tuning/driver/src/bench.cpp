#include "bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include "cuda_error.h"
#include "numbers.h"

namespace bolt_tuner {
namespace {

constexpr double kFirstWarmUp = 40e-3, kWarmUp = 2e-3;  // seconds: clocks rise when a GPU gets work
constexpr double kMostError = 1e9;                      // stands for infinity, which JSON lacks

// What a candidate says of itself where it does not do the problem.
class Refused : public std::runtime_error {
 public:
  Refused(bolt_tuning_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  bool no_memory() const { return status_ == BOLT_TUNING_NO_MEMORY; }

 private:
  bolt_tuning_status status_;
};

// Two results of one sum, rounded to the output's type once each, differ by a unit in the last place; activations are
// computed in ways that differ by some more, and the order of a sum matters as its depth's square root.
Tolerance tolerance_of(bolt_tuning_dtype dtype, double depth) {
  const double growth = 0x1p-18 * std::sqrt(depth);
  const double unit = dtype == BOLT_TUNING_F16 ? 0x1p-10 : dtype == BOLT_TUNING_BF16 ? 0x1p-7 : 0x1p-20;
  const bool whole = dtype != BOLT_TUNING_F16 && dtype != BOLT_TUNING_BF16 && dtype != BOLT_TUNING_F32 && dtype != BOLT_TUNING_F64;
  if (whole) return {0.5f, 0.0f};
  return {static_cast<float>(4 * unit + growth), static_cast<float>(4 * unit)};
}

}  // namespace

// One trial, prepared for every set, with its scratch memory, which is one for all: engines have one as well.
class Bench::Kernels {
 public:
  Kernels(Bench& bench, const bolt_tuning_trial& trial) : bench_(bench), trial_(trial) {}
  ~Kernels() {
    for (void* kernel : made_) bench_.set_.destroy(&trial_, kernel);
    if (scratch_ != nullptr) bench_.data_->watch().remove(*scratch_);
  }
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  void make(int sets) {
    char message[512] = "";
    while (static_cast<int>(made_.size()) < sets) {
      void* kernel = nullptr;
      std::uint64_t scratch = 0;
      const bolt_tuning_prepare& prepare = bench_.data_->prepare(static_cast<int>(made_.size()));
      const bolt_tuning_status status = bench_.set_.create(&trial_, &prepare, &kernel, &scratch, message, sizeof message);
      if (status != BOLT_TUNING_DONE) throw Refused(status, message);
      made_.push_back(kernel);
      if (scratch_ == nullptr) {
        scratch_ = std::make_unique<Guarded>("its scratch memory", scratch, 1, bench_.stream_);
        scratch_->poison(0, bench_.stream_);
        bench_.data_->watch().add(*scratch_, false);
      }
    }
  }

  void queue(int set, bool overlap) {
    bolt_tuning_run run = bench_.data_->run(set, scratch_->at(0));
    run.overlap = overlap ? 1 : 0;
    queue(set, run);
  }

  void queue(int set, const bolt_tuning_run& run) {
    char message[512] = "";
    const bolt_tuning_status status =
        bench_.set_.run(&trial_, made_[static_cast<std::size_t>(set)], &run, message, sizeof message);
    if (status != BOLT_TUNING_DONE) throw Refused(status, message);
  }

  void* scratch() const { return scratch_->at(0); }

 private:
  Bench& bench_;
  const bolt_tuning_trial& trial_;
  std::vector<void*> made_;
  std::unique_ptr<Guarded> scratch_;
};

Bench::Bench(const bolt_tuning_set& set, const bolt_tuning_problem& problem, std::uint64_t seed, bool overlap,
             const std::string& no_reference)
    : set_(set), problem_(problem), overlap_(overlap), no_reference_(no_reference) {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream failed");
  result_ = allocate<std::uint64_t>(1);
  std::uint64_t own = seed;
  for (const char* at = problem.digest; *at != '\0'; ++at) own = own * 1099511628211ull + static_cast<unsigned char>(*at);
  data_ = std::make_unique<ProblemData>(problem, own, stream_);
  if (no_reference_.empty() && problem.reference == nullptr) no_reference_ = problem.no_reference;
  if (no_reference_.empty()) make_reference();
  check(cudaStreamSynchronize(stream_), "the GPU reports");
}

Bench::~Bench() {
  reference_.clear();
  data_.reset();
  cudaFree(result_);
  cudaStreamDestroy(stream_);
}

void Bench::make_reference() {
  try {
    Kernels kernels(*this, *problem_.reference);
    kernels.make(1);
    poison();
    kernels.queue(0, false);
    for (int i = 0; i < problem_.output_count; ++i) {
      const Guarded& output = data_->output(i);
      reference_.push_back(std::make_unique<Guarded>("the reference", output.bytes(), 1, stream_));
      check(cudaMemcpyAsync(reference_.back()->at(0), output.at(0), output.bytes(), cudaMemcpyDeviceToDevice, stream_),
            "copying on the GPU failed");
    }
    check(cudaStreamSynchronize(stream_), "the reference");
  } catch (const Refused& refused) {
    reference_.clear();
    no_reference_ = std::string("the reference kernel refuses the problem: ") + refused.what();
  }
  const std::string where = data_->watch().changed();
  if (!where.empty()) throw std::runtime_error("the reference kernel " + where);
}

void Bench::poison() {
  for (int i = 0; i < problem_.output_count; ++i) data_->output(i).poison(0, stream_);
}

Departure Bench::departure(int output, const void* found) {
  const bolt_tuning_operand& operand = problem_.outputs[output];
  std::uint64_t packed = 0;
  check(cudaMemsetAsync(result_, 0, sizeof *result_, stream_), "clearing failed");
  compare(found, reference_[static_cast<std::size_t>(output)]->at(0), operand.dtype, elements_of(operand),
          tolerance_of(operand.dtype, problem_.depth), result_, stream_);
  check(cudaMemcpyAsync(&packed, result_, sizeof packed, cudaMemcpyDeviceToHost, stream_), "copying failed");
  check(cudaStreamSynchronize(stream_), "the GPU reports");
  return departure_of(packed);
}

std::string Bench::told(int output, const void* found, const Departure& worst) const {
  const bolt_tuning_operand& operand = problem_.outputs[output];
  const std::uint64_t width = operand.bytes / std::max<std::uint64_t>(elements_of(operand), 1);
  unsigned char a[8] = {}, b[8] = {};
  const auto at = worst.at * width;
  const void* wanted = reference_[static_cast<std::size_t>(output)]->at(0);
  check(cudaMemcpy(a, static_cast<const char*>(found) + at, width, cudaMemcpyDeviceToHost), "copying failed");
  check(cudaMemcpy(b, static_cast<const char*>(wanted) + at, width, cudaMemcpyDeviceToHost), "copying failed");
  char text[160];
  std::snprintf(text, sizeof text, "element %u in memory's order is %.6g, the reference has %.6g", worst.at,
                number_of(a, operand.dtype), number_of(b, operand.dtype));
  return text;
}

bool Bench::right(int set, Outcome& outcome) {
  if (reference_.empty()) return true;
  for (int i = 0; i < problem_.output_count; ++i) {
    const void* found = data_->output(i).at(set);
    const Departure worst = departure(i, found);
    const double error = std::min(static_cast<double>(worst.error), kMostError);
    outcome.error = std::max(outcome.error.value_or(0.0), error);
    if (error > 1.0) {
      outcome.status = "wrong";
      outcome.message = told(i, found, worst);
      return false;
    }
  }
  return true;
}

bool Bench::inside(Outcome& outcome) {
  const std::string where = data_->watch().changed();
  if (where.empty()) return true;
  outcome.status = "out-of-bounds";
  outcome.message = where;
  outcome.ends = true;  // what it wrote to is what other candidates read
  return false;
}

// As an engine runs it where the operand's last use is here: the output lies over it.
bool Bench::right_in_place(Kernels& kernels, Outcome& outcome) {
  for (int i = 0; i < problem_.input_count && !reference_.empty(); ++i) {
    if (problem_.inputs[i].may_be_output == 0) continue;
    bolt_tuning_run run = data_->run(0, kernels.scratch());
    std::vector<const void*> inputs(run.inputs, run.inputs + problem_.input_count);
    const Guarded& output = data_->output(0);
    check(cudaMemcpyAsync(output.at(0), inputs[static_cast<std::size_t>(i)], output.bytes(), cudaMemcpyDeviceToDevice, stream_),
          "copying on the GPU failed");
    inputs[static_cast<std::size_t>(i)] = output.at(0);
    run.inputs = inputs.data();
    kernels.queue(0, run);
    check(cudaStreamSynchronize(stream_), "the kernel in place");
    if (!right(0, outcome)) {
      outcome.message = "in place of input " + std::to_string(i) + ": " + outcome.message;
      return false;
    }
  }
  return true;
}

void Bench::measure(const bolt_tuning_trial& trial, Outcome& outcome) {
  Kernels kernels(*this, trial);
  kernels.make(1);
  poison();
  kernels.queue(0, false);
  check(cudaStreamSynchronize(stream_), "the kernel");
  if (!inside(outcome) || !right(0, outcome) || !right_in_place(kernels, outcome)) return;
  kernels.make(data_->sets());
  TimingPlan plan;
  plan.sets = data_->sets();
  plan.warm_up = std::exchange(warm_, true) ? kWarmUp : kFirstWarmUp;
  poison();
  const Statistics found = time_launches(plan, stream_, [&](int set) { kernels.queue(set, overlap_); });
  // After many launches at once: what a race or memory that is used again does to the result.
  if (!inside(outcome) || !right(0, outcome)) return;
  outcome.status = "ok";
  outcome.statistics = found;
  outcome.message = no_reference_;
}

Outcome Bench::measure(int trial) {
  Outcome outcome;
  outcome.trial = trial;
  try {
    measure(problem_.trials[trial], outcome);
  } catch (const Refused& refused) {
    outcome.status = refused.no_memory() ? "out-of-memory" : "refused";
    outcome.message = refused.what();
  } catch (const CudaError& error) {
    outcome.status = error.no_memory() ? "out-of-memory" : "refused";
    outcome.message = error.what();
  }
  if (outcome.status != "ok" && device_is_lost()) {
    outcome.status = "crashed";
    outcome.ends = true;
  }
  return outcome;
}

}  // namespace bolt_tuner
