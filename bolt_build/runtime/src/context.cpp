#include "bolt/context.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>

#include "bolt/device.h"
#include "bolt/failure.h"
#include "bolt/part.h"
#include "bolt/sizes.h"

namespace bolt {
namespace {

const void* place_of(const Tap& tap, const Run& run) {
  switch (tap.place) {
    case Place::arena: return run.arena(tap.at);
    case Place::input: return run.input(static_cast<int>(tap.at), tap.offset);
    case Place::output: return run.output(static_cast<int>(tap.at), tap.offset);
    case Place::weight: return run.weight(static_cast<int>(tap.at));
  }
  return nullptr;
}

void check_buffers(const char* kind, const void* const* buffers, const Table<bolt_tensor>& tensors, std::size_t alignment) {
  if (buffers == nullptr && tensors.count > 0) throw Failure(BOLT_INVALID_ARGUMENT, std::string(kind) + "s is NULL");
  for (int i = 0; i < tensors.count; ++i) {
    const auto name = [&] { return std::string(kind) + " " + std::to_string(i) + " ('" + tensors[i].name + "')"; };
    if (buffers[i] == nullptr) throw Failure(BOLT_INVALID_ARGUMENT, name() + " is NULL");
    if (reinterpret_cast<std::uintptr_t>(buffers[i]) % alignment != 0)
      throw Failure(BOLT_INVALID_ARGUMENT, name() + " does not begin at a multiple of " + std::to_string(alignment) + " bytes");
  }
}

class Busy {
 public:
  explicit Busy(std::atomic<bool>& flag) : flag_(flag) {
    if (flag_.exchange(true))
      throw Failure(BOLT_INVALID_ARGUMENT, "the context is running already: make one context a thread");
  }
  ~Busy() { flag_ = false; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<bool>& flag_;
};

}  // namespace

Context::Context(const Model& model, int plan, bool staged, int queueing)
    : model_(model),
      index_(plan),
      info_(*model.engine().plans[index_]),
      queueing_(queueing),
      beside_(info_.beside(model.threads())),
      scratch_at_(aligned(info_.arena_bytes)),
      scratch_bytes_(aligned(model.plan(index_).scratch_bytes())),
      own_bytes_(added(scratch_bytes_, aligned(info_.slab_bytes))),
      bytes_(scratch_at_) {
  for (int part = 0; part < beside_; ++part) bytes_ = added(bytes_, own_bytes_);
  std::vector<std::size_t> places;
  const auto place = [&](const Table<bolt_tensor>& ports) {
    for (const bolt_tensor& port : ports) {
      places.push_back(bytes_);
      bytes_ = added(bytes_, aligned(port.bytes));
    }
  };
  if (staged) {
    place(info_.inputs);
    place(info_.outputs);
  }
  const std::size_t sizes_at = bytes_;
  const bool told = staged && info_.reads_sizes;
  const std::size_t numbers = 1 + static_cast<std::size_t>(model.engine().dims.count);
  if (told) bytes_ = added(bytes_, aligned(numbers * sizeof(std::int64_t)));
  const std::size_t counters_at = bytes_;
  const bool counts = model.plan(index_).counts();
  if (counts) bytes_ = added(bytes_, aligned(counter_bytes));
  const device::Scope scope(model.device(), model.threads());
  memory_.reset(device::allocate(bytes_));
  fault_ = std::make_unique<Fault>(model.faults(), info_);
  auto* base = static_cast<std::byte*>(memory_.get());
  if (told) sizes_ = base + sizes_at;
  if (counts) {
    counters_ = reinterpret_cast<std::uint32_t*>(base + counters_at);
    device::fill(counters_, counter_bytes, [](void* memory) { std::memset(memory, 0, counter_bytes); });
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (i < static_cast<std::size_t>(info_.inputs.count)) {
      staged_inputs_.push_back(base + places[i]);
    } else {
      staged_outputs_.push_back(base + places[i]);
    }
  }
}

void Context::check(const void* const* inputs, void* const* outputs, void* stream) const {
  if (broken_) throw Failure(BOLT_DEVICE_ERROR, "an earlier run of this context failed: destroy it and make another");
  // Buffers of a staged context are only copied.
  const std::size_t alignment = staged_inputs_.empty() && staged_outputs_.empty() ? device::alignment() : 1;
  check_buffers("input", inputs, info_.inputs, alignment);
  check_buffers("output", outputs, info_.outputs, alignment);
  device::check_stream(stream);
}

void Context::run_step(int index, const Run& run, bool wait) {
  const auto which = [&] {
    return "step " + std::to_string(index) + " '" + info_.steps[index].name + "' of " +
           sizes_text(model_.engine(), info_);
  };
  std::string why;
  try {
    Run own = run;
    own.step = index;
    model_.plan(index_).step(index, own);
    device::check_queued();
    if (wait) device::wait(run.stream);
    return;
  } catch (const WrongValue& error) {
    throw Failure(BOLT_INVALID_ARGUMENT, which() + ": " + error.what());
  } catch (const std::exception& error) {
    why = error.what();
  } catch (...) {
    why = "unknown exception";
  }
  throw Failure(BOLT_DEVICE_ERROR, which() + " failed: " + why);
}

// Steps of a span for all of its parts. `apart`: tensors lie in the arena as those of other steps do.
void Context::run_span(const MicroBatchSpan& span, int first, int last, const Run& run, bool apart) {
  const int beside = span.beside(model_.threads());
  std::atomic<int> next{0};
  std::exception_ptr failed;
  std::mutex failing;
  const auto work = [&](int who) {
    Run own = run;
    own.threads = beside > 1 ? 1 : run.threads;
    own.scratch_base = run.scratch_base + static_cast<std::size_t>(who) * own_bytes_;
    own.slab_base = own.scratch_base + scratch_bytes_;
    own.apart = apart;
    for (int part = next++; part < span.parts; part = next++) {
      own.part = static_cast<std::size_t>(part);
      try {
        for (int index = first; index <= last; ++index) run_step(index, own, false);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(failing);
        if (!failed) failed = std::current_exception();
        return;
      }
    }
  };
  if (beside > 1) {
    device::for_each(beside, work);
  } else {
    work(0);
  }
  if (failed) std::rethrow_exception(failed);
}

void Context::run_steps(const Run& run, int end, bolt_observer observer, void* user) {
  const Tap* tap = info_.taps.begin();
  for (int index = 0; index < end; ++index) {
    const MicroBatchSpan* span = info_.span(index);
    if (span == nullptr) {
      run_step(index, run, observer != nullptr);
    } else if (observer != nullptr) {
      run_span(*span, index, index, run, true);
    } else {
      const int last = std::min(span->last, end - 1);
      run_span(*span, span->first, last, run, false);
      index = last;
    }
    if (observer == nullptr) continue;
    for (; tap != info_.taps.end() && tap->step == index; ++tap)
      observer(user, &info_.steps[index], &tap->tensor, place_of(*tap, run));
  }
}

// `sizes` of what the caller has: null where they are the plan's.
void Context::stage_in(const std::int64_t* sizes, const void* const* inputs, void* stream) const {
  for (std::size_t i = 0; i < staged_inputs_.size(); ++i) {
    const bolt_tensor& port = info_.inputs[static_cast<int>(i)];
    auto* own = const_cast<void*>(staged_inputs_[i]);
    const PartOf part(model_.engine(), static_cast<int>(i), port, sizes);
    if (part.whole()) {
      device::copy(own, inputs[i], port.bytes, stream);
    } else {
      device::zero(own, port.bytes, stream);
      part.copy(own, part.full, inputs[i], part.part, stream);
    }
  }
}

void Context::stage_out(const std::int64_t* sizes, void* const* outputs, void* stream) const {
  for (std::size_t i = 0; i < staged_outputs_.size(); ++i) {
    const bolt_tensor& port = info_.outputs[static_cast<int>(i)];
    const PartOf part(model_.engine(), info_.inputs.count + static_cast<int>(i), port, sizes);
    if (part.whole()) {
      device::copy(outputs[i], staged_outputs_[i], port.bytes, stream);
    } else {
      part.copy(outputs[i], part.part, staged_outputs_[i], part.full, stream);
    }
  }
}

// Queues a copy of the sizes, null where they are the plan's, to where kernels read them.
void Context::tell_sizes(const std::int64_t* sizes, void* stream) {
  if (sizes_ == nullptr) return;
  std::vector<std::int64_t> now;
  for (int which = 0; which <= model_.engine().dims.count; ++which)
    now.push_back(sizes == nullptr ? size_of(info_, which) : sizes[which]);
  if (now == told_) return;
  told_ = now;
  device::copy(sizes_, told_.data(), told_.size() * sizeof(std::int64_t), stream);
}

Run Context::run_on(const void* const* inputs, void* const* outputs, void* stream) const {
  auto* base = static_cast<std::byte*>(memory_.get());
  return {base, base + scratch_at_, inputs, outputs, model_.weights(), stream, model_.threads(), false, fault_->word(), 0,
          static_cast<const std::int64_t*>(sizes_), counters_};
}

// Notes the buffers that a recording is made with. True where they are others than before.
bool Context::rebind(const void* const* inputs, void* const* outputs) {
  const auto in = static_cast<std::size_t>(info_.inputs.count), out = static_cast<std::size_t>(info_.outputs.count);
  if (bound_.size() == in + out && std::equal(inputs, inputs + in, bound_.begin()) &&
      std::equal(outputs, outputs + out, bound_.begin() + static_cast<std::ptrdiff_t>(in)))
    return false;
  bound_.assign(inputs, inputs + in);
  bound_.insert(bound_.end(), outputs, outputs + out);
  return true;
}

// Whether launches may begin before those in front of them have ended.
bool Context::overlaps() const { return (queueing_ & BOLT_QUEUE_SERIAL) == 0 && device::overlaps(); }

void Context::queue(const void* const* inputs, void* const* outputs, void* stream) {
  const auto kernels = [&](void* on) {
    Run run = run_on(inputs, outputs, on);
    run.overlap = overlaps();
    run_steps(run, info_.steps.count, nullptr, nullptr);
  };
  if ((queueing_ & BOLT_QUEUE_UNRECORDED) != 0) return kernels(stream);
  const bool changed = rebind(inputs, outputs);
  recording_.play(stream, changed, kernels);
}

void Context::run(const void* const* inputs, void* const* outputs, void* stream, bolt_observer observer, void* user) {
  run_sized(nullptr, inputs, outputs, stream, observer, user);
}

void Context::run_padded(const std::int64_t* sizes, const void* const* inputs, void* const* outputs, void* stream) {
  if (!staged()) throw Failure(BOLT_INVALID_ARGUMENT, "the context has no buffers to pad in: make it with options.staged = 1");
  const EngineInfo& engine = model_.engine();
  for (int which = 0; which <= engine.dims.count; ++which) {
    const std::int64_t size = size_of(info_, which);
    if (sizes[which] == size || (sizes[which] >= 1 && sizes[which] < size && pads(engine, which))) continue;
    const bool less = sizes[which] >= 1 && sizes[which] < size && engine.unpadded != nullptr;
    throw Failure(BOLT_INVALID_ARGUMENT, sizes_text(engine, sizes[0], sizes + 1) + " does not fit into " +
                                             sizes_text(engine, info_) +
                                             (less ? std::string(", which is not padded: ") + engine.unpadded[which] : ""));
  }
  run_sized(sizes, inputs, outputs, stream, nullptr, nullptr);
}

void Context::run_sized(const std::int64_t* sizes, const void* const* inputs, void* const* outputs, void* stream,
                        bolt_observer observer, void* user) {
  const Busy busy(running_);
  check(inputs, outputs, stream);
  const device::Scope scope(model_.device(), model_.threads());
  fault_->raise();
  fault_->queued_on(stream);
  const void* const* from = staged() ? staged_inputs_.data() : inputs;
  void* const* to = staged() ? staged_outputs_.data() : outputs;
  try {
    stage_in(sizes, inputs, stream);
    tell_sizes(sizes, stream);
    if (observer == nullptr) {
      queue(from, to, stream);
    } else {
      run_steps(run_on(from, to, stream), info_.steps.count, observer, user);
    }
    stage_out(sizes, outputs, stream);
    if (observer != nullptr) {
      device::wait(stream);
      fault_->raise();
    }
  } catch (const Failure& failure) {
    // What the caller gave was wrong: the next run may be given something else.
    broken_ = failure.status() != BOLT_INVALID_ARGUMENT;
    throw;
  } catch (...) {
    broken_ = true;
    throw;
  }
}

void Context::time_steps(const void* const* inputs, void* const* outputs, void* stream, int repeats, double* seconds) {
  run(inputs, outputs, stream, nullptr, nullptr);
  const Busy busy(running_);
  const device::Scope scope(model_.device(), model_.threads());
  try {
    for (int index = 0; index < info_.steps.count; ++index) {
      const MicroBatchSpan* span = info_.span(index);
      // A step that stores where it reads leaves other values each time: after a few of them infinity, and behind these no
      // numbers, of which some kernels take longer.
      run_steps(run_on(inputs, outputs, stream), index, nullptr, nullptr);
      const auto step = [&](void* on) {
        Run run = run_on(inputs, outputs, on);
        run.overlap = overlaps();
        span == nullptr ? run_step(index, run, false) : run_span(*span, index, index, run, false);
      };
      seconds[index] = device::seconds(stream, repeats, step);
    }
  } catch (...) {
    broken_ = true;
    throw;
  }
}

}  // namespace bolt
