// Shows a verification to people: one line per layout as it finishes, and a summary.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/task_progress.h"
#include "core/terminal.h"
#include "core/text_table.h"
#include "verify/verify.h"

namespace plait::verify {

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
