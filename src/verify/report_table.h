// A verification for people: one line per layout as it finishes, and a summary.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "train/report/status_line.h"
#include "verify/verify.h"

namespace plait::verify {

class VerifyTable {
 public:
  explicit VerifyTable(const train::TerminalOptions& options) : line_(options) {}

  // To be given to verify(). The table has to outlive that.
  VerifyEvents events();
  void summarize(const VerifyReport& report);

 private:
  void plan(const VerifyMatrix& matrix);
  void take(const ModelReport& model) { weak_ = !model.weak.empty(); }
  void begin(const std::string& model, const std::string& layout);
  void finish(const LayoutResult& result);
  std::string row(const std::string& model, const std::string& layout, const std::string& schedule, const std::string& zero,
                  const std::array<std::string, 4>& errors, const std::string& share) const;
  std::string colored(const std::string& text, const char* color) const;

  train::StatusLine line_;
  std::size_t model_width_ = 0, layout_width_ = 0;
  std::size_t cases_ = 0, finished_ = 0;
  bool weak_ = false;  // bounds of the model whose layouts run
};

}  // namespace plait::verify
