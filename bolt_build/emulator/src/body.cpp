// A kernel's text, statement by statement, as instructions: scopes, labels, declarations, jumps.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <utility>

#include "decode.h"

namespace emulator {
namespace {

/// The label behind a function's instructions: no text can give one this name.
constexpr std::string_view behind_call = "}";

Statement statement_of(std::string_view text) {
  Statement found;
  const std::size_t blank = text.find_first_of(" \t\n{[(");
  std::string_view opcode = text.substr(0, blank);
  if (blank != std::string_view::npos) found.operands = split(text.substr(blank));
  for (bool first = true; !opcode.empty(); first = false) {
    const std::size_t dot = opcode.find('.');
    const std::string_view word = opcode.substr(0, dot);
    if (first)
      found.base = word;
    else
      found.modifiers.push_back(word);
    opcode = dot == std::string_view::npos ? std::string_view() : opcode.substr(dot + 1);
  }
  return found;
}

void read_parameters(Entry& entry, std::string_view text, std::vector<std::pair<std::string, std::size_t>>& names) {
  for (const std::string_view declared : split(text)) {
    std::size_t align = 0, bytes = 0, count = 1;
    std::string name;
    std::string_view rest = declared;
    while (!rest.empty()) {
      rest = trimmed(rest);
      const std::size_t blank = rest.find_first_of(" \t\n");
      const std::string_view word = rest.substr(0, blank);
      rest = blank == std::string_view::npos ? std::string_view() : rest.substr(blank);
      if (word == ".align") {
        rest = trimmed(rest);
        align = std::strtoul(rest.data(), nullptr, 10);
        rest = rest.substr(rest.find_first_of(" \t"));
      } else if (word == ".param" || word == ".ptr" || word == ".global") {
      } else if (word[0] == '.') {
        bytes = static_cast<std::size_t>(type_of(word.substr(1)).bytes);
      } else {
        const std::size_t bracket = word.find('[');
        name = word.substr(0, bracket);
        if (bracket != std::string_view::npos) count = std::strtoul(word.data() + bracket + 1, nullptr, 10);
      }
    }
    const std::size_t at = align_up(entry.parameter_bytes, std::max(align, bytes));
    entry.parameters.push_back({at, bytes * count});
    entry.parameter_bytes = at + bytes * count;
    names.emplace_back(name, at);
  }
}

}  // namespace

/// Reads one kernel's body, front to back; jumps forwards are resolved at the end.
class BodyReader {
 public:
  BodyReader(Entry& entry, std::string_view text, unsigned line) : entry_(entry), reader_(entry), text_(text), line_(line) {}

  void read(std::string_view parameters) {
    std::vector<std::pair<std::string, std::size_t>> names;
    read_parameters(entry_, parameters, names);
    for (const auto& [parameter, offset] : names) {
      const Register found = reader_.make({'u', 8});
      entry_.parameter_addresses.push_back({found.offset, offset, 8});
      reader_.symbols_.emplace(parameter, found);
    }
    statements();
    for (const Jump& jump : jumps_) entry_.code[jump.from].target = place_of(jump);
    entry_.file_bytes = reader_.next_;
    entry_.predicates = reader_.predicates_;
  }

 private:
  struct Jump {
    std::size_t from;
    std::string label;
    int scope;
  };

  [[noreturn]] void fail(std::string_view statement, const std::string& why) const {
    throw Unsupported(entry_.name + ", line " + std::to_string(line_) + ": " + std::string(statement.substr(0, 200)) + ": " + why);
  }

  /// Up to the text's end.
  void statements() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') ++line_;
      if (std::isspace(static_cast<unsigned char>(c)) || c == ';')
        ++at_;
      else if (c == '{' || c == '}')
        scope(c);
      else if (!label())
        statement();
    }
  }

  void scope(char brace) {
    if (brace == '{') {
      reader_.scopes_.push_back({{}, {}, {}, reader_.scope_});
      reader_.scope_ = static_cast<int>(reader_.scopes_.size()) - 1;
    } else {
      reader_.scope_ = reader_.scopes_[reader_.scope_].parent;
    }
    ++at_;
  }

  /// True where a label stood here, which names the next instruction.
  bool label() {
    std::size_t word = at_;
    while (word < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[word])) || text_[word] == '_' ||
                                   text_[word] == '$' || text_[word] == '%'))
      ++word;
    std::size_t colon = word;
    while (colon < text_.size() && (text_[colon] == ' ' || text_[colon] == '\t')) ++colon;
    if (word == at_ || colon == text_.size() || text_[colon] != ':') return false;
    reader_.scopes_[reader_.scope_].labels[std::string(text_.substr(at_, word - at_))] =
        static_cast<std::uint32_t>(entry_.code.size());
    at_ = colon + 1;
    return true;
  }

  /// A directive or an instruction, up to its semicolon.
  void statement() {
    const std::size_t end = text_.find(';', at_);
    const std::string_view whole = text_.substr(at_, end - at_), found = trimmed(whole);
    at_ = end + 1;
    try {
      if (found[0] == '.')
        directive(found);
      else
        instruction(found);
    } catch (const Unsupported& error) {
      if (std::string_view(error.what()).rfind(entry_.name, 0) == 0) throw;
      fail(found, error.what());
    } catch (const std::out_of_range&) {
      fail(found, "operands that are missing");
    }
    line_ += static_cast<unsigned>(std::count(whole.begin(), whole.end(), '\n'));
  }

  void directive(std::string_view found) {
    if (found.rfind(".reg", 0) == 0) {
      reader_.declare(found);
    } else if (found.rfind(".local", 0) == 0 || found.rfind(".param", 0) == 0) {
      reader_.declare_local(found);
    } else if (found.rfind(".shared", 0) == 0) {
      const Declared variable = declared(found);
      reader_.shared_variable(variable.name, variable.bytes, variable.align);
    } else if (found.rfind(".pragma", 0) != 0) {
      fail(found, "a directive that is not known");
    }
  }

  void instruction(std::string_view found) {
    Instruction made;
    made.line = line_;
    const std::string whole(found.substr(0, 160));
    if (found[0] == '@') {
      made.negated = found[1] == '!';
      const std::size_t name = made.negated ? 2 : 1, blank = found.find_first_of(" \t");
      made.guard = static_cast<std::int32_t>(reader_.predicate(found.substr(name, blank - name)));
      found = trimmed(found.substr(blank));
    }
    const Statement parts = statement_of(found);
    if (parts.base == "call") {
      call(parts, made);
      return;
    }
    if (parts.base == "bra") {
      made.kind = Instruction::Kind::branch;
      jumps_.push_back({entry_.code.size(), std::string(parts.operands.at(0)), reader_.scope_});
    } else if (parts.base == "ret" && !calls_.empty()) {
      made.kind = Instruction::Kind::branch;
      jumps_.push_back({entry_.code.size(), std::string(behind_call), function_scope_});
    } else if (parts.base == "ret" || parts.base == "exit") {
      made.kind = Instruction::Kind::leave;
    } else {
      constexpr Decode all[] = {decode_floats,     decode_halves,  decode_bits,       decode_carries,
                                decode_arithmetic, decode_comparisons, decode_conversion, decode_memory,
                                decode_atomics,    decode_waiting,    decode_products,   decode_copies};
      if (std::none_of(std::begin(all), std::end(all), [&](Decode decode) { return decode(reader_, parts, made); }))
        fail(found, "an instruction that is not known");
      if (made.attempt != nullptr) made.kind = Instruction::Kind::waiting;
      if (parts.base == "ld" && parts.has("acquire")) entry_.acquires = true;
    }
    entry_.code.push_back(std::move(made));
    entry_.lines.push_back(whole);
  }

  /// call (result), function, (first, second): the function's instructions stand here once more, with registers of their
  /// own. Its parameters are the caller's variables, and what returns goes on behind them, where lanes meet again.
  void call(const Statement& parts, const Instruction& guard) {
    std::vector<std::string_view> words(parts.operands.begin(), parts.operands.end());
    std::vector<std::string_view> given, results;
    if (!words.empty() && words.front().front() == '(') {
      results = split(inside(words.front()));
      words.erase(words.begin());
    }
    if (words.size() == 2) given = split(inside(words[1]));
    if (guard.guard >= 0 || words.empty() || words.size() > 2) throw Unsupported("a call of this form");
    const auto found = entry_.module->functions.find(words[0]);
    if (found == entry_.module->functions.end()) throw Unsupported("a function that has no body here: " + std::string(words[0]));
    const std::string name(words[0]);
    if (std::find(calls_.begin(), calls_.end(), name) != calls_.end()) throw Unsupported("a function that calls itself: " + name);
    const Module::Body& body = found->second;
    const int caller = reader_.scope_, around = function_scope_;
    std::map<std::string, Register, std::less<>> registers;
    bind(registers, body.results, results);
    bind(registers, body.parameters, given);
    reader_.scopes_.push_back({std::move(registers), {}, {}, -1});
    reader_.scope_ = function_scope_ = static_cast<int>(reader_.scopes_.size()) - 1;
    calls_.push_back(name);
    const std::string_view text = std::exchange(text_, body.text);
    const unsigned line = std::exchange(line_, body.line);
    const std::size_t at = std::exchange(at_, 0);
    statements();
    reader_.scopes_[function_scope_].labels[std::string(behind_call)] = static_cast<std::uint32_t>(entry_.code.size());
    text_ = text;
    line_ = line;
    at_ = at;
    calls_.pop_back();
    function_scope_ = around;
    reader_.scope_ = caller;
  }

  /// The names of a function's parameters stand for what a call gives.
  void bind(std::map<std::string, Register, std::less<>>& registers, std::string_view parameters,
            const std::vector<std::string_view>& given) {
    std::size_t index = 0;
    for (const std::string_view declared : split(parameters)) {
      if (declared.rfind(".param", 0) != 0) throw Unsupported("a function's parameter that is a register");
      const std::size_t blank = declared.find_last_of(" \t\n");
      const std::string_view name = declared.substr(blank + 1);
      Register actual;
      if (!reader_.find(given.at(index++), actual)) throw Unsupported("a call with a number instead of a variable");
      registers.emplace(std::string(name.substr(0, name.find('['))), actual);
    }
    if (index != given.size()) throw Unsupported("a call with more than the function takes");
  }

  static std::string_view inside(std::string_view parentheses) { return parentheses.substr(1, parentheses.size() - 2); }

  /// The instruction behind a label, which the jump's own scope or one around it has.
  std::uint32_t place_of(const Jump& jump) const {
    for (int scope = jump.scope; scope >= 0; scope = reader_.scopes_[scope].parent) {
      const auto& labels = reader_.scopes_[scope].labels;
      if (const auto label = labels.find(jump.label); label != labels.end()) return label->second;
    }
    throw Unsupported(entry_.name + ": no label " + jump.label);
  }

  Entry& entry_;
  Reader reader_;
  std::string_view text_;
  unsigned line_;
  std::size_t at_ = 0;
  std::vector<Jump> jumps_;
  std::vector<std::string> calls_;  // functions that are being read, each called by the one before it
  int function_scope_ = 0;          // of the last of them
};

std::shared_ptr<Entry> read_entry(const std::shared_ptr<Module>& module, const std::string& name) {
  const auto body = module->bodies.find(name);
  if (body == module->bodies.end()) throw Unsupported("no kernel " + name);
  auto entry = std::make_shared<Entry>();
  entry->name = name;
  entry->module = module;
  entry->resident = body->second.resident;
  BodyReader(*entry, body->second.text, body->second.line).read(body->second.parameters);
  return entry;
}

}  // namespace emulator
