// The event loop: runs the programs of a job, one rank of each class, against channels that flows share.
//
// Time advances from instant to instant. At one instant, everything that is over ends and everything that can begin begins.
// When nothing more does, the pace of every affected task is set anew: flows on a channel where a flow began or ended, and
// compute beside communication that began or ended. Nothing depends on the order within an instant.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/simulation/event_heap.h"
#include "plan/simulation/job.h"
#include "plan/simulation/rank_classes.h"

namespace plait::plan::simulation {

// Seconds since the beginning of the first step.
struct RunTimes {
  double came = 0;   // it reached the head of its stream and its waits were over
  double begin = 0;  // all other parties had come as well
  double moved = 0;  // the fixed part was over and bytes began to move; the end, if it moves none
  double end = 0;
};

class Engine {
 public:
  static constexpr int most_steps = 254;

  // `job` and `classes` must outlive it. 2 to most_steps steps. The start of one further step runs beside the last one, as in
  // training.
  Engine(const Job& job, const Classes& classes, int steps);

  // Call once. InternalError if the programs deadlock.
  void run();

  // By step: the time when the last rank's compute stream ended it.
  const std::vector<double>& step_ends() const { return step_ends_; }
  int representative(int rank_class) const { return actors_[at(rank_class)].rank; }
  // The times of a class by instruction, in the last step (0) or the one before (-1).
  const RunTimes* times(int rank_class, int step) const {
    return times_.data() + (step == 0 ? times_.size() / 2 : 0) + actors_[at(rank_class)].first_instruction;
  }

 private:
  // One rank of a class.
  struct Actor {
    int rank = 0;
    const ProgramTable* table = nullptr;
    const Work* works = nullptr;
    std::size_t first_instruction = 0;  // of its own rows in runs_ and times_
    int first_head = 0, heads = 0;
    std::array<int, group_kinds> group_task{};  // none: alone
    int slowing = 0;                            // streams whose slowdown is not 0
    int computing = 0;                          // tasks
    bool changed = false;                       // one of the two changed
  };
  // A stream of an actor.
  struct StreamHead {
    int actor = 0, stream = 0;
    int next = 0, step = 0;  // position in the stream of the instruction that it reaches next, or is at
    int peer_head = none;    // of a stream for messages: the other end
    double came = 0;
    double slowdown = 0;  // of compute, by the current task
  };
  enum class Phase : std::uint8_t { idle, fixed, bytes };
  // Work that one stream does alone, a message (the task of the sending stream), or the collectives of a group.
  struct Task {
    int first_party = 0, parties = 0;  // in parties_
    int flow = none;                   // index into flows_
    int arrived = 0;
    Phase phase = Phase::idle;
    bool compute = false, marked = false;
    Work work = {};
    double begin = 0, moved = 0;
    double since = 0, left = 0, pace = 0;  // at `since`, `left` seconds or bytes were left, each taking `pace` seconds
  };
  struct ClassFlow {
    int rings = 1;
    double most_gb_per_s = 0;
    int task = none;
    std::vector<Flow::Crossing> crossings;  // by class of channels; times: how many of the class cross one channel
  };
  struct ClassChannel {
    double gb_per_s = 0;
    int load = 0;
    std::vector<int> flows;  // on it now
  };

  void make_actors();
  void make_tasks();
  void make_flows();

  int instruction_at(const StreamHead& head) const {
    return actors_[at(head.actor)].table->streams[at(head.stream)][at(head.next)];
  }
  int task_of(int head, int instruction) const;
  void look_at(int head);
  void begin(int task);
  void take_work(Task& task) const;
  void phase_over(int task);
  void begin_bytes(int task);
  void load(const ClassFlow& flow, int sign);
  void end(int task);
  void leave(StreamHead& head, const Task& task);
  void set_slowdown(StreamHead& head, double slowdown);
  void count_computing(const Task& task, int sign);
  void changed(int actor);
  // True if its pace depends on the other work of its ranks. Bytes have a pace of their own.
  static bool is_slowed(const Task& task) {
    return task.phase == Phase::fixed && (task.compute || task.work.slowed_by_compute > 0);
  }
  void mark(int task);
  void settle();
  double pace_of(const Task& task) const;
  std::string missing(int head) const;
  bool is_over(const StreamHead& head) const {
    return head.step > steps_ || actors_[at(head.actor)].table->streams[at(head.stream)].empty();
  }
  [[noreturn]] void explain_deadlock() const;

  const Job& job_;
  const Classes& classes_;
  int steps_;
  int unfinished_ = 0;  // streams that have not ended the last step
  double now_ = 0;
  std::vector<Actor> actors_;
  std::vector<StreamHead> heads_;
  std::vector<int> blocked_by_;  // by head: the instruction that it waits for
  std::vector<Task> tasks_;      // of heads, then of groups
  std::vector<int> parties_;
  std::vector<ClassFlow> flows_;
  std::vector<ClassChannel> channels_;
  std::vector<std::uint8_t> runs_;  // by actor and instruction: how often it ran
  std::vector<RunTimes> times_;     // likewise, in the step before the last, then in the last
  std::vector<double> step_ends_;
  EventHeap heap_{0};
  std::vector<int> marked_;  // tasks whose pace is to be set
  std::vector<int> changed_actors_;
};

}  // namespace plait::plan::simulation
