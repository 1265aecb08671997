#include "verify/reference.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checkpoint_writer.h"
#include "core/error.h"
#include "core/record.h"

namespace plait::verify {
namespace {

class SumOfSquares {
 public:
  void add(double value) { sum_ += value * value, ++count_; }
  double rms() const { return count_ > 0 ? std::sqrt(sum_ / static_cast<double>(count_)) : 0; }

 private:
  double sum_ = 0;
  std::int64_t count_ = 0;
};

using model::ElementRun;

// Columns of a tensor that is split by columns, as segments of which every tensor-parallel rank has its share: query, key and
// value heads, gate and up, or all of them together. `name` is an activation's; its gradient is split in the same way.
std::vector<std::int64_t> segments_of(const std::string& name, const model::ModelShape& s, std::int64_t columns) {
  if (name.ends_with("qkv")) return {s.heads * s.head_dim, s.kv_heads * s.head_dim, s.kv_heads * s.head_dim};
  if (name.ends_with("up") && s.mlp == model::Mlp::swiglu) return {s.ffn, s.ffn};
  return {columns};
}

// A tensor as a matrix. The head dim of [batch, heads, sequence] is one of columns.
std::int64_t columns_of(const std::vector<std::int64_t>& shape) {
  if (shape.size() == 1) return 1;
  std::int64_t columns = 1;
  for (std::size_t dim = 1; dim < shape.size(); ++dim) columns *= shape[dim];
  return columns;
}

std::vector<ElementRun> column_runs(const parallel::RankPlan& plan, const runtime::WrittenTensor& tensor,
                                    const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& whole) {
  const int rank = plan.sizes.split.rank;
  const std::int64_t here = columns_of(shape), there = columns_of(whole);
  const auto own = segments_of(tensor.name, plan.local_shape(), here);
  const auto all = segments_of(tensor.name, plan.sizes.shape, there);
  // Only logits have padded columns, and different numbers of them on different ranks.
  const std::int64_t last = tensor.name.ends_with("logits") ? plan.sizes.shape.vocab : there;
  std::vector<ElementRun> runs;
  for (std::int64_t row = 0; row < shape[0]; ++row) {
    std::int64_t own_first = 0, all_first = 0;
    for (std::size_t s = 0; s < own.size(); ++s) {
      const std::int64_t first = all_first + rank * own[s];
      const std::int64_t count = std::min(own[s], last - first);
      if (count > 0) runs.push_back({row * here + own_first, row * there + first, count});
      own_first += own[s];
      all_first += all[s];
    }
  }
  return runs;
}

}  // namespace

std::string reference_gradient(const std::string& parameter) { return "gradient: " + parameter; }
std::string reference_parameter(const std::string& parameter) { return "parameter: " + parameter; }
std::string reference_bound(const std::string& parameter) { return "bound: " + parameter; }

std::string reference_tensor(int micro_batch, const runtime::WrittenTensor& tensor) {
  return fmt::format("micro-batch {} segment {}: {}", micro_batch, tensor.segment, tensor.name);
}

void ReferenceRecorder::add(const std::string& name, View view) { add(name, interpreter_.synchronize_read(view), view.shape); }

void ReferenceRecorder::add(const std::string& name, std::vector<double> values, Shape shape) {
  if (!std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); })) {
    throw Error(name + " itself is not finite; nothing can be compared with it");
  }
  checkpoint::TensorSpec spec{name, DType::f64, {}};
  for (int dim = 0; dim < shape.rank(); ++dim) spec.shape.push_back(shape[dim]);
  specs_.push_back(std::move(spec));
  values_.push_back(std::move(values));
}

// One rank without ZeRO keeps every parameter in one piece.
void ReferenceRecorder::add_gradients() {
  const parallel::RankPlan& plan = interpreter_.plan();
  for (const auto& piece : plan.flat.state_pieces()) {
    const model::Parameter& parameter = plan.parameters[piece.parameter];
    const View gradient = interpreter_.kept_gradients().rows(piece.gradient_first, piece.count);
    add(reference_gradient(parameter.name), interpreter_.synchronize_read(gradient), parameter.stored_shape);
  }
}

void ReferenceRecorder::add_parameters() {
  const parallel::RankPlan& plan = interpreter_.plan();
  for (const auto& piece : plan.flat.state_pieces()) {
    const model::Parameter& parameter = plan.parameters[piece.parameter];
    const View master = interpreter_.master().rows(piece.state_first, piece.count);
    add(reference_parameter(parameter.name), interpreter_.synchronize_read(master), parameter.stored_shape);
    add(reference_bound(parameter.name), updates_.at(piece.parameter), parameter.stored_shape);
  }
}

void ReferenceRecorder::count_update(std::int64_t step) {
  const parallel::RankPlan& plan = interpreter_.plan();
  const std::string table = plan.sizes.shape.tie_embeddings ? "embedding.tokens.weight" : "head.weight";
  drift_ = next_drift_;
  logits_ = 4 * std::sqrt(static_cast<double>(plan.sizes.shape.hidden));
  rounding_ = 0;
  SumOfSquares apart, all;
  for (const auto& piece : plan.flat.state_pieces()) {
    const model::Parameter& parameter = plan.parameters[piece.parameter];
    const std::vector<double> moments =
        interpreter_.synchronize_read(interpreter_.exp_avg_sq().rows(piece.state_first, piece.count));
    const std::vector<double> first_moments =
        interpreter_.synchronize_read(interpreter_.exp_avg().rows(piece.state_first, piece.count));
    const std::vector<double> values =
        interpreter_.synchronize_read(interpreter_.master().rows(piece.state_first, piece.count));
    const auto place_of_largest = static_cast<std::size_t>(std::max_element(moments.begin(), moments.end()) - moments.begin());
    const double largest = moments[place_of_largest];
    std::vector<double>& bounds = updates_.try_emplace(piece.parameter, moments.size(), 0.0).first->second;
    std::vector<MomentsApart>& apart_before = moments_apart_.try_emplace(piece.parameter, moments.size()).first->second;
    const auto rounded_moments = [&](std::size_t i) {
      return bounds_.rounded_moments(step, first_moments[i], moments[i], apart_before[i]);
    };
    if (largest > 0) {
      double magnitude = 0;
      for (const double value : values) magnitude = std::max(magnitude, std::abs(value));
      double& moved = movements_.try_emplace(piece.parameter, 0.0).first->second;
      moved += bounds_.movement(step, largest);
      double& lost = lost_.try_emplace(piece.parameter, 0.0).first->second;
      lost += bounds_.rates[static_cast<std::size_t>(step - 1)] * rounded_moments(place_of_largest);
      rounding_ = std::max(rounding_, (bounds_.parameter_rounding(step, magnitude) + lost) / moved);
    }
    SumOfSquares of_values;
    for (std::size_t i = 0; i < moments.size(); ++i) {
      bounds[i] += bounds_.update(step, drift_, moments[i], largest, rounded_moments(i));
      apart_before[i] = bounds_.moments_apart(first_moments[i], moments[i], apart_before[i]);
      of_values.add(values[i]);
      if (!parameter.decay || moments[i] == 0) continue;  // not a matrix, or an unused element
      apart.add(bounds[i]);
      all.add(values[i]);
    }
    if (parameter.name == table || parameter.name == "head.norm.weight") logits_ *= of_values.rms();
  }
  next_drift_ = all.rms() > 0 ? apart.rms() / all.rms() : 0;
}

void ReferenceRecorder::count_no_update() {
  drift_ = next_drift_;
  for (const auto& piece : interpreter_.plan().flat.state_pieces())
    updates_.try_emplace(piece.parameter, static_cast<std::size_t>(piece.count), 0.0);
}

void ReferenceRecorder::write(const std::filesystem::path& directory, const runtime::StepResult& result) {
  checkpoint::CheckpointWriter writer =
      checkpoint::CheckpointWriter::begin(directory, result.update, {{"step.safetensors", specs_}});
  nlohmann::ordered_json largest = nlohmann::ordered_json::object();
  for (std::size_t t = 0; t < specs_.size(); ++t) {
    writer.write(specs_[t].name, 0, std::ssize(values_[t]), values_[t].data());
    double most = 0;
    for (const double value : values_[t]) most = std::max(most, std::abs(value));
    largest[specs_[t].name] = most;
  }
  writer.finish();
  writer.commit({{"loss", result.loss},
                 {"norm", result.grad_norm},
                 {"loss_tokens", result.loss_tokens},
                 {"drift", drift_},
                 {"logits", logits_},
                 {"rounding", rounding_},
                 {"largest", largest}},
                std::numeric_limits<std::int64_t>::max());
  specs_.clear();
  values_.clear();
}

ReferenceStep::ReferenceStep(const std::filesystem::path& directory, std::int64_t step)
    : checkpoint_(checkpoint::checkpoint_directory(directory, step)) {
  const JsonSource source = checkpoint_.state_source();
  const JsonField state(checkpoint_.state(), source, "state");  // a number that is not finite is written as null
  loss_ = state["loss"].number();
  norm_ = state["norm"].number();
  loss_tokens_ = state["loss_tokens"].whole(0, std::numeric_limits<std::int64_t>::max());
  drift_ = state["drift"].number();
  logits_ = state["logits"].number();
  rounding_ = state["rounding"].number();
  read_value(state["largest"], largest_, record::at_most(JsonField::no_limit));
}

double ReferenceStep::largest(const std::string& tensor) const {
  const auto found = largest_.find(tensor);
  require(found != largest_.end(), "the serial run recorded no '" + tensor + "'");
  return found->second;
}

void ReferenceStep::read(const std::string& tensor, const std::vector<model::ElementRun>& runs, std::int64_t first,
                         std::span<double> values) const {
  for (const model::ElementRun& run : runs) {
    const auto at = static_cast<std::size_t>(run.first - first);
    checkpoint_.read(tensor, run.whole_first, run.count, values.subspan(at, static_cast<std::size_t>(run.count)).data());
  }
}

std::vector<ElementRun> serial_runs(const parallel::RankPlan& plan, const runtime::WrittenTensor& tensor,
                                    const std::vector<std::int64_t>& whole) {
  if (tensor.parameter >= 0) {
    const model::Parameter& parameter = plan.parameters[static_cast<std::size_t>(tensor.parameter)];
    return model::whole_runs(parameter.part, 0, parameter.stored);
  }
  std::vector<std::int64_t> shape;
  for (int dim = 0; dim < tensor.view.shape.rank(); ++dim) shape.push_back(tensor.view.shape[dim]);
  if (tensor.split == model::Split::columns) return column_runs(plan, tensor, shape, whole);
  const std::int64_t elements = tensor.view.elements(), columns = columns_of(shape);
  require(columns == columns_of(whole), "serial_runs: " + tensor.name + " has other columns than in the serial run");
  const bool shares_rows = tensor.split == model::Split::residual && plan.sizes.split.sequence_parallel;
  const std::int64_t first_row = shares_rows ? plan.sizes.split.rank * shape[0] : 0;
  return {{0, first_row * columns, elements}};
}

}  // namespace plait::verify
