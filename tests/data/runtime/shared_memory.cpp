// Prepare::shared: one copy for all plans of a model, kept as long as a kernel holds it. Prints "ok", or the line that fails.
#include <cstring>

#include "bolt/failure.h"
#include "written_plans.h"

namespace {

int fills = 0, held = 0;
const void* seen[2];

struct Holder final : bolt::Plan {
  explicit Holder(const bolt::Prepare& p) {
    memory = p.shared("packed", 256, [](void* to) { std::memset(to, ++fills, 256); });
    p.shared("dropped at once", 64, [](void*) { ++fills; });
    seen[held++] = memory.get();
  }
  std::size_t scratch_bytes() const override { return 0; }
  void step(int, const bolt::Run&) const override {}
  std::shared_ptr<const void> memory;
};

struct Greedy final : bolt::Plan {
  explicit Greedy(const bolt::Prepare& p) : memory(p.shared("packed", 256, [](void*) {})) { p.shared("packed", 128, [](void*) {}); }
  std::size_t scratch_bytes() const override { return 0; }
  void step(int, const bolt::Run&) const override {}
  std::shared_ptr<const void> memory;
};

const bolt::PlanInfo one = {1, 0, {}, {}, {}, {}, {}, make<Holder>}, two = {2, 0, {}, {}, {}, {}, {}, make<Holder>};
const bolt::PlanInfo greedy = {1, 0, {}, {}, {}, {}, {}, make<Greedy>};
const bolt::PlanInfo *plans[] = {&one, &two}, *greedy_plans[] = {&greedy};
const bolt::EngineInfo sharing = engine_of(plans, 2), failing = engine_of(greedy_plans, 1);

}  // namespace

const bolt::EngineInfo bolt::engine_info = sharing;

int main(int, char** arguments) {
  const bolt_model_options options = options_with(arguments[1]);
  {
    const bolt::Model model(sharing, options);
    CHECK(held == 2 && seen[0] == seen[1]);
    CHECK(fills == 3);  // "packed" once, what nobody held twice
    CHECK(static_cast<const char*>(seen[0])[255] == 1);
    CHECK(reinterpret_cast<std::uintptr_t>(seen[0]) % 64 == 0);
  }
  try {
    const bolt::Model model(failing, options);
    CHECK(!"a key with two sizes is refused");
  } catch (const bolt::Failure& failure) {
    CHECK(failure.status() == BOLT_INTERNAL);
    CHECK(std::strcmp(failure.what(), "two sizes for the shared memory 'packed'") == 0);
  }
  std::puts("ok");
  return 0;
}
