#include "core/first_problems.h"

namespace plait {

std::vector<ConfigProblem> first_problems(std::vector<ConfigProblem> problems, const std::string& what) {
  constexpr std::size_t most = 20;
  if (problems.size() <= most) return problems;
  const std::size_t more = problems.size() - most;
  problems.resize(most);
  problems.push_back({"and " + std::to_string(more) + " more", "", what, "", 0});
  return problems;
}

}  // namespace plait
