// What a function takes that calls back before it returns.
#pragma once

#include <type_traits>

namespace bolt {

/// Something that can be called, by reference: it is to outlive all calls. std::function would keep it, and its header
/// would be a third of what the compiler reads for most files of an engine.
template <typename Signature>
class FunctionRef;

template <typename Result, typename... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  template <typename Function, typename = std::enable_if_t<!std::is_same_v<Function, FunctionRef>>>
  FunctionRef(const Function& function)
      : function_(&function), call_([](const void* what, Arguments... arguments) -> Result {
          return (*static_cast<const Function*>(what))(arguments...);
        }) {}

  Result operator()(Arguments... arguments) const { return call_(function_, arguments...); }

 private:
  const void* function_;
  Result (*call_)(const void* what, Arguments... arguments);
};

}  // namespace bolt
