#include "runtime/instruction_graphs.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

namespace plait::runtime {
namespace {

using parallel::Instruction;
using Alike = std::vector<int>;  // the instructions that one graph serves

constexpr std::size_t most_timed = 4;  // graphs of a kind, one after the other
constexpr int rounds = 3;              // the fastest round counts

bool computes(const Instruction& i) {
  return i.kind == parallel::InstructionKind::forward || i.kind == parallel::InstructionKind::loss ||
         i.kind == parallel::InstructionKind::backward_input || i.kind == parallel::InstructionKind::backward_weight;
}

// Instructions of one kind take equally long.
auto kind_of(const parallel::Program& program, const Instruction& i) {
  return std::tuple(i.kind, i.part, program.kind(i.segment), i.accumulate);
}

double synchronize_milliseconds(const std::vector<CudaGraph>& graphs, StreamRef stream) {
  Event begin(stream.device(), EventTiming::on), end(stream.device(), EventTiming::on);
  double fastest = 0;
  for (int round = 0; round < rounds; ++round) {
    stream.record(begin);
    for (const CudaGraph& graph : graphs) graph.launch(stream);
    stream.record(end);
    stream.synchronize();
    const double milliseconds = elapsed_ms(begin, end);
    fastest = round == 0 ? milliseconds : std::min(fastest, milliseconds);
  }
  return fastest / static_cast<double>(graphs.size());
}

}  // namespace

std::vector<std::vector<int>> repeated_instructions(const parallel::Program& program) {
  std::map<Instruction, std::vector<int>> alike;
  for (int n = 0; n < static_cast<int>(program.instructions.size()); ++n) {
    if (!computes(program.at(n))) continue;
    Instruction i = program.at(n);
    i.micro_batch = -1;
    i.waits.clear();
    alike[std::move(i)].push_back(n);
  }
  std::vector<std::vector<int>> lists;
  for (auto& [instruction, list] : alike) lists.push_back(std::move(list));
  std::ranges::sort(lists);
  return lists;
}

InstructionGraphs::InstructionGraphs(const parallel::Program& program, const std::function<StreamRef(int)>& stream_of,
                                     const std::function<void(int)>& issue)
    : graph_of_(program.instructions.size(), -1) {
  const std::vector<Alike> all = repeated_instructions(program);
  std::map<decltype(kind_of(program, Instruction())), std::vector<const Alike*>> kinds;
  std::size_t computing = 0, captured = 0;
  for (const Alike& alike : all) {
    kinds[kind_of(program, program.at(alike.front()))].push_back(&alike);
    computing += alike.size();
  }
  for (const auto& [kind, list] : kinds) {
    if (graphs_.size() + list.size() > most_graphs) continue;
    const StreamRef stream = stream_of(list.front()->front());
    std::vector<CudaGraph> graphs;
    const auto capture_until = [&](std::size_t count) {
      while (graphs.size() < count) {
        const int n = list[graphs.size()]->front();
        graphs.emplace_back(stream, std::vector<StreamRef>(), [&] { issue(n); });
      }
    };
    capture_until(std::min(most_timed, list.size()));
    if (synchronize_milliseconds(graphs, stream) > longest_delayed_ms) continue;
    capture_until(list.size());
    for (std::size_t k = 0; k < list.size(); ++k) {
      for (const int n : *list[k]) graph_of_[static_cast<std::size_t>(n)] = static_cast<int>(graphs_.size() + k);
      captured += list[k]->size();
    }
    std::ranges::move(graphs, std::back_inserter(graphs_));
  }
  if (computing > 0) share_ = static_cast<double>(captured) / static_cast<double>(computing);
}

}  // namespace plait::runtime
