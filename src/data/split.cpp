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

}  // namespace plait::data
