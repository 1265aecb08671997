// The place of each parameter in the flat buffers, and the cut of these into buckets.
//
// Weights, gradients and optimizer state are each one buffer, in backward order of the segments (the head first, the embedding
// last), so that a bucket of gradients is a contiguous range that becomes complete while the rest of backward still runs.
// Parameters whose gradients must also be summed over a further axis come last, in buckets of their own: the same buckets, of
// the same sizes, on all ranks of that group. A bucket is one collective. The ranks that hold the same parameters share it: its
// size is a multiple of their number × alignment, so that every rank's shard of it is aligned.
#pragma once

#include <cstdint>
#include <vector>

#include "model/parameters.h"
#include "ops/adamw.h"
#include "parallel/mesh.h"

namespace plait::parallel {

// Consecutive elements of the flat buffers.
struct Range {
  std::int64_t first = 0, count = 0;
  std::int64_t end() const { return first + count; }
};

struct Bucket {
  Range range;
  std::vector<int> segments;  // segments of this rank that read its weights and write its gradients, each once
  // `partial`: the axes over which the gradients of its parameters are summed, the same for all of them (model::Parameter).
  // `replicas`: those of them along which the bucket is cut into shards.
  AxisSet partial = replica_axes, replicas = replica_axes;
  // The other axes of `partial`: over these, gradients are summed shard by shard.
  AxisSet further() const { return partial.without(replicas); }
  int shards = 1, shard = 0;        // the number of shards, and the index of this rank's
  std::int64_t earlier_shards = 0;  // elements of this rank's shards of the buckets before it
  std::int64_t shard_elements() const { return range.count / shards; }
  int products = 0;  // the number of matrices of attention or MLP in it (model::Parameter::operand)
  int place = 0;     // index of the memory for its whole gradients; under ZeRO-2 buckets share places, else each has its own
};

class FlatLayout {
 public:
  // Elements between starts of parameters are multiples of this, for 16-byte accesses in every element type and for
  // 256-byte alignment of the library's matrix products.
  static constexpr std::int64_t alignment = 128;

  struct Options {
    Layout layout;  // of all ranks of the job
    int rank = 0;
    int zero = 0;                   // 1: optimizer state holds this rank's shards only; 2: so do the gradients
    std::int64_t bucket_bytes = 1;  // a bucket is closed when its gradients reach this size
    DType gradient_type = DType::f32;
    int tied_head = -1;  // segment of a head that reads and writes segment 0's table on this same rank; -1: none
    std::vector<int> chunk_starts = {0};  // first segment of each of the rank's chunks; a bucket holds segments of one chunk
  };
  FlatLayout(const std::vector<model::Parameter>& parameters, const Options& options);

  std::int64_t elements() const { return elements_; }                  // in a flat buffer, paddings included
  Range parameter(std::size_t index) const { return ranges_[index]; }  // index into the parameter list
  std::size_t bucket_of(std::size_t parameter) const;
  const std::vector<Bucket>& buckets() const { return buckets_; }

  const Options& options() const { return options_; }
  // Turns this into the layout of another rank that holds the same parameters: the buckets stay, the shards change.
  void move_to(int rank);
  // This rank's equal share of a bucket.
  Range shard(const Bucket& bucket) const;
  // The part of a bucket for which this rank keeps optimizer state: its shard under ZeRO, else all of it.
  Range owned(const Bucket& bucket) const { return options_.zero > 0 ? shard(bucket) : bucket.range; }
  std::int64_t shard_elements() const { return shard_elements_; }  // of all buckets together
  std::int64_t state_elements() const { return options_.zero > 0 ? shard_elements() : elements_; }
  // The whole gradients, as backward writes them. Under ZeRO-2 their shards are summed elsewhere after every micro-batch, and
  // buckets take turns in two places; otherwise they stay where they are until the update.
  std::int64_t whole_gradient_elements() const { return places_.back().end(); }
  Range whole_gradient(const Bucket& bucket) const {
    return {places_[static_cast<std::size_t>(bucket.place)].first, bucket.range.count};
  }
  Range parameter_gradient(std::size_t index) const;
  // The gradients that the update reads: under ZeRO-2 a buffer like optimizer state, else the whole gradients.
  std::int64_t kept_gradient_elements() const { return options_.zero > 1 ? shard_elements() : elements_; }
  // This rank's part of them: owned(bucket), as a range of the kept gradients.
  Range kept_gradient(const Bucket& bucket) const;
  // Where `owned(bucket)` begins in optimizer state, which holds the owned ranges of all buckets one after another.
  std::int64_t state_first(const Bucket& bucket) const {
    return options_.zero > 0 ? bucket.earlier_shards : bucket.range.first;
  }

  // A parameter's piece in optimizer-state memory.
  struct StatePiece {
    std::size_t parameter = 0;
    std::int64_t parameter_first = 0;  // element within this rank's part of the parameter
    std::int64_t flat_first = 0;       // in the weights
    std::int64_t gradient_first = 0;   // in the gradients that are kept until the update
    std::int64_t state_first = 0;      // in the optimizer state
    std::int64_t count = 0;
  };
  // Every piece that this rank keeps, in ascending order of state_first; stored elements only (paddings are left out).
  std::vector<StatePiece> state_pieces() const;

  // Ranges of the kept gradients that this rank counts in the global norm: each element of the model on exactly one rank,
  // replicas (Parameter::replica) on none and unsharded gradients as this replica's share. Neighbours merged.
  std::vector<Range> norm_ranges() const;

  // The pieces of state_pieces() for AdamW. A piece is cut wherever the numbers of its elements in the whole parameter jump in
  // another way than from one row to the next.
  std::vector<ops::AdamWRange> adamw_ranges() const;

 private:
  void assign_places();

  std::vector<model::Parameter> parameters_;
  std::vector<Range> ranges_;
  std::vector<std::size_t> order_;  // parameter indices in the order of the flat buffers
  std::vector<Bucket> buckets_;
  std::vector<Range> places_;
  std::int64_t elements_ = 0, shard_elements_ = 0;
  Options options_;
};

// The FP8 operands of a rank's weights: which parameters have them, and where they lie.
//
// `parameter`: index into the rank's list of parameters. `values`, `transposed`: bytes from the start of
// StateTensor::quantized_weights. `scale`: index into StateTensor::weight_scales.
struct QuantizedWeight {
  std::size_t parameter = 0;
  std::size_t values = 0, transposed = 0;
  std::int64_t scale = 0;
};

struct QuantizedWeights {
  std::vector<QuantizedWeight> list;  // empty without FP8
  std::size_t bytes = 0;
};

// The operands of all parameters that have a model::Parameter::operand, each in both forms (ops::Quantized), in the order of
// the flat buffers, so that those of one bucket are neighbours.
QuantizedWeights quantized_weights(const std::vector<model::Parameter>& parameters, const FlatLayout& flat);

}  // namespace plait::parallel
