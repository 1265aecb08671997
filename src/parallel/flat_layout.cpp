#include "parallel/flat_layout.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace plait::parallel {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

FlatLayout::FlatLayout(const std::vector<model::Parameter>& parameters, int data_size, std::int64_t bucket_bytes,
                       DType gradient_type)
    : parameters_(parameters), ranges_(parameters.size()), data_size_(data_size) {
  require(data_size >= 1 && bucket_bytes >= 1, "FlatLayout: data size and bucket size are positive");
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return parameters[a].block > parameters[b].block; });

  const std::int64_t bucket_elements = std::max<std::int64_t>(1, bucket_bytes / static_cast<std::int64_t>(size_of(gradient_type)));
  Bucket open;
  const auto close = [&] {
    elements_ = open.range.first + round_up(open.range.count, alignment * data_size_);
    open.range.count = elements_ - open.range.first;
    buckets_.push_back(open);
    open = Bucket{{elements_, 0}, 0, 0};
  };
  for (const std::size_t index : order) {
    const model::Parameter& p = parameters[index];
    if (open.range.count == 0) open.first_block = p.block;
    open.last_block = p.block;
    ranges_[index] = {open.range.end(), p.shape.elements()};
    open.range.count += round_up(p.shape.elements(), alignment);
    if (open.range.count >= bucket_elements) close();
  }
  if (open.range.count > 0) close();
}

Range FlatLayout::shard(const Bucket& bucket, int rank) const {
  const std::int64_t count = bucket.range.count / data_size_;
  return {bucket.range.first + rank * count, count};
}

std::vector<FlatLayout::StatePiece> FlatLayout::state_pieces(int rank, bool sharded) const {
  std::vector<StatePiece> pieces;
  std::int64_t state_base = 0;
  for (const Bucket& bucket : buckets_) {
    const Range owned = sharded ? shard(bucket, rank) : bucket.range;
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
      const std::int64_t first = std::max(ranges_[i].first, owned.first);
      const std::int64_t end = std::min(ranges_[i].first + parameters_[i].stored, owned.end());
      if (first < end) pieces.push_back({i, first - ranges_[i].first, first, state_base + first - owned.first, end - first});
    }
    state_base += owned.count;
  }
  std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) { return a.state_first < b.state_first; });
  return pieces;
}

std::vector<ops::AdamWSegment> FlatLayout::adamw_segments(int rank, bool sharded) const {
  std::vector<ops::AdamWSegment> segments;
  for (const StatePiece& piece : state_pieces(rank, sharded)) {
    segments.push_back({piece.flat_first, piece.state_first, piece.count, parameters_[piece.parameter].decay});
  }
  return segments;
}

}  // namespace plait::parallel
