#include "plan/pass_planning.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include "parallel/job_plan.h"
#include "plan/pass_seconds.h"

namespace plait::plan {
namespace {

using parallel::Layout;
using parallel::Schedule;
using parallel::StageMap;
using parallel::StageTimes;

// Rounds that correct the room of each rank if memory is short.
constexpr int corrections = 6;

constexpr std::size_t head = index_of(model::SegmentKind::head);

// The slowest way around a group along an axis, with rank n on GPU n.
RingSpeed ring_along(Axis axis, const Layout& layout, topology::Fabric& fabric) {
  RingSpeed slowest;
  const int ranks = layout.size(axis);
  for (int n = 0; n < ranks && ranks > 1; ++n) {
    const topology::Way& way = fabric.way(layout.moved(0, axis, n), layout.moved(0, axis, (n + 1) % ranks));
    if (n == 0 || way.gb_per_s < slowest.gb_per_s) slowest = {way.gb_per_s, way.latency_us};
  }
  return slowest;
}

// The rings of the axes that communicate within segments.
AxisSpeeds segment_rings(const Layout& layout, topology::Fabric& fabric) {
  return AxisSpeeds::of_rows([&](const AxisRow& row) {
    return row.communicates == CommunicatesIn::segments ? ring_along(row.axis, layout, fabric) : RingSpeed{};
  });
}

// Seconds until another rank has a pass's output, mean over the pipeline.
double send_seconds(const Machine& machine, const model::SegmentSizes& sizes, const Layout& layout, topology::Fabric& fabric) {
  const CommunicationCosts communication(machine);
  const double bytes = static_cast<double>(sizes.own_residual_bytes());
  double seconds = 0;
  for (int p = 0; p + 1 < layout.size(stage_axis); ++p) {
    const topology::Way& way = fabric.message_way(layout.moved(0, stage_axis, p), layout.moved(0, stage_axis, p + 1));
    if (way.gb_per_s > 0) seconds += communication.message(bytes, way).seconds + bytes / (way.gb_per_s * 1e9);
  }
  return seconds / std::max(1, layout.size(stage_axis) - 1);
}

class PassPlanning {
 public:
  PassPlanning(const Config& config, const parallel::Decision& decision, std::int64_t vocab, const Layout& layout,
               const Site& site)
      : config_(config),
        decision_(decision),
        vocab_(vocab),
        layout_(layout),
        site_(site),
        outline_(outline(config, decision, vocab, layout, site.kind)),
        without_head_(seconds(false)),
        beside_head_(seconds(true)),
        send_(send_seconds(site.machine, outline_.sizes, layout, *site.fabric)),
        kept_(activation_bytes(outline_.sizes)),
        room_(static_cast<std::size_t>(layout.size(stage_axis)), std::numeric_limits<double>::infinity()) {}

  std::vector<parallel::RankPlan> run() {
    Attempt* listed = &attempt();
    if (listed->fits()) return std::move(listed->plans);
    Attempt* best = nullptr;
    const auto keep = [&](Attempt& one) {
      if (one.fits() && (!best || one.length < best->length)) best = &one;
    };
    // The memory that a rank needs besides its stages' activations depends on the passes: gradients that wait for their weight
    // passes, shared memory. So the remaining room is computed repeatedly.
    for (int n = 0; n < corrections; ++n) {
      for (std::size_t r = 0; r < room_.size(); ++r) {
        const double room = site_.machine.usable_bytes() - listed->beside[r];
        room_[r] = n == 0 || room < room_[r] ? room : (room_[r] + room) / 2;
      }
      listed = &attempt();
      keep(*listed);
    }
    // Named schedules do not split the backward, or hold less of it, so they may fit with more micro-batches than lists do.
    for (const StageMap& map : parallel::stage_placements(layout_.size(stage_axis), chunks())) {
      for (const Schedule& schedule : parallel::named_schedules(map, outline_.micro_batches)) {
        if (!best || length_of(schedule, times(map)) < best->length) keep(attempt(schedule));
      }
    }
    if (!best) {
      room_.assign(room_.size(), 0);  // one micro-batch
      best = &attempt();
    }
    return std::move(best->plans);
  }

 private:
  // Of a schedule that takes no planning: sizes and numbers are the same.
  static parallel::JobOutline outline(Config config, const parallel::Decision& decision, std::int64_t vocab,
                                      const Layout& layout, DeviceKind kind) {
    config.parallel.schedule = ScheduleKind::one_f_one_b, config.parallel.virtual_stages = 1, config.parallel.stages.clear();
    config.comm.braid = Braid::none;  // passes are planned of whole micro-batches
    return outline_job(config, decision, vocab, layout, kind);
  }

  PassSeconds seconds(bool beside_head) const {
    return pass_seconds(site_.machine, outline_.sizes, layout_.sizes(), segment_rings(layout_, *site_.fabric),
                        outline_.exchanges, beside_head);
  }

  // The seconds of exchanges that weight passes hide. The head's weight pass follows at once in any case.
  static SegmentParts hidden(const PassSeconds& seconds) {
    SegmentParts parts{};
    for (std::size_t kind = 0; kind < parts.size(); ++kind)
      parts[kind] = kind == head ? 0 : std::min(seconds.exchanged[kind], seconds.backward_weight[kind]);
    return parts;
  }

  StageTimes times(const StageMap& map) const {
    StageTimes times;
    times.send = send_;
    std::vector<double> whole(room_.size(), 0);  // by rank: bytes of one micro-batch
    for (const parallel::SegmentRange& range : stages_of(config_, outline_.sizes.shape, map)) {
      const SegmentParts held = kinds_in(outline_.sizes.shape, range);
      const auto sum = [&](const SegmentParts& parts) {
        double total = 0;
        for (std::size_t kind = 0; kind < parts.size(); ++kind) total += held[kind] * parts[kind];
        return total;
      };
      const int stage = static_cast<int>(times.held.size());
      const PassSeconds& seconds = map.rank_of(stage) == map.rank_of(map.count() - 1) ? beside_head_ : without_head_;
      times.forward.push_back(sum(seconds.forward));
      times.backward_input.push_back(sum(seconds.backward_input));
      times.backward_weight.push_back(sum(seconds.backward_weight));
      times.saved.push_back(config_.comm.overlap ? sum(hidden(seconds)) : 0);
      times.held.push_back(sum(kept_));
      whole[static_cast<std::size_t>(map.rank_of(stage))] += times.held.back();
    }
    parallel::take_head_at_once(times, beside_head_.backward_weight[head]);
    for (std::size_t rank = 0; rank < whole.size(); ++rank)
      times.limit.push_back(std::clamp(room_[rank], whole[rank], 2 * layout_.size(stage_axis) * whole[rank]));
    return times;
  }

  struct Attempt {
    std::vector<parallel::RankPlan> plans;
    double length = 0;
    std::vector<double> beside;  // by rank: bytes besides its stages' activations
    bool over = false;           // some rank needs more memory than is usable
    bool fits() const { return !over; }
  };

  int chunks() const { return static_cast<int>(config_.parallel.virtual_stages); }

  // The attempt with the currently planned passes, made when first asked for: different rooms often give the same passes, and
  // plans are slow to make.
  Attempt& attempt() {
    return attempt(parallel::planned_schedule(layout_.size(stage_axis), chunks(), outline_.micro_batches,
                                              [this](const StageMap& map) { return times(map); }));
  }

  Attempt& attempt(const Schedule& schedule) {
    decision_.passes = parallel::planned_passes(schedule);
    const auto [known, is_new] = attempts_.try_emplace(decision_.passes->text);
    if (is_new) known->second = make(schedule);
    return known->second;
  }

  Attempt make(const Schedule& schedule) const {
    const StageTimes listed_by = times(schedule.stages);
    Attempt made{.plans = make_stage_plans(config_, decision_, vocab_, layout_, site_.kind),
                 .length = length_of(schedule, listed_by),
                 .beside = {}};
    for (int rank = 0; rank < layout_.size(stage_axis); ++rank) {
      const parallel::RankPlan& plan = made.plans[static_cast<std::size_t>(rank)];
      const double bytes = static_cast<double>(plan.memory.total_bytes()) + library_bytes(site_.machine, plan);
      made.beside.push_back(bytes - most_held(schedule, listed_by, rank));
      made.over = made.over || bytes > site_.machine.usable_bytes();
    }
    return made;
  }

  const Config& config_;
  parallel::Decision decision_;  // with the passes of the latest attempt
  const std::int64_t vocab_;
  const Layout layout_;
  const Site& site_;
  const parallel::JobOutline outline_;
  const PassSeconds without_head_, beside_head_;  // of ranks without and with the head
  const double send_;
  const SegmentParts kept_;
  std::vector<double> room_;  // by rank: bytes for its stages' activations
  // Attempts by the text of their passes, through which alone the room has an effect.
  std::map<std::string, Attempt> attempts_;
};

}  // namespace

bool plans_passes(const Config& config, const parallel::Decision& decision) {
  const ParallelConfig& p = config.parallel;
  return p.schedule == ScheduleKind::planned && p.size[stage_axis].value_or(1) > 1 && !decision.passes;
}

std::vector<parallel::RankPlan> plan_passes(const Config& config, const parallel::Decision& decision, std::int64_t vocab,
                                            const Layout& layout, const Site& site) {
  return PassPlanning(config, decision, vocab, layout, site).run();
}

}  // namespace plait::plan
