#include "data/split.h"

#include <algorithm>

#include "core/error.h"

namespace plait::data {

void Split::add(const TokenSource& source, std::int64_t first, std::int64_t count) {
  if (count == 0) return;
  parts_.push_back({&source, first, tokens_});
  tokens_ += count;
}

void Split::read(std::int64_t first, std::span<std::int32_t> out) const {
  require(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= tokens_, "Split::read: range outside the split");
  auto part = std::ranges::upper_bound(parts_, first, {}, &SplitPart::start) - 1;
  while (!out.empty()) {
    const std::int64_t end = part + 1 == parts_.end() ? tokens_ : (part + 1)->start;
    const std::size_t count = std::min(out.size(), static_cast<std::size_t>(end - first));
    part->source->read(part->first + (first - part->start), out.first(count));
    out = out.subspan(count);
    first += static_cast<std::int64_t>(count);
    ++part;
  }
}

}  // namespace plait::data
