// Costs of a job's instructions against the interpreter's work for the same plan.
#include "plan/step_costs.h"

#include <gtest/gtest.h>

#include <mutex>
#include <optional>

#include "parallel/collectives.h"
#include "parallel/job_plan.h"
#include "parallel/program/exchanges.h"
#include "parallel/program/program_set.h"
#include "runtime/rank_threads.h"

namespace plait::plan {
namespace {

using parallel::CommunicationKind;

Config config(const std::string& layout, bool sequence_parallel = true) {
  return parse_config(
      "model: {layers: 4, hidden: 32, heads: 4, vocab: 128}\ndata: {tokenizer: random, sequence_length: 16}\n"
      "train: {steps: 1, global_batch: 8, micro_batch: 1}\nparallel: {" +
      layout + ", sequence_parallel: " + (sequence_parallel ? "true" : "false") + "}\ncomm: {bucket_mb: 0.01}\n");
}

int ranks_of(const Config& c) {
  return static_cast<int>(c.parallel.size[Axis::data] * c.parallel.size[Axis::tensor] * c.parallel.size[Axis::pipeline]);
}

struct CostsOfConfig {
  explicit CostsOfConfig(const Config& c, const std::optional<Calibration>& calibration = {},
                         DeviceKind kind = DeviceKind::host)
      : stages(parallel::make_stage_plans(c, parallel::Decision{}, c.model.vocab,
                                          parallel::resolve_layout(c.parallel, ranks_of(c)), kind)),
        costs({.profile = topology::nominal_profile("cpu"), .calibration = calibration}, stages) {}
  std::vector<parallel::RankPlan> stages;
  StepCosts costs;
};

topology::Way way_of(double latency_us) {
  topology::Way way;
  way.gb_per_s = 100, way.latency_us = latency_us;
  return way;
}

using parallel::reduces_gradients;
using parallel::sums_rows;

parallel::Exchange exchange_at(const parallel::Program& program, std::size_t n) {
  const auto all = parallel::exchanges_of(program);
  const auto at = static_cast<int>(n);
  const auto it = std::ranges::find_if(all, [&](const auto& e) { return e.first <= at && at <= e.last; });
  return it == all.end() ? parallel::Exchange{} : *it;
}
bool gathers_rows(const parallel::Program& program, const parallel::Exchange& exchange) {
  const parallel::Instruction& last = program.at(exchange.last);
  return is_collective(last) && last.collective.operation == Operation::all_gather;
}
// True for the instruction that holds an exchange's cost.
bool heads_exchange(const parallel::Program& program, std::size_t n) {
  return communicates_in_pass(program.instructions[n]) &&
         parallel::first_collective(program, exchange_at(program, n)) == static_cast<int>(n);
}
bool heads_forward_exchange(const parallel::Program& program, std::size_t n) {
  const parallel::Exchange e = exchange_at(program, n);
  const auto norms = [&](int m) { return program.at(m).kind == parallel::InstructionKind::norm; };
  return heads_exchange(program, n) && !is_in_backward(program.instructions[n]) && (norms(e.first) || norms(e.first + 1));
}

// The bytes are those of the tensors: each rank sends half of [rows, hidden] to the other, per sum and per gather.
TEST(StepCosts, ExchangesMoveWhatTheyGatherAndSum) {
  for (const bool sequence_parallel : {true, false}) {
    const CostsOfConfig costs(config("data: 1, tensor: 2, pipeline: 2", sequence_parallel));
    for (int p = 0; p < 2; ++p) {
      const parallel::RankPlan& plan = costs.stages[static_cast<std::size_t>(p)];
      const auto& instructions = plan.train.instructions;
      const double half = static_cast<double>(plan.sizes.micro_batch.rows() * plan.sizes.shape.hidden * 4) / 2;
      for (std::size_t n = 0; n < instructions.size(); ++n) {
        const parallel::Instruction& i = instructions[n];
        if (!sums_rows(i)) continue;
        const topology::Way way = way_of(1);
        const Work work = costs.costs.work(p, static_cast<int>(n), &way, nullptr);
        const parallel::Exchange exchange = exchange_at(plan.train, n);
        const int sums = sequence_parallel ? 1 : 2, gathers = gathers_rows(plan.train, exchange) ? 1 : 0;
        EXPECT_DOUBLE_EQ(work.bytes, half * (sums + gathers)) << to_string(i);
        EXPECT_GT(work.seconds, 0) << to_string(i);
      }
    }
  }
}

// A calibration of whole tensor groups was timed beside compute, so exchanges slow nothing down again.
TEST(StepCosts, CompleteCalibrationsHaveWhatExchangesTakeOfComputeInThem) {
  Config c = config("data: 1, tensor: 2, pipeline: 1");
  c.comm.exchanges = CollectiveWay::links;
  const auto slowdown = [&](int measured_tensor) {
    Calibration calibration;
    calibration.message_slowdown = 0.01;
    for (const auto kind : {model::SegmentKind::attention, model::SegmentKind::mlp, model::SegmentKind::head}) {
      calibration.segments.push_back(
          {kind, measured_tensor, 1, model::Recompute::none, true, 1e-3, 1e-3, 1e-3, 1e-4, 1e-4, 1e-4});
    }
    const CostsOfConfig costs(c, calibration);
    const auto& instructions = costs.stages[0].train.instructions;
    const topology::Way way = way_of(1);
    double most = 0;
    for (std::size_t n = 0; n < instructions.size(); ++n) {
      const parallel::Instruction& i = instructions[n];
      if (sums_rows(i)) most = std::max(most, costs.costs.work(0, static_cast<int>(n), &way, nullptr).compute_slowdown);
    }
    return most;
  };
  EXPECT_DOUBLE_EQ(slowdown(2), 0.01) << "of the messages alone";
  EXPECT_GT(slowdown(1), 0.02);
}

// A copy stood for the push of a gather into free memory, so the measured time beside compute includes its start. Nothing takes
// less time beside compute than alone.
TEST(StepCosts, WhatWasMeasuredOfAnExchangeIsNotCountedAgain) {
  Config c = config("data: 1, tensor: 2, pipeline: 1");
  c.comm.exchanges = CollectiveWay::links;
  int into_free = 0;
  for (const double measured_seconds : {1e-2, 1e-9}) {
    Calibration calibration;
    for (const auto kind : {model::SegmentKind::attention, model::SegmentKind::mlp, model::SegmentKind::head}) {
      calibration.segments.push_back(
          {kind, 2, 1, model::Recompute::none, true, 1e-3, 1e-3, 1e-3, measured_seconds, measured_seconds, 1e-4});
    }
    const CostsOfConfig costs(c, calibration);
    const auto& instructions = costs.stages[0].train.instructions;
    for (std::size_t n = 0; n < instructions.size(); ++n) {
      const parallel::Program& program = costs.stages[0].train;
      const parallel::Exchange exchange = exchange_at(program, n);
      if (!heads_forward_exchange(program, n)) continue;
      const bool sums = sums_rows(instructions[n]), gathers = gathers_rows(program, exchange), free = sums && gathers;
      const auto work = [&](double latency_us) {
        const topology::Way way = way_of(latency_us);
        return costs.costs.work(0, static_cast<int>(n), &way, nullptr);
      };
      const auto beside = [](const Work& w) { return w.seconds * (1 + w.slowed_by_compute); };
      const double starts = (sums ? 1 : 0) + (gathers ? 1 : 0);
      EXPECT_NEAR(work(10).seconds - work(0).seconds, starts * 10e-6, 1e-12);
      if (measured_seconds < 1e-6) {
        EXPECT_EQ(work(0).slowed_by_compute, 0);
        continue;
      }
      into_free += free ? 1 : 0;
      EXPECT_NEAR(beside(work(10)) - beside(work(0)), (starts - (free ? 1 : 0)) * 10e-6, 1e-12);
      EXPECT_GT(beside(work(0)), measured_seconds);
    }
  }
  EXPECT_GT(into_free, 0);
}

// A head's products slow down the work beside them.
TEST(StepCosts, BlocksCostWhatWasMeasuredOnARankThatHoldsTheHeadOrOnOneThatDoesNot) {
  Calibration calibration;
  for (const bool beside_head : {false, true}) {
    const double seconds = beside_head ? 1.25e-3 : 1e-3;
    calibration.segments.push_back(
        {model::SegmentKind::attention, 1, 1, model::Recompute::none, beside_head, seconds, seconds, seconds});
  }
  const auto forward = [&](const CostsOfConfig& costs, int p) {
    const auto& instructions = costs.stages[static_cast<std::size_t>(p)].train.instructions;
    for (std::size_t n = 0; n < instructions.size(); ++n) {
      const parallel::Instruction& i = instructions[n];
      if (i.kind == parallel::InstructionKind::forward && i.segment % 2 == 1 && i.segment < 8)
        return costs.costs.work(p, static_cast<int>(n), nullptr, nullptr).seconds;
    }
    return 0.0;
  };
  const CostsOfConfig plain(config("data: 1, tensor: 1, pipeline: 2"), calibration);
  EXPECT_DOUBLE_EQ(forward(plain, 0), 1e-3);
  EXPECT_DOUBLE_EQ(forward(plain, 1), 1.25e-3);
  const CostsOfConfig folded(config("data: 1, tensor: 1, pipeline: 2, schedule: zb-v"), calibration);
  EXPECT_DOUBLE_EQ(forward(folded, 0), 1.25e-3) << "the first rank of a V holds the head as well";
  EXPECT_DOUBLE_EQ(forward(folded, 1), 1e-3);
}

// By links a rank sends to all others at once: as many bytes, in fewer rounds.
TEST(StepCosts, ExchangesByLinksMoveAsMuchInFewerRounds) {
  for (const bool sequence_parallel : {true, false}) {
    Config c = config("data: 1, tensor: 4, pipeline: 1", sequence_parallel);
    c.data.sequence_length = 16384;  // statistics of logits too are more than what every rank adds up itself
    const CostsOfConfig library(c);
    c.comm.exchanges = CollectiveWay::links;
    const CostsOfConfig links(c);
    const RingTraffic ring = library.costs.traffic().of(parallel::groups::tensor)[0],
                      pushes = links.costs.traffic().of(parallel::groups::tensor)[0];
    // Two short sums are exceptions, the gradients of all norms and of the biases of last products: one round with 3 times the
    // bytes instead of two with 0.75.
    const double sums = sequence_parallel ? 2 : 0, bytes = (pushes.bytes - ring.bytes) / (3 - 1.5);
    EXPECT_DOUBLE_EQ(pushes.rounds, ring.rounds / 3 - sums);
    EXPECT_GE(bytes, sequence_parallel ? (9 * 2 + 8) * 32 * sizeof(float) : 0);
    EXPECT_LE(bytes, sums * static_cast<double>(link_collectives::most_reduced_by_all));
    const auto& instructions = links.stages[0].train.instructions;
    for (std::size_t n = 0; n < instructions.size(); ++n) {
      const auto index = static_cast<int>(n);
      if (!heads_exchange(links.stages[0].train, n)) continue;
      const topology::Way way = way_of(0), slow = way_of(10);
      const auto latency = [&](const CostsOfConfig& costs) {
        return costs.costs.work(0, index, &slow, nullptr).seconds - costs.costs.work(0, index, &way, nullptr).seconds;
      };
      EXPECT_NEAR(latency(links), latency(library) / 3, 1e-12) << to_string(instructions[n]);
      EXPECT_DOUBLE_EQ(links.costs.work(0, index, &way, nullptr).bytes, library.costs.work(0, index, &way, nullptr).bytes);
    }
  }
}

TEST(StepCosts, ReductionsByLinksMoveAsMuchInFewerRounds) {
  for (const char* const zero : {"0", "1", "2"}) {
    Config c = config(std::string("data: 4, tensor: 1, pipeline: 1, zero: ") + zero);
    c.model.hidden = 256, c.model.ffn = 1024, c.comm.bucket_mb = 1;
    const CostsOfConfig library(c);
    c.comm.reductions = CollectiveWay::links;
    const CostsOfConfig links(c);
    const RingTraffic ring = library.costs.traffic().of(parallel::groups::replicas)[0],
                      pushes = links.costs.traffic().of(parallel::groups::replicas)[0];
    EXPECT_GT(ring.bytes, 0);
    EXPECT_DOUBLE_EQ(pushes.bytes, ring.bytes);
    EXPECT_DOUBLE_EQ(pushes.rounds, ring.rounds / 3);
    const RingTraffic scalars = links.costs.traffic().of(parallel::groups::world)[0],
                      same = library.costs.traffic().of(parallel::groups::world)[0];
    EXPECT_DOUBLE_EQ(scalars.rounds, same.rounds) << "which go by the library";
  }
}

// The gradients of norms, which tensor-parallel ranks sum like an exchange, use the mover of `comm.mover`.
TEST(StepCosts, SumsOfGradientsWithinTensorGroupsGoByTheMoverOfExchanges) {
  Config c = config("data: 1, tensor: 4, pipeline: 1", true);
  c.model.hidden = 8192, c.model.ffn = 8192, c.comm.bucket_mb = 1024, c.comm.exchanges = CollectiveWay::links;
  const auto seconds = [&](Mover mover, DeviceKind kind) {
    c.comm.mover = mover;
    const CostsOfConfig costs(c, {}, kind);
    const auto& instructions = costs.stages[0].train.instructions;
    double sum = 0;
    for (std::size_t n = 0; n < instructions.size(); ++n) {
      const parallel::Instruction& i = instructions[n];
      const topology::Way way = way_of(1);
      if (reduces_gradients(i, parallel::groups::tensor))
        sum += costs.costs.work(0, static_cast<int>(n), &way, nullptr).seconds;
    }
    return sum;
  };
  EXPECT_GT(seconds(Mover::sm_write, DeviceKind::cuda), 0);
  EXPECT_LT(seconds(Mover::sm_write, DeviceKind::cuda), seconds(Mover::copy_engine, DeviceKind::cuda));
  EXPECT_EQ(seconds(Mover::sm_write, DeviceKind::host), seconds(Mover::copy_engine, DeviceKind::host));
}

// Compute beside an exchange loses the device time of its kernels: as much over a fast way as over a slow one.
TEST(StepCosts, ExchangesTakeTheirKernelsFromCompute) {
  Config c = config("data: 1, tensor: 2, pipeline: 1", true);
  c.comm.exchanges = CollectiveWay::links;
  const CostsOfConfig costs(c);
  const auto& instructions = costs.stages[0].train.instructions;
  const double bandwidth = topology::nominal_profile("cpu").memory_bytes_per_s;
  int seen = 0;
  for (std::size_t n = 0; n < instructions.size(); ++n) {
    const parallel::Instruction& i = instructions[n];
    if (!heads_forward_exchange(costs.stages[0].train, n) || !sums_rows(i)) continue;
    ++seen;
    const auto lost = [&](double gb_per_s) {
      topology::Way way = way_of(0);
      way.gb_per_s = gb_per_s;
      const Work work = costs.costs.work(0, static_cast<int>(n), &way, nullptr);
      return work.compute_slowdown * (work.seconds + work.bytes / (gb_per_s * 1e9));
    };
    const double part = static_cast<double>(costs.stages[0].sizes.own_residual_bytes());
    EXPECT_GT(lost(100), (3 + 2) * part / bandwidth) << "of the sum and the copy, and the norm's";
    EXPECT_NEAR(lost(100), lost(1), 1e-9);
  }
  EXPECT_GT(seen, 0);
}

// Compute beside a reduction loses the device time of the kernels that add up the parts of a bucket, however long its bytes
// move; with ZeRO-2 in every micro-batch.
TEST(StepCosts, ReductionsByLinksTakeTheirKernelsFromCompute) {
  for (const int zero : {1, 2}) {
    Config c = config("data: 2, tensor: 1, pipeline: 1, zero: " + std::to_string(zero));
    c.comm.reductions = CollectiveWay::links;
    const CostsOfConfig costs(c);
    const auto& instructions = costs.stages[0].train.instructions;
    const auto lost = [&](double gb_per_s) {
      topology::Way way = way_of(0);
      way.gb_per_s = gb_per_s;
      double sum = 0;
      for (std::size_t n = 0; n < instructions.size(); ++n) {
        if (!reduces_gradients(instructions[n])) continue;
        const Work work = costs.costs.work(0, static_cast<int>(n), &way, nullptr);
        sum += work.compute_slowdown * (work.seconds + work.bytes / (gb_per_s * 1e9));
      }
      return sum;
    };
    double parts = 0;  // bytes of one rank's
    for (const parallel::Instruction& i : instructions) {
      if (reduces_gradients(i))
        parts += 4 * static_cast<double>(costs.stages[0].flat.shard(costs.stages[0].flat.buckets()[at(i.bucket)]).count);
    }
    const double bandwidth = topology::nominal_profile("cpu").memory_bytes_per_s;
    EXPECT_NEAR(lost(100), (zero == 2 ? 3 + 3 : 3) * parts / bandwidth, 1e-6 * parts / bandwidth);
    EXPECT_NEAR(lost(100), lost(1), 1e-9);
  }
}

TEST(StepCosts, TrafficIsWhatTheProgramsSend) {
  const Config c = config("data: 2, tensor: 2, pipeline: 4, schedule: 1f1b");
  const CostsOfConfig costs(c);
  const Traffic& t = costs.costs.traffic();
  ASSERT_EQ(t.chain.size(), 6U);
  for (const ChainTraffic& chain : t.chain) {
    EXPECT_EQ(std::abs(chain.from - chain.to), 1);
    EXPECT_EQ(chain.messages, 4);                   // 8 sequences over two data ranks, one a micro-batch
    EXPECT_EQ(chain.bytes, 4 * (16 * 32 * 4 / 2));  // rows of this rank under sequence parallelism, fp32
  }
  for (int p = 0; p < 4; ++p) {
    // All-reduces of all gradients over two ranks: each sends every byte once.
    double gradients = 0;
    for (const parallel::Bucket& b : costs.stages[static_cast<std::size_t>(p)].flat.buckets())
      gradients += 4.0 * static_cast<double>(b.range.count);
    EXPECT_DOUBLE_EQ(t.of(parallel::groups::replicas)[static_cast<std::size_t>(p)].bytes, gradients);
    EXPECT_GT(t.of(parallel::groups::tensor)[static_cast<std::size_t>(p)].bytes, 0);
  }
  EXPECT_GT(t.of(parallel::groups::tied).front().bytes, 0);
  EXPECT_EQ(CostsOfConfig(config("data: 8, tensor: 1, pipeline: 1")).costs.traffic().of(parallel::groups::tied).front().bytes,
            0);
  EXPECT_TRUE(CostsOfConfig(config("data: 8, tensor: 1, pipeline: 1")).costs.traffic().chain.empty());
}

double update_seconds(const CostsOfConfig& c) {
  const auto& list = c.stages[0].train.instructions;
  for (std::size_t n = 0; n < list.size(); ++n) {
    if (list[n].kind == parallel::InstructionKind::update) return c.costs.work(0, static_cast<int>(n), 0, nullptr).seconds;
  }
  return 0;
}

TEST(StepCosts, ShardedStatesSendAsMuchAndUpdateLess) {
  const CostsOfConfig all(config("data: 4, tensor: 1, pipeline: 1, zero: 0")),
      sharded(config("data: 4, tensor: 1, pipeline: 1, zero: 1"));
  // Reduce-scatter and all-gather are the two halves of an all-reduce: together they send the same bytes in fp32.
  EXPECT_NEAR(sharded.costs.traffic().of(parallel::groups::replicas)[0].bytes /
                  all.costs.traffic().of(parallel::groups::replicas)[0].bytes,
              1, 0.02);
  EXPECT_LT(update_seconds(sharded), update_seconds(all));
}

// Both moments are read and written: four times two bytes per element.
TEST(StepCosts, UpdatesOfBf16MomentsMoveEightBytesAnElementLess) {
  Config c = config("data: 1, tensor: 1, pipeline: 1");
  const CostsOfConfig wide(c);
  c.precision.moments = "bf16";
  const CostsOfConfig narrow(c);
  const double bytes = 8 * static_cast<double>(narrow.stages[0].flat.state_elements());
  EXPECT_NEAR(update_seconds(wide) - update_seconds(narrow), bytes / topology::nominal_profile("cpu").memory_bytes_per_s,
              1e-12);
}

// A measurement with moments of one type also holds for the other.
TEST(StepCosts, AMeasuredUpdateIsOfTheBytesThatItMoves) {
  Config c = config("data: 1, tensor: 1, pipeline: 1");
  Calibration measured;
  measured.update_seconds_per_byte = 1e-9;
  const double kernels = 2 * topology::nominal_profile("cpu").kernel_seconds;
  for (const auto& [moments, bytes] : {std::pair{"fp32", 32}, std::pair{"bf16", 24}}) {
    c.precision.moments = moments;
    const CostsOfConfig costs(c, measured);
    EXPECT_NEAR(update_seconds(costs) - kernels, 1e-9 * bytes * static_cast<double>(costs.stages[0].flat.state_elements()),
                1e-12);
  }
}

TEST(StepCosts, ARankAloneOnlyComputes) {
  const CostsOfConfig costs(config("data: 1, tensor: 1, pipeline: 1"));
  const auto& list = costs.stages[0].train.instructions;
  for (std::size_t n = 0; n < list.size(); ++n) {
    const Work work = costs.costs.work(0, static_cast<int>(n), 0, nullptr);
    EXPECT_EQ(work.bytes, 0) << to_string(list[n]);
    const bool computes = costs.stages[0].train.stream_of(list[n]).role == parallel::StreamRole::compute;
    EXPECT_TRUE(!computes || work.seconds > 0) << to_string(list[n]);
  }
}

}  // namespace
}  // namespace plait::plan
