// The results of a study of losses (study.scaling: isoflop), which has them instead of speeds: the validation loss of every
// point, the law that fits them, and the three sentences and the sections about it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "study/fit_report.h"
#include "study/report/findings.h"
#include "study/report/report.h"

namespace plait::study {

struct LossRow {
  const Row* row = nullptr;
  LossPoint point;
  double flops() const { return training_flops(point.parameters, point.tokens); }
};

struct LossFindings {
  explicit LossFindings(const Findings& findings);

  const Findings& findings;
  std::vector<LossRow> rows;  // rows that count: ordered by the values of the other axes, then by budget
  // Other axes than sizes and budgets with more than one value. Such losses are for different tokens, or for runs that differ
  // in more than a law of sizes and tokens covers, and no law is fitted.
  std::vector<std::string> other_axes;
  std::optional<LossFit> fit;  // the one of `plait study fit`
  std::string refused;         // the reason why the losses give no law; "" if they do
};

// Always three: the best size of the largest budget, the parts of its loss, and the effect of ten times the compute. Without a
// law: the lowest loss, the reason why there is none, and the remedy.
std::vector<std::string> sentences_of(const LossFindings& losses);

// Loss over size, a line per budget, together with the law's; and the law's constants with their intervals.
Section losses_section(const LossFindings& losses);
Section law_section(const LossFindings& losses);

// For terminals, like result_table() for speeds.
std::string loss_table(const StudyData& data, int width);

}  // namespace plait::study
