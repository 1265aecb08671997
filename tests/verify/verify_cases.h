// A small model to verify in tests, and a communicator that gets some calls wrong.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "comm/forwarding_communicator.h"
#include "config/config.h"
#include "data/dataset.h"
#include "verify/verify.h"

namespace plait::verify::test {

// GPT with tied embeddings. Segments: 0 the embedding, 1 to 8 the halves of four blocks, 9 the head.
inline std::string verify_yaml() {
  return "model: {layers: 4, hidden: 32, heads: 4, head_dim: 8, ffn: 64, vocab: 150}\n"
         "data: {tokenizer: random, sequence_length: 16}\n"
         "train: {steps: 2, global_batch: 4, micro_batch: 1, clip: 0.5}\n"
         "comm: {bucket_mb: 0.02, timeout_s: 20}\n"
         "launch: {device: cpu}\n"
         "verify: {steps: 2}\n";
}

inline VerifyRequest verify_request(const std::vector<std::string>& layouts, RankParts parts = {},
                                    const std::vector<std::string>& set = {}) {
  const ConfigSource source = [set](const std::vector<std::string>& overrides) {
    std::vector<std::string> all = set;
    all.insert(all.end(), overrides.begin(), overrides.end());
    return parse_config(verify_yaml(), all);
  };
  return {.config = source, .layouts = layouts, .argv = {}, .parts = std::move(parts)};
}

enum class CallKind { all_reduce, reduce_scatter, all_gather };

struct Call {
  std::string group;  // "tensor", "data", "tied", "world"
  CallKind kind = CallKind::all_reduce;
  int index = 0;  // how many of this kind came before on this communicator
  View data;      // all of it
  comm::Communicator* group_of_ranks = nullptr;
};

// What takes the place of a call: true if it did, false where the call is to go on as it was.
using CallFault = std::function<bool(const Call&, StreamRef)>;

class FaultyCommunicator final : public comm::test::ForwardingCommunicator {
 public:
  FaultyCommunicator(std::string group, std::shared_ptr<comm::Communicator> inner, CallFault fault)
      : ForwardingCommunicator(std::move(inner)), group_(std::move(group)), fault_(std::move(fault)) {}

  void all_reduce(StreamRef stream, View data, comm::Reduction reduction) override {
    if (!replaced(CallKind::all_reduce, data, stream)) inner_->all_reduce(stream, data, reduction);
  }
  void reduce_scatter(StreamRef stream, View data, View part, comm::Reduction reduction) override {
    if (!replaced(CallKind::reduce_scatter, data, stream)) inner_->reduce_scatter(stream, data, part, reduction);
  }
  void all_gather(StreamRef stream, View part, View data) override {
    if (!replaced(CallKind::all_gather, data, stream)) inner_->all_gather(stream, part, data);
  }

 private:
  bool replaced(CallKind kind, View data, StreamRef stream) {
    const int index = counts_[static_cast<std::size_t>(kind)]++;
    return fault_({group_, kind, index, data, inner_.get()}, stream);
  }

  std::string group_;
  CallFault fault_;
  int counts_[3] = {};
};

// `fault` is in every communicator of groups called `group`.
inline RankParts faulty_group(const std::string& group, const CallFault& fault) {
  RankParts parts;
  parts.group_options = [=](const Config& config, Device device) {
    runtime::GroupOptions options = train::group_options(config, device);
    options.replace = [=](const std::string& name, std::shared_ptr<comm::Communicator> made) {
      if (name != group) return made;
      return std::shared_ptr<comm::Communicator>(std::make_shared<FaultyCommunicator>(group, std::move(made), fault));
    };
    return options;
  };
  return parts;
}

// Ranks with plans that `edit` has changed.
inline RankParts edited_plan(const std::function<void(parallel::RankPlan&)>& edit) {
  RankParts parts;
  parts.make_plan = [edit](const Config& config, const parallel::Decision& decision, std::int64_t vocab,
                           const launch::RankContext& rank) {
    parallel::RankPlan plan = train::training_plan(config, decision, vocab, rank);
    edit(plan);
    return plan;
  };
  return parts;
}

// Samples of which some targets do not count: of each four samples, by their number, 8, none, 3 and 15 of 16 do, and none in
// the steps that are left out.
class MaskedDataset final : public data::Dataset {
 public:
  static constexpr std::array<std::ptrdiff_t, 4> counted = {8, 0, 3, 15};

  MaskedDataset(std::shared_ptr<const data::Dataset> inner, std::set<std::int64_t> without)
      : Dataset(inner->sequence_length()), inner_(std::move(inner)), without_(std::move(without)) {}

  std::int64_t train_tokens() const override { return inner_->train_tokens(); }
  std::int64_t validation_tokens() const override { return inner_->validation_tokens(); }
  data::SampleOrder sample_order() const override { return inner_->sample_order(); }
  std::vector<data::SourceUse> sources_used(std::int64_t samples) const override { return inner_->sources_used(samples); }
  void train_sample(std::int64_t step, std::int64_t sample, const data::SampleSpans& out) const override {
    inner_->train_sample(step, sample, out);
    const std::ptrdiff_t count = without_.contains(step) ? 0 : counted.at(static_cast<std::size_t>(sample % 4));
    std::fill(out.targets.begin(), out.targets.end() - count, -1);
  }
  void validation_sample(std::int64_t index, std::int64_t count, const data::SampleSpans& out) const override {
    inner_->validation_sample(index, count, out);
  }

 private:
  std::shared_ptr<const data::Dataset> inner_;
  std::set<std::int64_t> without_;
};

// `parts` with such samples.
inline RankParts masked(RankParts parts = {}, const std::set<std::int64_t>& without = {}) {
  parts.open_dataset = [without](const Config& config, const data::Tokenizer& tokenizer, std::int64_t vocab) {
    return std::make_shared<MaskedDataset>(data::open_dataset(config, tokenizer, vocab), without);
  };
  return parts;
}

}  // namespace plait::verify::test
