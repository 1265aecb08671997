#include "plan/what_if.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "config/job_rules.h"
#include "core/error.h"
#include "core/format.h"

namespace plait::plan {
namespace {

// The range in which links are scaled in search of another answer, and the steps of the search.
constexpr double most_scale = 64;
constexpr int halvings = 7;
constexpr int most_ranks_looked_at = 16;  // each look simulates two jobs on a scaled machine
constexpr double least_gain = 0.995;      // of the step

topology::Graph scaled(topology::Graph graph, double factor) {
  for (topology::Edge& edge : graph.edges) edge.gb_per_s = std::clamp(edge.gb_per_s * factor, 1e-3, topology::max_gb_per_s);
  for (topology::PairMeasurement& pair : graph.pairs) {
    pair.gb_per_s = std::clamp(pair.gb_per_s * factor, 1e-3, topology::max_gb_per_s);
  }
  return graph;
}

class WhatIf {
 public:
  WhatIf(const Config& config, const parallel::Decision& decision, std::int64_t vocab, int ranks, const Site& site,
         const Evaluation& best)
      : config_(config), decision_(decision), vocab_(vocab), ranks_(ranks), site_(site), best_(best) {}

  // The seconds by which `other` is slower than the best if all links are `factor` times as fast. Both are placed anew.
  double lead(const Candidate& other, double factor) {
    topology::Fabric fabric(scaled(site_.fabric->graph(), factor));
    Site site = site_;
    site.fabric = &fabric;
    Placer placer(fabric);
    const double own = evaluate_shortened(with(config_, best_.candidate), decision_, vocab_, ranks_, site, placer).step_seconds;
    return evaluate_shortened(with(config_, other), decision_, vocab_, ranks_, site, placer).step_seconds - own;
  }

  // "with links a third as fast ... would be faster"
  std::optional<std::string> by_links(const Evaluation& other) {
    for (const double end : {1 / most_scale, most_scale}) {
      if (lead(other.candidate, end) >= 0) continue;
      double kept = 1, lost = end;  // the best stays the best with `kept`, not with `lost`
      for (int n = 0; n < halvings; ++n) {
        const double middle = std::sqrt(kept * lost);
        (lead(other.candidate, middle) >= 0 ? kept : lost) = middle;
      }
      const std::string how = end < 1 ? fmt::format("{:.1f} times slower", 1 / lost) : fmt::format("{:.1f} times faster", lost);
      return fmt::format("if all links were {}, {} would be faster (now {:.1f} against {:.1f} ms)", how,
                         other.candidate.to_string(), 1e3 * other.step_seconds, 1e3 * best_.step_seconds);
    }
    return std::nullopt;
  }

  // "with parallel.stages=[7.5, 4.5] ...", if the best one's are cut by FLOPs.
  std::optional<std::string> by_stages(const std::vector<double>& stages) {
    if (stages.empty()) return std::nullopt;
    Config other = with(config_, best_.candidate);
    other.parallel.stages = stages;
    const auto evaluation = gain(other);
    if (!evaluation) return std::nullopt;
    return fmt::format("with parallel.stages=[{}] a step would take {:.1f} ms instead of {:.1f}", fmt::join(stages, ", "),
                       1e3 * evaluation->step_seconds, 1e3 * best_.step_seconds);
  }

  // "with comm.braid=ahead ...", for a step whose first forward has no other pass to be braided with.
  std::optional<std::string> by_braids() {
    Config ahead = with(config_, best_.candidate);
    if (!ahead.comm.braid.is_auto() || ahead.parallel.size[segment_axis] == 1) return std::nullopt;
    ahead.comm.braid = Braid::ahead;
    JobFacts facts = facts_of(ahead);
    facts.ranks = ranks_;
    if (!broken_rules(facts).empty()) return std::nullopt;
    const auto other = gain(ahead);
    if (!other) return std::nullopt;
    return fmt::format("with comm.braid=ahead a step would take {:.1f} ms instead of {:.1f}, and hold {} more",
                       1e3 * other->step_seconds, 1e3 * best_.step_seconds,
                       format_bytes(other->most_bytes() - best_.most_bytes()));
  }

 private:
  // Nothing if the change is not faster, or does not fit.
  std::optional<Evaluation> gain(const Config& other) {
    Placer placer(*site_.fabric);
    Evaluation evaluation = evaluate(other, decision_, vocab_, ranks_, site_, placer);
    if (evaluation.step_seconds > least_gain * best_.step_seconds) return std::nullopt;
    if (!memory_problem(evaluation, site_.machine).empty()) return std::nullopt;
    return evaluation;
  }

  const Config& config_;
  const parallel::Decision& decision_;
  const std::int64_t vocab_;
  const int ranks_;
  const Site& site_;
  const Evaluation& best_;
};

// The largest loss of the step: time not spent computing.
std::optional<std::string> by_loss(const Evaluation& best) {
  const parallel::Ledger& ledger = best.ledger;
  struct Loss {
    const char* what;
    double ms;
    const char* remedy;
  };
  const Loss losses[] = {
      {"the pipeline's bubble", ledger.bubble_ms, "more micro-batches (a larger train.global_batch) make it smaller"},
      {"waiting for tensor exchanges", ledger.exposed_tp_ms(), "faster links within tensor groups would"},
      {"reduction of gradients and gathering of weights", ledger.exposed_dp_ms(),
       "a larger train.global_batch hides more of it"},
      {"waiting for messages between stages", ledger.exposed_p2p_ms(), "faster links between stages would"},
  };
  const Loss& largest =
      *std::max_element(std::begin(losses), std::end(losses), [](const Loss& a, const Loss& b) { return a.ms < b.ms; });
  const double share = largest.ms / (1e3 * best.step_seconds);
  if (share < 0.01) return std::nullopt;
  return fmt::format("{} costs {:.1f} ms of the step ({:.1f} %): {}", largest.what, largest.ms, 100 * share, largest.remedy);
}

std::optional<std::string> by_memory(const Site& site, const Evaluation& best,
                                     const std::vector<EstimatedCandidate>& too_large) {
  const EstimatedCandidate* fastest = nullptr;
  for (const EstimatedCandidate& e : too_large) {
    if (e.seconds < 0.97 * best.step_seconds && (!fastest || e.seconds < fastest->seconds)) fastest = &e;
  }
  if (!fastest) return std::nullopt;
  const double has = site.machine.usable_bytes() - context_bytes(site.machine);
  return fmt::format("if a {} had {} more, {} would be faster: about {:.1f} ms", site.machine.profile.unit,
                     format_bytes(fastest->bytes - has), fastest->candidate.to_string(), 1e3 * fastest->seconds);
}

}  // namespace

std::vector<std::string> what_would_change(const Config& config, const parallel::Decision& decision, std::int64_t vocab,
                                           int ranks, const Site& site, const Evaluation& best,
                                           const std::vector<Evaluation>& alternatives,
                                           const std::vector<EstimatedCandidate>& too_large,
                                           const std::vector<double>& stages) {
  std::vector<std::string> sentences;
  const auto add = [&](std::optional<std::string> sentence) {
    if (sentence) sentences.push_back(std::move(*sentence));
  };
  // The best candidate of another layout, in jobs small enough to afford a search.
  const auto other = std::find_if(alternatives.begin(), alternatives.end(),
                                  [&](const Evaluation& e) { return e.candidate.layout() != best.candidate.layout(); });
  if (ranks <= most_ranks_looked_at) {
    WhatIf what_if(config, decision, vocab, ranks, site, best);
    if (other != alternatives.end()) add(what_if.by_links(*other));
    add(what_if.by_stages(stages));
    add(what_if.by_braids());
  }
  add(by_memory(site, best, too_large));
  add(by_loss(best));
  return sentences;
}

}  // namespace plait::plan
