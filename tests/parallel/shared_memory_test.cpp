// Buffers that share memory are never used at once, in training and in evaluation, in any order that streams allow.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "parallel/make_layout.h"
#include "parallel/program/program_waits.h"
#include "parallel/rank_plan.h"
#include "parallel/schedule_kinds.h"

namespace plait::parallel {
namespace {

// The pairs of buffers that share some memory.
std::set<std::pair<BufferId, BufferId>> sharers(const RankPlan& plan) {
  std::vector<std::pair<const MemoryItem*, BufferId>> items;
  for (const BufferTensorPlace& tensor : plan.tensors.buffers) {
    const MemoryItem& item = plan.memory.items()[static_cast<std::size_t>(tensor.item)];
    const bool always = tensor.buffer.kind == BufferKind::batch || tensor.buffer.kind == BufferKind::sent_gradient;
    if (item.kind != "scratch" && !always && item.bytes > 0) items.emplace_back(&item, tensor.buffer);
  }
  std::set<std::pair<BufferId, BufferId>> pairs;
  for (const auto& [a, of_a] : items) {
    for (const auto& [b, of_b] : items) {
      const bool apart = a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
      if (!apart && of_a < of_b) pairs.insert({of_a, of_b});
    }
  }
  return pairs;
}

struct Access {
  int instruction = 0;
  bool writes = false;
};

// The error that results when these two share memory; empty: none.
std::string conflict(const Program& program, const ProgramOrder& order, const std::map<BufferId, std::vector<Access>>& uses,
                     const BufferId& a, const BufferId& b) {
  const auto of = [&](const BufferId& buffer) {
    const auto it = uses.find(buffer);
    return it == uses.end() ? std::vector<Access>{} : it->second;
  };
  const auto ordered = [&](int n, int m) {  // n before m in the list: it has run when m begins, and m when n's next run does
    const auto before = [&](int first, int second, int earlier) {
      const bool same = program.at(first).stream == program.at(second).stream;
      return same || order.last_before(second, program.at(first).stream) >= earlier;
    };
    return before(n, m, n) && before(m, n, m - order.count());
  };
  for (const Access& x : of(a)) {
    for (const Access& y : of(b)) {
      const auto [n, m] = std::minmax(x.instruction, y.instruction);
      if (n == m) return to_string(program.at(n)) + " uses both";
      if (!ordered(n, m)) return to_string(program.at(n)) + " and " + to_string(program.at(m)) + " may run at the same time";
    }
  }
  // `holder` is the buffer whose value is there, in the order of the list; a program never reads what its last run left.
  const BufferId* holder = nullptr;
  std::map<int, std::vector<std::pair<const BufferId*, bool>>> accesses;
  for (const Access& x : of(a)) accesses[x.instruction].emplace_back(&a, x.writes);
  for (const Access& y : of(b)) accesses[y.instruction].emplace_back(&b, y.writes);
  for (const auto& [n, list] : accesses) {
    for (const auto& [buffer, writes] : list) {
      if (!writes && holder != buffer) return to_string(program.at(n)) + " reads what something else has been written over";
      if (writes) holder = buffer;
    }
  }
  return "";
}

struct SharingCase {
  int pipeline = 1, data = 1, tensor = 1;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  Recompute recompute = Recompute::none;
  bool sequence_parallel = true, overlap = true;
};

// Adds to `shared` the pairs of buffers that share memory.
void expect_shared_safely(const SharingCase& c, std::size_t& shared) {
  Config config;
  config.model.layers = 4, config.model.hidden = 64, config.model.heads = 8, config.model.vocab = 150, config.model.ffn = 128;
  config.data.sequence_length = 16;
  config.train.global_batch = 4 * c.data, config.train.micro_batch = 1;
  config.parallel.size[Axis::pipeline] = c.pipeline, config.parallel.size[Axis::data] = c.data,
  config.parallel.size[Axis::tensor] = c.tensor;
  config.parallel.schedule = c.schedule, config.parallel.virtual_stages = some_virtual_stages(c.schedule);
  config.parallel.sequence_parallel = c.sequence_parallel, config.parallel.recompute = c.recompute;
  config.comm.overlap = c.overlap;
  const Layout layout = make_layout(c.pipeline, c.data, c.tensor);
  for (int pipeline = 0; pipeline < c.pipeline; ++pipeline) {
    const RankPlan plan =
        make_rank_plan(config, Decision{}, 150, layout, layout.moved(0, Axis::pipeline, pipeline), DeviceKind::host);
    const auto pairs = sharers(plan);
    shared += pairs.size();
    for (const Program* program : {&plan.train, &plan.evaluate}) {
      const ProgramOrder order(*program);
      std::map<BufferId, std::vector<Access>> uses;
      for (int n = 0; n < order.count(); ++n) {
        for (const BufferUse& use : buffer_uses(*program, program->at(n), plan.flat.buckets()))
          uses[use.buffer].push_back({n, use.writes});
      }
      for (const auto& [a, b] : pairs) {
        ASSERT_EQ(conflict(*program, order, uses, a, b), "")
            << (program == &plan.train ? "training" : "evaluation") << " of pipeline rank " << pipeline << " of " << c.pipeline
            << ", tensor " << c.tensor << ", " << to_string(c.schedule) << ", recompute " << to_string(c.recompute) << ": the "
            << to_string(a) << " and the " << to_string(b) << " share memory";
      }
    }
  }
}

TEST(SharedMemory, IsNeverUsedForTwoThingsAtOnce) {
  std::size_t shared = 0;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    for (const bool sequence_parallel : {true, false}) {
      for (const bool overlap : {true, false}) {
        for (const int pipeline : {1, 2, 4}) {
          for (const int tensor : {1, 2}) {
            expect_shared_safely({.pipeline = pipeline,
                                  .tensor = tensor,
                                  .recompute = recompute,
                                  .sequence_parallel = sequence_parallel,
                                  .overlap = overlap},
                                 shared);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
    for (const ScheduleKind schedule : built_in_kinds()) {
      expect_shared_safely({.pipeline = 2, .tensor = 4, .schedule = schedule, .recompute = recompute}, shared);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(shared, 1000U) << "else this tests little";
}

}  // namespace
}  // namespace plait::parallel
