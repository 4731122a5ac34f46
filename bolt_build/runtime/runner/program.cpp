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
  return std::string(port.name) + " " + dtype_name(port.dtype) + " " + shape_text(shape_of(port)) +
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

void print_timing(const bolt_engine_v1& engine, const Session& session, const Arguments& arguments, const Timing& timing) {
  const auto batch = static_cast<long long>(session.batch());
  const double rate = 1e3 * static_cast<double>(batch) / timing.median;
  const char* inputs = arguments.inputs.empty() ? "random" : "given";
  const std::optional<double>& p99 = timing.p99;
  const auto runs = static_cast<long long>(timing.runs), warmup = static_cast<long long>(timing.warmup_runs);
  if (arguments.json) {
    std::printf(
        "{\"name\": \"%s\", \"target\": \"%s\", \"batch\": %lld, %s\"threads\": %d, \"inputs\": \"%s\", \"warmup_runs\": %lld, "
        "\"runs\": %lld, \"min_ms\": %.6g, \"median_ms\": %.6g, \"p99_ms\": %s, \"images_per_second\": %.6g, \"context_bytes\": %zu}\n",
        engine.name, engine.target, batch, dims_json(engine, session.plan()).c_str(), arguments.threads, inputs, warmup, runs, timing.min, timing.median,
        p99 ? number(*p99, "%.6g").c_str() : "null", rate, session.context_bytes());
    return;
  }
  const std::string threads = arguments.threads == 0 ? "all threads" : std::to_string(arguments.threads) + " thread(s)";
  std::printf("%s for %s, %s, %s, %s inputs\n", engine.name, engine.target, sizes_text(engine, session.plan()).c_str(),
              threads.c_str(), inputs);
  const std::string tail = p99 ? "   p99 " + number(*p99, "%.4g") + " ms" : "";
  std::printf("median %.4g ms   min %.4g ms%s   %.5g images/s at the median\n", timing.median, timing.min, tail.c_str(), rate);
  std::printf("%lld runs after a warm-up of %lld; arena and scratch %.1f MB\n", runs, warmup,
              static_cast<double>(session.context_bytes()) / 1e6);
}

// Without --output: enough to see that something came out, and what.
void print_summary(const std::vector<NamedArray>& outputs) {
  for (const NamedArray& entry : outputs) {
    const Array& array = entry.array;
    std::printf("%s %s %s", entry.name.c_str(), dtype_name(array.dtype), shape_text(array.shape).c_str());
    if (array.dtype == BOLT_F32 && !array.bytes.empty()) {
      std::vector<float> values(array.bytes.size() / sizeof(float));
      std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
      const auto least = std::min_element(values.begin(), values.end());
      const auto most = std::max_element(values.begin(), values.end());
      std::printf(": from %.6g to %.6g, the greatest at flat index %lld", *least, *most, static_cast<long long>(most - values.begin()));
    }
    std::printf("\n");
  }
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
  const int32_t plan = choose_plan(engine, arguments.batch, arguments.extents, inputs);
  Session session(engine, plan, arguments.threads, arguments.weights ? *arguments.weights : beside_program(program.weights));
  if (arguments.bench && inputs.empty()) {
    session.set_random_inputs();
  } else {
    session.set_inputs(inputs);
  }
  if (arguments.bench) {
    constexpr double kSeconds = 3;
    print_timing(engine, session, arguments, time_runs(session, arguments.seconds.value_or(kSeconds), arguments.runs));
    return 0;
  }
  session.run();
  if (arguments.outputs.empty()) {
    print_summary(session.outputs());
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
    std::fprintf(stderr, "%s: %s\n", program.name, problem.what());
    return problem.code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program.name, error.what());
    return kInvalid;
  }
}

}  // namespace bolt_runner
