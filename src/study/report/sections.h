// The sections of a report, each from the findings alone, and the three sentences that sum a study up: the best layout, its
// limit, and a change that would help.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "study/report/findings.h"
#include "study/report/report.h"

namespace plait::study {

// Sections on speed: against the number of ranks, with the ideal line.
Section throughput_section(const Findings& findings);
Section efficiency_section(const Findings& findings);
// Beyond the machine; nullopt if nothing was simulated.
std::optional<Section> extrapolation_section(const Findings& findings);

// Sections that compare points.
Section ledger_section(const Findings& findings);
Section map_section(const Findings& findings);  // layout by micro-batch
Section prediction_section(const Findings& findings);
Section memory_section(const Findings& findings);
Section pareto_section(const Findings& findings);

// Sections of record.
Section environment_section(const Findings& findings);
std::optional<Section> links_section(const Findings& findings);  // nullopt for a machine without GPUs
Section points_section(const Findings& findings);

// Charts of bars show this many points, the fastest; tables show all.
inline constexpr std::size_t most_bars = 40;

// Always three, all from the data. The best layout is the fastest per device with the most ranks. Its limit is the largest
// account of its ledger after compute, or compute if the others leave little. The change is the first of: a layout that was
// predicted to be faster but does not fit or was not measured; the measured layout that loses least to that account; the step
// without that account.
std::vector<std::string> sentences_of(const Findings& findings);

}  // namespace plait::study
