#include "model/segment_work.h"

#include "core/error.h"

namespace plait::model {
namespace {

struct Sizes {
  explicit Sizes(const SegmentSizes& s)
      : shape(s.shape.local(s.split.size)),
        tensor(s.split.size),
        sequence_parallel(s.split.sequence_parallel),
        rows(static_cast<double>(s.micro_batch.rows())),
        own_rows(static_cast<double>(s.own_rows())),
        sequence(s.micro_batch.sequence),
        hidden(static_cast<double>(s.shape.hidden)),
        bytes(static_cast<double>(size_of(s.compute))) {}

  ModelShape shape;  // this rank's
  int tensor;
  bool sequence_parallel;
  double rows, own_rows;
  std::int64_t sequence;
  double hidden, bytes;

  double product(double in, double out) const { return 2 * rows * in * out; }
  // Reads and writes of `tensors` tensors of `columns` columns.
  double traffic(double of_rows, double columns, double tensors) const { return of_rows * columns * tensors * bytes; }
};

SegmentWork embedding_work(const Sizes& s) {
  SegmentWork work;
  work.forward = {.memory_bytes = s.traffic(s.rows, s.hidden, 3), .kernels = 1};
  work.backward_weight = {.memory_bytes = s.traffic(s.rows, s.hidden, 3), .kernels = 2};
  return work;
}

// Of the norm in front of a segment.
void add_norm(SegmentWork& work, const Sizes& s) {
  work.norm_forward = {.memory_bytes = s.traffic(s.own_rows, s.hidden, 2), .kernels = 1};
  work.norm_backward = {.memory_bytes = s.traffic(s.own_rows, s.hidden, 5), .kernels = 2};
}

SegmentWork head_work(const Sizes& s) {
  const auto vocab = static_cast<double>(s.shape.padded_vocab);
  SegmentWork work;
  for (PassWork* pass : {&work.forward, &work.backward_input, &work.backward_weight})
    *pass = {.matrix_flops = s.product(s.hidden, vocab), .matrix_products = 1};
  work.loss = {.memory_bytes = s.traffic(s.rows, vocab, 3), .kernels = 2};
  add_norm(work, s);
  return work;
}

// What attention and MLP have alike: a norm, a column-parallel product after it, a row-parallel one back into the residual
// stream. `in` and `out`: columns that these have on this rank.
SegmentWork half_work(const Sizes& s, double in, double out) {
  const double products = s.product(s.hidden, in) + s.product(out, s.hidden);
  SegmentWork work;
  for (PassWork* pass : {&work.forward, &work.backward_input, &work.backward_weight})
    *pass = {.matrix_flops = products, .matrix_products = 2};
  // Sums of the biases' gradients.
  work.backward_weight.memory_bytes = s.shape.bias ? s.traffic(s.rows, s.hidden + in, 1) : 0;
  work.backward_weight.kernels = s.shape.bias ? 2 : 0;
  work.residual = {.memory_bytes = s.traffic(s.own_rows, s.hidden, 3), .kernels = 1};
  add_norm(work, s);
  return work;
}

// Adds to backward_input what brings back the activations: of all of forward `last`, the columns that the last product reads,
// is not done again; selective recomputation does what is cheap.
void add_recompute(SegmentWork& work, const Sizes& s, Recompute recompute, double last, const PassWork& cheap) {
  PassWork& input = work.backward_input;
  if (recompute == Recompute::selective) {
    input += cheap;
  } else if (recompute == Recompute::full) {
    PassWork again = work.forward;
    again.matrix_flops -= s.product(last, s.hidden);
    --again.matrix_products;
    input += again;
  }
}

SegmentWork attention_work(const Sizes& s, int segment, Recompute recompute) {
  const auto qkv = static_cast<double>(s.shape.qkv_dim()), attention = static_cast<double>(s.shape.attention_dim());
  const auto normed = static_cast<double>((s.shape.heads + s.shape.kv_heads) * s.shape.head_dim);
  const bool rope = s.shape.position == Position::rope, norms = s.shape.qk_norm;
  // Scores and weighted sum.
  const double scores = 4 * s.rows * s.shape.mean_keys(segment, s.sequence) * attention;
  SegmentWork work = half_work(s, qkv, attention);
  work.forward.attention_flops = scores;
  work.forward.memory_bytes += s.traffic(s.rows, qkv, rope ? 3 : 1) + s.traffic(s.rows, attention, 1);
  work.forward.kernels += 1 + (rope ? 1 : 0);
  work.backward_input.attention_flops = 2.5 * scores;  // scores once more, and four products of the same size
  work.backward_input.memory_bytes += s.traffic(s.rows, qkv, rope ? 4 : 2) + s.traffic(s.rows, attention, 3);
  work.backward_input.kernels += 2 + (rope ? 1 : 0);
  PassWork cheap;
  if (norms) {
    const PassWork norm{.memory_bytes = s.traffic(s.rows, qkv, 2), .kernels = 1};
    cheap = {.memory_bytes = s.traffic(s.rows, qkv, rope ? 4 : 2), .kernels = rope ? 2 : 1};
    work.forward += norm;
    work.backward_input += {.memory_bytes = s.traffic(s.rows, normed, 3), .kernels = 2};
    work.backward_weight.kernels += 2;
  }
  add_recompute(work, s, recompute, attention, cheap);
  return work;
}

SegmentWork mlp_work(const Sizes& s, Recompute recompute) {
  const auto up = static_cast<double>(s.shape.up_dim()), ffn = static_cast<double>(s.shape.ffn);
  SegmentWork work = half_work(s, up, ffn);
  work.forward.memory_bytes += s.traffic(s.rows, up + ffn, 1);
  work.forward.kernels += s.shape.mlp == Mlp::swiglu ? 1 : 0;
  work.backward_input.memory_bytes += s.traffic(s.rows, up + ffn, 2);
  work.backward_input.kernels += 1;
  add_recompute(work, s, recompute, ffn, {.memory_bytes = s.traffic(s.rows, up + ffn, 1), .kernels = 1});
  return work;
}

}  // namespace

PassWork& PassWork::operator+=(const PassWork& other) {
  matrix_flops += other.matrix_flops;
  matrix_products += other.matrix_products;
  attention_flops += other.attention_flops;
  memory_bytes += other.memory_bytes;
  kernels += other.kernels;
  return *this;
}

SegmentWork segment_work(const SegmentSizes& sizes, int segment) {
  const Sizes s(sizes);
  switch (sizes.shape.kind(segment)) {
    case SegmentKind::embedding: return embedding_work(s);
    case SegmentKind::attention: return attention_work(s, segment, sizes.recompute);
    case SegmentKind::mlp: return mlp_work(s, sizes.recompute);
    case SegmentKind::head: return head_work(s);
  }
  throw InternalError("segment_work: unknown kind of segment");
}

}  // namespace plait::model
