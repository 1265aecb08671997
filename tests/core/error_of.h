// What the exception says that an action throws, for tests.
#pragma once

#include <string>
#include <string_view>

namespace plait {

constexpr std::string_view nothing_thrown = "nothing was thrown";

// nothing_thrown if the action returns. Exceptions of other classes pass.
template <typename Exception, typename Action>
std::string error_of(const Action& action) {
  try {
    static_cast<void>(action());
  } catch (const Exception& error) {
    return error.what();
  }
  return std::string(nothing_thrown);
}

}  // namespace plait
