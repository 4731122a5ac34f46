// The player over candidates that add: ENGINES, then a comparison a line, answered as the player's process answers.
// After each answer it prints what the last launches were, one a line: step's problem, trial, pointers as places,
// whether the packed constant is right, whether launches overlap, the constant.
//
// Problem p takes one input of four floats, one constant of four, which ascends where p is 1, and adds them; trial t takes
// COSTS[p][t] us, packs the constant under one name, and wants 16 * t bytes of scratch memory, which it fills.
#include "player.h"

#include <cstdio>
#include <iostream>
#include <string>

#include "cuda_runtime_api.h"
#include "data.h"
#include "device_work.h"
#include "values.h"

namespace bolt_tuner {

// As the kernel that fills memory on a GPU would.
void fill(void* to, const bolt_tuning_operand& operand, std::uint64_t count, std::uint64_t seed, cudaStream_t) {
  const Values values(operand, count, seed);
  for (std::uint64_t i = 0; i < count; ++i) static_cast<float*>(to)[i] = values.at(i);
}

std::uint64_t elements_of(const bolt_tuning_operand& operand) {
  std::uint64_t count = 1;
  for (int i = 0; i < operand.rank; ++i) count *= static_cast<std::uint64_t>(operand.shape[i]);
  return count;
}

}  // namespace bolt_tuner

namespace {

constexpr double kCosts[2][3] = {{100, 90, 120}, {200, 201, 150}};
const int64_t kShape[] = {4};
const bolt_tuning_operand kData = {"f32 [4]", BOLT_TUNING_F32, 1, kShape, 16, 0, 0, 0, -1, 1};
const bolt_tuning_operand kInputs[2][2] = {{kData, {"f32 [4]", BOLT_TUNING_F32, 1, kShape, 16, 1, 0, 0, -1, 2}},
                                           {kData, {"f32 [4]", BOLT_TUNING_F32, 1, kShape, 16, 1, 0, 1, -1, 2}}};
const bolt_tuning_operand kOutputs[] = {{"f32 [4]", BOLT_TUNING_F32, 1, kShape, 16, 0, 0, 0, 0, 0}};

struct Trial {
  int problem, trial;
  bool refuses;
};
const Trial kTrials[2][3] = {{{0, 0, false}, {0, 1, false}, {0, 2, false}}, {{1, 0, false}, {1, 1, false}, {1, 2, true}}};

struct Kernel {
  const float* packed;
  std::size_t scratch;
};

std::vector<std::string> launched;
int alive = 0;

bolt_tuning_status create(const bolt_tuning_trial* trial, const bolt_tuning_prepare* prepare, void** kernel,
                          uint64_t* scratch, char* message, size_t room) {
  const auto& own = *static_cast<const Trial*>(trial->functions);
  if (own.refuses) {
    std::snprintf(message, room, "it does not take this");
    return BOLT_TUNING_REFUSED;
  }
  const void* constant = prepare->weight(prepare->owner, 1);
  const void* packed = prepare->shared(
      prepare->owner, "packed", 16, [](void* how, void* memory) { std::memcpy(memory, how, 16); }, const_cast<void*>(constant));
  if (packed == nullptr) return BOLT_TUNING_NO_MEMORY;
  *scratch = 16u * static_cast<unsigned>(own.trial);
  *kernel = new Kernel{static_cast<const float*>(packed), *scratch};
  ++alive;
  return BOLT_TUNING_DONE;
}

bolt_tuning_status run(const bolt_tuning_trial* trial, const void* made, const bolt_tuning_run* run, char*, size_t) {
  const auto& own = *static_cast<const Trial*>(trial->functions);
  const Kernel kernel = *static_cast<const Kernel*>(made);
  const auto* x = static_cast<const float*>(run->inputs[0]);
  const auto* w = static_cast<const float*>(run->inputs[1]);
  auto* y = static_cast<float*>(run->outputs[0]);
  void* scratch = run->scratch;
  const int overlap = run->overlap;
  fake::queue([=] {
    bool same = true;
    for (int i = 0; i < 4; ++i) {
      same = same && kernel.packed[i] == w[i];
      y[i] = x[i] + w[i];
    }
    if (kernel.scratch > 0) std::memset(scratch, 1, kernel.scratch);
    fake::now += 1e-6 * kCosts[own.problem][own.trial];
    char line[240];
    std::snprintf(line, sizeof line, "%d.%d %p %p %p %s %d %g %g %g %g", own.problem, own.trial, static_cast<const void*>(x),
                  static_cast<const void*>(w), static_cast<void*>(y), same ? "packed" : "wrong", overlap, w[0], w[1], w[2], w[3]);
    launched.push_back(line);
  });
  return BOLT_TUNING_DONE;
}

void destroy(const bolt_tuning_trial*, void* kernel) {
  delete static_cast<Kernel*>(kernel);
  --alive;
}

}  // namespace

int main(int, char** words) {
  using namespace bolt_tuner;
  bolt_tuning_trial trials[2][3];
  bolt_tuning_problem problems[2];
  static const char* digests[2] = {"p0", "p1"};
  static const char* names[2][3] = {{"c0.0", "c0.1", "c0.2"}, {"c1.0", "c1.1", "c1.2"}};
  for (int p = 0; p < 2; ++p) {
    for (int t = 0; t < 3; ++t) trials[p][t] = {names[p][t], "kernel", -1, 1e-6, &kTrials[p][t]};
    problems[p] = {digests[p], "add", "", 2, kInputs[p], 1, kOutputs, 1.0, nullptr, "", 3, trials[p]};
  }
  const bolt_tuning_problem* table[] = {&problems[0], &problems[1], nullptr};
  const bolt_tuning_set set = {BOLT_TUNING_VERSION, sizeof(bolt_tuning_set), "b", "h200", 90, 1, 1, 2, table, create, run, destroy};
  const Tables tables = read_tables(words[1], set);
  const EngineTable& engine = tables.engines[0];
  {
    Player player(set, engine, 1, true);
    std::string first, second;
    while (std::cin >> first >> second) {
      launched.clear();
      const Comparison found =
          player.compare(*choice_of(first, engine.problems.size()), *choice_of(second, engine.problems.size()));
      std::cout << line_of(found);
      const std::size_t steps =
          engine.plans[static_cast<std::size_t>(choice_of(second, engine.problems.size())->plan)].steps.size();
      for (std::size_t i = launched.size() - std::min(launched.size(), steps); i < launched.size(); ++i)
        std::cout << "  " << launched[i] << "\n";
    }
  }
  std::cout << "left " << alive << " kernels, " << fake::memory.size() << " pieces of memory\n";
}
