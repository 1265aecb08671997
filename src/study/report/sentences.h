// Sums up a study in three sentences: the best layout, its limit, and a change that would help.
#pragma once

#include <string>
#include <vector>

#include "study/report/findings.h"

namespace plait::study {

// Always three, all from the data. The best layout is the fastest per device with the most ranks. Its limit is the largest
// account of its ledger after compute, or compute if the others leave little. The change is the first of: a layout that was
// predicted to be faster but does not fit or was not measured; the measured layout that loses least to that account; the step
// without that account.
std::vector<std::string> sentences_of(const Findings& findings);

}  // namespace plait::study
