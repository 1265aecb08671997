#include "parallel/proof/validator.h"

#include <algorithm>

#include "core/error.h"
#include "parallel/program/program_grid.h"
#include "parallel/proof/validator_checks.h"

namespace plait::parallel {
namespace {

// Pictures in error messages are for terminals.
constexpr int grid_width = 130;

void require_shape(const ProgramSet& set) {
  const bool programs = std::all_of(set.program_of.begin(), set.program_of.end(),
                                    [&](int p) { return p >= 0 && p < static_cast<int>(set.programs.size()); });
  require(static_cast<int>(set.program_of.size()) == set.layout.ranks() && programs, "ProgramSet: a program for every rank");
  const auto is_rank = [&](int rank) { return rank >= 0 && rank < set.layout.size(stage_axis); };
  require(set.segment_count() >= 2 && set.micro_batches >= 1 && is_rank(set.ends.first) && is_rank(set.ends.last),
          "ProgramSet: sizes and the ranks of the model's ends");
}

}  // namespace

std::string name_of(const Program& program, int index) {
  return "instruction " + std::to_string(index) + ", " + to_string(program.at(index));
}

std::string to_string(const ProgramProblem& problem, const ProgramSet& set) {
  std::string text = "rank " + std::to_string(problem.rank) + " (" + to_string(set.layout.coordinates(problem.rank)) + ")";
  if (problem.instruction >= 0) text += ", " + name_of(set.program(problem.rank), problem.instruction);
  return text + ": " + problem.words;
}

std::vector<int> ranks_of_programs(const ProgramSet& set) {
  std::set<int> seen;
  std::vector<int> ranks;
  for (int rank = 0; rank < set.layout.ranks(); ++rank) {
    if (seen.insert(set.program_of[static_cast<std::size_t>(rank)]).second) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<ProgramProblem> validate(const ProgramSet& all) {
  require_shape(all);
  const ProgramSet set = condensed(all);
  ProblemList list;
  check_structure(set, list);
  if (list.empty()) {
    for (const int rank : ranks_of_programs(set)) {
      check_complete(set, rank, list);
      check_values(set, rank, list);
      check_races(set, rank, list);
    }
    check_messages(set, list);
    check_collectives(set, list);
    check_deadlock(set, list);
  }
  std::vector<ProgramProblem> problems = list.take();
  for (ProgramProblem& p : problems) p.rank = all.layout.rank(set.layout.coordinates(p.rank));
  return problems;
}

void require_valid(const ProgramSet& set) {
  const std::vector<ProgramProblem> problems = validate(set);
  if (problems.empty()) return;
  const ProgramProblem& first = problems.front();
  std::string text = "invalid program: " + to_string(first, set);
  if (problems.size() > 1) text += " (and " + std::to_string(problems.size() - 1) + " more)";
  throw InternalError(
      text + "\n" +
      draw_programs(set, {.width = grid_width, .marked_rank = first.rank, .marked_instruction = first.instruction}));
}

}  // namespace plait::parallel
