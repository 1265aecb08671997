#include "data/split.h"

#include <algorithm>

#include "core/error.h"

namespace plait::data {

void Split::add(const TokenSource& source, std::int64_t first, std::int64_t count) {
  if (count == 0) return;
  parts_.push_back({&source, first, tokens_, at_end_ && first == 0});
  tokens_ += count;
  at_end_ = first + count == source.tokens();
}

void Split::read(std::int64_t first, std::span<std::int32_t> tokens, std::span<TokenMarks> marks) const {
  require(first >= 0 && first + std::ssize(tokens) <= tokens_ && marks.size() == tokens.size(),
          "Split::read: range outside the split");
  auto part = std::ranges::upper_bound(parts_, first, {}, &SplitPart::start) - 1;
  while (!tokens.empty()) {
    const std::int64_t end = part + 1 == parts_.end() ? tokens_ : (part + 1)->start;
    const std::size_t count = std::min(tokens.size(), static_cast<std::size_t>(end - first));
    const std::int64_t in_source = part->first + (first - part->start);
    part->source->read(in_source, tokens.first(count));
    part->source->mark(in_source, tokens.first(count), marks.first(count));
    if (first == part->start && !part->goes_on) marks.front() |= begins_document;
    tokens = tokens.subspan(count);
    marks = marks.subspan(count);
    first += static_cast<std::int64_t>(count);
    ++part;
  }
}

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
