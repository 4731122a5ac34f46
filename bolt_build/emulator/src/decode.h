// From a statement of PTX to an instruction: what the functions that know instructions are given to read operands with.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "module.h"

namespace emulator {

/// A statement's words: `ld.global.v2.f32 {%f1, %f2}, [%rd1+8]`.
struct Statement {
  std::string_view base;                    // ld
  std::vector<std::string_view> modifiers;  // global, v2, f32
  std::vector<std::string_view> operands;   // as they stand, blanks trimmed

  bool has(std::string_view modifier) const;
  std::string_view type() const { return modifiers.empty() ? std::string_view() : modifiers.back(); }
};

/// The widths and kinds of types: f32, b16, ...
struct Type {
  char kind;  // b, s, u, f, or p of predicates
  int bytes;
};
Type type_of(std::string_view word);

class Reader;

/// Fills in an instruction; false where the function does not know the statement.
using Decode = bool (*)(Reader&, const Statement&, Instruction&);
bool decode_arithmetic(Reader&, const Statement&, Instruction&);
bool decode_floats(Reader&, const Statement&, Instruction&);
bool decode_halves(Reader&, const Statement&, Instruction&);
bool decode_comparisons(Reader&, const Statement&, Instruction&);
bool decode_bits(Reader&, const Statement&, Instruction&);
bool decode_carries(Reader&, const Statement&, Instruction&);
bool decode_conversion(Reader&, const Statement&, Instruction&);
bool decode_memory(Reader&, const Statement&, Instruction&);
bool decode_atomics(Reader&, const Statement&, Instruction&);
bool decode_waiting(Reader&, const Statement&, Instruction&);
bool decode_products(Reader&, const Statement&, Instruction&);
bool decode_copies(Reader&, const Statement&, Instruction&);

struct Register {
  std::uint32_t offset;  // or the index of a predicate
  Type type;
};

/// Reads operands while a kernel is read. Everything throws Unsupported where it cannot.
class Reader {
 public:
  explicit Reader(Entry& entry) : entry_(entry) {}

  /// A register by name, whatever its type; `_` is a register that nobody reads.
  Register reg(std::string_view word, int bytes = 8);
  std::uint32_t predicate(std::string_view word);
  /// One that no name stands for.
  std::uint32_t scratch_predicate() { return predicates_++; }
  /// A register or constant of the type.
  std::uint32_t source(std::string_view word, Type type);
  std::uint32_t constant(std::uint64_t bits, int bytes);
  /// The register of [register + displacement] (64 bits wide or 32: `wide`), and the displacement.
  struct Address {
    std::uint32_t offset;
    bool wide;
    std::int64_t displacement;
  };
  Address address(std::string_view word);
  std::int64_t integer(std::string_view word);

 private:
  friend class BodyReader;
  struct Scope {
    std::map<std::string, Register, std::less<>> registers;
    std::map<std::string, Type, std::less<>> ranges;  // %f<100>: prefix and type
    std::map<std::string, std::uint32_t, std::less<>> labels;
    int parent = -1;
  };
  void declare(std::string_view text);
  void declare_local(std::string_view text);
  Register make(Type type);
  bool find(std::string_view word, Register& found);
  bool symbol(std::string_view word, int bytes, Register& found);
  std::uint32_t shared_variable(std::string_view name, std::size_t bytes, std::size_t align);

  Entry& entry_;
  std::vector<Scope> scopes_{1};
  int scope_ = 0;
  std::uint32_t next_ = 0;
  std::uint32_t predicates_ = 0;
  std::map<std::pair<std::uint64_t, int>, std::uint32_t> constants_;
  std::map<std::string, Register, std::less<>> symbols_;
  std::map<std::string, std::uint32_t, std::less<>> shared_;  // offsets of variables that were met
};

/// Parts between commas that stand in no brackets.
std::vector<std::string_view> split(std::string_view text);
std::vector<std::string_view> elements(std::string_view braces);
std::string_view trimmed(std::string_view text);
inline std::size_t align_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

}  // namespace emulator
