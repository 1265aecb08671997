// A job as the event loop needs it: programs by stream, what every instruction costs, who meets whom, and what that crosses.
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

constexpr std::size_t group_kinds = 8;  // groups by stream: a job has at most so many
constexpr int none = -1;

// Who takes part in an instruction.
enum class Meeting : std::uint8_t { alone, send, receive, collective };

struct ProgramTable {
  struct Role {
    Meeting meeting = Meeting::alone;  // as its kind says; a collective whose group is one rank is alone when it runs
    std::uint8_t group = 0;            // of a collective: index into Job::groups
    bool compute = false;              // slowed by communication beside it
    int place = 0;                     // in its stream
    int turn = 0;                      // of a collective: among those of its group
  };
  const parallel::Program* program = nullptr;
  std::vector<Role> entries;                              // by instruction
  std::vector<std::vector<int>> streams;                  // instructions of each, in order
  std::array<std::vector<int>, group_kinds> collectives;  // instructions of each group, in order: all on one stream
  int last_compute = none;                                // the instruction that ends the step

  // Where a group's collectives are; none.
  int group_stream(std::size_t group) const {
    return collectives[group].empty() ? none : program->at(collectives[group].front()).stream;
  }
  int instructions() const { return static_cast<int>(entries.size()); }
};

// What a transfer loads while it moves bytes.
struct Flow {
  struct Crossing {
    int channel = 0;
    int times = 1;  // hops of its rings that cross it
    friend bool operator==(const Crossing&, const Crossing&) = default;
  };
  int rings = 1;  // each moves an equal share of the bytes; all rates are of one ring
  double most_gb_per_s = std::numeric_limits<double>::infinity();  // of its ways alone
  std::vector<Crossing> crossings;  // ascending, each channel once; only those where it may have to share
};

// Members of one group, which run its collectives together.
struct Meet {
  std::size_t group = 0;   // index into Job::groups
  std::vector<int> ranks;  // ascending, at least two
  int flow = none;         // none: no bytes are moved
};

struct Job {
  parallel::Layout layout;
  std::vector<parallel::GroupStream> groups;  // over which something runs
  std::vector<ProgramTable> tables;           // as ProgramSet::programs
  std::vector<int> table_of;                  // by rank
  std::vector<std::vector<Work>> works;       // rows by instruction; ranks whose work is the same share one
  std::vector<int> work_of;                   // by rank: index into `works`
  std::vector<Meet> meets;
  std::vector<std::array<int, group_kinds>> meet_of;  // by rank; none: alone
  std::vector<Flow> flows;
  std::vector<std::vector<int>> message_flow;  // by rank and stream: none for what sends nothing
  std::vector<double> channel_gb_per_s;

  const ProgramTable& table(int rank) const { return tables[at(table_of[at(rank)])]; }
  const Work& work(int rank, int instruction) const { return works[at(work_of[at(rank)])][at(instruction)]; }
  int ranks() const { return layout.ranks(); }
  // The stream of a message's other end, on the rank `peer_rank` gives; InternalError if it has none.
  int peer_stream(int rank, int stream) const;
  int peer_rank(int rank, int stream) const;
};

// What counts where several ranks run one collective: of each number the slower one's.
void take_slower(Work& work, const Work& other);

// Turns the work of a whole collective into that of one of its `rings` rings: the bytes that it moves, and its highest rate.
void share_among_rings(Work& work, int rings);

// `set` has to outlive it. InternalError if works are not finite or negative, or `gpu_of_rank` does not give every rank a GPU
// of the network; ConfigError (placement) if bytes have to go where there is no way. `same_work`: as
// SimulationOptions::same_work.
Job make_job(const parallel::ProgramSet& set, const WorkOf& work_of, const topology::Network& network,
             const std::vector<int>& gpu_of_rank, const std::vector<int>& same_work = {});

}  // namespace plait::plan::simulation
