// Run::counters: zero at first, a context's own, and there where a step counts alone. Prints "ok", or the line that fails.
#include <algorithm>

#include "written_plans.h"

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

const bolt_step_info steps[] = {{0, "s", "", ""}};
const bolt::PlanInfo idle = {1, 64, {}, {}, {steps, 1}, {}, {}, make<Idle>};
const bolt::PlanInfo counting = {2, 64, {}, {}, {steps, 1}, {}, {}, make<Counting>};
const bolt::PlanInfo* plans[] = {&idle, &counting};

}  // namespace

const bolt::EngineInfo bolt::engine_info = engine_of(plans, 2);

int main(int, char** arguments) {
  const bolt::Model model(bolt::engine_info, options_with(arguments[1]));
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
