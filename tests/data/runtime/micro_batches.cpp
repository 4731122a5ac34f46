// Micro-batches: parts of the batch run through all of their steps, each in a slab of its own, side by side where threads are as
// many as the parts can be shared among; whoever looks at steps finds all parts in the arena. Steps that are timed find what a
// run leaves them, whatever those in front have stored where they read. Prints "ok", or the line that fails.
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>

#include "written_plans.h"

namespace {

constexpr int parts = 4;
std::atomic<int> alone{0}, shared{0};
std::atomic<bool> fails{false};
float found = 0;  // of the first part, by the last step

/// y = 4 (x + 1): two steps of a micro-batched span; a third, behind it, doubles all parts where they are, a fourth adds them up.
struct Chosen final : bolt::Plan {
  explicit Chosen(const bolt::Prepare& p) {
    for (int index = 0; index < 4; ++index) threads[index] = p.step(index).threads();
  }
  std::size_t scratch_bytes() const override { return 4; }
  void step(int index, const bolt::Run& r) const override {
    float* const between = static_cast<float*>(r.held(64, 0, 4));
    float* const behind = static_cast<float*>(r.arena(64));
    if (index == 0) *between = *static_cast<const float*>(r.input(0, r.part * 4)) + 1;
    if (index == 1) behind[r.part] = 2 * *between;
    if (index == 2)
      for (int part = 0; part < parts; ++part) behind[part] *= 2;
    if (index == 3) *static_cast<float*>(r.output(0)) = behind[1] + behind[2] + behind[3] + (found = behind[0]);
    if (index < 2) ++(r.threads == 1 ? alone : shared);
    if (index == 1 && fails) throw std::runtime_error("no");
  }
  int threads[4];
};

const bolt_step_info steps[] = {{0, "a", "", ""}, {1, "b", "", ""}, {2, "c", "", ""}, {3, "d", "", ""}};
const bolt::Tap taps[] = {{0, bolt::Place::arena, 0, {"a", BOLT_F32, BOLT_ROW, BOLT_CPU, 1, {parts}, 16}}};
const bolt_tensor x[] = {{"x", BOLT_F32, BOLT_ROW, BOLT_CPU, 1, {parts}, 16}};
const bolt_tensor y[] = {{"y", BOLT_F32, BOLT_ROW, BOLT_CPU, 1, {1}, 4}};
const bolt::MicroBatchSpan micro_batches[] = {{0, 1, parts}};
const bolt::PlanInfo chosen = {parts,    128,   {x, 1},       {y, 1}, {steps, 4}, {taps, 1}, {},
                               make<Chosen>, nullptr, false, {micro_batches, 1}, 128};
const bolt::PlanInfo* plans[] = {&chosen};

void look(void* user, const bolt_step_info*, const bolt_tensor* tensor, const void* data) {
  std::memcpy(user, data, tensor->bytes);
}

}  // namespace

const bolt::EngineInfo bolt::engine_info = engine_of(plans, 1);

int main(int, char** arguments) {
  for (const int threads : {1, 2, 3}) {
    bolt_model_options options = options_with(arguments[1]);
    options.threads = threads;
    const bolt::Model model(bolt::engine_info, options);
    bolt::Context context(model, 0, false, 0);
    const int beside = threads == 2 ? 2 : 1;
    const auto& made = static_cast<const Chosen&>(model.plan(0));
    CHECK(made.threads[0] == threads / beside && made.threads[1] == threads / beside && made.threads[2] == threads && made.threads[3] == threads);
    CHECK(context.bytes() == 128 + static_cast<std::size_t>(beside) * (64 + 128));
    const float input[] = {0, 1, 2, 3};
    const void* inputs[] = {input};
    float output = 0, seen[parts] = {};
    void* outputs[] = {&output};
    alone = shared = 0;
    context.run(inputs, outputs, nullptr, nullptr, nullptr);
    CHECK(output == 40);
    CHECK(alone + shared == 2 * parts && (threads == 3 ? alone : shared) == 0);
    context.run(inputs, outputs, nullptr, look, seen);
    CHECK(output == 40 && seen[0] == 1 && seen[3] == 4);
    double seconds[4] = {};
    found = 0;
    context.time_steps(inputs, outputs, nullptr, 3, seconds);
    CHECK(found == 4);
    fails = true;
    std::string why;
    try {
      context.run(inputs, outputs, nullptr, nullptr, nullptr);
    } catch (const std::exception& error) {
      why = error.what();
    }
    fails = false;
    CHECK(why == "step 1 'b' of batch 4 failed: no");
  }
  std::puts("ok");
  return 0;
}
