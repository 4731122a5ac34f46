#include "decode.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace emulator {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == '[' || c == '{' || c == '(') ++depth;
    if (c == ']' || c == '}' || c == ')') --depth;
    if (c == ',' && (depth == 0 || i == text.size())) {
      const std::string_view part = trimmed(text.substr(begin, i - begin));
      if (!part.empty()) parts.push_back(part);
      begin = i + 1;
    }
  }
  return parts;
}

std::vector<std::string_view> elements(std::string_view braces) {
  if (braces.empty() || braces.front() != '{') return {braces};
  return split(braces.substr(1, braces.size() - 2));
}

bool Statement::has(std::string_view modifier) const {
  return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
}

Type type_of(std::string_view word) {
  if (word == "pred") return {'p', 0};
  if (word == "f16x2" || word == "bf16x2") return {'b', 4};
  if (word == "bf16") return {'b', 2};
  const std::size_t digits = word.find_first_of("0123456789");
  if (digits != 1 || word.find_first_not_of("0123456789", digits) != std::string_view::npos ||
      std::string_view("bsuf").find(word[0]) == std::string_view::npos)
    throw Unsupported("type " + std::string(word));
  return {word[0], static_cast<int>(std::strtol(word.data() + 1, nullptr, 10)) / 8};
}

Register Reader::make(Type type) {
  if (type.kind == 'p') return {predicates_++, type};
  const std::uint32_t offset = next_;
  next_ += static_cast<std::uint32_t>(std::max(type.bytes, 2) * lanes);
  next_ = static_cast<std::uint32_t>(align_up(next_, 64));
  return {offset, type};
}

bool Reader::find(std::string_view word, Register& found) {
  for (int scope = scope_; scope >= 0; scope = scopes_[scope].parent) {
    Scope& at = scopes_[scope];
    if (const auto known = at.registers.find(word); known != at.registers.end()) return found = known->second, true;
    const std::size_t digits = word.find_last_not_of("0123456789") + 1;
    if (digits == word.size()) continue;
    if (const auto range = at.ranges.find(word.substr(0, digits)); range != at.ranges.end()) {
      found = make(range->second);
      at.registers.emplace(word, found);
      return true;
    }
  }
  return false;
}

std::uint32_t Reader::shared_variable(std::string_view name, std::size_t bytes, std::size_t align) {
  const std::size_t at = align_up(entry_.shared_bytes, std::max<std::size_t>(align, 16));
  entry_.shared_bytes = at + bytes;
  const auto offset = static_cast<std::uint32_t>(first_shared + at);
  shared_.emplace(name, offset);
  return offset;
}

/// Variables, parameters and what the machine itself knows stand in registers of their own.
bool Reader::symbol(std::string_view word, int bytes, Register& found) {
  // Shared memory's variables in the width that is asked for; everything else has one.
  const auto shared = entry_.module->shared.find(word);
  const bool inside = shared_.contains(word);
  const bool narrow = bytes == 4 && (inside || shared != entry_.module->shared.end());
  const std::string key = std::string(word) + (narrow ? "/32" : "");
  if (const auto known = symbols_.find(key); known != symbols_.end()) return found = known->second, true;
  static const char* const specials[] = {
      "%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y", "%ntid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x",
      "%nctaid.y", "%nctaid.z", "%laneid", "%warpid", "%smid", "%cluster_ctaid.x", "%cluster_ctaid.y",
      "%cluster_ctaid.z", "%cluster_ctarank", "%cluster_nctarank", "%lanemask_lt"};
  if (std::find(std::begin(specials), std::end(specials), word) != std::end(specials)) {
    found = make({'u', 4});
    entry_.specials.push_back({found.offset, std::string(word)});
  } else if (word == "WARP_SZ") {
    found = {constant(lanes, 4), {'u', 4}};
  } else if (inside || shared != entry_.module->shared.end()) {
    found = make({'u', narrow ? 4 : 8});
    if (!inside && shared->second.first == 0) {
      entry_.dynamic_align = std::max(entry_.dynamic_align, shared->second.second);
      entry_.specials.push_back({found.offset, narrow ? "dynamic/32" : "dynamic"});
    } else {
      entry_.constants.push_back({found.offset, inside ? shared_.find(word)->second
                                                       : shared_variable(word, shared->second.first, shared->second.second),
                                  narrow ? 4 : 8});
    }
  } else if (const auto global = entry_.module->variables.find(word); global != entry_.module->variables.end()) {
    found = {constant(reinterpret_cast<std::uint64_t>(global->second.memory.get()), 8), {'u', 8}};
  } else {
    return false;
  }
  symbols_.emplace(key, found);
  return true;
}

Register Reader::reg(std::string_view word, int bytes) {
  if (word == "_") return make({'b', 8});
  Register found;
  if (find(word, found) || symbol(word, bytes, found)) return found;
  throw Unsupported("the name " + std::string(word));
}

std::uint32_t Reader::predicate(std::string_view word) {
  if (word == "_") return predicates_++;
  const Register found = reg(word);
  if (found.type.kind != 'p') throw Unsupported(std::string(word) + ", which is no predicate");
  return found.offset;
}

std::uint32_t Reader::constant(std::uint64_t bits, int bytes) {
  bytes = std::max(bytes, 2);
  if (bytes < 8) bits &= (1ull << 8 * bytes) - 1;
  const auto [known, fresh] = constants_.try_emplace({bits, bytes}, 0);
  if (fresh) {
    known->second = make({'b', bytes}).offset;
    entry_.constants.push_back({known->second, bits, bytes});
  }
  return known->second;
}

std::int64_t Reader::integer(std::string_view word) {
  const std::string text(word);
  char* end = nullptr;
  const bool negative = text[0] == '-';
  const std::uint64_t value = std::strtoull(text.c_str() + negative, &end, 0);
  if (*end == 'U') ++end;
  if (end == text.c_str() + negative || *end != 0) throw Unsupported("the number " + text);
  return static_cast<std::int64_t>(negative ? 0 - value : value);
}

std::uint32_t Reader::source(std::string_view word, Type type) {
  if (word.size() > 2 && word[0] == '0' && (word[1] == 'f' || word[1] == 'F'))
    return constant(std::strtoull(std::string(word.substr(2)).c_str(), nullptr, 16), 4);
  if (word.size() > 2 && word[0] == '0' && (word[1] == 'd' || word[1] == 'D'))
    return constant(std::strtoull(std::string(word.substr(2)).c_str(), nullptr, 16), 8);
  if (std::isdigit(static_cast<unsigned char>(word[0])) || word[0] == '-')
    return constant(static_cast<std::uint64_t>(integer(word)), type.bytes);
  return reg(word, type.bytes).offset;
}

Reader::Address Reader::address(std::string_view word) {
  if (word.size() < 2 || word.front() != '[') throw Unsupported("the address " + std::string(word));
  word = trimmed(word.substr(1, word.size() - 2));
  std::int64_t displacement = 0;
  if (const std::size_t plus = word.find('+'); plus != std::string_view::npos) {
    displacement = integer(trimmed(word.substr(plus + 1)));
    word = trimmed(word.substr(0, plus));
  }
  if (std::isdigit(static_cast<unsigned char>(word[0]))) return {source(word, {'u', 8}), true, displacement};
  const Register base = reg(word);
  return {base.offset, base.type.bytes == 8, displacement};
}

/// .reg .f32 %f<10>, a;
void Reader::declare(std::string_view text) {
  const std::size_t dot = text.find('.', 4);
  const std::size_t blank = text.find_first_of(" \t", dot);
  const Type type = type_of(text.substr(dot + 1, blank - dot - 1));
  for (const std::string_view name : split(text.substr(blank))) {
    const std::size_t range = name.find('<');
    if (range != std::string_view::npos)
      scopes_[scope_].ranges.insert_or_assign(std::string(name.substr(0, range)), type);
    else
      scopes_[scope_].registers.insert_or_assign(std::string(name), make(type));
  }
}

/// .local .align 16 .b8 depot[64], or .param .b64 of a call: an address in the window of local memory.
void Reader::declare_local(std::string_view text) {
  const Declared variable = declared(text);
  const std::size_t at = align_up(entry_.local_bytes, 16);
  entry_.local_bytes = at + variable.bytes;
  const Register found = make({'u', 8});
  entry_.constants.push_back({found.offset, local_window + at, 8});
  scopes_[scope_].registers.insert_or_assign(variable.name, found);
}

}  // namespace emulator
