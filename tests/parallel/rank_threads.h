// Runs a training job with ranks as threads, on any kind of device, without files: for tests of programs and layouts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/make_communicator.h"
#include "core/config.h"
#include "core/philox.h"
#include "parallel/interpreter.h"

namespace plait::parallel {

// Tokens of (step, global sample) drawn by counter: the same for every layout.
class SyntheticBatches final : public BatchSource {
 public:
  SyntheticBatches(const RankPlan& plan, std::uint64_t seed)
      : plan_(plan), random_(seed, "batches"), tokens_(static_cast<std::size_t>(plan.model.micro_batch.rows())), targets_(tokens_) {}

  HostBatch next() override {
    // One buffer, overwritten by every call: the copy of the last batch has to have run.
    if (event_) event_->synchronize();
    const model::MicroBatchShape& shape = plan_.model.micro_batch;
    const std::int64_t step = round_ / plan_.micro_batches;
    const std::int64_t micro_batch = round_ % plan_.micro_batches;
    ++round_;
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      const std::int64_t sample = (micro_batch * plan_.layout.data + plan_.coordinates().data) * shape.batch + b;
      // Arithmetic progressions modulo the vocabulary: something to learn.
      const auto index = static_cast<std::uint64_t>(step * plan_.global_batch + sample);
      const std::int64_t vocab = plan_.model.shape.vocab;
      const auto start = static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(vocab), index, 0));
      const auto stride = 1 + static_cast<std::int64_t>(random_.below(3, index, 1));
      for (std::int64_t t = 0; t < shape.sequence; ++t) {
        const auto at = static_cast<std::size_t>(b * shape.sequence + t);
        tokens_[at] = static_cast<std::int32_t>((start + t * stride) % vocab);
        targets_[at] = static_cast<std::int32_t>((start + (t + 1) * stride) % vocab);
      }
    }
    return {tokens_.data(), targets_.data()};
  }

  void release(StreamRef stream) override {
    if (!event_) event_.emplace(stream.device());
    stream.record(*event_);
  }

 private:
  const RankPlan& plan_;
  Random random_;
  std::vector<std::int32_t> tokens_, targets_;
  std::optional<Event> event_;
  std::int64_t round_ = 0;
};

struct JobResult {
  std::vector<float> losses, grad_norms;       // per step
  std::vector<std::vector<double>> parameters;  // master weights by parameter, stored elements
};

// Body of one rank; called on its own thread.
using RankBody = std::function<void(Interpreter&, SyntheticBatches&, comm::Communicator&)>;

inline void run_ranks(const Config& config, int ranks, DeviceKind kind, const RankBody& body) {
  const std::shared_ptr<comm::Rendezvous> store = comm::make_thread_rendezvous();
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const Device device{kind, rank};
        make_current(device);
        DeviceMemory memory(device);
        const Layout layout = resolve_layout(config.parallel, ranks);
        const RankPlan plan = make_rank_plan(config, config.model.vocab, layout, rank, kind);
        const auto group = comm::make_communicator({.name = "data", .rank = rank, .size = ranks, .device = device}, *store);
        Interpreter interpreter(plan, memory, *group);
        interpreter.initialize(config.run.seed);
        SyntheticBatches batches(interpreter.plan(), config.run.seed);
        body(interpreter, batches, *group);
        interpreter.synchronize();
      } catch (const std::exception& error) {
        failures[static_cast<std::size_t>(rank)] = std::current_exception();
        store->abort(error.what());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

inline JobResult run_job(const Config& config, int ranks, DeviceKind kind) {
  JobResult result;
  std::vector<std::vector<std::vector<double>>> pieces(static_cast<std::size_t>(ranks));
  run_ranks(config, ranks, kind, [&](Interpreter& interpreter, SyntheticBatches& batches, comm::Communicator& group) {
    std::vector<StepResult> results;
    for (std::int64_t step = 1; step <= config.train.steps; ++step) {
      interpreter.run_step(batches, {.update = step, .lr = 1e-3f, .clip = static_cast<float>(config.train.clip)});
      results.push_back(interpreter.synchronize_result());
    }
    interpreter.synchronize();
    const RankPlan& plan = interpreter.plan();
    auto& mine = pieces[static_cast<std::size_t>(group.rank())];
    for (const model::Parameter& p : plan.parameters) mine.emplace_back(static_cast<std::size_t>(p.stored), 0.0);
    for (const auto& piece : plan.flat.state_pieces(plan.coordinates().data, plan.sharded)) {
      const View memory = interpreter.master().rows(piece.state_first, piece.count);
      std::vector<std::byte> host(memory.bytes());
      interpreter.compute_stream().copy(host.data(), memory.data, memory.bytes());
      interpreter.compute_stream().synchronize();
      for (std::int64_t i = 0; i < piece.count; ++i) {
        const double value = memory.dtype == DType::f64 ? reinterpret_cast<const double*>(host.data())[i]
                                                        : static_cast<double>(reinterpret_cast<const float*>(host.data())[i]);
        mine[piece.parameter][static_cast<std::size_t>(piece.parameter_first + i)] = value;
      }
    }
    if (group.rank() == 0) {
      for (const StepResult& r : results) {
        result.losses.push_back(r.loss);
        result.grad_norms.push_back(r.grad_norm);
      }
    }
  });
  // Under ZeRO each element is on one rank and zero on the others; otherwise rank 0 has all.
  result.parameters = pieces[0];
  if (config.parallel.zero > 0) {
    for (int rank = 1; rank < ranks; ++rank) {
      for (std::size_t p = 0; p < result.parameters.size(); ++p) {
        for (std::size_t i = 0; i < result.parameters[p].size(); ++i) result.parameters[p][i] += pieces[static_cast<std::size_t>(rank)][p][i];
      }
    }
  }
  return result;
}

// Largest difference between any two master weights.
inline double largest_difference(const JobResult& a, const JobResult& b) {
  double largest = 0;
  EXPECT_EQ(a.parameters.size(), b.parameters.size());
  for (std::size_t p = 0; p < a.parameters.size(); ++p) {
    for (std::size_t i = 0; i < a.parameters[p].size(); ++i) {
      largest = std::max(largest, std::abs(a.parameters[p][i] - b.parameters[p][i]));
    }
  }
  return largest;
}

}  // namespace plait::parallel
