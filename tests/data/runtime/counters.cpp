// Run::counters: zero at first, a context's own, and there where a step counts alone. Prints "ok", or the line that fails.
#include <algorithm>
#include <cstdio>

#include "bolt/context.h"
#include "bolt/weights_file.h"

namespace {

std::uint32_t* seen = nullptr;
bool zero = false;

struct Idle : bolt::Plan {
  explicit Idle(const bolt::Prepare&) {}
  std::size_t scratch_bytes() const override { return 100; }
  void step(int, const bolt::Run& r) const override { seen = r.counters; }
};

struct Counting final : Idle {
  using Idle::Idle;
  bool counts() const override { return true; }
  void step(int, const bolt::Run& r) const override {
    seen = r.counters;
    zero = std::all_of(seen, seen + bolt::counter_bytes / sizeof *seen, [](std::uint32_t each) { return each == 0; });
    std::fill(static_cast<char*>(r.scratch()), static_cast<char*>(r.scratch()) + 100, 7);
  }
};

template <typename P>
std::unique_ptr<bolt::Plan> make(const bolt::Prepare& p) {
  return std::make_unique<P>(p);
}

const bolt_step_info steps[] = {{0, "s", "", ""}};
const bolt::PlanInfo idle = {1, 64, {}, {}, {steps, 1}, {}, {}, make<Idle>};
const bolt::PlanInfo counting = {2, 64, {}, {}, {steps, 1}, {}, {}, make<Counting>};
const bolt::PlanInfo* plans[] = {&idle, &counting};
const char digest[] = "0000000000000000000000000000000000000000000000000000000000000000";
const bolt::EngineInfo engine = {"t", "x86-64", true, 0, digest, 0, {}, {plans, 2}};

}  // namespace

const bolt::EngineInfo bolt::engine_info = engine;

#define CHECK(truth) \
  if (!(truth)) return std::printf("line %d: %s\n", __LINE__, #truth), 1

int main(int, char** arguments) {
  bolt_model_options options{};
  options.threads = 1;
  options.weights_path = arguments[1];
  const bolt::Model model(engine, options);
  bolt::Context without(model, 0, false, 0), one(model, 1, false, 0), other(model, 1, false, 0);
  CHECK(one.bytes() == without.bytes() + bolt::counter_bytes);
  without.run(nullptr, nullptr, nullptr, nullptr, nullptr);
  CHECK(seen == nullptr);
  one.run(nullptr, nullptr, nullptr, nullptr, nullptr);
  std::uint32_t* const first = seen;
  CHECK(first != nullptr && zero);
  first[0] = 1;
  other.run(nullptr, nullptr, nullptr, nullptr, nullptr);
  CHECK(seen != first && zero);
  one.run(nullptr, nullptr, nullptr, nullptr, nullptr);
  CHECK(seen == first && !zero);
  std::puts("ok");
  return 0;
}
