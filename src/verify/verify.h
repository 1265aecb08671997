// plait verify: proves that layouts compute the same as one rank.
//
// For each model the serial run (one rank, the same device and precision) is written to a private temporary directory. Then
// each layout's programs are proved (parallel/proof/validator.h), and the layout takes the same steps from the same weights
// with the same batches and is compared with the serial run: loss and gradient norm of every step, every parameter's gradient
// in the first step with a counted target, every parameter after the last (verify/bounds.h says how close they have to be). A
// layout that fails is run again to find its first divergence. The matrix goes on after a failed layout, and with the next
// model after a failed serial run. Bounds that are too weak to catch faults are reported (bounds.h). If the configuration
// has `bounds`, a layout whose ranks lose more of their steps to communication or waiting than those allow fails as well.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "train/report/ledger_text.h"
#include "verify/bounds.h"
#include "verify/matrix.h"
#include "verify/step_runner.h"
#include "verify/verify_job.h"

namespace plait::verify {

struct VerifyRequest {
  ConfigSource config;
  std::vector<std::string> layouts;  // instead of verify.layouts, unless empty
  std::vector<std::string> argv;     // how this program was started, for rank processes
  RankParts parts;                   // for layouts in threads; processes use the defaults
};

struct LayoutResult {
  std::string model, layout;  // layout_text()
  ParallelConfig parallel;
  std::string device;  // of each rank
  VerifyFindings findings = {};
  std::string failure;  // the reason why it did not finish, or notes on a divergence that could not be reproduced
  std::vector<train::ExceededBound> exceeded = {};
  double seconds = 0;

  bool passed() const { return failure.empty() && findings.passed() && exceeded.empty(); }
};

struct ModelReport {
  std::string name;
  std::int64_t parameters = 0;
  std::string compute;  // "f32"
  VerifyBounds bounds;
  std::vector<StepFigures> steps = {};  // of the serial run
  std::vector<WeakBound> weak = {};
  std::string failure = {};  // the reason why the serial run did not finish: it applies to all layouts, and there are no steps
};

struct VerifyReport {
  std::string device;  // on which all of it ran
  std::vector<ModelReport> models;
  std::vector<LayoutResult> layouts;
  std::vector<RefusedLayout> refused;
  double seconds = 0;

  int passed() const;
  bool weak() const;  // true if any model has weak bounds
  int failed() const { return static_cast<int>(layouts.size()) - passed(); }
};

// Callbacks that show the progress.
struct VerifyEvents {
  std::function<void(const VerifyMatrix&)> planned;
  std::function<void(const ModelReport&)> recorded;  // the serial run, unless it failed, before the model's layouts
  std::function<void(const std::string& model, const std::string& layout)> started;  // layout "serial": the reference
  std::function<void(const LayoutResult&)> finished;
};

// Throws ConfigError for problems that the user has to fix, and launch::Interrupted when told to end.
VerifyReport verify(const VerifyRequest& request, const VerifyEvents& events = {});

}  // namespace plait::verify
