// The time of a step by its use: what the compute stream did, and what it stood waiting for.
//
// Pure data: a rank's program and the times of one step make a Ledger, without a device. All times are milliseconds on the
// rank's own clock, 0 where its compute stream came to the step.
//
// At any time the compute stream is in one of four states, so compute + exposed + bubble + other = the step:
//   compute   between waits: it did its work (this includes time in which the host gave it none, and waking up after a wait)
//   exposed   it stood still, or ran a collective itself, while bytes were on their way
//   bubble    it stood still and nothing was on its way: the sender of a message, or another rank of a collective, was late
//   other     it stood still for something else: a batch not yet loaded, what starts behind something else than communication
//
// Causes of a wait. A wait of the compute stream is explained from its end backwards. It waited for the awaited instruction
// that ended last, back to when that instruction began. The time before is explained the same way, by what that instruction
// itself waited for: its own waits and the instruction before it on its stream, whichever ended last; and so on until the wait
// began. So waiting for the last of five buckets that were reduced one after the other is waiting for all five, and if a
// message was late because the one before it on the same stream was late, the time is charged to that one. Time that remains
// unexplained is `other`.
//
// Sender or wire. A receive begins when the receiver's buffer is free, and knows when its sender had the message ready
// (comm/p2p/link.h: announced). Before that the sender was late: bubble. After that the wire was slow: exposed. Pipeline stages
// come to a collective one after the other: barriers and, in a pipeline, the sum of scalars (a few bytes) count entirely as
// waiting for the last rank. Collectives among ranks that run the same program (data, tensor) are not split: exposed.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "parallel/mesh.h"
#include "parallel/program/program.h"

namespace plait::parallel {

enum class CommunicationKind {
  gradient_buckets,  // reductions of gradients and of the step's scalars, without the barriers in front of them
  activations,       // messages to the next stage
  gradients,         // messages to the stage before
  exchanges,         // between tensor-parallel ranks, with the norms between their sums and gathers
  weight_gathers,    // gathers of weights under ZeRO, and reductions of the scales of FP8 weights
};
inline constexpr std::array communication_kinds = {CommunicationKind::gradient_buckets, CommunicationKind::activations,
                                                   CommunicationKind::gradients, CommunicationKind::exchanges,
                                                   CommunicationKind::weight_gathers};
std::string to_string(CommunicationKind kind);  // "gradient buckets"
// The kind of an instruction's communication; nothing if it communicates with no other rank.
std::optional<CommunicationKind> communication_kind(const Instruction& instruction);

// Communication of one kind in one step; only the time within the step counts. A message counts where it is received; a send
// adds only the time that the compute stream waited for it.
struct KindTimes {
  double count = 0;
  double total_ms = 0;    // on the wire
  double exposed_ms = 0;  // the part of it while the compute stream stood still
  double hidden_ms() const { return total_ms - exposed_ms; }
};

// The time for which the compute stream waited for one other rank.
struct PeerTimes {
  int rank = -1;       // -1: the rank of a collective that came last, which is not known
  double late_ms = 0;  // before it was ready to send
  double wire_ms = 0;  // after that
};

struct Ledger {
  double step_ms = 0;
  double compute_ms = 0, bubble_ms = 0, other_ms = 0;
  std::array<KindTimes, communication_kinds.size()> kinds;  // by kind
  std::vector<PeerTimes> peers;                             // by rank, ascending
  // Exposed waits for messages of links that do not announce when the sender is ready: part of this may be bubble.
  double unsplit_ms = 0;

  KindTimes& of(CommunicationKind kind) { return kinds[static_cast<std::size_t>(kind)]; }
  const KindTimes& of(CommunicationKind kind) const { return kinds[static_cast<std::size_t>(kind)]; }
  double exposed_ms() const;
  double hidden_ms() const;
  double exposed_dp_ms() const;   // gradient buckets and weight gathers
  double exposed_p2p_ms() const;  // activations and gradients
  double exposed_tp_ms() const { return of(CommunicationKind::exchanges).exposed_ms; }
};

// The mean of the ledgers of several steps of one rank.
class LedgerSum {
 public:
  void add(const Ledger& ledger);
  int steps() const { return steps_; }
  Ledger mean() const;  // all zero without steps

 private:
  Ledger sum_;
  int steps_ = 0;
};

// When an instruction ran: from the moment when everything it waited for and the instruction before it on its stream had ended,
// to its own end. Times are infinite for what had not happened when the step was read.
struct CommunicationTimes {
  double begin = 0, end = 0;
  std::optional<double> ready = {};  // for a receive: when the sender was ready, if known
};

struct WaitTimes {
  double begin = 0, end = 0;
};

struct StepTimes {
  double end = 0;                                      // end of the step on the compute stream
  std::vector<CommunicationTimes> communication = {};  // by LedgerMaker::communication()
  std::vector<CommunicationTimes> previous = {};       // the same of the step before; empty: unknown
  std::vector<WaitTimes> waits = {};                   // by LedgerMaker::waits()
};

// Makes the ledgers of one rank's program, which must outlive it.
class LedgerMaker {
 public:
  LedgerMaker(const Program& program, const Layout& layout, int rank);

  // The instructions to be timed: those that communicate, and those of the compute stream that wait for other streams. Indices
  // into the program, ascending.
  const std::vector<int>& communication() const { return communication_; }
  const std::vector<int>& waits() const { return waits_; }
  // The instruction before this one on its stream. For the first of a stream it is the last one, which ran in the step before.
  int before(int instruction) const { return previous_[static_cast<std::size_t>(instruction)]; }
  // An exchange (parallel/program/exchanges.h) is timed as one instruction: its last one stands for it. It begins when the
  // first one does, has the first one's place on the stream, and waits for everything outside it that any of its instructions
  // waits for.
  int first_of(int instruction) const { return first_[static_cast<std::size_t>(instruction)]; }
  const std::vector<int>& awaited(int instruction) const { return awaited_[static_cast<std::size_t>(instruction)]; }

  Ledger make(const StepTimes& times) const;

 private:
  class Walk;
  bool on_compute_stream(const Instruction& i) const { return program_.stream_of(i).role == StreamRole::compute; }
  std::optional<CommunicationKind> kind_of(int instruction) const;  // also for what is computed in an exchange
  int peer_rank(const Instruction& i) const;                        // the rank at a message's other end; -1 for a collective
  std::optional<double> ready(const Instruction& i, const CommunicationTimes& run) const;

  const Program& program_;
  Layout layout_;
  int rank_;
  std::vector<int> communication_, waits_;
  std::vector<int> place_;                 // by instruction: index of its exchange in communication_, or -1
  std::vector<int> previous_;              // by instruction: the one before it on its stream, cyclically
  std::vector<int> first_, last_;          // by instruction: ends of its exchange; itself if it is in none
  std::vector<std::vector<int>> awaited_;  // by instruction
};

}  // namespace plait::parallel
