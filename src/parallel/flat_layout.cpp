#include "parallel/flat_layout.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/philox.h"
#include "parallel/memory_plan.h"

namespace plait::parallel {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// The key of a parameter's random numbers, so that the moments of two parameters are rounded with different ones.
std::uint64_t moment_key(const model::Parameter& parameter) { return Random(0, "moments of " + parameter.name).bits(0); }

// Elements [first, first + count) of a rank's part of a parameter, and their numbers in all of it.
struct NumberedRange {
  std::int64_t first = 0, count = 0;
  ops::ElementNumbers numbers;
};

std::vector<NumberedRange> numbered_ranges(const model::TensorPart& part, std::uint64_t key, std::int64_t first,
                                           std::int64_t count) {
  std::vector<NumberedRange> ranges;
  const std::int64_t end = first + count;
  const auto columns = static_cast<std::int32_t>(part.columns), skip = static_cast<std::int32_t>(part.whole_columns) - columns;
  for (const model::TensorPart::Rows& rows : part.rows) {
    const std::int64_t begins = std::max(first, rows.first * columns),
                       ends = std::min(end, (rows.first + rows.count) * columns);
    if (begins >= ends) continue;
    const std::int64_t row = rows.whole_first + begins / columns - rows.first;
    const auto column = static_cast<std::int32_t>(begins % columns);
    const std::int64_t number = row * part.whole_columns + part.column_first + column;
    if (!ranges.empty() && skip == 0 && ranges.back().numbers.of(ranges.back().count) == number) {
      ranges.back().count += ends - begins;
    } else {
      ranges.push_back({begins, ends - begins, {key, number, skip == 0 ? 0 : column, skip == 0 ? 1 : columns, skip}});
    }
  }
  return ranges;
}

}  // namespace

FlatLayout::FlatLayout(const std::vector<model::Parameter>& parameters, const Options& options)
    : parameters_(parameters), ranges_(parameters.size()), order_(parameters.size()), options_(options) {
  require(options.bucket_bytes >= 1, "FlatLayout: the size of buckets is positive");
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::stable_sort(order_.begin(), order_.end(), [&](auto a, auto b) {
    const model::Parameter &x = parameters[a], &y = parameters[b];
    if (x.partial != y.partial) return x.partial < y.partial;
    return x.replicas != y.replicas ? x.replicas < y.replicas : x.segment > y.segment;
  });

  const std::int64_t bucket_elements =
      std::max<std::int64_t>(1, options.bucket_bytes / static_cast<std::int64_t>(size_of(options.gradient_type)));
  // Under ZeRO-2 whole gradients take turns in memory, so a bucket holds whole segments: a segment writes all of its gradients
  // at once.
  const bool at_block_ends = options.zero > 1;
  Bucket open;
  const auto close = [&] {
    open.shards = options.layout.size(open.replicas);
    elements_ = open.range.first + round_up(open.range.count, alignment * open.shards);
    open.range.count = elements_ - open.range.first;
    open.earlier_shards = shard_elements_;
    shard_elements_ += open.shard_elements();
    buckets_.push_back(open);
    open = Bucket{.range = {elements_, 0}, .segments = {}};
  };
  const auto uses = [&](int segment) {
    if (std::find(open.segments.begin(), open.segments.end(), segment) == open.segments.end()) open.segments.push_back(segment);
  };
  const auto chunk_of = [&](int segment) {
    return std::upper_bound(options.chunk_starts.begin(), options.chunk_starts.end(), segment) - options.chunk_starts.begin();
  };
  for (std::size_t n = 0; n < order_.size(); ++n) {
    const model::Parameter& p = parameters[order_[n]];
    open.partial = p.partial, open.replicas = p.replicas;
    if (p.segment == 0 && options.tied_head >= 0) uses(options.tied_head);
    uses(p.segment);
    open.products += p.operand ? 1 : 0;
    ranges_[order_[n]] = {open.range.end(), p.shape.elements()};
    open.range.count += round_up(p.shape.elements(), alignment);
    const model::Parameter* next = n + 1 < order_.size() ? &parameters[order_[n + 1]] : nullptr;
    const bool full = open.range.count >= bucket_elements && (!at_block_ends || !next || next->segment != p.segment);
    const bool same_axes = next && next->partial == p.partial && next->replicas == p.replicas;
    if (!same_axes || full || chunk_of(next->segment) != chunk_of(p.segment)) close();
  }
  move_to(options.rank);
  assign_places();
}

void FlatLayout::move_to(int rank) {
  options_.rank = rank;
  for (Bucket& bucket : buckets_) bucket.shard = options_.layout.coordinate(rank, bucket.replicas);
}

void FlatLayout::assign_places() {
  // A bucket of consecutive segments is complete before the next one begins. Any other bucket stays in use while later buckets
  // come and go.
  const auto spread = [&](const Bucket& bucket) {
    return !bucket.further().empty() ||
           std::find(bucket.segments.begin(), bucket.segments.end(), options_.tied_head) != bucket.segments.end();
  };
  constexpr std::size_t shared = 2;
  std::vector<std::int64_t> sizes;
  std::vector<int> turns;  // the shared places, in turn
  std::size_t turn = 0;
  for (Bucket& bucket : buckets_) {
    const bool takes_turns = options_.zero > 1 && !spread(bucket);
    if (takes_turns && turns.size() == shared) {
      bucket.place = turns[turn++ % shared];
    } else {
      bucket.place = static_cast<int>(sizes.size());
      sizes.push_back(0);
      if (takes_turns) turns.push_back(bucket.place);
    }
    std::int64_t& size = sizes[static_cast<std::size_t>(bucket.place)];
    size = std::max(size, bucket.range.count);
  }
  std::int64_t first = 0;
  for (const std::int64_t size : sizes) {
    places_.push_back({first, size});
    first += size;
  }
}

std::size_t FlatLayout::bucket_of(std::size_t parameter) const {
  const auto it = std::upper_bound(buckets_.begin(), buckets_.end(), ranges_[parameter].first,
                                   [](std::int64_t first, const Bucket& bucket) { return first < bucket.range.first; });
  return static_cast<std::size_t>(it - buckets_.begin()) - 1;
}

Range FlatLayout::parameter_gradient(std::size_t index) const {
  const Bucket& bucket = buckets_[bucket_of(index)];
  return {whole_gradient(bucket).first + ranges_[index].first - bucket.range.first, ranges_[index].count};
}

Range FlatLayout::kept_gradient(const Bucket& bucket) const {
  const Range kept = owned(bucket);
  return options_.zero > 1 ? Range{state_first(bucket), kept.count} : kept;
}

Range FlatLayout::shard(const Bucket& bucket) const {
  const std::int64_t count = bucket.shard_elements();
  return {bucket.range.first + bucket.shard * count, count};
}

std::vector<FlatLayout::StatePiece> FlatLayout::state_pieces() const {
  std::vector<StatePiece> pieces;
  for (const Bucket& bucket : buckets_) {
    const Range kept = owned(bucket);
    // Parameters lie one after another, so the first that may reach into this part is the last one that does not begin behind
    // its start.
    auto next = std::upper_bound(order_.begin(), order_.end(), kept.first,
                                 [&](std::int64_t first, std::size_t i) { return first < ranges_[i].first; });
    if (next != order_.begin()) --next;
    for (; next != order_.end() && ranges_[*next].first < kept.end(); ++next) {
      const std::size_t i = *next;
      const std::int64_t first = std::max(ranges_[i].first, kept.first);
      const std::int64_t end = std::min(ranges_[i].first + parameters_[i].stored, kept.end());
      if (first >= end) continue;
      const std::int64_t state = state_first(bucket) + first - kept.first;
      pieces.push_back({.parameter = i,
                        .parameter_first = first - ranges_[i].first,
                        .flat_first = first,
                        .gradient_first = options_.zero > 1 ? state : first,
                        .state_first = state,
                        .count = end - first});
    }
  }
  std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) { return a.state_first < b.state_first; });
  return pieces;
}

std::vector<Range> FlatLayout::norm_ranges() const {
  std::vector<Range> ranges;
  for (const Bucket& bucket : buckets_) {
    const Range counted = shard(bucket);
    const std::int64_t shift = options_.zero > 1 ? state_first(bucket) - counted.first : 0;
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
      // Paddings are zero where every parameter has its own place, and counting them joins neighbours.
      const std::int64_t count = options_.zero > 1 ? ranges_[i].count : round_up(ranges_[i].count, alignment);
      const std::int64_t first = std::max(ranges_[i].first, counted.first);
      const std::int64_t end = std::min(ranges_[i].first + count, counted.end());
      if (!parameters_[i].replica && first < end) ranges.push_back({first + shift, end - first});
    }
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  std::vector<Range> merged;
  for (const Range& range : ranges) {
    if (!merged.empty() && merged.back().end() == range.first) {
      merged.back().count += range.count;
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

std::vector<ops::AdamWRange> FlatLayout::adamw_ranges() const {
  std::vector<ops::AdamWRange> ranges;
  for (const StatePiece& piece : state_pieces()) {
    const model::Parameter& parameter = parameters_[piece.parameter];
    const std::uint64_t key = moment_key(parameter);
    for (const NumberedRange& run : numbered_ranges(parameter.part, key, piece.parameter_first, piece.count)) {
      const std::int64_t done = run.first - piece.parameter_first;
      ranges.push_back({piece.flat_first + done, piece.gradient_first + done, piece.state_first + done, run.count,
                        parameter.decay, run.numbers});
    }
  }
  return ranges;
}

QuantizedWeights quantized_weights(const std::vector<model::Parameter>& parameters, const FlatLayout& flat) {
  QuantizedWeights all;
  const auto carve = [&](const Shape& shape) {
    const std::size_t first = all.bytes;
    all.bytes += MemoryPlan::aligned(static_cast<std::size_t>(shape.elements()));
    return first;
  };
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].operand) order.push_back(i);
  }
  std::ranges::sort(order, {}, [&](std::size_t i) { return flat.parameter(i).first; });
  for (const std::size_t i : order) {
    const std::size_t values = carve(parameters[i].shape), transposed = carve(parameters[i].shape);
    all.list.push_back({i, values, transposed, std::ssize(all.list)});
  }
  return all;
}

}  // namespace plait::parallel
