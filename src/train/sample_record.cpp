#include "train/sample_record.h"

#include <limits>
#include <map>

#include <spdlog/fmt/fmt.h>

#include "core/record.h"
#include "train/run_messages.h"

namespace plait::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* record_name = "data";
constexpr std::int64_t most_samples = std::numeric_limits<std::int64_t>::max() / 2;

struct Recorded {
  std::int64_t samples = 0;
  std::map<std::string, std::string> order;
};

void declare(auto& field, Of<Recorded> auto& recorded) {
  field("samples", recorded.samples, record::whole(0, most_samples));
  field("order", recorded.order, record::at_most(1 << 16));
}

Recorded recorded_in(const checkpoint::CheckpointReader& checkpoint) {
  const JsonSource source = checkpoint.state_source();
  return record_from<Recorded>(JsonField(checkpoint.state(), source, "state")[record_name]);
}

}  // namespace

Json sample_record(const data::Dataset& dataset, std::int64_t samples) {
  Json order = Json::object();
  for (const auto& [name, value] : dataset.sample_order()) order[name] = value;
  return {{"samples", samples}, {"order", order}};
}

bool has_sample_record(const checkpoint::CheckpointReader& checkpoint) { return checkpoint.state().contains(record_name); }

std::int64_t samples_taken(const checkpoint::CheckpointReader& checkpoint) { return recorded_in(checkpoint).samples; }

std::vector<ConfigProblem> order_differences(const checkpoint::CheckpointReader& checkpoint, const data::Dataset& dataset) {
  std::map<std::string, std::string> there = recorded_in(checkpoint).order;
  std::vector<ConfigProblem> problems;
  const auto differs = [&](const std::string& name, const std::string& here, const std::string& was) {
    problems.push_back({comm::as_field(name), comm::as_field(here, 200),
                        fmt::format("was {} when {} was written, and the order of the samples depends on it",
                                    comm::as_field(was, 200), checkpoint.directory().string()),
                        "", 0});
  };
  for (const auto& [name, value] : dataset.sample_order()) {
    const auto was = there.find(name);
    if (was == there.end() || was->second != value) differs(name, value, was == there.end() ? "not there" : was->second);
    if (was != there.end()) there.erase(was);
  }
  for (const auto& [name, value] : there) differs(name, "not there", value);
  return problems;
}

void refuse_unrecorded_order(const checkpoint::CheckpointReader& checkpoint) {
  throw ConfigError(
      fmt::format("{}: is of a version of plait that drew samples in another order, with replacement (its state.json has no "
                  "'data'), so the run cannot go on as it was. A new run can go on from its weights and moments: {}",
                  checkpoint.directory().string(), command_to_fork(checkpoint.directory())));
}

}  // namespace plait::train
