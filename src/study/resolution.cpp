#include "study/resolution.h"

#include <spdlog/fmt/fmt.h>
#include <xxhash.h>

#include <algorithm>

#include "config/schedule_file.h"
#include "core/error.h"
#include "data/tokenizer.h"
#include "model/model_flops.h"
#include "plan/evaluation.h"
#include "site/devices.h"
#include "site/site_planning.h"

namespace plait::study {
namespace {

Prediction prediction_of(const plan::Evaluation& evaluation, const plan::Machine& machine) {
  return {.step_ms = 1e3 * evaluation.step_seconds,
          .bubble_fraction = evaluation.bubble_fraction,
          .ledger = evaluation.ledger,
          .peak_bytes = evaluation.peak_bytes,
          .limit_bytes = machine.usable_bytes(),
          .from = machine.origin()};
}

// Placed like a training job: if there is something to gain (launch::settle).
bool is_placed(const Config& config, DeviceKind kind) {
  const PlacementStrategy strategy = config.placement.strategy;
  return kind == DeviceKind::cuda && (strategy == PlacementStrategy::automatic || strategy == PlacementStrategy::worst) &&
         product(config.parallel.known_sizes(), model_axes) != 1;
}

void place(Config& config, const plan::PlacementResult& placement) {
  config.placement.strategy = PlacementStrategy::given;
  config.placement.devices.assign(placement.gpu_of_rank.begin(), placement.gpu_of_rank.end());
}

// Recompute repeats forward: completely or, if it is selective, only its cheap parts, which are not counted.
double recomputed_share(Recompute recompute) { return recompute == Recompute::full ? 1.0 / 3 : 0; }

// 32 hexadecimal digits: XXH3 (128 bits) of the configuration's YAML, the text of a schedule from a file, plait's commit, and
// the machine (train::Environment::machine). Equal digits mean equal points, across runs of a study and across studies.
std::string point_id(const Config& config, const std::string& commit, const std::string& machine) {
  // Each part is preceded by its length, so that no two different lists of parts give one text.
  std::string text;
  const std::string schedule = config.parallel.schedule_file ? config.parallel.schedule_file->text : "";
  for (const std::string& part : {to_yaml(config), schedule, commit, machine}) text += fmt::format("{}:{}", part.size(), part);
  const XXH128_hash_t digest = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", digest.high64, digest.low64);
}

Point point_of(const Config& study, Draft draft, const Identity& identity, Resolver& resolver) {
  Point point;
  point.coordinates = draft.coordinates;
  point.asked_ranks = draft.ranks;
  point.pruning = draft.pruning;
  point.pruned_because = draft.because;
  if (draft.pruning) return point;
  const Resolved resolved = resolver.resolve(draft);
  const auto prune = [&](Pruning pruning, std::string why) { point.pruning = pruning, point.pruned_because = std::move(why); };
  if (!resolved.config) {
    prune(resolved.fits ? Pruning::rule : Pruning::memory, resolved.problem);
    return point;
  }
  point.config = to_yaml(*resolved.config);
  point.id = point_id(*resolved.config, identity.commit, identity.machine);
  point.facts = resolved.facts;
  point.prediction = resolved.prediction;
  if (!resolved.fits && study.study.prune.fits) prune(Pruning::memory, resolved.problem);
  draft.config = resolved.config;
  apply_skip(study, draft);
  if (draft.pruning) prune(*draft.pruning, draft.because);
  return point;
}

// Milliseconds per token and rank: the measure for comparing points of as many ranks with any batch.
double cost_of(const Point& point) {
  return point.prediction->step_ms / static_cast<double>(point.facts->tokens_per_step()) * point.facts->ranks;
}

void prune_duplicates(std::vector<Point>& points) {
  std::map<std::string, int> first;  // by id
  for (Point& point : points) {
    if (point.id.empty() || point.pruning) continue;
    const auto [found, is_new] = first.try_emplace(point.id, point.index);
    if (is_new) continue;
    point.pruning = Pruning::duplicate;
    point.same_as = found->second;
    point.pruned_because = fmt::format("the same configuration as point {}: {}", found->second,
                                       points[static_cast<std::size_t>(found->second)].label());
  }
}

void prune_slow(std::vector<Point>& points, double times) {
  if (times == 0) return;
  std::map<std::pair<int, Coordinates>, double> best;  // by ranks and job
  const auto job_of = [](const Point& point) { return std::pair(point.facts->ranks, point.job()); };
  for (const Point& point : points) {
    if (point.pruning || !point.prediction) continue;
    const auto [found, is_new] = best.try_emplace(job_of(point), cost_of(point));
    if (!is_new) found->second = std::min(found->second, cost_of(point));
  }
  for (Point& point : points) {
    if (point.pruning || !point.prediction) continue;
    const double ratio = cost_of(point) / best.at(job_of(point));
    if (ratio <= times) continue;
    point.pruning = Pruning::prediction;
    point.pruned_because =
        fmt::format("predicted {:.2f} times slower than the best of {} ranks; study.prune.slower_than_best is {}", ratio,
                    point.facts->ranks, times);
  }
}

}  // namespace

topology::ReplicateRequest assumed_network(const SimulateConfig& simulate) {
  const auto shape = simulate.network == SimulatedNetwork::rail ? topology::NetworkShape::rail : topology::NetworkShape::flat;
  return {.hosts = 1, .network = shape, .nic_gb_per_s = simulate.network_gb_per_s};
}

PointFacts facts_of(const Config& config, const std::vector<parallel::RankPlan>& stages) {
  const parallel::RankPlan& plan = stages.front();
  PointFacts facts;
  facts.layout = plan.layout;
  facts.ranks = plan.layout.ranks();
  facts.schedule = schedule_name(config.parallel);
  facts.virtual_stages = std::max(1, plan.schedule.stages.count() / plan.layout.size(stage_axis));
  facts.zero = plan.zero;
  facts.recompute = to_string(config.parallel.recompute.value_or(Recompute::none));
  facts.micro_batch = plan.sizes.micro_batch.batch;
  facts.micro_batches = plan.micro_batches;
  facts.global_batch = plan.global_batch;
  facts.sequence_length = plan.sequence_length;
  for (const model::Parameter& p : model::parameters(plan.sizes.shape)) facts.parameters += p.stored;
  const model::FlopTerms terms = model::flop_terms(plan.sizes.shape, plan.sequence_length);
  facts.matrix_parameters = terms.matrix_parameters;
  facts.model_flops_per_token = model::model_flops_per_token(terms);
  // Only the blocks are computed again, not the head.
  model::FlopTerms blocks = terms;
  blocks.matrix_parameters -= model::head_parameters(plan.sizes.shape);
  facts.hardware_flops_per_token =
      facts.model_flops_per_token +
      recomputed_share(config.parallel.recompute.value_or(Recompute::none)) * model::model_flops_per_token(blocks);
  return facts;
}

Resolver::Resolver(site::PlanningWish wish, int ranks_per_node) : wish_(std::move(wish)), ranks_per_node_(ranks_per_node) {
  wish_.what_if = false;
  wish_.top = 0;
}

std::int64_t Resolver::vocabulary(const Config& config) {
  // Training a tokenizer's model takes long; points rarely differ in it.
  std::string key = fmt::format("{}|{}|{}|{}|{}|{}", config.data.tokenizer, config.data.sentencepiece.vocab.value_or(0),
                                config.data.sentencepiece.model, config.data.huggingface.file, config.model.vocab.value_or(0),
                                config.run.seed);
  for (const std::string& glob : config.data.training_files()) key += "|" + glob;
  const auto found = vocabularies_.find(key);
  return found != vocabularies_.end() ? found->second : vocabularies_[key] = data::vocabulary(config);
}

Resolved Resolver::resolve(const Draft& draft) {
  Config config = draft.config.value();
  Resolved resolved;
  site::PlanningWish wish = wish_;
  const bool over_nodes = ranks_per_node_ > 0 && draft.ranks > ranks_per_node_;
  if (over_nodes) {
    config.launch.mode = LaunchMode::external;
    config.launch.rendezvous = "tcp";
    wish.in_order = true;
    if (site::choose_devices(config).kind == DeviceKind::cuda) wish.gpus = draft.ranks;
  }
  const bool open = !keys_left_to_planner(config).empty();
  try {
    const std::int64_t vocab = vocabulary(config);
    site::JobSite here = site::find_site(config, vocab, wish);
    if (here.kind == DeviceKind::cuda && config.launch.may_share_devices()) {
      throw ConfigError({{"launch.ranks_per_device", to_string(config.launch.ranks_per_device),
                          "must be 1 in a study: speeds of ranks that share a GPU say nothing", "", 0}});
    }
    if (draft.ranks > here.fabric->gpus()) {
      throw ConfigError({{"launch.ranks", std::to_string(draft.ranks),
                          fmt::format("must be at most the {} devices that there are", here.fabric->gpus()), "", 0}});
    }
    const parallel::Decision decision{.collectives = here.collectives};  // as in the point's own process
    const plan::Site site = here.site();
    if (open) {
      plan::PlannedJob job =
          plan_job(config, decision, vocab, draft.ranks, site, {.top = 0, .placement = here.placement, .what_if = false});
      resolved.config = std::move(job.config);
      resolved.config->launch.ranks = draft.ranks;
      if (here.kind == DeviceKind::cuda && !over_nodes) place(*resolved.config, job.best.placement);
      resolved.facts = facts_of(*resolved.config, job.stages);
      resolved.interval = here.machine.interval(job.stages.front().sizes);
      resolved.prediction = prediction_of(job.best, here.machine);
      return resolved;
    }
    const bool placed = !over_nodes && is_placed(config, here.kind);
    if (!placed && here.placement.strategy != PlacementStrategy::given) here.placement.strategy = PlacementStrategy::order;
    plan::Placer placer(*here.fabric);
    const std::vector<parallel::RankPlan> stages = stage_plans(config, decision, vocab, draft.ranks, site);
    resolved.facts = facts_of(config, stages);
    resolved.interval = here.machine.interval(stages.front().sizes);
    resolved.config = config;
    const plan::Evaluation evaluation = evaluate_plans(config, stages, site, placer, here.placement);
    if (placed) place(*resolved.config, evaluation.placement);
    resolved.prediction = prediction_of(evaluation, here.machine);
    resolved.problem = memory_problem(evaluation, here.machine);
    resolved.fits = resolved.problem.empty();
  } catch (const ConfigError& error) {
    // This is the planner's wording for a plan that does not fit although it had a choice (plan/planner.h).
    resolved.problem = problem_text(error);
    resolved.config.reset();
    resolved.fits = resolved.problem.find("does not fit") == std::string::npos;
  }
  return resolved;
}

std::vector<Point> list_points(const Config& study, const Identity& identity,
                               const std::function<void(std::size_t done, std::size_t all)>& notice, int ranks_per_node) {
  const site::DeviceChoice devices = site::choose_devices(study);
  site::PlanningWish wish;
  wish.runs_here = true;
  if (ranks_per_node > 0) wish.network = assumed_network(study.study.simulate), wish.gpus_per_host = ranks_per_node;
  Resolver resolver(wish, ranks_per_node);
  const int ranks_here = devices.kind == DeviceKind::cuda ? devices.count : 2;
  const std::vector<Draft> drafts = expand(study, ranks_per_node > 0 ? ranks_per_node : ranks_here,
                                           [&](const Config& config) { return resolver.vocabulary(config); });
  std::vector<Point> points;
  for (const Draft& draft : drafts) {
    Point& point = points.emplace_back(point_of(study, draft, identity, resolver));
    point.index = static_cast<int>(points.size()) - 1;
    if (notice) notice(points.size(), drafts.size());
  }
  prune_duplicates(points);
  prune_slow(points, study.study.prune.slower_than_best);
  return points;
}

}  // namespace plait::study
