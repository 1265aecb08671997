// Links that lose messages, data that does not come, and a rank that trains with them: for threads, processes and GPUs.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "comm/forwarding_link.h"
#include "runtime/rank_threads.h"
#include "train/session.h"

namespace plait::launch::test {

// Hands on all but the `lost`-th message (from 1), of which the sender knows nothing; 0: none. Each takes `pause` longer. The
// messages after it come in the turn of the one before them, and so to its place: theirs is not free yet.
class FlawedLink final : public comm::test::ForwardingLink {
 public:
  FlawedLink(std::shared_ptr<comm::p2p::Link> inner, int lost, std::chrono::milliseconds pause = {})
      : ForwardingLink(std::move(inner)), lost_(lost), pause_(pause) {}
  void send(StreamRef stream, View data, int place) override {
    if (++sent_ == lost_) {
      place_ = place;
      return;
    }
    if (lost_ > 0 && sent_ > lost_) std::swap(place, place_);
    if (pause_.count() > 0) stream.enqueue_host([pause = pause_] { std::this_thread::sleep_for(pause); });
    inner_->send(stream, data, place);
  }

 private:
  const int lost_;
  const std::chrono::milliseconds pause_;
  int sent_ = 0;
  int place_ = -1;  // of the last message, once one was lost
};

// Batches of which one does not come.
class FlawedBatches final : public runtime::BatchSource {
 public:
  FlawedBatches(runtime::BatchSource& inner, int last, std::function<void()> then)
      : inner_(inner), last_(last), then_(std::move(then)) {}
  runtime::HostBatch next() override {
    if (++taken_ > last_) then_();
    return inner_.next();
  }
  void release(StreamRef stream) override { inner_.release(stream); }

 private:
  runtime::BatchSource& inner_;
  const int last_;
  const std::function<void()> then_;
  int taken_ = 0;
};

// Two stages of a very small model, four micro-batches.
inline Config two_stages(double timeout_s) {
  Config config;
  config.model.layers = 2, config.model.hidden = 16, config.model.heads = 2, config.model.vocab = 32, config.model.ffn = 32;
  config.data.sequence_length = 8;
  config.train.global_batch = 4, config.train.micro_batch = 1;
  config.parallel.size[Axis::pipeline] = 2, config.parallel.size[Axis::data] = 1;
  config.comm.timeout_s = timeout_s;
  return config;
}

// A rank's session whose messages from rank 0 to rank 1 go by a FlawedLink.
struct FlawedRank {
  FlawedRank(const Config& config, RankContext& rank, int lost, std::chrono::milliseconds pause = {})
      : plan(parallel::make_rank_plan(config, parallel::Decision{}, config.model.vocab,
                                      parallel::resolve_layout(config.parallel, rank.size), rank.rank, rank.device.kind)),
        batches(plan, 1),
        session(plan, groups(config, rank, lost, pause), rank) {
    session.interpreter().initialize(1);
    session.interpreter().synchronize_warm_up();
  }

  void step() { step(batches); }
  void step(runtime::BatchSource& source) {
    session.interpreter().run_step(source, {.update = ++steps, .lr = 1e-3f});
    static_cast<void>(session.interpreter().synchronize_result());
  }

  static runtime::GroupOptions groups(const Config& config, const RankContext& rank, int lost,
                                      std::chrono::milliseconds pause) {
    runtime::GroupOptions options = train::group_options(config, rank.device);
    options.make_link = [lost, pause](const comm::p2p::LinkSpec& spec, comm::Rendezvous& store) {
      return std::make_unique<FlawedLink>(comm::p2p::make_link(spec, store), spec.from == 0 ? lost : 0, pause);
    };
    return options;
  }

  parallel::RankPlan plan;
  runtime::SyntheticBatches batches;
  std::int64_t steps = 0;
  train::Session session;  // after the batches, so that its streams are done with them first
};

}  // namespace plait::launch::test
