#include "site/environment_number.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "core/parse_number.h"

namespace plait::site {

int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::max(whole_number<int>(text).value_or(-1), -1) : -1;
}

int number_of(const char* variable, std::vector<ConfigProblem>& problems, int least) {
  const int number = number_in(variable);
  if (number >= least) return number;
  const char* text = std::getenv(variable);
  const std::string rule =
      text ? "must be a number from " + std::to_string(least) + " to " + std::to_string(std::numeric_limits<int>::max())
           : "is missing";
  problems.push_back({std::string("environment variable ") + variable, text ? text : "", rule, "", 0});
  return 0;
}

void check_place(int rank, int size, const char* rank_name, std::vector<ConfigProblem>& problems) {
  if (problems.empty() && rank >= size) {
    problems.push_back({std::string("environment variable ") + rank_name, std::to_string(rank),
                        "must be less than the number of ranks, " + std::to_string(size), "", 0});
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

}  // namespace plait::site
