#include "module.h"

#include <cctype>
#include <cstdlib>

#include "memory.h"

namespace emulator {
namespace {

/// The text with blanks in the place of comments.
std::string without_comments(std::string_view text) {
  std::string plain(text);
  for (std::size_t i = 0; i + 1 < plain.size(); ++i) {
    if (plain[i] == '/' && plain[i + 1] == '/') {
      while (i < plain.size() && plain[i] != '\n') plain[i++] = ' ';
    } else if (plain[i] == '/' && plain[i + 1] == '*') {
      const std::size_t end = plain.find("*/", i + 2);
      for (; i < std::min(end + 2, plain.size()); ++i)
        if (plain[i] != '\n') plain[i] = ' ';
    }
  }
  return plain;
}

/// Words of a declaration; brackets, braces and commas are words of their own.
std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (std::isspace(static_cast<unsigned char>(c))) {
      ++i;
    } else if (std::string_view("[]{}(),=").find(c) != std::string_view::npos) {
      words.push_back(text.substr(i++, 1));
    } else {
      const std::size_t end = text.find_first_of(" \t\n\r[]{}(),=", i);
      words.push_back(text.substr(i, end - i));
      i = end == std::string_view::npos ? text.size() : end;
    }
  }
  return words;
}

std::size_t bytes_of(std::string_view type) {
  const std::size_t digits = type.find_first_of("0123456789");
  return digits == std::string_view::npos ? 0 : std::strtoul(type.data() + digits, nullptr, 10) / 8;
}

std::size_t closing(const std::string& text, std::size_t open, char begins, char ends) {
  int depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    if (text[i] == begins) ++depth;
    if (text[i] == ends && --depth == 0) return i;
  }
  throw Unsupported("a PTX text without its end");
}

}  // namespace

Declared declared(std::string_view text) {
  Declared found;
  std::size_t element = 1, count = 1;
  const auto words = words_of(text);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == ".align") {
      found.align = std::strtoul(words[++i].data(), nullptr, 10);
    } else if (words[i] == "[") {
      count = words[i + 1] == "]" ? 0 : std::strtoul(words[++i].data(), nullptr, 10);
    } else if (words[i] == "=") {
      for (++i; i < words.size(); ++i)
        if (std::isdigit(static_cast<unsigned char>(words[i][0]))) {
          const std::uint64_t value = std::strtoull(words[i].data(), nullptr, 0);
          for (std::size_t b = 0; b < element; ++b) found.values.push_back(static_cast<std::uint8_t>(value >> 8 * b));
        } else if (words[i] != "{" && words[i] != "}" && words[i] != ",") {
          throw Unsupported("initial value " + std::string(words[i]) + " of " + found.name);
        }
    } else if (words[i].size() > 2 && words[i][0] == '.' && bytes_of(words[i]) != 0) {
      element = bytes_of(words[i]);
    } else if (words[i][0] != '.' && words[i] != "]") {
      found.name = words[i];
    }
  }
  found.bytes = element * count;
  return found;
}

Module::Module(std::string_view ptx) : text_(without_comments(ptx)) {
  unsigned line = 1;
  std::size_t counted = 0;
  for (std::size_t i = 0; i < text_.size();) {
    i = text_.find('.', i);
    if (i == std::string::npos) break;
    const std::size_t end = text_.find_first_of(";{(\n", i);
    std::size_t stop = end == std::string::npos ? text_.size() : end;
    const std::string_view all(text_);
    const std::string_view head = all.substr(i, stop - i);
    if (head.find(".entry") != std::string_view::npos || head.find(".func") != std::string_view::npos) {
      i = read_body(i, head.find(".func") != std::string_view::npos, line, counted);
    } else if (head.find(".global") == 0 || head.find(".visible .global") == 0 || head.find(".const") == 0 ||
               head.find(".shared") == 0 || head.find(".extern .shared") == 0 || head.find(".visible .const") == 0) {
      stop = text_.find(';', i);
      const Declared found = declared(all.substr(i, stop - i));
      if (head.find(".shared") != std::string_view::npos) {
        shared[found.name] = {found.bytes, found.align};
      } else {
        Variable variable{found.bytes, found.align, std::make_unique<std::byte[]>(std::max<std::size_t>(found.bytes, 1))};
        std::memset(variable.memory.get(), 0, found.bytes);
        std::memcpy(variable.memory.get(), found.values.data(), found.values.size());
        allow_global(variable.memory.get(), found.bytes);
        variables.emplace(found.name, std::move(variable));
      }
      i = stop + 1;
    } else {
      i = stop + 1;
    }
  }
}

/// .func (.param .b64 result) name(.param .b64 first) {...}, or with a semicolon in the place of a body; or a kernel.
/// The place behind it; `line` is that of `counted`.
std::size_t Module::read_body(std::size_t at, bool function, unsigned& line, std::size_t& counted) {
  const std::string_view all(text_);
  const std::size_t begin = std::min(text_.find_first_of("{;", at), text_.size() - 1);
  std::vector<std::pair<std::size_t, std::size_t>> lists;  // between parentheses
  for (std::size_t open = at; (open = text_.find('(', open)) < begin;) {
    lists.emplace_back(open + 1, closing(text_, open, '(', ')'));
    open = lists.back().second;
  }
  if (text_[begin] == ';') return begin + 1;
  const std::size_t last = closing(text_, begin, '{', '}');
  const auto between = [&](std::size_t from, std::size_t to) { return all.substr(from, to - from); };
  const auto head = words_of(between(at, lists.empty() ? begin : lists.front().first - 1));
  const bool gives = function && head.back() == ".func";
  const std::string name(gives ? words_of(between(lists.at(0).second + 1, lists.size() > 1 ? lists[1].first - 1 : begin)).front()
                               : head.back());
  for (; counted < begin; ++counted) line += text_[counted] == '\n';
  unsigned resident = 1;
  const auto bounds = words_of(between(lists.empty() ? at : lists.back().second + 1, begin));
  for (std::size_t word = 0; word + 1 < bounds.size(); ++word)
    if (bounds[word] == ".minnctapersm")
      resident = static_cast<unsigned>(std::strtoul(std::string(bounds[word + 1]).c_str(), nullptr, 10));
  const std::size_t parameters = gives ? 1 : 0;
  const auto list = [&](std::size_t index) {
    return index < lists.size() ? between(lists[index].first, lists[index].second) : std::string_view();
  };
  (function ? functions : bodies)
      .emplace(name, Body{list(parameters), gives ? list(0) : std::string_view(), between(begin + 1, last), line,
                          std::max(resident, 1u)});
  return last + 1;
}

Module::~Module() {
  for (const auto& [name, variable] : variables) forbid_global(variable.memory.get());
}

std::shared_ptr<Module> read_module(std::string_view ptx) { return std::make_shared<Module>(ptx); }

void* variable(const Module& module, const std::string& name, std::size_t* bytes) {
  const auto found = module.variables.find(name);
  if (found == module.variables.end()) return nullptr;
  if (bytes != nullptr) *bytes = found->second.bytes;
  return found->second.memory.get();
}

std::shared_ptr<const Entry> entry(const std::shared_ptr<Module>& module, const std::string& name) {
  const std::lock_guard lock(module->mutex);
  auto& known = module->read[name];
  if (known == nullptr) known = read_entry(module, name);
  return known;
}

const std::vector<Parameter>& parameters(const Entry& entry) { return entry.parameters; }
std::size_t static_shared(const Entry& entry) { return entry.shared_bytes; }
bool acquires(const Entry& entry) { return entry.acquires; }

}  // namespace emulator
