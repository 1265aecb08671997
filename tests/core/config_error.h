// What the ConfigError says that an action throws, for tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "core/error.h"
#include "core/error_of.h"

namespace plait {

inline std::string config_error(const std::function<void()>& action) {
  const std::string text = error_of<ConfigError>(action);
  EXPECT_NE(text, nothing_thrown);
  return text;
}

}  // namespace plait
