// Ledgers of real steps show deliberate delays where they belong. Sleeps are long compared to the other work of these small
// models, so that a busy machine does not matter.
#include "runtime/step_recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <mutex>

#include "comm/forwarding_communicator.h"
#include "comm/forwarding_link.h"
#include "parallel/late_peers.h"
#include "parallel/program/exchanges.h"
#include "parallel/program/program_set.h"
#include "parallel/schedule_kinds.h"
#include "runtime/rank_threads.h"

namespace plait::runtime {
namespace {

using std::chrono::milliseconds;

void pause(StreamRef stream, milliseconds duration) {
  stream.enqueue_host([duration] { std::this_thread::sleep_for(duration); });
}

// A link with a pause on its way.
class SlowLink final : public comm::test::ForwardingLink {
 public:
  struct Pauses {
    milliseconds sender{0};  // before a message is ready to travel
    milliseconds wire{0};    // between that and its arrival
    bool announces = true;
  };
  SlowLink(std::shared_ptr<comm::p2p::Link> inner, Pauses pauses) : ForwardingLink(std::move(inner)), pauses_(pauses) {}
  void send(StreamRef stream, View data, int place) override {
    if (pauses_.sender.count() > 0) pause(stream, pauses_.sender);
    inner_->send(stream, data, place);
  }
  void receive(StreamRef stream, View data, Event* announced, int place) override {
    inner_->receive(stream, data, announced, place);
    if (pauses_.wire.count() > 0) pause(stream, pauses_.wire);
  }
  bool announces() const override { return pauses_.announces && inner_->announces(); }

 private:
  Pauses pauses_;
};

// A group whose first collective of every step takes longer.
class SlowGroup final : public comm::test::ForwardingCommunicator {
 public:
  SlowGroup(std::shared_ptr<comm::Communicator> inner, milliseconds duration)
      : ForwardingCommunicator(std::move(inner)), duration_(duration) {}
  void all_reduce(StreamRef stream, View data, comm::Reduction reduction) override {
    if (!first_) first_ = data.data;
    if (first_ == data.data) pause(stream, duration_);
    inner_->all_reduce(stream, data, reduction);
  }

 private:
  milliseconds duration_;
  const void* first_ = nullptr;
};

void expect_measured_balance(const parallel::Ledger& ledger) {
  EXPECT_GT(ledger.step_ms, 0);
  EXPECT_NEAR(ledger.compute_ms + ledger.exposed_ms() + ledger.bubble_ms + ledger.other_ms, ledger.step_ms,
              1e-6 * ledger.step_ms);
  EXPECT_GE(ledger.compute_ms, 0);
  EXPECT_GE(ledger.bubble_ms, 0);
  EXPECT_GE(ledger.other_ms, 0);
  for (const parallel::CommunicationKind kind : parallel::communication_kinds) {
    EXPECT_GE(ledger.of(kind).exposed_ms, 0) << to_string(kind);
    EXPECT_GE(ledger.of(kind).hidden_ms(), -1e-3) << to_string(kind);
  }
}

// Mean ledgers of all ranks over the steps after the first.
std::vector<parallel::Ledger> ledgers_of(const Config& config, int ranks, DeviceKind kind,
                                         const std::function<void(GroupOptions&)>& edit = {}) {
  std::vector<parallel::Ledger> means(static_cast<std::size_t>(ranks));
  const auto body = [&](Interpreter& interpreter, SyntheticBatches& batches) {
    parallel::LedgerSum sum;
    for (std::int64_t step = 1; step <= config.train.steps; ++step) {
      interpreter.run_step(batches, {.update = step, .lr = 1e-3f});
      const StepResult result = interpreter.synchronize_result();
      expect_measured_balance(result.ledger);
      EXPECT_FLOAT_EQ(result.exposed_comm_ms, static_cast<float>(result.ledger.exposed_ms()));
      if (step > 1) sum.add(result.ledger);
    }
    means[static_cast<std::size_t>(interpreter.plan().rank)] = sum.mean();
  };
  run_ranks(config, ranks, kind, body, {}, edit);
  return means;
}

std::vector<parallel::Ledger> with_slow_links(const SlowLink::Pauses& pauses) {
  Config config = small_job(2);
  config.parallel.size[Axis::pipeline] = 2;
  return ledgers_of(config, 2, DeviceKind::host, [&](GroupOptions& groups) {
    groups.make_link = [=](const comm::p2p::LinkSpec& spec, comm::Rendezvous& store) -> std::unique_ptr<comm::p2p::Link> {
      auto link = comm::p2p::make_link(spec, store);
      if (spec.from != 0) return link;
      return std::make_unique<SlowLink>(std::move(link), pauses);
    };
  });
}

// The delay of each of four activations from rank 0 to rank 1; the receiver works on one for a millisecond or so.
constexpr milliseconds pause_of_each{30};
constexpr double most_of_all = 80;

TEST(StepRecorder, CallsASlowWireExposedCommunication) {
  const std::vector<parallel::Ledger> ledgers = with_slow_links({.wire = pause_of_each});
  const parallel::Ledger& receiver = ledgers[1];
  EXPECT_GT(receiver.of(parallel::CommunicationKind::activations).exposed_ms, most_of_all);
  EXPECT_EQ(receiver.of(parallel::CommunicationKind::activations).count, 4);
  EXPECT_LT(receiver.of(parallel::CommunicationKind::gradients).exposed_ms, most_of_all / 2);
  EXPECT_LT(parallel::test::late_of(receiver, 0), most_of_all / 2);
  EXPECT_EQ(receiver.unsplit_ms, 0);
  // Rank 0 waits for gradients that rank 1 cannot compute yet.
  EXPECT_GT(parallel::test::late_of(ledgers[0], 1), pause_of_each.count());
  EXPECT_LT(ledgers[0].exposed_ms(), most_of_all / 2);
}

TEST(StepRecorder, CallsALateSenderABubble) {
  const std::vector<parallel::Ledger> ledgers = with_slow_links({.sender = pause_of_each});
  EXPECT_GT(parallel::test::late_of(ledgers[1], 0), most_of_all);
  EXPECT_GT(ledgers[1].bubble_ms, most_of_all);
  EXPECT_LT(ledgers[1].exposed_ms(), most_of_all / 2);
}

TEST(StepRecorder, SaysWhatALinkWithoutAnnouncementsLeavesOpen) {
  const std::vector<parallel::Ledger> ledgers = with_slow_links({.sender = pause_of_each, .announces = false});
  EXPECT_GT(ledgers[1].of(parallel::CommunicationKind::activations).exposed_ms, most_of_all);
  EXPECT_GT(ledgers[1].unsplit_ms, most_of_all);
  EXPECT_LT(parallel::test::late_of(ledgers[1], 0), most_of_all / 2);
}

TEST(StepRecorder, SeesReductionsHiddenBesideComputeAndExposedWithoutOverlap) {
  constexpr milliseconds slow{20};
  Config config = small_job(2);
  // The backward goes on for long after the first bucket.
  make_llama(config.model, 4);
  config.model.layers = 8, config.model.hidden = 128, config.model.ffn = 512, config.data.sequence_length = 128;
  config.train.global_batch = 8, config.train.micro_batch = 4;
  config.comm.bucket_mb = 0.1;
  config.parallel.size[Axis::data] = 2;
  const auto slow_data = [&](GroupOptions& groups) {
    groups.make_communicator = [=](const comm::GroupSpec& spec,
                                   comm::Rendezvous& store) -> std::shared_ptr<comm::Communicator> {
      std::shared_ptr<comm::Communicator> made = comm::make_communicator(spec, store);
      if (!spec.name.starts_with("data.")) return made;
      return std::make_shared<SlowGroup>(std::move(made), slow);
    };
  };
  for (const parallel::Ledger& overlapped : ledgers_of(config, 2, DeviceKind::host, slow_data)) {
    EXPECT_GT(overlapped.of(parallel::CommunicationKind::gradient_buckets).hidden_ms(), slow.count() / 2);
    EXPECT_GT(overlapped.of(parallel::CommunicationKind::gradient_buckets).count, 8);
  }
  config.comm.overlap = false;
  for (const parallel::Ledger& serialised : ledgers_of(config, 2, DeviceKind::host, slow_data)) {
    EXPECT_GE(serialised.exposed_dp_ms(), slow.count());
    EXPECT_NEAR(serialised.hidden_ms(), 0, 1e-3);
  }
}

TEST(StepRecorder, TimesEveryExchange) {
  for (const bool overlap : {true, false}) {
    Config config = small_job(2);
    config.train.steps = 4;
    config.parallel.size[Axis::tensor] = 2;
    config.comm.overlap = overlap;
    run_ranks(config, 2, DeviceKind::host, [&](Interpreter& interpreter, SyntheticBatches& batches) {
      const parallel::Program& program = interpreter.plan().train;
      const auto listed = static_cast<double>(parallel::exchanges_of(program).size());
      EXPECT_GT(listed, 4 * 2 * 4) << "micro-batches, segments, forward and backward of attention and MLP";
      for (std::int64_t step = 0; step < config.train.steps; ++step) {
        interpreter.run_step(batches, {.update = step + 1, .lr = 1e-3f});
        const parallel::Ledger ledger = interpreter.synchronize_result().ledger;
        expect_measured_balance(ledger);
        const parallel::KindTimes& exchanges = ledger.of(parallel::CommunicationKind::exchanges);
        EXPECT_EQ(exchanges.count, listed) << "step " << step;
        EXPECT_GT(exchanges.exposed_ms, 0);
        if (!overlap) {
          EXPECT_NEAR(exchanges.hidden_ms(), 0, 1e-9);
        }
      }
    });
  }
}

struct Mesh {
  int pipeline = 1, data = 1, tensor = 1;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int zero = 0;
  bool overlap = true;
};

TEST(StepRecorder, BalancesEveryStepOfEveryKindOfLayout) {
  for (const Mesh& mesh : {Mesh{}, Mesh{.data = 2, .zero = 1}, Mesh{.data = 2, .zero = 2}, Mesh{.data = 2, .overlap = false},
                           Mesh{.pipeline = 2, .data = 2, .schedule = ScheduleKind::zb_v},
                           Mesh{.pipeline = 2, .schedule = ScheduleKind::interleaved, .overlap = false},
                           Mesh{.pipeline = 2, .tensor = 2, .schedule = ScheduleKind::zb_h1}}) {
    Config config = small_job(2);
    config.model.layers = 4;
    config.comm.bucket_mb = 0.01, config.comm.overlap = mesh.overlap;
    config.parallel.size[Axis::pipeline] = mesh.pipeline, config.parallel.size[Axis::data] = mesh.data,
    config.parallel.size[Axis::tensor] = mesh.tensor;
    config.parallel.schedule = mesh.schedule, config.parallel.zero = mesh.zero;
    config.parallel.virtual_stages = parallel::some_virtual_stages(mesh.schedule);
    const int ranks = mesh.pipeline * mesh.data * mesh.tensor;
    run_ranks(config, ranks, DeviceKind::host, [&](Interpreter& interpreter, SyntheticBatches& batches) {
      // Several steps are in flight, so that slots are used again while others are not read yet.
      std::int64_t issued = 0, taken = 0;
      double gathers = 0;
      while (taken < 30) {
        if (issued < 30 && interpreter.pending_results() < Interpreter::results_in_flight) {
          interpreter.run_step(batches, {.update = ++issued, .lr = 1e-4f});
          continue;
        }
        const StepResult result = interpreter.synchronize_result();
        EXPECT_EQ(result.update, ++taken);
        expect_measured_balance(result.ledger);
        const parallel::Ledger& ledger = result.ledger;
        const bool later_stage =
            interpreter.plan().coordinates()[Axis::pipeline] > 0 || interpreter.plan().train.chunks.size() > 1;
        EXPECT_EQ(ledger.of(parallel::CommunicationKind::activations).count > 0, later_stage)
            << "rank " << interpreter.plan().rank;
        gathers += ledger.of(parallel::CommunicationKind::weight_gathers).total_ms;
      }
      EXPECT_EQ(gathers > 0, mesh.zero > 0);  // in one step it may be 0: they can be done before the next one begins
    });
  }
}

// `tolerance`: milliseconds by which times of events on two streams may be off.
void expect_traces_on_one_clock(DeviceKind kind, double tolerance) {
  Config config = small_job(2);
  config.parallel.size[Axis::pipeline] = 2;
  std::vector<parallel::StepTrace> traces(2);
  std::vector<parallel::Program> programs(2);
  const auto before = std::chrono::steady_clock::now();
  run_ranks(config, 2, kind, [&](Interpreter& interpreter, SyntheticBatches& batches) {
    const auto rank = static_cast<std::size_t>(interpreter.plan().rank);
    for (std::int64_t step = 1; step <= 3; ++step) interpreter.run_step(batches, {.update = step, .lr = 1e-3f});
    while (interpreter.pending_results() > 0) static_cast<void>(interpreter.synchronize_result());
    traces[rank] = interpreter.synchronize_traced_step(batches, {.update = 4, .lr = 1e-3f});
    expect_measured_balance(interpreter.synchronize_result().ledger);
    programs[rank] = interpreter.plan().train;
    interpreter.run_step(batches, {.update = 5, .lr = 1e-3f});
    expect_measured_balance(interpreter.synchronize_result().ledger);
  });
  const auto after = std::chrono::steady_clock::now();
  const auto at = [](const parallel::StepTrace& trace, double ms) {
    return trace.origin +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double, std::milli>(ms));
  };
  // The messages of each direction, in order.
  std::vector<std::vector<parallel::StepTrace::Slice>> sent(2), received(2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const parallel::StepTrace& trace = traces[rank];
    EXPECT_EQ(trace.step, 3);
    EXPECT_GT(at(trace, 0), before);
    EXPECT_LT(at(trace, trace.end), after);
    ASSERT_EQ(trace.slices.size(), programs[rank].instructions.size());
    std::vector<double> stream_end(programs[rank].streams.size(), -1e9);
    for (const parallel::StepTrace::Slice& row : trace.slices) {
      const parallel::Instruction& i = programs[rank].at(row.instruction);
      SCOPED_TRACE(to_string(i));
      double& end = stream_end[static_cast<std::size_t>(i.stream)];
      EXPECT_LE(end, row.waiting + tolerance);
      EXPECT_LE(row.waiting, row.begin);
      EXPECT_LE(row.begin, row.end);
      end = row.end;
      for (const int awaited : i.waits) {
        if (awaited > row.instruction) continue;
        EXPECT_LE(trace.slices[static_cast<std::size_t>(awaited)].end, row.begin + tolerance);
      }
      if (parallel::is_receive(i.kind)) {
        ASSERT_TRUE(row.ready.has_value());
        received[rank].push_back(row);
      }
      if (parallel::is_send(i.kind)) sent[rank].push_back(row);
    }
  }
  // No message arrives before it was sent. The clocks of two ranks agree to the time it takes to wake a thread.
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::size_t other = 1 - rank;
    ASSERT_EQ(sent[rank].size(), 4u);
    ASSERT_EQ(received[other].size(), 4u);
    for (std::size_t m = 0; m < 4; ++m) {
      EXPECT_LT(at(traces[rank], sent[rank][m].begin), at(traces[other], received[other][m].end) + milliseconds(20));
    }
  }
}

TEST(StepRecorder, TracesEveryInstructionOnOneClock) { expect_traces_on_one_clock(DeviceKind::host, 1e-6); }

TEST(GpuStepRecorder, TracesEveryInstructionOnOneClock) {
  std::string why;
  const int gpus = cuda_device_count(&why);
  if (gpus < 2) GTEST_SKIP() << "needs 2 GPUs, there are " << gpus << ": " << why;
  expect_traces_on_one_clock(DeviceKind::cuda, 0.01);
}

// The cost of the ledger: medians of steps with and without one, in turn.
TEST(GpuStepRecorder, CostsNextToNothing) {
  std::string why;
  const int gpus = cuda_device_count(&why);
  if (gpus < 2) GTEST_SKIP() << "needs 2 GPUs, there are " << gpus << ": " << why;
  for (const Mesh& mesh : {Mesh{.data = 2}, Mesh{.pipeline = 2}, Mesh{.tensor = 2}}) {
    Config config;
    config.model.layers = 12, config.model.hidden = 1024, config.model.heads = 16, config.model.vocab = 8192,
    config.model.ffn = 4096;
    config.data.sequence_length = 1024;
    config.precision.compute = "bf16";
    config.train.graph = GraphUse::off;  // the same with and without ledgers
    config.train.steps = 100, config.train.global_batch = 32, config.train.micro_batch = 4;
    config.parallel.size[Axis::pipeline] = mesh.pipeline, config.parallel.size[Axis::data] = mesh.data,
    config.parallel.size[Axis::tensor] = mesh.tensor;
    run_ranks(config, 2, DeviceKind::cuda, [&](Interpreter& interpreter, SyntheticBatches& batches) {
      std::vector<double> with, without;
      std::int64_t step = 0;
      for (int round = 0; round < 8; ++round) {
        const bool ledgers = round % 2 == 0;
        interpreter.set_ledgers(ledgers);
        for (int n = 0; n < 8; ++n) {
          interpreter.run_step(batches, {.update = ++step, .lr = 1e-4f});
          const StepResult result = interpreter.synchronize_result();
          if (round >= 2) (ledgers ? with : without).push_back(result.ledger.step_ms);
        }
      }
      const auto median = [](std::vector<double>& values) {
        std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
        return values[values.size() / 2];
      };
      const double on = median(with), off = median(without);
      if (interpreter.plan().rank == 0) {
        std::cout << interpreter.plan().layout.to_string() << ": " << on << " ms with ledger, " << off << " ms without ("
                  << 100 * (on / off - 1) << " %)\n";
      }
      EXPECT_LT(on, 1.02 * off);
    });
  }
}

}  // namespace
}  // namespace plait::runtime
