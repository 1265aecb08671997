// Finds the first place where a failed layout departs from the serial run: repeats the same steps, and checks every tensor that
// a step writes before taking the step.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "verify/bounds.h"
#include "verify/findings.h"
#include "verify/parameter_errors.h"
#include "verify/reference.h"
#include "verify/step_runner.h"

namespace plait::verify {

class DivergenceSearch {
 public:
  // `serial`: of the recorded serial run, with all of its tensors.
  DivergenceSearch(StepRunner& runner, std::filesystem::path serial, const VerifyBounds& bounds)
      : runner_(runner), serial_(std::move(serial)), bounds_(bounds) {}

  // This rank's first divergence. Collective over all ranks; the first of all of them is the layout's.
  std::optional<Divergence> synchronize_run();

 private:
  void take_step(std::int64_t step);
  void observe(const ReferenceStep& serial, const parallel::Instruction& instruction,
               const std::vector<runtime::WrittenTensor>& written);
  // A parameter's gradient after some of a step's micro-batches.
  void observe_gradient(const ReferenceStep& serial, const parallel::Instruction& instruction,
                        const runtime::WrittenTensor& written, Divergence found);
  bool others_add_to(const model::Parameter& parameter) const;
  std::vector<int> weight_order(
      int chunk) const;  // micro-batches in the order in which this rank adds them to the gradients of its chunk
  void compare_parameters(const std::vector<ParameterError>& errors, Divergence found, const std::string& what);
  void note(const Divergence& found);  // records it if its error is above its bound and nothing was found before it

  int micro_batch_of_step(int micro_batch) const;
  std::string remark_on(const parallel::Instruction& instruction, bool first_tensor) const;
  std::string remark_on(StepPart part, const model::Parameter& parameter) const;

  // The serial run's sum of the first `next` of this rank's micro-batches, in its order, in a parameter's gradient.
  struct GradientSum {
    std::vector<double> elements;
    double largest = 0;  // of the serial run's gradient, in any of its micro-batches so far
    std::size_t next = 0;
  };

  StepRunner& runner_;
  std::filesystem::path serial_;
  const VerifyBounds& bounds_;
  std::int64_t step_ = 0;
  std::map<int, GradientSum> sums_;  // by parameter
  std::optional<Divergence> first_;
};

}  // namespace plait::verify
