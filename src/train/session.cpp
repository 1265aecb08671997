#include "train/session.h"

#include <spdlog/fmt/fmt.h>

#include <cstdio>
#include <cstdlib>

#include "config/pair_transport.h"
#include "core/error.h"
#include "core/format.h"
#include "core/units.h"
#include "model/model_flops.h"
#include "runtime/group_paths.h"
#include "topology/device_profile.h"
#include "train/report/path_table.h"
#include "train/report/progress.h"

namespace plait::train {
namespace {

// An impossible size is the configuration's fault, not the allocator's. `takes`: in words.
[[noreturn]] void refuse(const model::MicroBatchShape& micro_batch, bool halves, const std::string& takes, Device device,
                         double there) {
  throw ConfigError(
      {{"model", "",
        fmt::format("would run out of memory: with train.micro_batch={} sequences of data.sequence_length={} it takes {} on a "
                    "rank, but {} has {} for it: make them smaller, or share the model among more ranks (parallel.*)",
                    micro_batch.batch * (halves ? 2 : 1), micro_batch.sequence, takes, to_string(device), format_bytes(there)),
        "", 0}});
}

// Checked before anything is made.
parallel::RankPlan fitting(parallel::RankPlan plan, Device device, double there) {
  const auto needed = static_cast<double>(plan.memory.total_bytes());
  if (needed > there) refuse(plan.sizes.micro_batch, plan.schedule.halves, format_bytes(needed), device, there);
  return plan;
}

// Sizes that no device has are refused even before planning: a plan of thousands of blocks takes minutes to make.
parallel::RankPlan plan_if_possible(const Config& config, const parallel::Decision& decision, std::int64_t vocab,
                                    const launch::RankContext& rank) {
  const parallel::Layout layout = parallel::resolve_layout(config.parallel, rank.size);
  const parallel::JobOutline outline = parallel::outline_plans(config, decision, vocab, layout, rank.device.kind);
  const double least = parallel::least_bytes(config, outline, layout, rank.rank);
  const auto there = static_cast<double>(memory_size(rank.device));
  if (least > there) {
    refuse(outline.sizes.micro_batch, outline.schedule.halves,
           format_bytes(least) + " for weights, gradients and optimizer state alone", rank.device, there);
  }
  return parallel::make_rank_plan(config, outline, layout, rank.rank, rank.device.kind);
}

constexpr const char* memory_remedy =
    "Less is needed with a smaller train.micro_batch or data.sequence_length, parallel.recompute: full, parallel.zero: 1 or 2, "
    "or more ranks; `plait plan` shows what it is for";

std::size_t memory_limit(const Config& config) {
  return config.launch.memory_gib.is_auto() ? DeviceMemory::no_limit : static_cast<std::size_t>(config.launch.memory_gib * gib);
}

// nullopt if the rank is alone.
std::optional<comm::p2p::JobFacts> job_facts(const launch::RankContext& rank, const runtime::GroupOptions& options) {
  if (rank.size == 1) return std::nullopt;
  comm::Meeting meeting = rank.meeting("facts", options.timeout);
  return comm::p2p::JobFacts(rank.device, options.peer_access, meeting);
}

// This rank's share of memory: ranks that are CPUs of one host share its memory, and ranks on one GPU the GPU's.
std::size_t part_of_device(const launch::RankContext& rank, const std::optional<comm::p2p::JobFacts>& facts) {
  std::size_t sharing = 1;
  if (facts) {
    sharing = 0;
    const std::string& own = facts->end(rank.rank).bus_id;  // empty: a CPU
    for (int r = 0; r < rank.size; ++r) sharing += facts->same_host(rank.rank, r) && facts->end(r).bus_id == own;
  }
  return memory_size(rank.device) / sharing;
}

}  // namespace

Session::Session(const Config& config, const parallel::Decision& decision, std::int64_t vocab, launch::RankContext& rank)
    : Session(plan_if_possible(config, decision, vocab, rank), group_options(config, rank.device), rank, memory_limit(config)) {
}

Session::Session(parallel::RankPlan plan, runtime::GroupOptions options, launch::RankContext& rank, std::size_t memory_limit)
    : Session(std::move(plan), options, rank, memory_limit, job_facts(rank, options)) {}

Session::Session(parallel::RankPlan plan, const runtime::GroupOptions& options, launch::RankContext& rank,
                 std::size_t memory_limit, const std::optional<comm::p2p::JobFacts>& facts)
    : life_(rank.life), memory_(rank.device, memory_limit) {
  plan = fitting(std::move(plan), rank.device, static_cast<double>(part_of_device(rank, facts)));
  runtime::RankGroups groups = runtime::make_groups(plan, options, *rank.rendezvous);
  links_ = groups.reports;
  for (const auto& [group, links] : groups.by_links) links_within_[group] = links->reports();
  if (facts) {
    comm::Meeting meeting = rank.meeting("paths", options.timeout);
    const std::vector<runtime::GroupPaths> own = runtime::paths_of(groups, plan);
    runtime::require_paths(options.require, own, *facts, meeting);
    paths_ = gather_paths(own, *facts, meeting);
  }
  try {
    interpreter_ = std::make_unique<runtime::Interpreter>(std::move(plan), memory_, std::move(groups), life_);
  } catch (const OutOfMemoryError& error) {
    throw OutOfMemoryError(fmt::format("{}. {}", error.what(), memory_remedy));
  }
  // Links allocate their receive buffers themselves, on behalf of this rank.
  if (const std::size_t used = memory_.live_bytes() + interpreter_->linked_bytes(); used > memory_limit) {
    const auto bytes = [](std::size_t n) { return format_bytes(static_cast<double>(n)); };
    throw OutOfMemoryError(fmt::format(
        "{}: out of memory: cannot allocate {}, of which {} are for messages; this rank may have {} (launch.memory_gib). {}",
        plait::to_string(rank.device), bytes(used), bytes(interpreter_->linked_bytes()), bytes(memory_limit), memory_remedy));
  }
  if (rank.size == 1) return;
  watchdog_.emplace(launch::WatchdogSpec{
      .rank = rank.rank,
      .size = rank.size,
      .layout = this->plan().layout,
      .ends = this->plan().ends(),
      .timeout = options.timeout,
      .store = rank.rendezvous,
      .life = life_,
      .read = [interpreter = interpreter_.get()] { return interpreter->progress(); },
      .give_up =
          [number = rank.rank](const std::string& reason) {
            fmt::print(stderr, "plait: rank {}: {}\nplait: rank {}: it does not end by itself after that: ending the process\n",
                       number, reason, number);
            std::_Exit(3);
          }});
}

Session::~Session() {
  if (life_->state() == runtime::RankLife::State::running) {
    life_->fail({.what = "it says why itself"}, [this] { interpreter_->synchronize_aborted(); });
  }
  life_->retire();
}

namespace {

// comm.p2p_pairs in terms of ranks: the configuration counts GPUs if these are placed.
std::map<std::pair<int, int>, Transport> pair_transports(const Config& config) {
  std::map<int, int> rank_of;  // by GPU
  for (std::size_t rank = 0; rank < config.placement.devices.size(); ++rank) {
    rank_of[static_cast<int>(config.placement.devices[rank])] = static_cast<int>(rank);
  }
  std::map<std::pair<int, int>, Transport> by_ranks;
  for (const std::string& text : config.comm.p2p_pairs) {
    PairTransport pair = pair_transport(text).value();
    if (!rank_of.empty()) {
      if (!rank_of.contains(pair.a) || !rank_of.contains(pair.b)) continue;  // a GPU without a rank
      pair.a = rank_of[pair.a], pair.b = rank_of[pair.b];
    }
    by_ranks[std::minmax(pair.a, pair.b)] = pair.transport;
  }
  return by_ranks;
}

}  // namespace

runtime::GroupOptions group_options(const Config& config, Device device) {
  return {.device = device,
          .timeout = milliseconds_of(config.comm.timeout_s),
          .max_ctas = static_cast<int>(config.comm.max_ctas.value_or(0)),
          .host_interface = config.comm.interface,
          .transport = config.comm.p2p.given(),
          .pair_transports = pair_transports(config),
          .mover = config.comm.mover.given(),
          .peer_access = config.comm.peer_access,
          .require = config.comm.require};
}

parallel::RankPlan training_plan(const Config& config, const parallel::Decision& decision, std::int64_t vocab,
                                 const launch::RankContext& rank) {
  return parallel::make_rank_plan(config, decision, vocab, parallel::resolve_layout(config.parallel, rank.size), rank.rank,
                                  rank.device.kind);
}

MemoryReport Session::memory_report() const {
  MemoryReport report;
  report.planned_bytes = plan().memory.total_bytes();
  report.allocated_bytes = memory_.peak_bytes() + interpreter_->linked_bytes();
  if (memory_.device().is_cuda()) {
    const MemoryInfo info = memory_info(memory_.device());
    report.device_bytes = info.total_bytes - info.free_bytes;
  }
  return report;
}

std::string MemoryReport::to_string(int rank) const {
  const auto bytes = [](std::size_t n) { return format_bytes(static_cast<double>(n)); };
  std::string text =
      fmt::format("memory of rank {}: {} planned, {} allocated", rank, bytes(planned_bytes), bytes(allocated_bytes));
  if (device_bytes > 0) {
    text += fmt::format(", {} in use on the device ({} for CUDA and its libraries)", bytes(device_bytes),
                        bytes(device_bytes - std::min(device_bytes, allocated_bytes)));
  }
  return text;
}

std::optional<double> peak_flops(const Config& config, const parallel::RankPlan& plan, Device device) {
  if (!config.log.peak_tflops.is_auto()) return config.log.peak_tflops * tera;
  const std::optional<double> peak = topology::peak_flops(device_name(device), plan.sizes.compute);
  const std::optional<double> products = topology::peak_flops(device_name(device), DType::e4m3);
  if (!plan.sizes.fp8 || !peak || !products) return peak;
  return model::mixed_peak_flops(model::flop_terms(plan.sizes.shape, plan.sequence_length), *products, *peak);
}

runtime::UpdateSettings update_settings(const Config& config, std::int64_t update, double lr) {
  const OptimizerConfig& o = config.train.optimizer;
  return {.update = update,
          .lr = static_cast<float>(lr),
          .beta1 = static_cast<float>(o.beta1),
          .beta2 = static_cast<float>(o.beta2),
          .epsilon = static_cast<float>(o.epsilon),
          .weight_decay = static_cast<float>(o.weight_decay),
          .clip = static_cast<float>(config.train.clip)};
}

}  // namespace plait::train
