// What a study of losses (study.scaling: isoflop) found, where other studies have speeds: the validation loss of every point,
// the law that fits them, and the three sentences and the sections that say so.
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
  std::vector<LossRow> rows;  // that count: of one value of the other axes after another, by budget
  // Axes besides sizes and budgets of which they have several values. Such losses are of other tokens, or of runs that differ
  // in more than a law of sizes and tokens knows, and no law is fitted.
  std::vector<std::string> other_axes;
  std::optional<LossFit> fit;  // that of `plait study fit`
  std::string refused;         // why the losses give no law; "" if they do
};

// Always three: the best size of the largest budget, what its loss is made of, and what ten times the compute would bring.
// Where there is no law, the lowest loss, why there is none, and what to do about it.
std::vector<std::string> sentences_of(const LossFindings& losses);

// Loss over size, a line per budget, with the law's beside it; and the law's constants with their intervals.
Section losses_section(const LossFindings& losses);
Section law_section(const LossFindings& losses);

// For terminals, as result_table() for speeds.
std::string loss_table(const StudyData& data, int width);

}  // namespace plait::study
