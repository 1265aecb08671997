// Reads sequences of a split, with their targets. Private to src/data.
#pragma once

#include <cstdint>

#include "core/choices.h"
#include "data/dataset.h"
#include "data/split.h"

namespace plait::data {

// Fills `out` from token `first` on; the split holds a token more. Targets are the tokens shifted by one, but -1 where that
// token is masked, and, if documents are separate, where it begins a document.
void read_sample(const Split& split, std::int64_t first, Documents documents, const SampleSpans& out);

}  // namespace plait::data
