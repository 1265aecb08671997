#include "plan/simulation/engine.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/error.h"

namespace plait::plan::simulation {

using parallel::StreamRole;

Engine::Engine(const Job& job, const Classes& classes, int steps) : job_(job), classes_(classes), steps_(steps) {
  require(steps >= 2 && steps <= most_steps, "simulation: 2 to 254 steps");
  make_actors();
  make_tasks();
  make_flows();
  step_ends_.assign(at(steps), 0);
  heap_ = EventHeap(static_cast<int>(tasks_.size()));
}

void Engine::make_actors() {
  actors_.resize(at(classes_.ranks));
  std::size_t instructions = 0;
  for (int rank = job_.ranks() - 1; rank >= 0; --rank) actors_[at(classes_.of_rank[at(rank)])].rank = rank;
  for (Actor& actor : actors_) {
    actor.table = &job_.table(actor.rank);
    actor.works = job_.works[at(job_.work_of[at(actor.rank)])].data();
    actor.first_instruction = instructions;
    instructions += actor.table->entries.size();
    actor.first_head = static_cast<int>(heads_.size());
    actor.heads = static_cast<int>(actor.table->streams.size());
    for (int stream = 0; stream < actor.heads; ++stream) {
      heads_.push_back({.actor = static_cast<int>(&actor - actors_.data()), .stream = stream});
    }
  }
  for (StreamHead& head : heads_) {
    const int rank = actors_[at(head.actor)].rank;
    if (actors_[at(head.actor)].table->program->streams[at(head.stream)].peer < 0) continue;
    const Actor& peer = actors_[at(classes_.of_rank[at(job_.peer_rank(rank, head.stream))])];
    head.peer_head = peer.first_head + job_.peer_stream(rank, head.stream);
  }
  blocked_by_.assign(heads_.size(), none);
  runs_.assign(instructions, 0);
  times_.resize(2 * instructions);
}

void Engine::make_tasks() {
  for (int p = 0; p < static_cast<int>(heads_.size()); ++p) {
    const StreamHead& head = heads_[at(p)];
    Task task{.first_party = static_cast<int>(parties_.size()), .parties = 1};
    parties_.push_back(p);
    if (actors_[at(head.actor)].table->program->streams[at(head.stream)].role == StreamRole::send) {
      parties_.push_back(head.peer_head);
      ++task.parties;
    }
    tasks_.push_back(task);
  }
  const int first_group = static_cast<int>(tasks_.size());
  for (Actor& actor : actors_) {
    for (std::size_t kind = 0; kind < group_kinds; ++kind) {
      const int meet = job_.meet_of[at(actor.rank)][kind];
      actor.group_task[kind] = meet == none ? none : first_group + classes_.of_meet[at(meet)];
    }
  }
  tasks_.resize(tasks_.size() + at(classes_.meets));
  std::vector<bool> made(at(classes_.meets), false);
  for (std::size_t m = 0; m < job_.meets.size(); ++m) {
    const int meet_class = classes_.of_meet[m];
    if (made[at(meet_class)]) continue;
    made[at(meet_class)] = true;
    Task& task = tasks_[at(first_group + meet_class)];
    task.first_party = static_cast<int>(parties_.size());
    std::vector<int> members;
    for (const int rank : job_.meets[m].ranks) members.push_back(classes_.of_rank[at(rank)]);
    std::sort(members.begin(), members.end());
    members.erase(std::unique(members.begin(), members.end()), members.end());
    for (const int member : members) {
      const Actor& actor = actors_[at(member)];
      parties_.push_back(actor.first_head + actor.table->group_stream(job_.meets[m].group));
    }
    task.parties = static_cast<int>(members.size());
  }
}

void Engine::make_flows() {
  // A class's flow is that of its first member; the crossings are read off the first channel of each class.
  std::vector<int> class_of(job_.flows.size(), none);
  const auto add = [&](int flow, int task) {
    if (flow == none) return none;
    if (tasks_[at(task)].flow == none) {
      tasks_[at(task)].flow = static_cast<int>(flows_.size());
      const Flow& first = job_.flows[at(flow)];
      flows_.push_back({.rings = first.rings, .most_gb_per_s = first.most_gb_per_s, .task = task, .crossings = {}});
    }
    return class_of[at(flow)] = tasks_[at(task)].flow;
  };
  for (int rank = 0; rank < job_.ranks(); ++rank) {
    const Actor& actor = actors_[at(classes_.of_rank[at(rank)])];
    for (int stream = 0; stream < actor.heads; ++stream) {
      add(job_.message_flow[at(rank)][at(stream)], actor.first_head + stream);
    }
  }
  const int first_group = static_cast<int>(heads_.size());
  for (std::size_t m = 0; m < job_.meets.size(); ++m) add(job_.meets[m].flow, first_group + classes_.of_meet[m]);

  channels_.resize(at(classes_.channels));
  std::vector<int> first(at(classes_.channels), none);
  for (int c = static_cast<int>(job_.channel_gb_per_s.size()) - 1; c >= 0; --c) first[at(classes_.of_channel[at(c)])] = c;
  for (int c = 0; c < classes_.channels; ++c) channels_[at(c)].gb_per_s = job_.channel_gb_per_s[at(first[at(c)])];
  for (std::size_t f = 0; f < job_.flows.size(); ++f) {
    for (const Flow::Crossing& crossing : job_.flows[f].crossings) {
      const int channel_class = classes_.of_channel[at(crossing.channel)];
      if (first[at(channel_class)] != crossing.channel) continue;
      std::vector<Flow::Crossing>& crossings = flows_[at(class_of[f])].crossings;
      const auto same = [&](const Flow::Crossing& c) { return c.channel == channel_class; };
      const auto it = std::find_if(crossings.begin(), crossings.end(), same);
      if (it == crossings.end()) {
        crossings.push_back({channel_class, crossing.times});
      } else {
        it->times += crossing.times;
      }
    }
  }
}

int Engine::task_of(int head, int instruction) const {
  const Actor& actor = actors_[at(heads_[at(head)].actor)];
  const ProgramTable::Role& entry = actor.table->entries[at(instruction)];
  if (entry.meeting == Meeting::receive) return heads_[at(head)].peer_head;
  if (entry.meeting != Meeting::collective || actor.group_task[entry.group] == none) return head;
  return actor.group_task[entry.group];
}

// Begins the next instruction of a head if it can.
void Engine::look_at(int p) {
  StreamHead& head = heads_[at(p)];
  blocked_by_[at(p)] = none;
  const Actor& actor = actors_[at(head.actor)];
  if (is_over(head)) return;
  const int instruction = instruction_at(head);
  for (const int awaited : actor.table->program->at(instruction).waits) {
    const int runs = runs_[actor.first_instruction + at(awaited)];
    if (runs >= head.step + (awaited < instruction ? 1 : 0)) continue;
    blocked_by_[at(p)] = awaited;
    return;
  }
  head.came = now_;
  const int task = task_of(p, instruction);
  if (++tasks_[at(task)].arrived == tasks_[at(task)].parties) begin(task);
}

void Engine::take_work(Task& task) const {
  const StreamHead& first = heads_[at(parties_[at(task.first_party)])];
  const Actor& actor = actors_[at(first.actor)];
  const int instruction = instruction_at(first);
  const ProgramTable::Role& entry = actor.table->entries[at(instruction)];
  Work& work = task.work = actor.works[at(instruction)];
  task.compute = entry.compute;
  if (entry.meeting == Meeting::send) return;
  if (entry.meeting == Meeting::alone || actor.group_task[entry.group] == none) {
    work.bytes = work.compute_slowdown = work.slowed_by_compute = 0;
    return;
  }
  for (int party = 1; party < task.parties; ++party) {
    const StreamHead& head = heads_[at(parties_[at(task.first_party + party)])];
    take_slower(work, actors_[at(head.actor)].works[at(instruction_at(head))]);
  }
  if (task.flow != none) share_among_rings(work, flows_[at(task.flow)].rings);
}

void Engine::begin(int t) {
  Task& task = tasks_[at(t)];
  take_work(task);
  task.phase = Phase::fixed;
  task.begin = task.since = now_;
  task.left = task.work.seconds;
  if (task.compute) count_computing(task, 1);
  if (is_slowed(task)) {
    task.pace = 0;
    mark(t);
  } else {
    heap_.set(t, now_ + task.work.seconds);
  }
  if (task.compute || task.work.compute_slowdown == 0) return;
  for (int party = 0; party < task.parties; ++party) {
    set_slowdown(heads_[at(parties_[at(task.first_party + party)])], task.work.compute_slowdown);
  }
}

void Engine::set_slowdown(StreamHead& head, double slowdown) {
  if (head.slowdown == slowdown) return;
  Actor& actor = actors_[at(head.actor)];
  actor.slowing += (slowdown > 0 ? 1 : 0) - (head.slowdown > 0 ? 1 : 0);
  head.slowdown = slowdown;
  changed(head.actor);
}

void Engine::count_computing(const Task& task, int sign) {
  for (int party = 0; party < task.parties; ++party) {
    const int a = heads_[at(parties_[at(task.first_party + party)])].actor;
    const bool before = actors_[at(a)].computing > 0;
    actors_[at(a)].computing += sign;
    if (before != (actors_[at(a)].computing > 0)) changed(a);
  }
}

void Engine::changed(int actor) {
  if (actors_[at(actor)].changed) return;
  actors_[at(actor)].changed = true;
  changed_actors_.push_back(actor);
}

void Engine::phase_over(int t) {
  Task& task = tasks_[at(t)];
  if (task.phase == Phase::fixed) task.moved = now_;
  if (task.phase != Phase::bytes && task.work.bytes > 0) return begin_bytes(t);
  if (task.phase == Phase::bytes) load(flows_[at(task.flow)], -1);
  end(t);
}

void Engine::begin_bytes(int t) {
  Task& task = tasks_[at(t)];
  task.phase = Phase::bytes;
  task.since = now_;
  task.left = task.work.bytes;
  task.pace = 0;
  load(flows_[at(task.flow)], 1);
  mark(t);
}

void Engine::load(const ClassFlow& flow, int sign) {
  const int index = static_cast<int>(&flow - flows_.data());
  for (const Flow::Crossing& crossing : flow.crossings) {
    ClassChannel& channel = channels_[at(crossing.channel)];
    channel.load += sign * crossing.times;
    if (sign < 0) std::erase(channel.flows, index);
    for (const int other : channel.flows) mark(flows_[at(other)].task);
    if (sign > 0) channel.flows.push_back(index);
  }
}

void Engine::end(int t) {
  Task& task = tasks_[at(t)];
  if (task.compute) count_computing(task, -1);
  task.phase = Phase::idle;
  task.arrived = 0;
  for (int party = 0; party < task.parties; ++party) leave(heads_[at(parties_[at(task.first_party + party)])], task);
  // Only after all have left: the next instruction of one party may wait for another's.
  for (int party = 0; party < task.parties; ++party) {
    const int p = parties_[at(task.first_party + party)];
    const Actor& actor = actors_[at(heads_[at(p)].actor)];
    const std::vector<int>& list = actor.table->streams[at(heads_[at(p)].stream)];
    const int done = list[at(heads_[at(p)].next > 0 ? heads_[at(p)].next - 1 : static_cast<int>(list.size()) - 1)];
    look_at(p);
    for (int other = actor.first_head; other < actor.first_head + actor.heads; ++other) {
      if (other != p && blocked_by_[at(other)] == done) look_at(other);
    }
  }
}

// Ends the head's current instruction.
void Engine::leave(StreamHead& head, const Task& task) {
  const Actor& actor = actors_[at(head.actor)];
  const int instruction = instruction_at(head);
  const std::size_t index = actor.first_instruction + at(instruction);
  if (head.step == steps_ - 2 || head.step == steps_ - 1) {
    times_[index + (head.step == steps_ - 1 ? runs_.size() : 0)] = {head.came, task.begin, task.moved, now_};
  }
  if (instruction == actor.table->last_compute && head.step < steps_) {
    step_ends_[at(head.step)] = std::max(step_ends_[at(head.step)], now_);
  }
  ++runs_[index];
  set_slowdown(head, 0);
  if (++head.next < static_cast<int>(actor.table->streams[at(head.stream)].size())) return;
  head.next = 0;
  if (++head.step == steps_) --unfinished_;
}

void Engine::mark(int task) {
  if (tasks_[at(task)].marked) return;
  tasks_[at(task)].marked = true;
  marked_.push_back(task);
}

double Engine::pace_of(const Task& task) const {
  if (task.phase == Phase::bytes) {
    const ClassFlow& flow = flows_[at(task.flow)];
    double gb_per_s = flow.most_gb_per_s;
    if (task.work.most_gb_per_s > 0) gb_per_s = std::min(gb_per_s, task.work.most_gb_per_s);
    for (const Flow::Crossing& crossing : flow.crossings) {
      const ClassChannel& channel = channels_[at(crossing.channel)];
      gb_per_s = std::min(gb_per_s, channel.gb_per_s / channel.load);
    }
    return 1e-9 / gb_per_s;  // 0 where nothing is in the way
  }
  const auto actor_of = [&](int party) -> const Actor& {
    return actors_[at(heads_[at(parties_[at(task.first_party + party)])].actor)];
  };
  if (!task.compute) {
    for (int party = 0; party < task.parties; ++party) {
      if (actor_of(party).computing > 0) return 1 + task.work.slowed_by_compute;
    }
    return 1;
  }
  double slowdown = 0;
  for (int party = 0; party < task.parties; ++party) {
    const Actor& actor = actor_of(party);
    if (actor.slowing == 0) continue;
    double here = 0;
    for (int p = actor.first_head; p < actor.first_head + actor.heads; ++p) here += heads_[at(p)].slowdown;
    slowdown = std::max(slowdown, here);
  }
  return 1 + slowdown;
}

void Engine::settle() {
  for (const int a : changed_actors_) {
    Actor& actor = actors_[at(a)];
    actor.changed = false;
    for (int p = actor.first_head; p < actor.first_head + actor.heads; ++p) {
      const StreamHead& head = heads_[at(p)];
      if (is_over(head)) continue;
      const int task = task_of(p, instruction_at(head));
      if (is_slowed(tasks_[at(task)])) mark(task);
    }
  }
  changed_actors_.clear();
  for (const int t : marked_) {
    Task& task = tasks_[at(t)];
    task.marked = false;
    // The task is over, or its phase has a pace of its own.
    if (task.phase != Phase::bytes && !is_slowed(task)) continue;
    const double pace = pace_of(task);
    const bool fresh = task.since == now_;
    if (!fresh && pace == task.pace) continue;
    if (!fresh) task.left = std::max(0.0, task.left - (now_ - task.since) / task.pace);
    task.since = now_;
    task.pace = pace;
    heap_.set(t, now_ + task.left * pace);
  }
  marked_.clear();
}

void Engine::run() {
  for (const StreamHead& head : heads_) unfinished_ += is_over(head) ? 0 : 1;
  for (int head = 0; head < static_cast<int>(heads_.size()); ++head) look_at(head);
  settle();
  while (unfinished_ > 0) {
    if (heap_.empty()) explain_deadlock();
    now_ = heap_.top_time();
    while (!heap_.empty() && heap_.top_time() == now_) {
      const int task = heap_.top();
      heap_.pop();
      phase_over(task);
    }
    settle();
  }
}

// The ranks that have not reached the meeting that `p` is at.
std::string Engine::missing(int p) const {
  const int t = task_of(p, instruction_at(heads_[at(p)]));
  std::string missing;
  for (int party = 0; party < tasks_[at(t)].parties; ++party) {
    const int other = parties_[at(tasks_[at(t)].first_party + party)];
    const StreamHead& head = heads_[at(other)];
    const bool here = !is_over(head) && blocked_by_[at(other)] == none && task_of(other, instruction_at(head)) == t;
    if (!here) missing += (missing.empty() ? "rank " : ", rank ") + std::to_string(actors_[at(head.actor)].rank);
  }
  return missing;
}

void Engine::explain_deadlock() const {
  constexpr std::size_t most = 4;
  std::vector<std::string> for_ranks, for_own;
  for (int p = 0; p < static_cast<int>(heads_.size()) && for_ranks.size() < most; ++p) {
    const StreamHead& head = heads_[at(p)];
    const Actor& actor = actors_[at(head.actor)];
    if (is_over(head)) continue;
    const parallel::Program& program = *actor.table->program;
    const std::string who =
        "rank " + std::to_string(actor.rank) + ", " + to_string(program.at(instruction_at(head))) + ", waits for ";
    if (blocked_by_[at(p)] == none) {
      for_ranks.push_back(who + missing(p));
    } else {
      for_own.push_back(who + to_string(program.at(blocked_by_[at(p)])));
    }
  }
  // Waits between ranks explain waits within a rank, so those are shown if there are any.
  const std::vector<std::string>& told = for_ranks.empty() ? for_own : for_ranks;
  std::string text = "simulation: the programs wait for each other";
  for (std::size_t i = 0; i < std::min(most, told.size()); ++i) text += (i == 0 ? ": " : "; ") + told[i];
  throw InternalError(text);
}

}  // namespace plait::plan::simulation
