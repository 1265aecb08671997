#pragma once

#include <stdlib.h>

#include <optional>
#include <string>
#include <utility>

namespace plait::test {

// Sets (or, without a value, removes) a variable; the destructor restores what was there.
class EnvironmentVariable {
 public:
  EnvironmentVariable(std::string name, const std::optional<std::string>& value) : name_(std::move(name)) {
    if (const char* text = getenv(name_.c_str())) previous_ = text;
    assign(value);
  }
  EnvironmentVariable(EnvironmentVariable&& other) noexcept
      : name_(std::move(other.name_)), previous_(std::move(other.previous_)) {
    other.name_.clear();
  }
  EnvironmentVariable& operator=(EnvironmentVariable&&) = delete;
  ~EnvironmentVariable() {
    if (!name_.empty()) assign(previous_);
  }

 private:
  void assign(const std::optional<std::string>& value) {
    if (value) {
      setenv(name_.c_str(), value->c_str(), 1);
    } else {
      unsetenv(name_.c_str());
    }
  }
  std::string name_;
  std::optional<std::string> previous_;
};

}  // namespace plait::test
