// The simulator predicts the time of an optimizer step by a discrete-event run of the actual programs of all ranks.
//
// Programs have the same semantics as in the untimed proof (parallel/program/program_timeline.h): streams run in order; a wait
// for a later instruction is for the previous step's; a message begins when both sender and receiver have reached it (its bytes
// go straight into the receiver's buffer), a collective when its whole group has. Running tasks have a pace (a fluid model, as
// in SimGrid: Casanova et al. 2014, with equal shares):
//   transfers   all that cross a channel share its bandwidth equally; a transfer is as fast as the least of its shares, of
//               what its own way gives, and of Work::most_gb_per_s. What one does not use of its share, the others do not get.
//               A ring loads the channels of all its hops for as long as it moves bytes, and is as fast as its slowest hop. The
//               rings of one collective (topology/host_rings.h) move equal shares of its bytes, and it takes as long as the
//               slowest.
//   compute     takes 1 + the sum of Work::compute_slowdown of what its rank sends, receives, exchanges and reduces at that
//               time.
//
//   the fixed part of a message or collective, with norms of exchanges, takes 1 + Work::slowed_by_compute while a rank that
//               takes part computes.
// Two ranks on one GPU move bytes between them in no time.
//
// A step lasts from the end of the step before to its own end, on the compute stream of the rank that ends last. The first
// steps differ, as no earlier step leaves work over. The last one counts, once it takes as long as the one before it. The next
// step begins too, since ranks that are ahead slow the others down. Simulation time grows with the number of events and with
// the flows that share a channel at each event.
#pragma once

#include <string>
#include <vector>

#include "parallel/ledger.h"
#include "parallel/program/program_set.h"
#include "plan/simulation/critical_path.h"
#include "plan/simulation/work.h"
#include "topology/fabric.h"

namespace plait::plan {

struct SimulationOptions {
  int steps = 3;                 // at least 2; more are run, up to most_steps, until the last two take equally long
  int most_steps = 24;           // at most 254
  double settled_within = 1e-6;  // of the step
  bool keep_timeline = false;    // 40 bytes per instruction, of each class of ranks
  bool critical_path = true;
  // Ranks that provably do the same at the same time are run once (plan/simulation/rank_classes.h). The result is the same to
  // the bit; off for tests and to see what it saves.
  bool merge_equal_ranks = true;
  // By rank, a number: ranks with the same program and number have the same work, so only the first is asked for it. Empty: all
  // are asked.
  std::vector<int> same_work = {};
};

// Seconds in the last step: 0 is the end of the step before, on the rank that ended last. Other ranks may be slightly ahead.
struct InstructionTimes {
  double reached = 0;  // its stream had reached it
  double came = 0;     // its waits were over
  double begin = 0;    // sender and receiver, or the whole group, had come
  double moved = 0;    // bytes began to move; the end, if it moves none
  double end = 0;
};

struct Simulated {
  parallel::Layout layout;
  double step_seconds = 0;
  std::vector<double> steps_seconds;  // of each step that was run; the last is step_seconds
  bool settled = false;               // the last two differ by no more than SimulationOptions::settled_within

  // By rank: its class. Ranks of one class do the same at the same time.
  std::vector<int> class_of;
  std::vector<int> representative;        // by class: its lowest rank
  std::vector<parallel::Ledger> ledgers;  // by class, of its representative: made by the code that measures (parallel/ledger.h)
  std::vector<std::vector<InstructionTimes>> timeline;  // by class and instruction; empty unless asked for

  std::vector<CriticalRun> critical_path;  // contiguous, from 0 to step_seconds; empty unless asked for
  CriticalSums critical_sums;

  int classes() const { return static_cast<int>(representative.size()); }
  // The ledger of a rank, with this rank's peers.
  parallel::Ledger ledger(int rank) const;
  double bubble_fraction(int rank) const;
  double mean_bubble_fraction() const;   // over all ranks
  parallel::Ledger mean_ledger() const;  // over all ranks, without peers
  // InternalError unless the timeline was kept.
  const std::vector<InstructionTimes>& timeline_of(int rank) const;
};

// `gpu_of_rank`: by rank, a GPU of the network. The same input gives the same bits. InternalError if the programs deadlock (the
// validator proves that they do not) or a work is negative or not finite; ConfigError (placement) if bytes would have to cross
// where the network has no way.
Simulated simulate_step(const parallel::ProgramSet& set, const WorkOf& work_of, const topology::Network& network,
                        const std::vector<int>& gpu_of_rank, const SimulationOptions& options = {});

}  // namespace plait::plan
