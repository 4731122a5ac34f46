#include "progress.h"

#include <cstdio>

#include "json.h"

namespace bolt_tuner {
namespace {

// In one call: lines of processes that share standard error stay whole.
void write(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }

}  // namespace

void Progress::say(const std::string& text) const { write(json_ ? "{\"text\": " + quoted(text) + "}" : text); }

void Progress::say_of(int gpu, const std::string& text) const {
  const std::string index = std::to_string(gpu);
  write(json_ ? "{\"gpu\": " + index + ", \"text\": " + quoted(text) + "}" : "GPU " + index + "  " + text);
}

void Progress::say_done(int gpu, int done, int of, const std::string& text) const {
  if (!json_) return say_of(gpu, "[" + std::to_string(done) + "/" + std::to_string(of) + "] " + text);
  write("{\"gpu\": " + std::to_string(gpu) + ", \"done\": " + std::to_string(done) + ", \"of\": " + std::to_string(of) +
        ", \"text\": " + quoted(text) + "}");
}

}  // namespace bolt_tuner
