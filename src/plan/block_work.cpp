#include "plan/block_work.h"

#include "core/error.h"

namespace plait::plan {
namespace {

// Of the rate of products, what fused attention kernels reach: 600 of 790 TFLOP/s forward with long sequences on H200, less
// with short ones and in backward.
constexpr double attention_rate = 0.6;

struct Sizes {
  explicit Sizes(const model::BlockSizes& s)
      : shape(s.shape.local(s.split.size)),
        tensor(s.split.size),
        sequence_parallel(s.split.sequence_parallel),
        rows(static_cast<double>(s.micro_batch.rows())),
        own_rows(static_cast<double>(s.own_rows())),
        sequence(static_cast<double>(s.micro_batch.sequence)),
        hidden(static_cast<double>(s.shape.hidden)),
        bytes(static_cast<double>(size_of(s.compute))) {}

  model::ModelShape shape;  // this rank's
  int tensor;
  bool sequence_parallel;
  double rows, own_rows, sequence, hidden, bytes;

  double product(double in, double out) const { return 2 * rows * in * out; }
  // Reads and writes of `tensors` tensors of `columns` columns.
  double traffic(double of_rows, double columns, double tensors) const { return of_rows * columns * tensors * bytes; }

  void gather(PassWork& work) const {
    if (sequence_parallel) ++work.gathers;
  }
  void sum(PassWork& work) const {
    if (sequence_parallel) {
      ++work.scatters;
    } else if (tensor > 1) {
      ++work.all_reduces;
    }
  }
  PassWork empty() const {
    PassWork work;
    work.collective_bytes = tensor > 1 ? rows * hidden * bytes : 0;
    return work;
  }
};

BlockWork embedding_work(const Sizes& s) {
  BlockWork work{s.empty(), s.empty(), s.empty()};
  work.forward.memory_bytes = s.traffic(s.rows, s.hidden, 3);
  work.forward.kernels = 1;
  s.sum(work.forward);
  s.gather(work.backward_weight);  // the gradient of its output
  work.backward_weight.memory_bytes = s.traffic(s.rows, s.hidden, 3);
  work.backward_weight.kernels = 2;
  return work;
}

BlockWork head_work(const Sizes& s) {
  const auto vocab = static_cast<double>(s.shape.padded_vocab);
  BlockWork work{s.empty(), s.empty(), s.empty()};
  work.forward.matrix_flops = s.product(s.hidden, vocab);
  work.forward.matrix_products = 1;
  work.forward.memory_bytes =
      s.traffic(s.own_rows, s.hidden, 2) + s.traffic(s.rows, vocab, 3);  // norm; losses and their gradient
  work.forward.kernels = 3;
  s.gather(work.forward);
  work.backward_input.matrix_flops = s.product(s.hidden, vocab);
  work.backward_input.matrix_products = 1;
  work.backward_input.memory_bytes = s.traffic(s.own_rows, s.hidden, 4);
  work.backward_input.kernels = 2;
  s.sum(work.backward_input);
  work.backward_weight.matrix_flops = s.product(s.hidden, vocab);
  work.backward_weight.matrix_products = 1;
  return work;
}

BlockWork transformer_work(const Sizes& s, model::Recompute recompute) {
  const auto qkv = static_cast<double>(s.shape.qkv_dim()), attention = static_cast<double>(s.shape.attention_dim());
  const auto up = static_cast<double>(s.shape.up_dim()), ffn = static_cast<double>(s.shape.ffn);
  const bool swiglu = s.shape.mlp == model::Mlp::swiglu, rope = s.shape.position == model::Position::rope;
  const double products =
      s.product(s.hidden, qkv) + s.product(attention, s.hidden) + s.product(s.hidden, up) + s.product(ffn, s.hidden);
  // Scores and weighted sum, of which the causal half is computed.
  const double scores = 2 * s.rows * s.sequence * attention;

  BlockWork work{s.empty(), s.empty(), s.empty()};
  PassWork& forward = work.forward;
  forward.matrix_flops = products;
  forward.matrix_products = 4;
  forward.attention_flops = scores;
  forward.memory_bytes = s.traffic(s.own_rows, s.hidden, 4) + s.traffic(s.rows, qkv, rope ? 3 : 1) +
                         s.traffic(s.rows, attention, 1) + s.traffic(s.rows, up + ffn, 1);
  forward.kernels = 2 + 1 + (rope ? 1 : 0) + (swiglu ? 1 : 0);
  for (int half = 0; half < 2; ++half) {
    s.gather(forward);
    s.sum(forward);
  }

  PassWork& input = work.backward_input;
  input.matrix_flops = products;
  input.matrix_products = 4;
  input.attention_flops = 2.5 * scores;  // scores once more, and four products of the same size
  input.memory_bytes = s.traffic(s.own_rows, s.hidden, 10) + s.traffic(s.rows, qkv, rope ? 4 : 2) +
                       s.traffic(s.rows, attention, 3) + s.traffic(s.rows, up + ffn, 2);
  input.kernels = 2 * 2 + 2 + (rope ? 1 : 0) + 1;
  for (int half = 0; half < 2; ++half) {
    s.gather(input);
    s.sum(input);
  }
  if (recompute == model::Recompute::selective) {
    input.memory_bytes += s.traffic(s.own_rows, s.hidden, 4) + s.traffic(s.rows, up + ffn, 1);
    input.kernels += 3;
    for (int half = 0; half < 2; ++half) s.gather(input);
  } else if (recompute == model::Recompute::full) {  // all but the last product
    PassWork again = forward;
    again.matrix_flops -= s.product(ffn, s.hidden);
    --again.matrix_products;
    (s.sequence_parallel ? again.scatters : again.all_reduces) -= s.tensor > 1 ? 1 : 0;
    input += again;
  }

  PassWork& weight = work.backward_weight;
  weight.matrix_flops = products;
  weight.matrix_products = 4;
  weight.memory_bytes = s.shape.bias ? s.traffic(s.rows, 2 * s.hidden + qkv + up, 1) : 0;  // sums of the biases' gradients
  weight.kernels = s.shape.bias ? 4 : 0;
  return work;
}

}  // namespace

PassWork& PassWork::operator+=(const PassWork& other) {
  matrix_flops += other.matrix_flops;
  matrix_products += other.matrix_products;
  attention_flops += other.attention_flops;
  memory_bytes += other.memory_bytes;
  kernels += other.kernels;
  gathers += other.gathers;
  scatters += other.scatters;
  all_reduces += other.all_reduces;
  return *this;
}

BlockWork block_work(const model::BlockSizes& sizes, int block) {
  require(block >= 0 && block < sizes.shape.blocks(), "block_work: no such block");
  const Sizes s(sizes);
  if (block == 0) return embedding_work(s);
  if (block == sizes.shape.head_block()) return head_work(s);
  return transformer_work(s, sizes.recompute);
}

double seconds_of(const PassWork& work, const topology::DeviceProfile& profile, DType dtype) {
  const double rate = topology::matrix_flops(profile, dtype);
  double seconds = work.matrix_flops / rate + work.matrix_products * profile.matrix_seconds;
  if (work.attention_flops > 0) seconds += work.attention_flops / (attention_rate * rate) + profile.matrix_seconds;
  return seconds + work.memory_bytes / profile.memory_bytes_per_s + work.kernels * profile.kernel_seconds;
}

}  // namespace plait::plan
