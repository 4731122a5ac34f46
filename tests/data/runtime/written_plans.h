// What programs over the runtime share: engines of plans written by hand, and a check that prints the line that fails.
#pragma once

#include <cstdio>
#include <memory>

#include "bolt/context.h"
#include "bolt/weights_file.h"

namespace {

template <typename P>
std::unique_ptr<bolt::Plan> make(const bolt::Prepare& p) {
  return std::make_unique<P>(p);
}

/// An engine of `count` plans, without weights.
constexpr bolt::EngineInfo engine_of(const bolt::PlanInfo** plans, int count) {
  return {"t", "x86-64", true, 0, "0000000000000000000000000000000000000000000000000000000000000000", 0, {}, {plans, count}};
}

bolt_model_options options_with(const char* weights) {
  bolt_model_options options{};
  options.threads = 1;
  options.weights_path = weights;
  return options;
}

}  // namespace

#define CHECK(truth) \
  if (!(truth)) return std::printf("line %d: %s\n", __LINE__, #truth), 1
