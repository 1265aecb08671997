#include "data/document_marks.h"

#include <algorithm>

#include "core/error.h"

namespace plait::data {

void DocumentMarks::begin_document(std::int64_t token) {
  if (!documents_.empty() && documents_.back() == token) return;
  require(documents_.empty() || documents_.back() < token, "DocumentMarks: documents are in order");
  documents_.push_back(token);
}

void DocumentMarks::mask(std::int64_t first, std::int64_t end) {
  if (first == end) return;
  require(first < end && (masked_.empty() || masked_.back() <= first), "DocumentMarks: masked runs are in order");
  if (!masked_.empty() && masked_.back() == first) {
    masked_.back() = end;
  } else {
    masked_.insert(masked_.end(), {first, end});
  }
}

void DocumentMarks::append(const DocumentMarks& following, std::int64_t first) {
  for (const std::int64_t document : following.documents_) begin_document(first + document);
  for (std::size_t run = 0; run < following.masked_.size(); run += 2)
    mask(first + following.masked_[run], first + following.masked_[run + 1]);
}

DocumentMarks DocumentMarks::part(std::int64_t first, std::int64_t count) const {
  DocumentMarks part;
  const std::int64_t end = first + count;
  for (auto at = std::ranges::lower_bound(documents_, first); at != documents_.end() && *at < end; ++at)
    part.begin_document(*at - first);
  // The first run that ends behind `first`.
  auto border = static_cast<std::size_t>(std::ranges::upper_bound(masked_, first) - masked_.begin());
  for (border -= border % 2; border < masked_.size() && masked_[border] < end; border += 2)
    part.mask(std::max(masked_[border], first) - first, std::min(masked_[border + 1], end) - first);
  return part;
}

void DocumentMarks::add_to(std::span<TokenMarks> marks, std::int64_t first) const {
  const DocumentMarks here = part(first, std::ssize(marks));
  for (const std::int64_t document : here.documents_) marks[static_cast<std::size_t>(document)] |= begins_document;
  for (std::size_t run = 0; run < here.masked_.size(); run += 2) {
    for (std::int64_t token = here.masked_[run]; token < here.masked_[run + 1]; ++token)
      marks[static_cast<std::size_t>(token)] |= masked;
  }
}

}  // namespace plait::data
