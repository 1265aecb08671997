#include "data/sample_reader.h"

#include <algorithm>
#include <vector>

namespace plait::data {

void read_sample(const Split& split, std::int64_t first, Documents documents, const SampleSpans& out) {
  const std::size_t length = out.tokens.size();
  std::vector<std::int32_t> all(length + 1);  // in one read
  std::vector<TokenMarks> marks(length + 1);
  split.read(first, all, marks);
  const auto begins = [&](std::size_t i) {
    return documents == Documents::separate && i > 0 &&
           ((marks[i] & begins_document) != 0 || (marks[i - 1] & ends_document) != 0);
  };
  std::copy(all.begin(), all.end() - 1, out.tokens.begin());
  for (std::size_t i = 0; i < length; ++i)
    out.targets[i] = (marks[i + 1] & masked) != 0 || begins(i + 1) ? no_target : all[i + 1];
  std::int32_t start = 0;
  for (std::size_t i = 0; i < out.starts.size(); ++i) {
    if (begins(i)) start = static_cast<std::int32_t>(i);
    out.starts[i] = start;
  }
}

}  // namespace plait::data
