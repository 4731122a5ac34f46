// A PTX text as the machine runs it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "warp.h"

namespace emulator {

/// Where a value that is known only at launch, or differs from block to block, stands in the register file.
struct Special {
  std::uint32_t offset;
  std::string name;  // "%tid.x", ...
};

/// A constant in every lane of the register file.
struct Constant {
  std::uint32_t offset;
  std::uint64_t bits;
  int bytes;
};

class Entry {
 public:
  std::string name;
  std::shared_ptr<Module> module;
  std::vector<Parameter> parameters;
  std::size_t parameter_bytes = 0;
  std::size_t shared_bytes = 0;  // its own, behind first_shared
  std::size_t local_bytes = 0;
  std::size_t file_bytes = 0;
  std::size_t predicates = 0;
  std::vector<Constant> constants;
  std::vector<Constant> parameter_addresses;  // bits: offset from the parameters' start
  std::vector<Special> specials;
  std::vector<Instruction> code;
  std::vector<std::string> lines;  // of the text, for messages; as long as code

  unsigned resident = 1;  // blocks that a multiprocessor holds at least (.minnctapersm)
  std::size_t dynamic_align = 16;
  bool acquires = false;  // loads that see what other blocks released: they may wait for each other

  /// Where dynamic shared memory begins: no further along than a GPU would put it.
  std::size_t dynamic_offset() const {
    return (first_shared + shared_bytes + dynamic_align - 1) / dynamic_align * dynamic_align;
  }
};

class Module {
 public:
  explicit Module(std::string_view ptx);
  ~Module();

  struct Variable {
    std::size_t bytes, align;
    std::unique_ptr<std::byte[]> memory;
  };
  struct Body {
    std::string_view parameters, results, text;  // between parentheses, and between the braces
    unsigned line, resident;
  };
  std::map<std::string, Variable, std::less<>> variables;  // in global memory
  std::map<std::string, std::pair<std::size_t, std::size_t>, std::less<>> shared;  // bytes and alignment
  std::map<std::string, Body, std::less<>> bodies;     // of kernels
  std::map<std::string, Body, std::less<>> functions;  // that they call
  std::map<std::string, std::shared_ptr<const Entry>, std::less<>> read;
  std::mutex mutex;

 private:
  std::size_t read_body(std::size_t at, bool function, unsigned& line, std::size_t& counted);

  std::string text_;
};

/// .shared .align 4 .b8 name[12], with initial values in global memory.
struct Declared {
  std::string name;
  std::size_t bytes = 0, align = 1;
  std::vector<std::uint8_t> values;
};
Declared declared(std::string_view text);

/// Reads the body of a kernel. Throws Unsupported naming the line.
std::shared_ptr<Entry> read_entry(const std::shared_ptr<Module>& module, const std::string& name);

}  // namespace emulator
