// Steps that are launched whole, as CUDA graphs, give the same bits and all other results of a step as kernel by kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/nccl_environment.h"
#include "core/error.h"
#include "core/error_of.h"
#include "core/stream.h"
#include "parallel/program/program_set.h"
#include "runtime/cuda_graph.h"
#include "runtime/quiet_steps.h"
#include "runtime/rank_threads.h"

namespace plait::runtime {
namespace {

std::string missing_gpus(int needed) {
  std::string why;
  const int gpus = cuda_device_count(&why);
  return gpus >= needed ? "" : "needs " + std::to_string(needed) + " GPUs, there are " + std::to_string(gpus) + ": " + why;
}

// --- a graph by itself ---

class GpuCudaGraph : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = missing_gpus(1); !missing.empty()) GTEST_SKIP() << missing;
    make_current(device_);
    memory_.emplace(device_);
    numbers_ = memory_->allocate(256, MemoryKind::pinned_host);
    std::fill_n(number(0), 64, 0);
    add_on_stream(Stream(device_), number(63), 0);  // loads the kernel, which a capture must not
  }
  std::uint32_t* number(int n) { return static_cast<std::uint32_t*>(numbers_.data()) + n; }

  const Device device_{DeviceKind::cuda, 0};
  std::optional<DeviceMemory> memory_;
  Buffer numbers_;
};

TEST_F(GpuCudaGraph, RunsWhatWasEnqueuedOnSeveralStreamsInEveryLaunch) {
  const Stream one(device_), two(device_);
  Event forked(device_), joined(device_), aside(device_);
  Event begin(device_, EventTiming::on), end(device_, EventTiming::on);
  const Buffer seen = memory_->allocate(4);
  const CudaGraph graph(one, {two}, [&] {
    add_on_stream(one, number(0), 1);
    one.ref().record(forked);
    two.ref().wait(forked);
    two.ref().copy(seen.data(), number(0), 4);  // what `one` had added
    two.ref().record(joined);
    one.ref().wait(joined);
    add_on_stream(one, number(0), 10);
    one.ref().record(aside);
    const StreamRef companion = one.ref().aside(aside);
    companion.record(begin);
    add_on_stream(companion, number(2), 5);
    companion.record(end);
  });
  EXPECT_EQ(*number(0), 0u) << "nothing runs while it is captured";
  for (std::uint32_t launch = 1; launch <= 20; ++launch) {
    graph.launch(one);
    one.ref().copy(number(1), seen.data(), 4);
    one.ref().synchronize();
    EXPECT_EQ(*number(0), 11 * launch);
    EXPECT_EQ(*number(1), 11 * (launch - 1) + 1);
    EXPECT_EQ(*number(2), 5 * launch);
    EXPECT_TRUE(begin.is_complete());
    EXPECT_TRUE(end.is_complete());
    const float milliseconds = elapsed_ms(begin, end);
    EXPECT_GE(milliseconds, 0);
    EXPECT_LT(milliseconds, 1000);
  }
  // The streams, and the events that gave order, are as before.
  one.ref().record(forked);
  two.ref().wait(forked);
  add_on_stream(two, number(3), 7);
  two.ref().synchronize();
  EXPECT_EQ(*number(3), 7u);
}

TEST_F(GpuCudaGraph, TimedEventsAreThoseOfTheLastLaunch) {
  const Stream stream(device_);
  Event before(device_, EventTiming::on), inside(device_, EventTiming::on), after(device_, EventTiming::on);
  const CudaGraph graph(stream, {}, [&] {
    add_on_stream(stream, number(0), 1);
    stream.ref().record(inside);
  });
  for (int launch = 0; launch < 3; ++launch) {
    stream.ref().record(before);
    graph.launch(stream);
    stream.ref().record(after);
    after.synchronize();
    EXPECT_GE(elapsed_ms(before, inside), 0);
    EXPECT_GE(elapsed_ms(inside, after), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST_F(GpuCudaGraph, AnErrorWhileItIsCapturedLeavesTheStreamsUsable) {
  const Stream one(device_), two(device_);
  EXPECT_THROW(CudaGraph(one, {two},
                         [&] {
                           add_on_stream(two, number(0), 1);
                           throw Error("no");
                         }),
               Error);
  for (const StreamRef s : {one.ref(), two.ref()}) {
    add_on_stream(s, number(1), 1);
    s.synchronize();
  }
  EXPECT_EQ(*number(0), 0u);
  EXPECT_EQ(*number(1), 2u);
}

// --- training steps ---

Config job(int data, std::int64_t zero, GraphUse graph) {
  Config c;
  c.model.layers = 2, c.model.hidden = 128, c.model.heads = 2, c.model.vocab = 301, c.model.ffn = 256;
  c.data.sequence_length = 64;
  c.train.steps = 30, c.train.global_batch = 16, c.train.micro_batch = 4, c.train.clip = 0.5;
  c.train.graph = graph;
  c.comm.bucket_mb = 0.05;
  c.precision.compute = "bf16";
  c.precision.deterministic = true;
  c.parallel.size[Axis::data] = data, c.parallel.zero = zero;
  return c;
}

UpdateSettings settings_of(std::int64_t update) {
  return {.update = update,
          .lr = 1e-3f / static_cast<float>(1 + update % 5),
          .weight_decay = 0.01f * static_cast<float>(update % 3),
          .clip = update % 4 == 0 ? 0.0f : 0.5f};
}

// All results of a rank's steps, in memory and reported.
struct Outcome {
  std::vector<float> losses, norms;
  std::vector<std::int64_t> loss_tokens;
  std::vector<bool> halted;
  std::vector<double> evaluations;
  std::vector<double> master, exp_avg, exp_avg_sq, weights;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

void note(Outcome& outcome, const StepResult& r) {
  outcome.losses.push_back(r.loss);
  outcome.norms.push_back(r.grad_norm);
  outcome.loss_tokens.push_back(r.loss_tokens);
  outcome.halted.push_back(r.halted);
}

void read_state(Outcome& outcome, Interpreter& interpreter) {
  interpreter.synchronize();
  outcome.master = interpreter.synchronize_read(interpreter.master());
  outcome.exp_avg = interpreter.synchronize_read(interpreter.exp_avg());
  outcome.exp_avg_sq = interpreter.synchronize_read(interpreter.exp_avg_sq());
  outcome.weights = interpreter.synchronize_read(interpreter.weights());
}

void expect_same(const std::vector<Outcome>& a, const std::vector<Outcome>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t rank = 0; rank < a.size(); ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    EXPECT_EQ(a[rank].losses, b[rank].losses);
    EXPECT_EQ(a[rank].norms, b[rank].norms);
    EXPECT_EQ(a[rank].loss_tokens, b[rank].loss_tokens);
    EXPECT_EQ(a[rank].evaluations, b[rank].evaluations);
    EXPECT_TRUE(a[rank].master == b[rank].master);
    EXPECT_TRUE(a[rank].exp_avg == b[rank].exp_avg);
    EXPECT_TRUE(a[rank].exp_avg_sq == b[rank].exp_avg_sq);
    EXPECT_TRUE(a[rank].weights == b[rank].weights);
  }
}

// Runs steps with every other kind in between: evaluations, traced ones, a profile, steps without ledgers, a look at tensors
// one by one.
std::vector<Outcome> run_everything(const Config& config, int ranks) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  run_ranks(config, ranks, DeviceKind::cuda, [&](Interpreter& interpreter, SyntheticBatches& batches) {
    batches.set_counts(
        [](std::int64_t step, std::int64_t sample, std::int64_t token) { return (step + sample + token) % 7 != 0; });
    Outcome& outcome = outcomes[static_cast<std::size_t>(interpreter.plan().rank)];
    const auto take = [&](int most) {
      while (interpreter.pending_results() > most) note(outcome, interpreter.synchronize_result());
    };
    for (std::int64_t update = 1; update <= config.train.steps; ++update) {
      switch (update) {
        case 6:
        case 22:
          take(0);
          outcome.evaluations.push_back(interpreter.synchronize_evaluation(batches, 2).loss);
          break;
        case 9:
          take(0);
          EXPECT_GT(interpreter.synchronize_traced_step(batches, settings_of(update)).end, 0);
          continue;
        case 13:
          take(0);
          interpreter.synchronize_profile(batches, settings_of(update));
          continue;
        case 16: interpreter.set_ledgers(false); break;
        case 19: interpreter.set_ledgers(true); break;
        case 25:
          take(0);
          interpreter.synchronize_step(batches, [](const auto&, const auto&) {});
          break;
        default: break;
      }
      take(Interpreter::results_in_flight - 1);
      interpreter.run_step(batches, settings_of(update));
    }
    take(0);
    read_state(outcome, interpreter);
  });
  return outcomes;
}

struct GraphCase {
  int ranks;
  std::int64_t zero;
  bool llama;
  Documents documents = Documents::joined;
};

class GpuWholeSteps : public testing::TestWithParam<GraphCase> {
 protected:
  void SetUp() override {
    if (const std::string missing = missing_gpus(GetParam().ranks); !missing.empty()) GTEST_SKIP() << missing;
    comm::settle_nccl_environment(PeerAccessUse::automatic);  // as a job does
  }
  Config config(GraphUse graph) const {
    Config c = job(GetParam().ranks, GetParam().zero, graph);
    if (GetParam().llama) make_llama(c.model, 1);
    c.data.documents = GetParam().documents;
    return c;
  }
};

TEST_P(GpuWholeSteps, HaveTheBitsOfStepsThatAreLaunchedKernelByKernel) {
  const std::vector<Outcome> piecewise = run_everything(config(GraphUse::off), GetParam().ranks);
  expect_same(run_everything(config(GraphUse::on), GetParam().ranks), piecewise);
  EXPECT_LT(piecewise[0].losses.back(), piecewise[0].losses.front()) << "something is learned";
}

TEST_P(GpuWholeSteps, AreTriedInFewStepsOfOneRank) {
  for (const bool taken_at_once : {false, true}) {
    std::vector<std::vector<Outcome>> outcomes;
    for (const GraphUse use : {GraphUse::off, GraphUse::automatic}) {
      std::vector<Outcome>& by_rank = outcomes.emplace_back(static_cast<std::size_t>(GetParam().ranks));
      std::vector<std::string> texts(by_rank.size());
      run_ranks(config(use), GetParam().ranks, DeviceKind::cuda, [&](Interpreter& interpreter, SyntheticBatches& batches) {
        const auto rank = static_cast<std::size_t>(interpreter.plan().rank);
        EXPECT_EQ(interpreter.launch_is_settled(), use == GraphUse::off || GetParam().ranks > 1);
        for (std::int64_t update = 1; update <= GraphTrial::last_step + 12; ++update) {
          const int most = taken_at_once ? 0 : Interpreter::results_in_flight - 1;
          while (interpreter.pending_results() > most) note(by_rank[rank], interpreter.synchronize_result());
          interpreter.run_step(batches, settings_of(update));
        }
        EXPECT_TRUE(interpreter.launch_is_settled());
        texts[rank] = interpreter.launch_text();
        while (interpreter.pending_results() > 0) note(by_rank[rank], interpreter.synchronize_result());
        read_state(by_rank[rank], interpreter);
      });
      for (const std::string& text : texts) EXPECT_EQ(text.substr(0, 20), texts[0].substr(0, 20)) << "all ranks alike";
      std::cout << texts[0] << '\n';
    }
    expect_same(outcomes[1], outcomes[0]);
  }
}

TEST_P(GpuWholeSteps, HaveALedger) {
  run_ranks(config(GraphUse::on), GetParam().ranks, DeviceKind::cuda, [&](Interpreter& interpreter, SyntheticBatches& batches) {
    for (std::int64_t update = 1; update <= 30; ++update) {
      interpreter.run_step(batches, settings_of(update));
      const StepResult result = interpreter.synchronize_result();
      const parallel::Ledger& ledger = result.ledger;
      EXPECT_GT(ledger.step_ms, 0);
      EXPECT_LT(ledger.step_ms, 1000);
      EXPECT_GT(ledger.compute_ms, 0);
      EXPECT_NEAR(ledger.compute_ms + ledger.exposed_ms() + ledger.bubble_ms + ledger.other_ms, ledger.step_ms,
                  1e-6 * ledger.step_ms);
      const parallel::KindTimes& buckets = ledger.of(parallel::CommunicationKind::gradient_buckets);
      EXPECT_GT(buckets.count, 0);  // the scalars' reduction is one of them, even with one rank
      EXPECT_GE(buckets.exposed_ms, 0);
      EXPECT_LE(buckets.total_ms, 2 * ledger.step_ms) << "update " << update;
      if (update > 1) {
        EXPECT_GT(result.device_ms, 0);
      }
    }
  });
}

TEST_P(GpuWholeSteps, CountOnTheProgressBoard) {
  run_ranks(config(GraphUse::on), GetParam().ranks, DeviceKind::cuda, [&](Interpreter& interpreter, SyntheticBatches& batches) {
    const auto length = interpreter.plan().train.instructions.size();
    std::uint64_t evaluated = 0;
    for (std::int64_t update = 1; update <= 24; ++update) {
      interpreter.run_step(batches, settings_of(update));
      static_cast<void>(interpreter.synchronize_result());
      if (update % 7 == 0) {
        static_cast<void>(interpreter.synchronize_evaluation(batches, 1));
        evaluated += interpreter.plan().evaluate.instructions.size();
      }
      interpreter.synchronize();
      const ProgressBoard::Reading reading = interpreter.progress();
      EXPECT_TRUE(reading.idle());
      EXPECT_EQ(reading.next, -1);
      EXPECT_EQ(reading.done, static_cast<std::uint64_t>(update) * length + evaluated);
    }
  });
}

TEST_P(GpuWholeSteps, NeitherSynchronizeTheHostNorAllocate) {
  Config quiet = config(GraphUse::on);
  quiet.data.documents = Documents::joined;
  expect_quiet_steps(quiet, GetParam().ranks);
}

// --- instructions as one launch each ---

struct InstructionCase {
  int data, tensor, pipeline;
  bool llama = false;
  bool fp8 = false;
};

class GpuInstructionGraphs : public testing::TestWithParam<InstructionCase> {};

TEST_P(GpuInstructionGraphs, HaveTheBitsOfInstructionsThatAreLaunchedKernelByKernel) {
  const InstructionCase& c = GetParam();
  const int ranks = c.data * c.tensor * c.pipeline;
  if (const std::string missing = missing_gpus(ranks); !missing.empty()) GTEST_SKIP() << missing;
  comm::settle_nccl_environment(PeerAccessUse::automatic);  // as a job does
  const auto config = [&](GraphUse graph) {
    Config all = job(c.data, 0, graph);
    all.parallel.size[Axis::tensor] = c.tensor, all.parallel.size[Axis::pipeline] = c.pipeline;
    if (c.llama) make_llama(all.model, c.tensor);
    if (c.fp8) all.precision.matmul = MatmulType::fp8;
    return all;
  };
  std::string text;
  run_ranks(config(GraphUse::instructions), ranks, DeviceKind::cuda, [&](Interpreter& interpreter, SyntheticBatches&) {
    if (interpreter.plan().rank == 0) text = interpreter.launch_text();
  });
  EXPECT_THAT(text, testing::StartsWith("steps are launched instruction by instruction (")) << "segments as small as these";
  std::cout << text << '\n';
  const std::vector<Outcome> by_kernel = run_everything(config(GraphUse::off), ranks);
  expect_same(run_everything(config(GraphUse::instructions), ranks), by_kernel);
  EXPECT_LT(by_kernel[0].losses.back(), by_kernel[0].losses.front()) << "something is learned";
}

INSTANTIATE_TEST_SUITE_P(Layouts, GpuInstructionGraphs,
                         testing::Values(InstructionCase{1, 1, 1}, InstructionCase{1, 1, 1, true, true},
                                         InstructionCase{2, 1, 1}, InstructionCase{1, 2, 1, true}, InstructionCase{1, 1, 2},
                                         InstructionCase{1, 2, 1, false, true}, InstructionCase{1, 2, 2}),
                         [](const auto& instance) {
                           const InstructionCase& c = instance.param;
                           return "data_" + std::to_string(c.data) + "_tensor_" + std::to_string(c.tensor) + "_pipeline_" +
                                  std::to_string(c.pipeline) + (c.llama ? "_llama" : "") + (c.fp8 ? "_fp8" : "");
                         });

INSTANTIATE_TEST_SUITE_P(Layouts, GpuWholeSteps,
                         testing::Values(GraphCase{1, 0, false}, GraphCase{1, 0, true, Documents::separate},
                                         GraphCase{2, 0, false}, GraphCase{2, 1, true}, GraphCase{2, 2, false},
                                         GraphCase{4, 1, false}),
                         [](const auto& instance) {
                           const GraphCase& c = instance.param;
                           return std::string(c.llama ? "llama" : "gpt") + "_" + std::to_string(c.ranks) + "_ranks_zero" +
                                  std::to_string(c.zero) + (c.documents == Documents::separate ? "_separate" : "");
                         });

TEST(GpuWholeStep, StandsStillWhereItsStreamDoes) {
  if (const std::string missing = missing_gpus(1); !missing.empty()) GTEST_SKIP() << missing;
  run_ranks(job(1, 0, GraphUse::on), 1, DeviceKind::cuda, [&](Interpreter& interpreter, SyntheticBatches& batches) {
    constexpr std::int64_t before = 12;  // every slot has its graph
    for (std::int64_t update = 1; update <= before; ++update) {
      interpreter.run_step(batches, settings_of(update));
      static_cast<void>(interpreter.synchronize_result());
    }
    interpreter.synchronize();
    DeviceMemory memory(interpreter.memory().device());
    const Buffer gate = memory.allocate(64, MemoryKind::pinned_host);
    auto* const counter = static_cast<std::uint32_t*>(gate.data());
    *counter = 0;
    interpreter.compute_stream().wait_value(counter, 1);
    for (std::int64_t update = before + 1; update <= before + 3; ++update) interpreter.run_step(batches, settings_of(update));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const parallel::Program& program = interpreter.plan().train;
    const ProgressBoard::Reading held = interpreter.progress();
    EXPECT_FALSE(held.idle());
    EXPECT_EQ(held.done, before * program.instructions.size());
    for (const StreamStanding& s : held.standings) {
      EXPECT_EQ(s.run, static_cast<std::uint64_t>(before));
      int first = 0;
      while (program.stream_of(program.at(first)) != s.stream) ++first;
      EXPECT_EQ(s.instruction, first) << to_string(s.stream);
    }
    EXPECT_TRUE(std::ranges::any_of(standstills(held), &Standstill::is_free));
    write_counter(counter, 1);
    while (interpreter.pending_results() > 0) static_cast<void>(interpreter.synchronize_result());
    interpreter.synchronize();
    EXPECT_TRUE(interpreter.progress().idle());
  });
}

TEST(GpuWholeStep, ShowsTheCollectiveThatAPeerDoesNotJoin) {
  if (const std::string missing = missing_gpus(2); !missing.empty()) GTEST_SKIP() << missing;
  std::barrier<> both(2);
  run_ranks(job(2, 0, GraphUse::on), 2, DeviceKind::cuda, [&](Interpreter& interpreter, SyntheticBatches& batches) {
    for (std::int64_t update = 1; update <= 12; ++update) {
      interpreter.run_step(batches, settings_of(update));
      static_cast<void>(interpreter.synchronize_result());
    }
    interpreter.synchronize();
    both.arrive_and_wait();
    if (interpreter.plan().rank == 0) {
      interpreter.run_step(batches, settings_of(13));
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      const ProgressBoard::Reading reading = interpreter.progress();
      EXPECT_FALSE(reading.idle());
      const parallel::Program& program = interpreter.plan().train;
      bool at_collective = false;
      for (const Standstill& still : standstills(reading)) {
        if (still.is_free() && parallel::collective_group(program.at(still.instruction))) at_collective = true;
      }
      EXPECT_TRUE(at_collective);
      both.arrive_and_wait();
    } else {
      both.arrive_and_wait();
      interpreter.run_step(batches, settings_of(13));
    }
    static_cast<void>(interpreter.synchronize_result());
  });
}

// NCCL releases an aborted group only when the graphs that contain its calls are gone.
TEST(GpuWholeStep, OfARankWhosePeerFailsEndsToo) {
  if (const std::string missing = missing_gpus(2); !missing.empty()) GTEST_SKIP() << missing;
  for (const bool waiting : {true, false}) {
    const auto run = [&] {
      run_ranks(job(2, 1, GraphUse::on), 2, DeviceKind::cuda, [&](Interpreter& interpreter, SyntheticBatches& batches) {
        for (std::int64_t update = 1; update <= 40; ++update) {
          if (update == 14 && interpreter.plan().rank == 1) throw Error("rank 1 has had enough");
          interpreter.run_step(batches, settings_of(update));
          if (waiting || interpreter.pending_results() == Interpreter::results_in_flight)
            static_cast<void>(interpreter.synchronize_result());
        }
      });
    };
    EXPECT_THAT(error_of<Error>(run), testing::HasSubstr("rank 1 has had enough"));
  }
}

TEST(GpuWholeStep, HaltsAtWhatIsNotFinite) {
  if (const std::string missing = missing_gpus(1); !missing.empty()) GTEST_SKIP() << missing;
  std::vector<std::vector<Outcome>> outcomes;
  for (const GraphUse use : {GraphUse::off, GraphUse::on}) {
    Outcome& outcome = outcomes.emplace_back(1)[0];
    run_ranks(job(1, 0, use), 1, DeviceKind::cuda, [&](Interpreter& interpreter, SyntheticBatches& batches) {
      for (std::int64_t update = 1; update <= 20; ++update) {
        UpdateSettings settings = settings_of(update);
        if (update == 15) settings.lr = 1e38f;
        interpreter.run_step(batches, settings);
        note(outcome, interpreter.synchronize_result());
      }
      read_state(outcome, interpreter);
      EXPECT_TRUE(synchronize_find_non_finite(interpreter, batches).has_value());
    });
    EXPECT_FALSE(outcome.halted[14]);
    EXPECT_TRUE(outcome.halted.back());
  }
  EXPECT_EQ(outcomes[0][0].halted, outcomes[1][0].halted);
  EXPECT_TRUE(std::equal(outcomes[0][0].losses.begin(), outcomes[0][0].losses.begin() + 15, outcomes[1][0].losses.begin()));
}

}  // namespace
}  // namespace plait::runtime
