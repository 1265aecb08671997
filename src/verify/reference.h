// The record of the serial run, step by step: written to a directory by its one rank, read by every rank of every layout. A
// rank reads only the elements that it holds itself, so no rank needs the whole model in memory, and threads and processes do
// the same.
//
// Each step is a separate checkpoint (src/checkpoint): tensors in a safetensors file, as f64 regardless of their type; loss and
// norm in its state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_reader.h"
#include "core/view.h"
#include "model/parameters.h"
#include "runtime/interpreter.h"
#include "runtime/written_tensors.h"
#include "verify/bounds.h"

namespace plait::verify {

// Names of tensors in a step.
std::string reference_gradient(const std::string& parameter);   // reduced, before clipping
std::string reference_parameter(const std::string& parameter);  // after the update
std::string reference_bound(const std::string& parameter);  // of each of its elements, VerifyBounds::update of all steps so far
// The name of a tensor written by an instruction; `micro_batch`: in the whole step.
std::string reference_tensor(int micro_batch, const runtime::WrittenTensor& tensor);

// One step of the serial run at a time, kept until write().
class ReferenceRecorder {
 public:
  ReferenceRecorder(runtime::Interpreter& interpreter, const VerifyBounds& bounds)
      : interpreter_(interpreter), bounds_(bounds) {}

  // Copies a tensor off the device. Blocks. Error if it holds a value that is not finite: nothing can be compared with it.
  void add(const std::string& name, View view);
  void add_gradients();
  void add_parameters();  // and their bounds
  // Updates the inputs of the bounds of this step and the next ones. One of the two is called after every step: the second if
  // no target of the step counts, so that it left weights and moments unchanged.
  void count_update(std::int64_t step);
  void count_no_update();

  void write(const std::filesystem::path& directory, const runtime::StepResult& result);

 private:
  void add(const std::string& name, std::vector<double> values, Shape shape);

  runtime::Interpreter& interpreter_;
  const VerifyBounds& bounds_;
  std::map<std::size_t, std::vector<double>> updates_;  // bounds so far, by parameter
  double drift_ = 0, next_drift_ = 0;                   // of the weights at the start of this step and the next one
  double logits_ = 0;
  std::map<std::size_t, double> movements_;  // of the elements with the largest gradients so far, by parameter
  std::map<std::size_t, double> lost_;       // the part of their bounds that is the moments' rounding
  std::map<std::size_t, std::vector<MomentsApart>> moments_apart_;  // by parameter
  double rounding_ = 0;
  std::vector<checkpoint::TensorSpec> specs_;
  std::vector<std::vector<double>> values_;  // of each
};

class ReferenceStep {
 public:
  // Keeps the files open.
  ReferenceStep(const std::filesystem::path& directory, std::int64_t step);

  std::int64_t step() const { return checkpoint_.step(); }
  double loss() const { return loss_; }
  double norm() const { return norm_; }
  std::int64_t loss_tokens() const { return loss_tokens_; }
  // The inputs of the step's bounds (verify/bounds.h).
  double drift() const { return drift_; }
  double logits() const { return loss_ > 0 ? logits_ / loss_ : 0; }
  StepFigures figures() const {
    return {
        .loss = loss_, .norm = norm_, .loss_tokens = loss_tokens_, .drift = drift_, .logits = logits(), .rounding = rounding_};
  }
  bool contains(const std::string& tensor) const { return checkpoint_.contains(tensor); }
  const std::vector<std::int64_t>& shape(const std::string& tensor) const { return checkpoint_.tensor(tensor).shape; }
  double largest(const std::string& tensor) const;  // max |element|

  // values[run.first - first + i] = element run.whole_first + i, for every run.
  void read(const std::string& tensor, const std::vector<model::ElementRun>& runs, std::int64_t first,
            std::span<double> values) const;

 private:
  checkpoint::CheckpointReader checkpoint_;
  double loss_ = 0, norm_ = 0, drift_ = 0, logits_ = 0, rounding_ = 0;
  std::int64_t loss_tokens_ = 0;
  std::map<std::string, double> largest_;
};

// The elements of a tensor written by forward or backward of `plan`'s rank, as runs of the serial run's tensor of the same name
// and micro-batch, whose shape is `whole`. They are in order, and cover every element that the serial run has too: a padded
// vocabulary's last columns differ in number and are left out.
std::vector<model::ElementRun> serial_runs(const parallel::RankPlan& plan, const runtime::WrittenTensor& tensor,
                                           const std::vector<std::int64_t>& whole);

}  // namespace plait::verify
