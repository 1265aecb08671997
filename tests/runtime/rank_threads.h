// Runs a training job with ranks as threads, on any kind of device, without files: for tests of programs and layouts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "config/config.h"
#include "core/philox.h"
#include "runtime/interpreter.h"

namespace plait::runtime {

// Tokens of (step, global sample), drawn by counter: the same for every layout.
class SyntheticBatches final : public BatchSource {
 public:
  SyntheticBatches(const parallel::RankPlan& plan, std::uint64_t seed)
      : plan_(plan),
        random_(seed, "batches"),
        tokens_(static_cast<std::size_t>(plan.sizes.micro_batch.rows())),
        targets_(tokens_),
        starts_(tokens_) {}

  // The targets that count, by step, sample of the global batch, and place in the sequence. All, if none is given.
  using Counts = std::function<bool(std::int64_t step, std::int64_t sample, std::int64_t token)>;
  void set_counts(Counts counts) { counts_ = std::move(counts); }

  HostBatch next() override {
    // One buffer, overwritten by every call: the copy of the last batch has to have run.
    if (event_) event_->synchronize();
    const model::MicroBatchShape& shape = plan_.sizes.micro_batch;
    const std::int64_t step = round_ / plan_.micro_batches;
    const std::int64_t micro_batch = round_ % plan_.micro_batches;
    ++round_;
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      const std::int64_t sample =
          (micro_batch * plan_.layout.size(Axis::data) + plan_.coordinates()[Axis::data]) * shape.batch + b;
      // Arithmetic progressions modulo the vocabulary: something to learn.
      const auto index = static_cast<std::uint64_t>(step * plan_.global_batch + sample);
      const std::int64_t vocab = plan_.sizes.shape.vocab;
      const auto start = static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(vocab), index, 0));
      const auto stride = 1 + static_cast<std::int64_t>(random_.below(3, index, 1));
      for (std::int64_t t = 0; t < shape.sequence; ++t) {
        const auto at = static_cast<std::size_t>(b * shape.sequence + t);
        tokens_[at] = static_cast<std::int32_t>((start + t * stride) % vocab);
        targets_[at] =
            counts_ && !counts_(step, sample, t) ? -1 : static_cast<std::int32_t>((start + (t + 1) * stride) % vocab);
        // About every fourth token begins a document.
        const bool begins = t == 0 || random_.below(4, index, static_cast<std::uint64_t>(2 + t)) == 0;
        starts_[at] = begins ? static_cast<std::int32_t>(t) : starts_[at - 1];
      }
    }
    return {tokens_.data(), targets_.data(), starts_.data()};
  }

  void release(StreamRef stream) override {
    if (!event_) event_.emplace(stream.device());
    stream.record(*event_);
  }

 private:
  const parallel::RankPlan& plan_;
  Random random_;
  std::vector<std::int32_t> tokens_, targets_, starts_;
  std::optional<Event> event_;
  std::int64_t round_ = 0;
  Counts counts_;
};

// Turns a GPT-like model (the defaults) into a Llama-like one.
inline void make_llama(ModelConfig& model, std::int64_t kv_heads) {
  model.kv_heads = kv_heads, model.norm = NormKind::rms_norm, model.mlp = Mlp::swiglu, model.position = Position::rope;
  model.bias = false, model.tie_embeddings = false;
}

// A GPT-like model whose step takes a moment on any device: four micro-batches, which up to four stages and replicas may share.
inline Config small_job(std::int64_t layers) {
  Config config;
  config.model.layers = layers, config.model.hidden = 32, config.model.heads = 4, config.model.vocab = 64,
  config.model.ffn = 64;
  config.data.sequence_length = 8;
  config.train.steps = 4, config.train.global_batch = 4, config.train.micro_batch = 1;
  return config;
}

struct JobResult {
  std::vector<float> losses, grad_norms;        // per step
  std::vector<std::int64_t> loss_tokens;        // likewise
  std::vector<std::vector<double>> parameters;  // master weights by parameter, stored elements
};

// The body of one rank; called on the rank's own thread.
using RankBody = std::function<void(Interpreter&, SyntheticBatches&)>;

// The ranks that share a GPU where there are fewer GPUs than ranks; 1 elsewhere.
inline int ranks_to_a_device(DeviceKind kind, int ranks) {
  const int gpus = kind == DeviceKind::cuda ? std::max(1, cuda_device_count()) : ranks;
  return (ranks + gpus - 1) / gpus;
}

// Runs the ranks. `edit` may change a rank's plan before it is carried out, and `edit_groups` how its communicators are made.
inline void run_ranks(const Config& config, int ranks, DeviceKind kind, const RankBody& body,
                      const std::function<void(parallel::RankPlan&)>& edit = {},
                      const std::function<void(GroupOptions&)>& edit_groups = {}) {
  const int to_a_device = ranks_to_a_device(kind, ranks);
  Config used = config;
  if (to_a_device > 1) used.launch.ranks_per_device = to_a_device;
  const std::shared_ptr<comm::Rendezvous> store = comm::make_thread_rendezvous();
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(ranks));
  const std::vector<std::shared_ptr<RankLife>> lives = make_rank_lives(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const Device device{kind, rank / to_a_device, used.launch.may_share_devices()};
        make_current(device);
        DeviceMemory memory(device);
        const parallel::Layout layout = parallel::resolve_layout(used.parallel, ranks);
        parallel::RankPlan plan = parallel::make_rank_plan(used, parallel::Decision{}, used.model.vocab, layout, rank, kind);
        if (edit) edit(plan);
        GroupOptions groups;
        groups.device = device;
        if (edit_groups) edit_groups(groups);
        const std::shared_ptr<RankLife>& life = lives[static_cast<std::size_t>(rank)];
        Interpreter interpreter(plan, memory, make_groups(plan, groups, *store), life);
        SyntheticBatches batches(interpreter.plan(), config.run.seed);
        life->run(
            [&] {
              interpreter.initialize(config.run.seed);
              interpreter.synchronize_warm_up();
              body(interpreter, batches);
              interpreter.synchronize();
            },
            [&] { interpreter.synchronize_aborted(); });
        life->retire();
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

// Master weights of the whole model, from the pieces that ranks keep. Every stored element must come from exactly one rank.
class WholeParameters {
 public:
  void add(Interpreter& interpreter) {
    const parallel::RankPlan& plan = interpreter.plan();
    const std::vector<double> master = interpreter.synchronize_read(interpreter.master());
    std::lock_guard lock(mutex_);
    if (list_.empty()) {
      list_ = model::parameters(plan.sizes.shape);
      for (const model::Parameter& p : list_)
        values_.emplace_back(static_cast<std::size_t>(p.stored_shape.elements()), std::nan(""));
    }
    if (plan.zero == 0 && plan.coordinates()[Axis::data] > 0) return;
    for (const auto& piece : plan.flat.state_pieces()) {
      const model::Parameter& parameter = plan.parameters[piece.parameter];
      if (parameter.replica) continue;
      const auto whole = std::find_if(list_.begin(), list_.end(), [&](const auto& p) { return p.name == parameter.name; });
      std::vector<double>& values = values_[static_cast<std::size_t>(whole - list_.begin())];
      for (const model::ElementRun& run : model::whole_runs(parameter.part, piece.parameter_first, piece.count)) {
        for (std::int64_t i = 0; i < run.count; ++i) {
          double& value = values[static_cast<std::size_t>(run.whole_first + i)];
          EXPECT_TRUE(std::isnan(value)) << parameter.name << " element " << run.whole_first + i << " is on two ranks";
          value = master[static_cast<std::size_t>(piece.state_first + run.first - piece.parameter_first + i)];
        }
      }
    }
  }
  std::vector<std::vector<double>> take() {
    for (std::size_t p = 0; p < values_.size(); ++p) {
      for (const double value : values_[p]) {
        if (std::isnan(value)) {
          ADD_FAILURE() << list_[p].name << ": an element is on no rank, or not a number";
          break;
        }
      }
    }
    return std::move(values_);
  }

 private:
  std::mutex mutex_;
  std::vector<model::Parameter> list_;
  std::vector<std::vector<double>> values_;
};

inline JobResult run_job(const Config& config, int ranks, DeviceKind kind, const SyntheticBatches::Counts& counts = {}) {
  JobResult result;
  WholeParameters parameters;
  run_ranks(config, ranks, kind, [&](Interpreter& interpreter, SyntheticBatches& batches) {
    batches.set_counts(counts);
    std::vector<StepResult> results;
    for (std::int64_t step = 1; step <= config.train.steps; ++step) {
      interpreter.run_step(batches, {.update = step, .lr = 1e-3f, .clip = static_cast<float>(config.train.clip)});
      results.push_back(interpreter.synchronize_result());
    }
    interpreter.synchronize();
    parameters.add(interpreter);
    if (interpreter.plan().rank == 0) {
      for (const StepResult& r : results) {
        result.losses.push_back(r.loss);
        result.grad_norms.push_back(r.grad_norm);
        result.loss_tokens.push_back(r.loss_tokens);
      }
    }
  });
  result.parameters = parameters.take();
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

// The bound in fp32, after a few updates of at most 1e-3 each. AdamW divides by gradients, so small ones show how a product of
// another shape was rounded. BLAS kernels for AVX2 have been seen to give 2.3e-5.
inline constexpr double same_parameters = 5e-5;

// `loss` and `norm` are relative bounds, `parameter` is absolute.
inline void expect_close(const JobResult& many, const JobResult& one, float loss, float norm, double parameter) {
  ASSERT_EQ(many.losses.size(), one.losses.size());
  EXPECT_EQ(many.loss_tokens, one.loss_tokens);
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(many.losses[i], one.losses[i], loss * std::abs(one.losses[i]));
    EXPECT_NEAR(many.grad_norms[i], one.grad_norms[i], norm * one.grad_norms[i]);
  }
  EXPECT_LT(largest_difference(many, one), parameter);
}

inline void expect_same_bits(const JobResult& a, const JobResult& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.grad_norms, b.grad_norms);
  EXPECT_EQ(a.parameters, b.parameters);
}

}  // namespace plait::runtime
