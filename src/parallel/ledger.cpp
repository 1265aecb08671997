#include "parallel/ledger.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "parallel/program/exchanges.h"
#include "parallel/program/program_set.h"

namespace plait::parallel {
namespace {

PeerTimes& of_peer(std::vector<PeerTimes>& peers, int rank) {
  const auto it = std::lower_bound(peers.begin(), peers.end(), rank, [](const PeerTimes& p, int r) { return p.rank < r; });
  if (it != peers.end() && it->rank == rank) return *it;
  return *peers.insert(it, PeerTimes{.rank = rank});
}

double overlap(double begin, double end, double first, double last) {
  return std::max(0.0, std::min(end, last) - std::max(begin, first));
}

}  // namespace

std::string to_string(CommunicationKind kind) {
  switch (kind) {
    case CommunicationKind::gradient_buckets: return "gradient buckets";
    case CommunicationKind::activations: return "activations";
    case CommunicationKind::gradients: return "gradients";
    case CommunicationKind::exchanges: return "tensor exchanges";
    case CommunicationKind::weight_gathers: return "weight gathers";
  }
  throw InternalError("to_string: unknown kind of communication");
}

std::optional<CommunicationKind> communication_kind(const Instruction& i) {
  switch (i.kind) {
    case InstructionKind::receive_activation:
    case InstructionKind::send_activation: return CommunicationKind::activations;
    case InstructionKind::receive_gradient:
    case InstructionKind::send_gradient: return CommunicationKind::gradients;
    case InstructionKind::collective:
      switch (i.collective.purpose) {
        case Purpose::activations: return CommunicationKind::exchanges;
        case Purpose::weights: return CommunicationKind::weight_gathers;
        case Purpose::gradients:
        case Purpose::scalars: return CommunicationKind::gradient_buckets;
      }
      break;
    default: return std::nullopt;
  }
  throw InternalError("communication_kind: unknown purpose of a collective");
}

double Ledger::exposed_ms() const {
  double sum = 0;
  for (const KindTimes& kind : kinds) sum += kind.exposed_ms;
  return sum;
}

double Ledger::hidden_ms() const {
  double sum = 0;
  for (const KindTimes& kind : kinds) sum += kind.hidden_ms();
  return sum;
}

double Ledger::exposed_dp_ms() const {
  return of(CommunicationKind::gradient_buckets).exposed_ms + of(CommunicationKind::weight_gathers).exposed_ms;
}

double Ledger::exposed_p2p_ms() const {
  return of(CommunicationKind::activations).exposed_ms + of(CommunicationKind::gradients).exposed_ms;
}

void LedgerSum::add(const Ledger& ledger) {
  ++steps_;
  sum_.step_ms += ledger.step_ms;
  sum_.compute_ms += ledger.compute_ms;
  sum_.bubble_ms += ledger.bubble_ms;
  sum_.other_ms += ledger.other_ms;
  sum_.unsplit_ms += ledger.unsplit_ms;
  for (const CommunicationKind kind : communication_kinds) {
    sum_.of(kind).count += ledger.of(kind).count;
    sum_.of(kind).total_ms += ledger.of(kind).total_ms;
    sum_.of(kind).exposed_ms += ledger.of(kind).exposed_ms;
  }
  for (const PeerTimes& peer : ledger.peers) {
    PeerTimes& sum = of_peer(sum_.peers, peer.rank);
    sum.late_ms += peer.late_ms;
    sum.wire_ms += peer.wire_ms;
  }
}

Ledger LedgerSum::mean() const {
  Ledger mean = sum_;
  const double steps = std::max(1, steps_);
  for (double* value : {&mean.step_ms, &mean.compute_ms, &mean.bubble_ms, &mean.other_ms, &mean.unsplit_ms}) *value /= steps;
  for (KindTimes& kind : mean.kinds) kind.count /= steps, kind.total_ms /= steps, kind.exposed_ms /= steps;
  for (PeerTimes& peer : mean.peers) peer.late_ms /= steps, peer.wire_ms /= steps;
  return mean;
}

LedgerMaker::LedgerMaker(const Program& program, const Layout& layout, int rank)
    : program_(program), layout_(layout), rank_(rank) {
  std::vector<int> last(program.streams.size(), -1);
  place_.assign(program.instructions.size(), -1);
  previous_.assign(program.instructions.size(), -1);
  // Two rounds, so that the first instruction of a stream finds its last as the one before.
  for (int round = 0; round < 2; ++round) {
    for (int n = 0; n < static_cast<int>(program.instructions.size()); ++n) {
      int& before = last[static_cast<std::size_t>(program.at(n).stream)];
      previous_[static_cast<std::size_t>(n)] = before;
      before = n;
    }
  }
  const int count = static_cast<int>(program.instructions.size());
  for (int n = 0; n < count; ++n) {
    first_.push_back(n), last_.push_back(n);
    awaited_.push_back(program.at(n).waits);
  }
  const std::vector<Exchange> exchanges = exchanges_of(program);
  for (const Exchange& e : exchanges) {
    std::vector<int>& awaited = awaited_[static_cast<std::size_t>(e.last)];
    for (int n = e.first; n <= e.last; ++n) {
      first_[static_cast<std::size_t>(n)] = e.first, last_[static_cast<std::size_t>(n)] = e.last;
      const std::vector<int>& of_one = program.at(n).waits;
      if (n != e.last) awaited.insert(awaited.end(), of_one.begin(), of_one.end());
    }
    std::erase_if(awaited, [&](int w) { return w >= e.first && w <= e.last; });
    previous_[static_cast<std::size_t>(e.last)] = previous_[static_cast<std::size_t>(e.first)];
  }
  for (int n = 0; n < count; ++n) {
    const Instruction& i = program.at(n);
    if (communication_kind(i) && last_[static_cast<std::size_t>(n)] == n) communication_.push_back(n);
    if (on_compute_stream(i) && !i.waits.empty()) waits_.push_back(n);
  }
  // The last instruction of an exchange may be a computation.
  for (const Exchange& e : exchanges) {
    if (!communication_kind(program.at(e.last))) communication_.push_back(e.last);
  }
  std::ranges::sort(communication_);
  for (std::size_t c = 0; c < communication_.size(); ++c) {
    for (int n = first_of(communication_[c]); n <= communication_[c]; ++n)
      place_[static_cast<std::size_t>(n)] = static_cast<int>(c);
  }
}

std::optional<CommunicationKind> LedgerMaker::kind_of(int instruction) const {
  return first_of(instruction) < instruction || last_[static_cast<std::size_t>(instruction)] > instruction
             ? CommunicationKind::exchanges
             : communication_kind(program_.at(instruction));
}

int LedgerMaker::peer_rank(const Instruction& i) const {
  return is_send(i.kind) || is_receive(i.kind) ? layout_.moved(rank_, stage_axis, program_.stream_of(i).peer) : -1;
}

// Charges one step's waits.
class LedgerMaker::Walk {
 public:
  Walk(const LedgerMaker& maker, const StepTimes& times, Ledger& ledger) : maker_(maker), times_(times), ledger_(ledger) {}

  void wait(int instruction, const WaitTimes& wait) {
    double now = wait.end;
    // The instruction before it on the compute stream ended before the wait began, so only its waits are considered first.
    InstructionRun at{instruction, 0};
    std::optional<InstructionRun> cause = last_awaited(at, now, false);
    while (cause && now > wait.begin) {
      const CommunicationTimes& run = *run_of(*cause);
      const double end = std::min(run.end, now);
      if (end <= wait.begin) break;
      ledger_.other_ms += now - end;
      now = std::max(wait.begin, std::min(run.begin, end));
      charge(cause->instruction, run, now, end);
      at = *cause;
      cause = last_awaited(at, now, true);
    }
    if (now > wait.begin) ledger_.other_ms += now - wait.begin;
  }

  // [begin, end] of the time in which the compute stream stood still belongs to `instruction`.
  void charge(int instruction, const CommunicationTimes& run, double begin, double end) {
    const Instruction& i = maker_.program_.at(instruction);
    const std::optional<double> ready = maker_.ready(i, run);
    const double came = std::clamp(ready.value_or(begin), begin, end);
    const double late = came - begin, wire = end - came;
    ledger_.bubble_ms += late;
    KindTimes& kind = ledger_.of(*maker_.kind_of(instruction));
    kind.exposed_ms += wire;
    if (is_send(i.kind)) kind.total_ms += wire;
    const int peer = maker_.peer_rank(i);
    if (peer < 0 && late <= 0) return;
    if (is_receive(i.kind) && !ready) ledger_.unsplit_ms += wire;
    PeerTimes& times = of_peer(ledger_.peers, peer);
    times.late_ms += late;
    if (peer >= 0) times.wire_ms += wire;
  }

 private:
  // An instruction in this step (0) or the one before (-1).
  struct InstructionRun {
    int instruction = 0, step = 0;
  };

  const CommunicationTimes* run_of(InstructionRun run) const {
    const int place = maker_.place_[static_cast<std::size_t>(run.instruction)];
    if (place < 0 || run.step < -1) return nullptr;
    const std::vector<CommunicationTimes>& list = run.step == 0 ? times_.communication : times_.previous;
    return static_cast<std::size_t>(place) < list.size() ? &list[static_cast<std::size_t>(place)] : nullptr;
  }

  // The communication that ended last among everything `run` had to wait for; of several, the one that began first. A
  // communication that began after `now` is no cause. One that took no time at `now` may lead on to a cause.
  std::optional<InstructionRun> last_awaited(InstructionRun run, double now, bool stream_too) const {
    std::optional<InstructionRun> last;
    const auto consider = [&](int instruction) {
      const InstructionRun other{maker_.last_[static_cast<std::size_t>(instruction)],
                                 run.step - (instruction >= run.instruction ? 1 : 0)};
      const CommunicationTimes* times = run_of(other);
      if (!times || times->begin > now || (times->begin == now && times->end > now)) return;
      const CommunicationTimes* const best = last ? run_of(*last) : nullptr;
      if (!best || times->end > best->end || (times->end == best->end && times->begin < best->begin)) last = other;
    };
    for (const int awaited : maker_.awaited(run.instruction)) consider(awaited);
    if (stream_too) consider(maker_.previous_[static_cast<std::size_t>(run.instruction)]);
    return last;
  }

  const LedgerMaker& maker_;
  const StepTimes& times_;
  Ledger& ledger_;
};

std::optional<double> LedgerMaker::ready(const Instruction& i, const CommunicationTimes& run) const {
  // Pipeline stages end their part of a step one after the other, and the few bytes that they exchange then take no time.
  if (is_barrier(i)) return run.end;
  if (is_collective(i) && i.collective.purpose == Purpose::scalars && layout_.size(stage_axis) > 1) return run.end;
  return run.ready;
}

Ledger LedgerMaker::make(const StepTimes& times) const {
  require(times.communication.size() == communication_.size() && times.waits.size() == waits_.size() &&
              (times.previous.empty() || times.previous.size() == communication_.size()),
          "LedgerMaker::make: times of another program");
  Ledger ledger;
  ledger.step_ms = times.end;
  Walk walk(*this, times, ledger);
  for (std::size_t w = 0; w < waits_.size(); ++w) {
    if (times.waits[w].end > times.waits[w].begin) walk.wait(waits_[w], times.waits[w]);
  }
  for (std::size_t c = 0; c < communication_.size(); ++c) {
    const Instruction& i = program_.at(communication_[c]);
    if (on_compute_stream(i))
      walk.charge(communication_[c], times.communication[c], times.communication[c].begin, times.communication[c].end);
    if (is_send(i.kind) || is_barrier(i)) continue;
    KindTimes& kind = ledger.of(*kind_of(communication_[c]));
    for (const auto* step : {&times.communication, &times.previous}) {
      if (step->empty()) continue;
      const CommunicationTimes& run = (*step)[c];
      const double begin = std::clamp(ready(i, run).value_or(run.begin), run.begin, run.end);
      // Each communication counts in one step: its own, or the next one if it begins only then.
      const bool own = step == &times.communication;
      if (run.begin < times.end && (own || run.begin >= 0)) kind.count += 1;
      kind.total_ms += overlap(begin, run.end, 0, times.end);
    }
  }
  ledger.compute_ms = ledger.step_ms - ledger.exposed_ms() - ledger.bubble_ms - ledger.other_ms;
  return ledger;
}

}  // namespace plait::parallel
