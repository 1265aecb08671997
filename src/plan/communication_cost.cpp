#include "plan/communication_cost.h"

#include <algorithm>
#include <limits>

#include "core/collective.h"
#include "core/error.h"
#include "core/units.h"

namespace plait::plan {
namespace {

// Splits a measured time into its start and a bound on the bandwidth.
void bound_by(Work& work, const Curve& curve, double bytes) {
  work.seconds = curve.points.front().second;
  const double moving = curve.seconds(bytes) - work.seconds;
  work.most_gb_per_s = moving > 0 ? work.bytes / moving / giga : 0;
}

// True for an all-reduce by links in which every rank gets the other ranks' whole tensors and sums them itself.
bool summed_by_all(Collective kind, double bytes) {
  return kind == Collective::all_reduce && bytes <= static_cast<double>(link_collectives::most_reduced_by_all);
}

bool is_one_kernel(Collective kind, int ranks, double bytes) {
  return kind == Collective::all_reduce && ranks <= link_collectives::most_ranks_by_one_kernel &&
         bytes <= static_cast<double>(link_collectives::most_summed_by_one_kernel);
}

// The slowdown of compute beside pushes by kernel. Measured with tensor 4 of GPT-2 124M and of 2.8B in bf16 and FP8 on H200:
// compute took 11 to 18 % longer, and exchanges ran for 0.7 to 0.9 of it.
constexpr double push_kernel_slowdown = 0.17;
// The seconds for which such a kernel waits for its SMs.
constexpr double push_kernel_wait = 12 * micro;

// The bytes that a rank pushes to another in a round.
double push_part(Collective kind, int ranks, double bytes) { return summed_by_all(kind, bytes) ? bytes : bytes / ranks; }

}  // namespace

std::string to_string(Collective kind) {
  switch (kind) {
    case Collective::all_reduce: return "all_reduce";
    case Collective::reduce_scatter: return "reduce_scatter";
    case Collective::all_gather: return "all_gather";
  }
  throw InternalError("a collective that communication_cost.cpp does not know");
}

double ring_share(Collective kind, int ranks) {
  const double once = static_cast<double>(ranks - 1) / ranks;
  return kind == Collective::all_reduce ? 2 * once : once;
}

double ring_rounds(Collective kind, int ranks) { return (kind == Collective::all_reduce ? 2.0 : 1.0) * (ranks - 1); }

double push_rounds(Collective kind, int ranks, double bytes) {
  if (ranks == 1) return 0;
  return kind == Collective::all_reduce && !summed_by_all(kind, bytes) ? 2 : 1;
}

double push_bytes(Collective kind, int ranks, double bytes) {
  return push_rounds(kind, ranks, bytes) * (ranks - 1) * push_part(kind, ranks, bytes);
}

const Curve* CommunicationCosts::curve_of(Collective kind, int ranks) const {
  if (!machine_.calibration) return nullptr;
  for (const CollectiveMeasurement& m : machine_.calibration->collectives) {
    if (m.kind == to_string(kind) && m.ranks == ranks) return &m.curve;
  }
  return nullptr;
}

const Curve* CommunicationCosts::fastest_message_curve(double bytes) const {
  const Curve* fastest = nullptr;
  if (!machine_.calibration) return fastest;
  for (const MessageMeasurement& m : machine_.calibration->messages) {
    if (!fastest || m.curve.seconds(bytes) < fastest->seconds(bytes)) fastest = &m.curve;
  }
  return fastest;
}

const Curve* CommunicationCosts::curve_of(const topology::Way& way) const {
  if (!machine_.calibration) return nullptr;
  const Curve* any = nullptr;
  for (const MessageMeasurement& m : machine_.calibration->messages) {
    if (m.link == way.link) return &m.curve;
    if (m.link.empty()) any = &m.curve;
  }
  return any;
}

Work CommunicationCosts::message(double bytes, const topology::Way& way) const {
  Work work{.seconds = machine_.profile.message_seconds + way.latency_us * micro,
            .bytes = bytes,
            .most_gb_per_s = 0,
            .compute_slowdown = machine_.calibration ? machine_.calibration->message_slowdown.value_or(0) : 0};
  if (const Curve* curve = curve_of(way)) bound_by(work, *curve, bytes);
  return work;
}

Work CommunicationCosts::collective(Collective kind, int ranks, double bytes, double latency_us) const {
  Work work;
  if (ranks == 1) return work;
  const auto measured = machine_.calibration ? machine_.calibration->collective_slowdown : std::nullopt;
  work.bytes = ring_share(kind, ranks) * bytes;
  work.compute_slowdown = measured.value_or(machine_.profile.collective_slowdown);
  work.seconds =
      machine_.profile.collective_seconds + ring_rounds(kind, ranks) * (machine_.profile.round_seconds + latency_us * micro);
  if (const Curve* curve = curve_of(kind, ranks)) bound_by(work, *curve, bytes);
  return work;
}

Work CommunicationCosts::pushes(Collective kind, int ranks, double bytes, double latency_us,
                                std::size_t longest_by_kernel) const {
  Work work;
  if (ranks == 1) return work;
  const topology::DeviceProfile& profile = machine_.profile;
  const double part = push_part(kind, ranks, bytes), rounds = push_rounds(kind, ranks, bytes);
  work.bytes = push_bytes(kind, ranks, bytes);
  work.compute_slowdown = machine_.calibration ? machine_.calibration->message_slowdown.value_or(0) : 0;
  double start = profile.message_seconds + latency_us * micro;
  if (const Curve* curve = fastest_message_curve(part)) {
    const double moving = part * curve->seconds_per_byte(part);
    start = curve->seconds(part) - moving;
    if (moving > 0) work.most_gb_per_s = part / moving / giga;
  }
  // Pushes follow one another on one stream, with the time of two kernels between them: the end of one copy and the start of
  // the next. A kernel pushes to all at once.
  work.seconds = rounds * (start + (ranks - 2) * 2 * profile.kernel_seconds);
  if (part > static_cast<double>(longest_by_kernel)) return work;
  work.seconds = rounds * std::min(start, 2 * profile.kernel_seconds + latency_us * micro);
  if (part <= static_cast<double>(link_collectives::longest_short_push)) return work;
  work.compute_slowdown = push_kernel_slowdown;  // no copy engine works beside it
  work.slowed_by_compute = rounds * push_kernel_wait / work.seconds;
  return work;
}

Work CommunicationCosts::pushes_with_kernels(Collective kind, int ranks, double bytes, double latency_us,
                                             std::size_t longest_by_kernel) const {
  Work work = pushes(kind, ranks, bytes, latency_us, longest_by_kernel);
  work.seconds += push_kernels(kind, ranks, bytes).seconds;
  return work;
}

CommunicationCosts::PushKernels CommunicationCosts::push_kernels(Collective kind, int ranks, double bytes) const {
  if (ranks == 1 || is_one_kernel(kind, ranks, bytes)) return {};
  const double part = push_part(kind, ranks, bytes);
  double moved = 0, launches = 0;
  if (kind != Collective::all_gather) moved += (ranks + 1) * part, launches += 1;
  if (kind != Collective::reduce_scatter && !summed_by_all(kind, bytes)) moved += (ranks - 1) * 2 * part, launches += 1;
  const double device = moved / machine_.profile.memory_bytes_per_s;
  return {.seconds = device + launches * machine_.profile.kernel_seconds, .device = device};
}

RingSpeed slowest_of(const AxisSpeeds& speeds, const AxisSizes& mesh, AxisSet axes) {
  RingSpeed slowest;
  bool found = false;
  axes.for_each([&](Axis axis) {
    if (mesh[axis] <= 1 || (found && speeds[axis].gb_per_s >= slowest.gb_per_s)) return;
    slowest = speeds[axis], found = true;
  });
  return slowest;
}

double CommunicationCosts::seconds(Collective kind, int ranks, double bytes, const RingSpeed& ring,
                                   const parallel::CollectiveChoice& by) const {
  if (ranks == 1) return 0;
  if (by.way == CollectiveWay::links) {
    const Work work =
        pushes_with_kernels(kind, ranks, bytes, ring.latency_us, by.longest_beside(link_collectives::quarters_beside_in_braid));
    const double most = work.most_gb_per_s > 0 ? std::min(work.most_gb_per_s, ring.gb_per_s) : ring.gb_per_s;
    if (most <= 0) return std::numeric_limits<double>::infinity();
    return work.seconds + work.bytes / (most * giga);
  }
  if (const Curve* curve = curve_of(kind, ranks)) return curve->seconds(bytes);
  if (ring.gb_per_s <= 0) return std::numeric_limits<double>::infinity();
  return collective(kind, ranks, bytes, ring.latency_us).seconds + ring_share(kind, ranks) * bytes / (ring.gb_per_s * giga);
}

}  // namespace plait::plan
