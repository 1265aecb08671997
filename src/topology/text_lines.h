// Finds the line of a text that a byte is in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace plait::topology {

class TextLines {
 public:
  explicit TextLines(std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') ends_.push_back(i);
    }
  }
  // Line numbers from 1. A newline belongs to the line that it ends.
  int at(std::size_t offset) const {
    return static_cast<int>(std::lower_bound(ends_.begin(), ends_.end(), offset) - ends_.begin()) + 1;
  }

 private:
  std::vector<std::size_t> ends_;
};

}  // namespace plait::topology
