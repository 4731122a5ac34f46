#include "player.h"

#include <algorithm>
#include <cmath>

#include "cuda_error.h"
#include "duel.h"
#include "replay.h"

namespace bolt_tuner {
namespace {

constexpr double kSample = 1e-3;  // seconds that a sample should take at least, so that events' steps do not count
constexpr double kPlayerWarmUp = 40e-3;  // seconds: clocks rise when a GPU gets work

}  // namespace

Player::Player(const bolt_tuning_set& set, const EngineTable& table, std::uint64_t seed, bool overlap)
    : set_(set), table_(table), seed_(seed), overlap_(overlap), plans_(table.plans.size()) {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream failed");
  plan(Choice{});
}

Player::~Player() {
  plans_.clear();
  cudaStreamDestroy(stream_);
}

PlayedPlan& Player::plan(const Choice& choice) {
  const auto at = static_cast<std::size_t>(choice.plan);
  if (plans_[at] == nullptr)
    plans_[at] = std::make_unique<PlayedPlan>(set_, table_.plans[at], table_.problems, seed_, overlap_, stream_);
  return *plans_[at];
}

Comparison Player::raced(const Choice& first, const Choice& second) {
  // All kernels first: one that needs more scratch memory makes recordings void.
  plan(first).prepare(first.trials);
  plan(second).prepare(second.trials);
  const Graph& one = plan(first).recorded(first.trials);
  // An engine against itself is two recordings, as two engines are.
  const std::unique_ptr<Graph> twin = first == second ? plan(second).record(second.trials) : nullptr;
  const Graph& other = twin != nullptr ? *twin : plan(second).recorded(second.trials);
  const Event begin, end;
  const auto replays = [&](const Graph& graph, int count) {
    graph.play();  // so that what the other left in caches and in front of it does not count
    begin.record(stream_);
    for (int i = 0; i < count; ++i) graph.play();
    end.record(stream_);
    return end.since(begin) / count;
  };
  double warm = 0, single = 0;
  do {
    single = replays(one, 1);
    warm += single + replays(other, 1);
  } while (warm < kPlayerWarmUp / 2);
  DuelPlan plan;
  plan.launches = static_cast<int>(std::clamp(std::ceil(kSample / single), 1.0, 64.0));
  return duel(plan, [&](int which) { return replays(which == 0 ? one : other, plan.launches); });
}

Comparison Player::compare(const Choice& first, const Choice& second) {
  Comparison found;
  try {
    return raced(first, second);
  } catch (const StepRefused& refused) {
    found.status = refused.no_memory() ? "out-of-memory" : "refused";
    found.message = refused.what();
  } catch (const CudaError& error) {
    found.status = error.no_memory() ? "out-of-memory" : "refused";
    found.message = error.what();
  }
  if (device_is_lost()) {
    found.status = "crashed";
    found.ends = true;
  }
  return found;
}

}  // namespace bolt_tuner
