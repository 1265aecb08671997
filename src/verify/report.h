// Writes a verification: for people a line per layout as it finishes and a summary, for programs one JSON document, for CI
// systems JUnit XML, with a test suite per model and a test case per layout.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/task_progress.h"
#include "core/terminal.h"
#include "core/text_table.h"
#include "verify/verify.h"

namespace plait::verify {

// {"reference": {"device", "models": [{"model", "parameters", "compute", "losses", "norms", "failure"}]},
//  "layouts": [{"model", "layout": {"pipeline", "data", "tensor"}, "name", "schedule", "virtual_stages", "zero",
//               "sequence_parallel", "recompute", "device", "max_loss_error", "max_norm_error", "max_grad_error",
//               "max_param_error", "max_weight_error", "of_bound": {"loss", "norm", "gradient", "parameter", "weight"},
//               "first_divergence": {"text", ...}, "failure", "passed", "seconds"}],
//  "refused": [{"model", "name", "reason"}],
//  "bounds": {model: {"steps": [{"loss", "norm", "gradient", "tensor", ...}], ...}}, "passed", "failed", "seconds"}
// `name` is a value for --layout. Errors and shares of bounds are null if a layout did not run to its end, and so is anything
// that does not apply; an error that is not finite is 1e300. If a serial run failed, its model has no losses, and the failure
// is that of all its layouts.
nlohmann::ordered_json to_json(const VerifyReport& report);

// A layout that departed from the serial run has a <failure>, one that did not run to its end an <error>, a refused one is
// <skipped>.
std::string to_junit(const VerifyReport& report);

class VerifyTable {
 public:
  explicit VerifyTable(const TerminalOptions& options);

  // The events for verify(). The table has to outlive it.
  VerifyEvents events();
  void summarize(const VerifyReport& report);

 private:
  void plan(const VerifyMatrix& matrix);
  void take(const ModelReport& model) { weak_ = !model.weak.empty(); }
  void begin(const std::string& model, const std::string& layout);
  void finish(const LayoutResult& result);
  std::string row(const std::vector<std::string>& cells) const;
  void print_folded(const std::string& text);  // at the width at which rows are broken
  std::string colored(const std::string& text, const char* color) const;

  std::shared_ptr<StatusLine> line_;
  std::optional<TaskProgress> progress_;
  TextTable table_;
  std::size_t cases_ = 0, finished_ = 0;
  bool weak_ = false;  // bounds of the model whose layouts run
  std::string said_;   // the previous layout's failure
};

}  // namespace plait::verify
