// Where each parameter lies in the flat buffers, and how those are cut into buckets.
//
// Weights, gradients and optimizer state are each one buffer, in backward order of the blocks (the head first, the embedding
// last), so that a bucket of gradients is a contiguous range that becomes complete while the rest of backward still runs.
// A bucket is one collective. Its size is a multiple of data size × alignment, so that every rank's shard of it is aligned.
#pragma once

#include <cstdint>
#include <vector>

#include "model/parameters.h"
#include "ops/adamw.h"

namespace plait::parallel {

// Consecutive elements of the flat buffers.
struct Range {
  std::int64_t first = 0, count = 0;
  std::int64_t end() const { return first + count; }
};

struct Bucket {
  Range range;
  int last_block = 0;   // its gradients are complete after backward_weight of this block (the lowest it holds)
  int first_block = 0;  // highest block it holds: the range of blocks that read its weights is [last_block, first_block]
};

class FlatLayout {
 public:
  // Elements between starts of parameters are multiples of this, for 16-byte accesses in every element type and for
  // 256-byte alignment of the library's matrix products.
  static constexpr std::int64_t alignment = 128;

  // bucket_bytes: a bucket is closed when its gradients reach this size, at the end of a parameter.
  FlatLayout(const std::vector<model::Parameter>& parameters, int data_size, std::int64_t bucket_bytes, DType gradient_type);

  std::int64_t elements() const { return elements_; }  // of a flat buffer, paddings included
  Range parameter(std::size_t index) const { return ranges_[index]; }  // index into the parameter list
  const std::vector<Bucket>& buckets() const { return buckets_; }

  // Slice of a bucket that data-parallel rank `rank` reduces, and under ZeRO-1 owns.
  Range shard(const Bucket& bucket, int rank) const;
  std::int64_t shard_elements() const { return elements_ / data_size_; }  // of all buckets together

  // A parameter's piece in optimizer-state memory. Without ZeRO that memory has the flat layout; with it, it holds the
  // rank's shards of all buckets one after another.
  struct StatePiece {
    std::size_t parameter = 0;
    std::int64_t parameter_first = 0;  // element within the parameter
    std::int64_t flat_first = 0, state_first = 0, count = 0;
  };
  // Every piece that `rank` keeps, in ascending order of state_first; stored elements only (paddings are left out).
  std::vector<StatePiece> state_pieces(int rank, bool sharded) const;

  std::vector<ops::AdamWSegment> adamw_segments(int rank, bool sharded) const;

 private:
  std::vector<model::Parameter> parameters_;
  std::vector<Range> ranges_;
  std::vector<Bucket> buckets_;
  std::int64_t elements_ = 0;
  int data_size_ = 1;
};

}  // namespace plait::parallel
