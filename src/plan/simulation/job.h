// A job as the event loop needs it: programs by stream, the costs of their instructions, who communicates with whom, and over
// which channels.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/index.h"
#include "parallel/program/program_set.h"
#include "plan/simulation/work.h"
#include "topology/fabric.h"

namespace plait::plan::simulation {

constexpr std::size_t group_kinds = 8;  // groups by stream: the most that a job may have
constexpr int none = -1;

// How an instruction involves other ranks.
enum class Meeting : std::uint8_t { alone, send, receive, collective };

struct ProgramTable {
  struct Role {
    Meeting meeting = Meeting::alone;  // as its kind says; a collective whose group is one rank is alone when it runs
    std::uint8_t group = 0;            // of a collective: index into Job::groups
    bool compute = false;              // slowed by communication beside it
    int place = 0;                     // in its stream
    int turn = 0;                      // of a collective: its place among those of its group
  };
  const parallel::Program* program = nullptr;
  std::vector<Role> entries;                              // by instruction
  std::vector<std::vector<int>> streams;                  // instructions of each, in order
  std::array<std::vector<int>, group_kinds> collectives;  // instructions of each group, in order: all on one stream
  int last_compute = none;                                // the instruction that ends the step

  // The stream of a group's collectives; none if it has no collectives.
  int group_stream(std::size_t group) const {
    return collectives[group].empty() ? none : program->at(collectives[group].front()).stream;
  }
  int instructions() const { return static_cast<int>(entries.size()); }
};

// The load of a transfer while it moves bytes.
struct Flow {
  struct Crossing {
    int channel = 0;
    int times = 1;  // how many hops of its rings cross it
    friend bool operator==(const Crossing&, const Crossing&) = default;
  };
  int rings = 1;  // each moves an equal share of the bytes; all rates are of one ring
  double most_gb_per_s = std::numeric_limits<double>::infinity();  // of its ways by themselves
  std::vector<Crossing> crossings;  // ascending, each channel once; only channels that it may have to share
};

// Members of one group, which run its collectives together.
struct Meet {
  std::size_t group = 0;   // index into Job::groups
  std::vector<int> ranks;  // ascending, at least two
  int flow = none;         // none: no bytes are moved
};

struct Job {
  parallel::Layout layout;
  std::vector<parallel::GroupStream> groups;  // groups with at least one collective
  std::vector<ProgramTable> tables;           // as ProgramSet::programs
  std::vector<int> table_of;                  // by rank: index into `tables`
  std::vector<std::vector<Work>> works;       // rows by instruction; ranks whose work is the same share one
  std::vector<int> work_of;                   // by rank: index into `works`
  std::vector<Meet> meets;
  std::vector<std::array<int, group_kinds>> meet_of;  // by rank; none: alone
  std::vector<Flow> flows;
  std::vector<std::vector<int>> message_flow;  // by rank and stream; none if it sends nothing
  std::vector<double> channel_gb_per_s;

  const ProgramTable& table(int rank) const { return tables[at(table_of[at(rank)])]; }
  const Work& work(int rank, int instruction) const { return works[at(work_of[at(rank)])][at(instruction)]; }
  int ranks() const { return layout.ranks(); }
  // The stream of a message's other end, on rank peer_rank(); InternalError if there is none.
  int peer_stream(int rank, int stream) const;
  int peer_rank(int rank, int stream) const;
};

// Combines the work of two ranks in one collective: each number is the slower one's.
void take_slower(Work& work, const Work& other);

// Turns the work of a whole collective into that of one of its `rings` rings: both its bytes and its highest rate are divided.
void share_among_rings(Work& work, int rings);

// `set` must outlive the job. InternalError if a work is negative or not finite, or if `gpu_of_rank` does not give every rank a
// GPU of the network; ConfigError (placement) if bytes would have to cross where there is no way. `same_work`: as
// SimulationOptions::same_work.
Job make_job(const parallel::ProgramSet& set, const WorkOf& work_of, const topology::Network& network,
             const std::vector<int>& gpu_of_rank, const std::vector<int>& same_work = {});

}  // namespace plait::plan::simulation
