#include "verify/overrides.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "core/error.h"

namespace plait::verify {
namespace {

bool begins_override(const std::string& word) {
  const auto equals = word.find('=');
  return equals != std::string::npos && equals > 0 &&
         std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                     [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; });
}

}  // namespace

std::vector<std::string> split_overrides(const std::string& text, const std::string& key) {
  std::vector<std::string> list;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (begins_override(word)) {
      list.push_back(word);
    } else if (!list.empty()) {
      list.back() += " " + word;
    } else {
      throw ConfigError({{key, text, "'" + word + "' must have the form key=value", "", 0}});
    }
  }
  return list;
}

}  // namespace plait::verify
