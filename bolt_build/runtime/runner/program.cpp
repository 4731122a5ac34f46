#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "arguments.h"
#include "bench.h"
#include "files.h"
#include "problem.h"
#include "runner.h"
#include "session.h"
#include "summary.h"

namespace bolt_runner {
namespace {

std::vector<std::string> names_of(const std::vector<bolt_tensor>& ports) {
  std::vector<std::string> names;
  for (const bolt_tensor& port : ports) names.emplace_back(port.name);
  return names;
}

// Bytes that a file of inputs may have: those of all inputs of the largest plan, with elements of eight bytes and room
// for headers. What is larger fits no plan, and is not read.
std::uint64_t largest_inputs(const bolt_engine_v1& engine) {
  constexpr std::uint64_t kHeaders = std::uint64_t{1} << 20, kLargest = std::uint64_t{1} << 60;
  std::uint64_t most = 0;
  for (int32_t plan = 0; plan < engine.plan_count; ++plan) {
    std::uint64_t bytes = 0;
    for (const bolt_tensor& port : input_ports(engine, plan)) bytes += std::min<std::uint64_t>(8 * port.bytes, kLargest);
    most = std::max(most, std::min(bytes, kLargest));
  }
  return most + kHeaders;
}

std::string beside_program(const char* file) {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  const std::string program(path, length > 0 ? static_cast<std::size_t>(length) : 0);
  const std::size_t slash = program.rfind('/');
  return (slash == std::string::npos ? "" : program.substr(0, slash + 1)) + file;
}

std::string port_text(const bolt_tensor& port) {
  return on_one_line(port.name) + " " + dtype_name(port.dtype) + " " + shape_text(shape_of(port)) +
         (port.layout == BOLT_CHANNELS_LAST ? " (channels last inside)" : "");
}

void print_info(const bolt_engine_v1& engine, bool json) {
  if (json) {
    std::fputs(engine.manifest, stdout);
    return;
  }
  std::printf("%s for %s\nlayout digest %s\n", engine.name, engine.target, engine.layout_digest);
  for (int32_t plan = 0; plan < engine.plan_count; ++plan) {
    std::printf("%s\n", sizes_text(engine, plan).c_str());
    for (const bolt_tensor& port : input_ports(engine, plan)) std::printf("  input  %s\n", port_text(port).c_str());
    for (const bolt_tensor& port : output_ports(engine, plan)) std::printf("  output %s\n", port_text(port).c_str());
  }
}

std::string number(double value, const char* form) {
  char text[32];
  std::snprintf(text, sizeof text, form, value);
  return text;
}

// The extents of dimensions that have several, as pairs: names may hold anything.
std::string dims_json(const bolt_engine_v1& engine, int32_t plan) {
  if (engine.dim_count == 0) return "";
  std::string text = "\"dims\": [";
  for (int32_t i = 0; i < engine.dim_count; ++i) {
    text += i == 0 ? "[\"" : ", [\"";
    for (const char* c = engine.dims[i]; *c != '\0'; ++c) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, *c == '"' || *c == '\\' || static_cast<unsigned char>(*c) < 32 ? "\\u%04x" : "%c",
                    static_cast<unsigned char>(*c));
      text += escaped;
    }
    text += "\", " + std::to_string(engine.sizes[plan * (1 + engine.dim_count) + 1 + i]) + "]";
  }
  return text + "], ";
}

long long batch_of(const bolt_engine_v1& engine, int32_t plan) { return engine.sizes[plan * (1 + engine.dim_count)]; }

std::string optional_number(const std::optional<double>& value) { return value ? number(*value, "%.6g") : "null"; }

// Batches a second: at the median where one caller does nothing else, otherwise what was reached.
double throughput(const Arguments& arguments, const Timing& timing) {
  const bool alone = arguments.callers == 1 && !arguments.rate;
  return alone ? 1e3 / timing.median : static_cast<double>(timing.runs) / timing.seconds;
}

// The most memory that this process has had resident, in bytes.
long long most_resident() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return 1024LL * used.ru_maxrss;
}

void print_json(const Model& model, const Choice& choice, const Arguments& arguments, const Timing& timing) {
  std::printf(
      "{\"name\": \"%s\", \"target\": \"%s\", \"batch\": %lld, %s\"threads\": %d, \"inputs\": \"%s\", \"callers\": %lld, "
      "\"rate\": %s, \"warmup_runs\": %lld, \"runs\": %lld, \"seconds\": %.6g, \"min_ms\": %.6g, \"median_ms\": %.6g, \"p90_ms\": %s, "
      "\"p99_ms\": %s, \"max_ms\": %.6g, \"requests_per_second\": %.6g, \"images_per_second\": %.6g, \"copy_in_ms\": %s, "
      "\"copy_out_ms\": %s, \"context_bytes\": %zu, \"resident_bytes\": %lld, \"began\": %.6f, \"ended\": %.6f}\n",
      model.engine.name, model.engine.target, batch_of(model.engine, choice.plan), dims_json(model.engine, choice.plan).c_str(),
      arguments.threads, arguments.inputs.empty() ? "random" : "given", static_cast<long long>(arguments.callers),
      optional_number(arguments.rate).c_str(), static_cast<long long>(timing.warmup_runs), static_cast<long long>(timing.runs),
      timing.seconds, timing.min, timing.median, optional_number(timing.p90).c_str(), optional_number(timing.p99).c_str(),
      timing.max, static_cast<double>(timing.runs) / timing.seconds,
      static_cast<double>(choice.sizes[0]) * throughput(arguments, timing), optional_number(timing.copy_in).c_str(),
      optional_number(timing.copy_out).c_str(), timing.context_bytes, most_resident(), timing.began, timing.ended);
}

void print_timing(const Model& model, const Choice& choice, const Arguments& arguments, const Timing& timing) {
  if (arguments.json) {
    print_json(model, choice, arguments, timing);
    return;
  }
  const std::string threads = arguments.threads == 0 ? "all threads" : std::to_string(arguments.threads) + " thread(s)";
  std::string load = arguments.callers > 1 ? ", " + std::to_string(arguments.callers) + " callers" : "";
  if (arguments.rate) load += ", " + number(*arguments.rate, "%g") + " requests/s";
  std::printf("%s for %s, %s, %s%s, %s inputs\n", model.engine.name, model.engine.target,
              sizes_text(model.engine, choice.plan).c_str(), threads.c_str(), load.c_str(),
              arguments.inputs.empty() ? "random" : "given");
  std::string tail = timing.p90 ? "   p90 " + number(*timing.p90, "%.4g") + " ms" : "";
  if (timing.p99) tail += "   p99 " + number(*timing.p99, "%.4g") + " ms";
  const bool alone = arguments.callers == 1 && !arguments.rate;
  std::printf("median %.4g ms   min %.4g ms%s   max %.4g ms   %.5g images/s%s\n", timing.median, timing.min, tail.c_str(),
              timing.max, static_cast<double>(choice.sizes[0]) * throughput(arguments, timing), alone ? " at the median" : "");
  if (timing.copy_in && timing.copy_out)
    std::printf("copying takes beside that: inputs %.4g ms, outputs %.4g ms\n", *timing.copy_in, *timing.copy_out);
  std::printf("%lld runs after a warm-up of %lld; arena and scratch %.1f MB%s; %.1f MB resident at most\n",
              static_cast<long long>(timing.runs), static_cast<long long>(timing.warmup_runs),
              static_cast<double>(timing.context_bytes) / 1e6, arguments.callers > 1 ? " a caller" : "",
              static_cast<double>(most_resident()) / 1e6);
}

int run_with(const Program& program, const Arguments& arguments) {
  const bolt_engine_v1& engine = *program.engine;
  if (arguments.help) {
    std::fputs(usage(program.name, program.weights).c_str(), stdout);
    return 0;
  }
  if (arguments.info) {
    print_info(engine, arguments.json);
    return 0;
  }
  check_outputs(arguments.outputs, names_of(output_ports(engine, 0)));
  const std::vector<GivenInput> inputs = read_inputs(arguments.inputs, names_of(input_ports(engine, 0)), largest_inputs(engine));
  const Choice choice = choose_plan(engine, arguments.batch, arguments.extents, inputs);
  const Model model(engine, arguments.threads, arguments.weights ? *arguments.weights : beside_program(program.weights));
  if (arguments.bench) {
    Load load;
    if (arguments.seconds) load.seconds = *arguments.seconds;
    load.runs = arguments.runs;
    load.callers = arguments.callers;
    load.rate = arguments.rate;
    const auto fill = [&](Session& session) { inputs.empty() ? session.set_random_inputs() : session.set_inputs(inputs); };
    print_timing(model, choice, arguments, time_runs(model, choice, load, fill));
    return 0;
  }
  Session session(model, choice);
  session.set_inputs(inputs);
  session.run();
  if (arguments.outputs.empty()) {
    std::fputs(summary(session.outputs()).c_str(), stdout);
  } else {
    write_outputs(arguments.outputs, session.outputs());
  }
  return 0;
}

}  // namespace

int run_program(const Program& program, int count, char** arguments) {
  try {
    return run_with(program, parse_arguments(count, arguments));
  } catch (const Problem& problem) {
    std::fprintf(stderr, "%s: %s\n", program.name, on_one_line(problem.what()).c_str());
    return problem.code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program.name, on_one_line(error.what()).c_str());
    return kInvalid;
  }
}

}  // namespace bolt_runner
