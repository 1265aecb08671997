#include "plan/planner.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "core/error.h"
#include "core/format.h"
#include "parallel/mesh.h"
#include "plan/ordered_tasks.h"
#include "plan/pass_planning.h"
#include "plan/what_if.h"
#include "topology/host_rings.h"

namespace plait::plan {
namespace {

// The fastest ways within a host and between two; with them an estimate tends to be too low, not too high.
class FastestWays {
 public:
  explicit FastestWays(topology::Fabric& fabric) {
    const int first_host = fabric.gpu(0).host;
    while (of_host_ < fabric.gpus() && fabric.gpu(of_host_).host == first_host) ++of_host_;
    const int looked_at = std::min(fabric.gpus(), std::min(of_host_, 16) + 1);
    for (int from = 0; from < looked_at; ++from) {
      for (int to = 0; to < looked_at; ++to) {
        if (from == to) continue;
        const topology::Way& way = fabric.way(from, to);
        RingSpeed& best = fabric.gpu(from).host == fabric.gpu(to).host ? within_ : between_;
        if (way.gb_per_s > best.gb_per_s) best = {way.gb_per_s, way.latency_us};
      }
    }
    if (of_host_ < fabric.gpus()) {
      const topology::Way& way = fabric.way(0, of_host_);
      if (way.gb_per_s > between_.gb_per_s) between_ = {way.gb_per_s, way.latency_us};
      std::vector<int> two_hosts;
      for (int gpu = 0; gpu < fabric.gpus() && fabric.host_of(gpu) < 2; ++gpu) two_hosts.push_back(gpu);
      rings_ = topology::host_rings(topology::network_of(fabric), two_hosts).rings;
    }
  }
  // Tensor groups have the first claim on a host, then each other axis.
  AxisSpeeds speeds(const Candidate& c) const {
    const auto on = [&](std::int64_t ranks) { return ranks <= of_host_ ? within_ : between_; };
    // The ring speed of a group with `on_each` ranks on each host.
    const auto rings_on = [&](std::int64_t ranks, std::int64_t on_each) {
      RingSpeed speed = on(ranks);
      const double rings = static_cast<double>(std::min<std::int64_t>(rings_, on_each));
      if (ranks > of_host_ && rings > 1)
        speed.gb_per_s = std::max(speed.gb_per_s, std::min(rings * speed.gb_per_s, within_.gb_per_s * rings / (rings - 1)));
      return speed;
    };
    return AxisSpeeds::of_rows([&](const AxisRow& row) {
      // The axis that communicates most lies within the others.
      const std::int64_t inner = row.axis == axes_by_traffic.front() ? 1 : c.size[axes_by_traffic.front()];
      const std::int64_t ranks = inner * c.size[row.axis];
      return row.way == WayKey::none ? on(ranks) : rings_on(ranks, of_host_ / inner);
    });
  }

 private:
  int of_host_ = 0;
  int rings_ = 1;  // of a group that fills two hosts
  RingSpeed within_, between_;
};

constexpr int quickly_placed_ranks = 16;

constexpr std::size_t most_threads = 4;

// Limits on the candidates whose stages are also cut by FLOPs: this many of the best by simulation, and this much slower.
constexpr std::size_t most_cut_again = 4;
constexpr double worth_cutting_again = 1.05;

// Limit on an exact placement, per candidate.
constexpr std::int64_t nodes_while_ranking = 100'000;

// The error in one line.
std::string reason_of(const ConfigError& error) {
  if (error.problems().empty()) return error.what();
  const ConfigProblem& problem = error.problems().front();
  return problem.path + " = " + problem.value + " " + problem.rule;
}

class PlanSearch {
 public:
  PlanSearch(const Config& config, const parallel::Decision& decision, std::int64_t vocab, int ranks, const Site& site,
             PlannerOptions options)
      : config_(config),
        decision_(decision),
        vocab_(vocab),
        ranks_(ranks),
        site_(site),
        options_(options),
        ways_(*site.fabric) {
    if (options_.most_looked_at == 0) options_.most_looked_at = ranks > quickly_placed_ranks ? 24 : 48;
  }

  PlannedJob run() {
    Enumeration all = enumerate(config_, ranks_);
    job_.rejected = std::move(all.rejected);
    job_.enumerated = static_cast<int>(all.candidates.size());
    sort(all.candidates);
    open_desks();
    simulate_best();
    if (evaluations_.empty()) refuse();
    try_other_cuts();
    arrange();
    look_closely();
    job_.config = with(config_, job_.best.candidate);
    job_.decision = decision_;
    if (plans_passes(job_.config, decision_)) {
      job_.decision.passes = parallel::planned_passes(job_.stages.front().schedule);
      job_.lists_passes = true;
    }
    if (options_.what_if) {
      job_.what_if = what_would_change(config_, decision_, vocab_, ranks_, site_, job_.best, job_.alternatives, too_large_,
                                       stages_by_seconds(job_.best.candidate));
    }
    return std::move(job_);
  }

 private:
  const std::string& unit() const { return site_.machine.profile.unit; }
  double limit() const { return site_.machine.usable_bytes() - context_bytes(site_.machine); }

  // The fabric and placer of one thread; both remember earlier answers.
  struct Desk {
    explicit Desk(const Site& s) : site(s), placer(*s.fabric) {}
    Desk(const Site& s, const topology::Fabric& original)
        : own(std::make_unique<topology::Fabric>(original)), site(s), placer(*own) {
      site.fabric = own.get();
    }
    std::unique_ptr<topology::Fabric> own;  // none: the site's
    Site site;
    Placer placer;
  };

  // Empty if the stages are cut by seconds already.
  std::vector<double> stages_by_seconds(const Candidate& c) const {
    if (c.size[stage_axis] == 1 || !c.stages.empty()) return {};
    return Estimator(config_, decision_, vocab_, site_.kind, site_.machine, StageCut::by_seconds)
        .estimate(c, ways_.speeds(c))
        .stages;
  }

  void open_desks() {
    std::size_t threads = static_cast<std::size_t>(options_.threads);
    if (threads == 0) threads = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, most_threads);
    desks_.emplace_back(site_);
    while (desks_.size() < std::min(threads, waiting_.size())) desks_.emplace_back(site_, *site_.fabric);
  }

  void sort(const std::vector<Candidate>& candidates) {
    Estimator estimator(config_, decision_, vocab_, site_.kind, site_.machine);
    for (const Candidate& c : candidates) {
      try {
        const Estimate estimate = estimator.estimate(c, ways_.speeds(c));
        EstimatedCandidate next{c, estimate.seconds, estimate.bytes};
        next.candidate.stages = estimate.stages;
        // The memory plan decides; this only drops candidates that are far too large.
        (estimate.bytes > 1.1 * limit() ? too_large_ : waiting_).push_back(std::move(next));
      } catch (const ConfigError& error) {
        impossible_.push_back({c, reason_of(error)});
      }
    }
    std::stable_sort(waiting_.begin(), waiting_.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  }

  void simulate_best() {
    std::map<std::string, int> of_layout;
    Queue first, later, likely;
    for (const EstimatedCandidate& next : waiting_) {
      (of_layout[next.candidate.layout()]++ < options_.first_of_layout ? first : later).push_back(&next);
    }
    look_at(first, options_.most_looked_at);
    look_at(later, options_.most_looked_at);
    if (!evaluations_.empty()) return;
    for (const EstimatedCandidate& next : waiting_) {
      if (next.bytes < 0.95 * limit() && !looked_at_.contains(&next)) likely.push_back(&next);
    }
    look_at(likely, 2 * options_.most_looked_at);
  }

  PlacementOptions while_ranking() const {
    PlacementOptions quick = options_.placement;
    quick.most_nodes = std::min(quick.most_nodes, nodes_while_ranking);
    return quick;
  }

  using Queue = std::vector<const EstimatedCandidate*>;

  // Evaluates the queue in order, until `most` candidates have been looked at in all, or the best simulated time beats the
  // estimates of the rest.
  void look_at(const Queue& queue, int most) {
    // Impossible candidates do not count, so another round may follow.
    for (std::size_t begin = 0; begin < queue.size() && job_.looked_at < most;) {
      const std::size_t end = std::min(queue.size(), begin + static_cast<std::size_t>(most - job_.looked_at));
      OrderedTasks<Evaluation> evaluations(end - begin, desks_.size(), [&, begin](std::size_t n, std::size_t thread) {
        Desk& desk = desks_[thread];
        return evaluate_shortened(with(config_, queue[begin + n]->candidate), decision_, vocab_, ranks_, desk.site, desk.placer,
                                  while_ranking());
      });
      for (std::size_t n = begin; n < end; ++n) {
        const EstimatedCandidate& next = *queue[n];
        if (options_.estimate_trust * next.seconds > best_seconds_) return;
        looked_at_.insert(&next);
        if (options_.progress)
          options_.progress(static_cast<double>(looked_at_.size()) /
                                static_cast<double>(std::min(waiting_.size(), static_cast<std::size_t>(most))),
                            next.candidate.to_string());
        try {
          take(next, evaluations.take(n - begin));
        } catch (const ConfigError& error) {
          impossible_.push_back({next.candidate, reason_of(error)});
        }
      }
      begin = end;
    }
  }

  void take(const EstimatedCandidate& candidate, Evaluation evaluation) {
    ++job_.looked_at;
    evaluation.estimated_seconds = candidate.seconds;
    if (const std::string problem = memory_problem(evaluation, site_.machine); !problem.empty()) {
      too_large_.push_back({candidate.candidate, candidate.seconds, evaluation.most_bytes() - context_bytes(site_.machine)});
      memory_problems_.push_back({candidate.candidate, problem});
      return;
    }
    best_seconds_ = std::min(best_seconds_, evaluation.step_seconds);
    evaluations_.push_back(std::move(evaluation));
  }

  // A cut by seconds of compute ignores the waiting of ranks, which is sometimes shorter with stages cut by FLOPs.
  void try_other_cuts() {
    sort_evaluations();
    const double limit = worth_cutting_again * best_seconds_;
    std::vector<Evaluation*> again;
    for (Evaluation& e : evaluations_) {
      if (e.step_seconds > limit || again.size() == most_cut_again) break;
      if (!e.candidate.stages.empty()) again.push_back(&e);
    }
    const auto by_flops = [&](std::size_t n) {
      Candidate candidate = again[n]->candidate;
      candidate.stages.clear();
      return candidate;
    };
    OrderedTasks<Evaluation> others(again.size(), desks_.size(), [&](std::size_t n, std::size_t thread) {
      Desk& desk = desks_[thread];
      return evaluate_shortened(with(config_, by_flops(n)), decision_, vocab_, ranks_, desk.site, desk.placer, while_ranking());
    });
    for (std::size_t n = 0; n < again.size(); ++n) {
      Evaluation other = others.take(n);
      if (other.step_seconds >= again[n]->step_seconds || !memory_problem(other, site_.machine).empty()) continue;
      other.estimated_seconds = again[n]->estimated_seconds;
      *again[n] = std::move(other);
    }
  }

  void sort_evaluations() {
    std::stable_sort(evaluations_.begin(), evaluations_.end(),
                     [](const auto& a, const auto& b) { return a.step_seconds < b.step_seconds; });
  }

  // Sorts the evaluations: the best, then the best of each other layout, then the rest; each group by predicted time. Also
  // explains missing layouts.
  void arrange() {
    sort_evaluations();
    job_.fitting = static_cast<int>(waiting_.size()) - static_cast<int>(memory_problems_.size());
    std::vector<Evaluation> first_of_layout, others;
    std::vector<std::string> seen;
    for (Evaluation& e : evaluations_) {
      const bool is_new = std::find(seen.begin(), seen.end(), e.candidate.layout()) == seen.end();
      if (is_new) seen.push_back(e.candidate.layout());
      (is_new ? first_of_layout : others).push_back(std::move(e));
    }
    job_.best = std::move(first_of_layout.front());
    first_of_layout.erase(first_of_layout.begin());
    for (auto* list : {&first_of_layout, &others}) {
      for (Evaluation& e : *list) {
        if (static_cast<int>(job_.alternatives.size()) < options_.top) job_.alternatives.push_back(std::move(e));
      }
    }
    explain_layouts(seen);
  }

  // Evaluates the best once more, with the whole step and the full time for placement.
  void look_closely() {
    const double estimated = job_.best.estimated_seconds;
    const Config chosen = with(config_, job_.best.candidate);
    job_.stages = stage_plans(chosen, decision_, vocab_, ranks_, site_);
    job_.best = evaluate_plans(chosen, job_.stages, site_, desks_.front().placer, options_.placement);
    job_.best.estimated_seconds = estimated;
  }

  // The reason for every layout that was enumerated and not simulated: its best estimate, or its memory.
  void explain_layouts(std::vector<std::string> seen) {
    const auto is_new = [&](const Candidate& c) {
      if (std::find(seen.begin(), seen.end(), c.layout()) != seen.end()) return false;
      seen.push_back(c.layout());
      return true;
    };
    for (const EstimatedCandidate& e : waiting_) {
      const auto problem = std::find_if(memory_problems_.begin(), memory_problems_.end(),
                                        [&](const Rejected& r) { return r.candidate == e.candidate; });
      const bool failed =
          std::any_of(impossible_.begin(), impossible_.end(), [&](const Rejected& r) { return r.candidate == e.candidate; });
      if (problem != memory_problems_.end() || failed || !is_new(e.candidate)) continue;
      const bool is_slower = options_.estimate_trust * e.seconds > job_.best.step_seconds;
      job_.rejected.push_back(
          {e.candidate, fmt::format("{}: at best about {:.1f} ms a step by estimate, where the choice takes {:.1f}",
                                    is_slower ? "slower" : "not simulated", 1e3 * e.seconds, 1e3 * job_.best.step_seconds)});
    }
    for (const Rejected& r : memory_problems_) {
      if (is_new(r.candidate)) job_.rejected.push_back(r);
    }
    std::map<std::string, const EstimatedCandidate*> smallest;  // of each layout that is far too large
    for (const EstimatedCandidate& e : too_large_) {
      const EstimatedCandidate*& known = smallest[e.candidate.layout()];
      if (!known || e.bytes < known->bytes) known = &e;
    }
    for (const auto& [layout, e] : smallest) {
      if (is_new(e->candidate)) job_.rejected.push_back({e->candidate, too_much(*e)});
    }
    for (const Rejected& r : impossible_) {
      if (is_new(r.candidate)) job_.rejected.push_back(r);
    }
  }

  std::string too_much(const EstimatedCandidate& e) const {
    const double libraries = context_bytes(site_.machine);
    return fmt::format("does not fit: needs at least about {} per {}{}, where {}", format_bytes(e.bytes), unit(),
                       libraries > 0 ? " besides the " + format_bytes(libraries) + " of libraries" : "",
                       usable_words(site_.machine));
  }

  [[noreturn]] void refuse() {
    // Layouts that were not even enumerated are refused in the words of a run with these axes.
    if (const auto problem = parallel::axes_problem(config_.parallel, ranks_)) throw ConfigError({*problem});
    std::string text = fmt::format("no way to run this on {} {}s", ranks_, site_.machine.profile.name);
    if (!too_large_.empty()) {
      const auto smallest = std::min_element(too_large_.begin(), too_large_.end(),
                                             [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
      text += fmt::format(": the smallest is {}, which {}", smallest->candidate.to_string(), too_much(*smallest));
      for (const Rejected& r : memory_problems_) {
        if (r.candidate == smallest->candidate) text += " (" + r.reason + ")";
      }
      text += nearest_fit(*smallest);
    } else if (!impossible_.empty()) {
      text += ": " + impossible_.front().candidate.to_string() + ": " + impossible_.front().reason;
    } else if (!job_.rejected.empty()) {
      text += ": " + job_.rejected.front().candidate.to_string() + ": " + job_.rejected.front().reason;
    }
    throw ConfigError(text);
  }

  // The nearest setting that would fit: the fixed settings are left open, one after the other.
  std::string nearest_fit(const EstimatedCandidate& smallest) const {
    struct Opening {
      const char* key;
      void (*open)(Config&);
    };
    constexpr Opening openings[] = {
        {"parallel.recompute", [](Config& c) { c.parallel.recompute = automatic; }},
        {"train.micro_batch", [](Config& c) { c.train.micro_batch = automatic; }},
        {"parallel.zero", [](Config& c) { c.parallel.zero = automatic; }},
        {"the layout", [](Config& c) { c.parallel.size = {}; }},
    };
    Config open = config_;
    for (const Opening& opening : openings) {
      opening.open(open);
      Estimator estimator(open, decision_, vocab_, site_.kind, site_.machine);
      const EstimatedCandidate* nearest = nullptr;
      std::vector<EstimatedCandidate> fits;
      for (const Candidate& c : enumerate(open, ranks_).candidates) {
        try {
          const Estimate e = estimator.estimate(c, ways_.speeds(c));
          if (e.bytes < 0.95 * limit()) fits.push_back({c, e.seconds, e.bytes});
        } catch (const ConfigError&) {
          continue;  // no answer
        }
      }
      for (const EstimatedCandidate& e : fits) {
        if (!nearest || e.seconds < nearest->seconds) nearest = &e;
      }
      if (nearest) return fmt::format(". {} would (about {})", nearest->candidate.to_string(), format_bytes(nearest->bytes));
    }
    if (limit() <= 0) return fmt::format(". No number of {}s would do: libraries take all that one has", unit());
    return fmt::format(". It needs more {}s: with {} each, about {:.0f}", unit(), format_bytes(limit()),
                       std::ceil(ranks_ * smallest.bytes / limit()));
  }

  const Config& config_;
  const parallel::Decision& decision_;
  const std::int64_t vocab_;
  const int ranks_;
  const Site& site_;
  PlannerOptions options_;
  const FastestWays ways_;
  std::deque<Desk> desks_;  // by thread
  double best_seconds_ = std::numeric_limits<double>::infinity();
  PlannedJob job_;
  std::vector<EstimatedCandidate> waiting_, too_large_;
  std::set<const EstimatedCandidate*> looked_at_;  // of waiting_
  std::vector<Rejected> memory_problems_;
  std::vector<Rejected> impossible_;  // candidates without a valid plan or placement
  std::vector<Evaluation> evaluations_;
};

}  // namespace

Simulated simulate_choice(const PlannedJob& job, const Site& site) {
  SimulationOptions options;
  options.keep_timeline = true;
  return simulate_placed(job.stages, job.best.placement, site, options);
}

PlannedJob plan_job(const Config& config, const parallel::Decision& decision, std::int64_t vocab, int ranks, const Site& site,
                    const PlannerOptions& options) {
  require(site.fabric != nullptr, "plan_job: a site has a fabric");
  if (ranks > site.fabric->gpus()) {
    throw ConfigError(fmt::format("the job has {} ranks, but the topology has only {} {}s", ranks, site.fabric->gpus(),
                                  site.machine.profile.unit));
  }
  return PlanSearch(config, decision, vocab, ranks, site, options).run();
}

}  // namespace plait::plan
