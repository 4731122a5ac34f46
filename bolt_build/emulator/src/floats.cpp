// Arithmetic of fp32 and fp64: one rounding, as the statement names it, and what approximate functions approximate.
#include <algorithm>

#include "lanewise.h"
#include "rounding.h"

namespace emulator {
namespace {

/// What `inner` does, rounded as `form` says.
[[gnu::noipa]] void out_of_sight(Execute inner, Warp& warp, const Instruction& i, Mask mask) { inner(warp, i, mask); }
void directed(Warp& warp, const Instruction& i, Mask mask) {
  const Rounding rounding(static_cast<Round>(i.form));
  out_of_sight(i.inner, warp, i, mask);
}

template <int sources, typename T, typename F>
constexpr Execute of_sources() {
  if constexpr (sources == 1) return unary<T, F>;
  else if constexpr (sources == 2) return binary<T, F>;
  else return ternary<T, F>;
}

/// The instance for a type, and for the words that change operands and results.
template <int sources, typename F>
Execute float_function(const Statement& s, Type t) {
  const bool flushes = s.has("ftz"), saturates = s.has("sat");
  if (t.bytes == 8) return flushes || saturates ? nullptr : of_sources<sources, double, F>();
  if (flushes) return saturates ? of_sources<sources, float, Saturated<Flushed<F>>>() : of_sources<sources, float, Flushed<F>>();
  return saturates ? of_sources<sources, float, Saturated<F>>() : of_sources<sources, float, F>();
}

template <typename F>
Execute extreme(const Statement& s, Type t) {
  const bool nan = s.has("NaN"), sign = s.has("xorsign");
  if (nan && sign) return float_function<2, XorSign<OrNan<F>>>(s, t);
  if (sign) return float_function<2, XorSign<F>>(s, t);
  return nan ? float_function<2, OrNan<F>>(s, t) : float_function<2, F>(s, t);
}

Execute of_one(const Statement& s, Type t) {
  const std::string_view base = s.base;
  if (t.bytes == 8 && s.has("approx") && s.has("ftz")) {
    if (base == "rcp") return unary<double, UpperHalf<Inverse>>;
    if (base == "rsqrt") return unary<double, UpperHalf<InverseRoot>>;
  }
  if (base == "neg") return float_function<1, Negate>(s, t);
  if (base == "abs") return float_function<1, Absolute>(s, t);
  if (base == "rcp") return float_function<1, Inverse>(s, t);
  if (base == "sqrt") return float_function<1, Root>(s, t);
  if (base == "rsqrt") return float_function<1, InverseRoot>(s, t);
  if (t.bytes == 8) return nullptr;
  if (base == "ex2") return float_function<1, Exponential2>(s, t);
  if (base == "lg2") return float_function<1, Logarithm2>(s, t);
  if (base == "sin") return float_function<1, Sine>(s, t);
  if (base == "cos") return float_function<1, Cosine>(s, t);
  if (base == "tanh") return float_function<1, HyperbolicTangent>(s, t);
  return nullptr;
}

Execute of_two_or_three(const Statement& s, Type t, int& sources) {
  const std::string_view base = s.base;
  sources = 2;
  if (base == "add") return float_function<2, Add>(s, t);
  if (base == "sub") return float_function<2, Subtract>(s, t);
  if (base == "mul") return float_function<2, Multiply>(s, t);
  if (base == "div") return float_function<2, Divide>(s, t);
  if (base == "min") return extreme<Least>(s, t);
  if (base == "max") return extreme<Most>(s, t);
  if (base == "copysign") return float_function<2, CopySign>(s, t);
  sources = 3;
  if (base == "fma" || base == "mad") return float_function<3, Fused>(s, t);
  return nullptr;
}

}  // namespace

bool decode_floats(Reader& reader, const Statement& s, Instruction& i) {
  static constexpr std::string_view bases[] = {"add", "sub", "mul", "div", "min", "max", "neg",  "abs",   "rcp", "sqrt",
                                               "fma", "mad", "ex2", "lg2", "sin", "cos", "tanh", "rsqrt", "copysign"};
  static constexpr std::string_view words[] = {"rn", "rz", "rm", "rp", "approx", "full", "ftz", "sat", "NaN", "xorsign", "abs"};
  if (std::find(std::begin(bases), std::end(bases), s.base) == std::end(bases)) return false;
  if (s.type() != "f32" && s.type() != "f64") return false;
  for (const std::string_view word : s.modifiers)
    if (word != s.type() && std::find(std::begin(words), std::end(words), word) == std::end(words)) return false;
  const Type type = type_of(s.type());
  int sources = 1;
  i.execute = of_one(s, type);
  if (i.execute == nullptr) i.execute = of_two_or_three(s, type, sources);
  if (i.execute == nullptr || s.operands.size() != static_cast<std::size_t>(sources) + 1) return false;
  i.at[0] = reader.reg(s.operands[0]).offset;
  for (int n = 1; n <= sources; ++n) i.at[n] = reader.source(s.operands[n], type);
  if (const Round how = round_of(s); how != Round::nearest) {
    i.form = static_cast<int>(how);
    i.inner = i.execute;
    i.execute = directed;
  }
  return true;
}

}  // namespace emulator
