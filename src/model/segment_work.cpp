#include "model/segment_work.h"

#include <utility>

#include "core/error.h"

namespace plait::model {
namespace {

// Backward takes this many times the elementwise work of a fused attention kernel per score in forward: 1.4 to 1.8 times 0.4
// ps, and the cost of adding up the gradients of queries, as measured for cuDNN on H200 with heads of 64 and 128
// (docs/performance.md).
constexpr double backward_scores = 5;

struct Sizes {
  explicit Sizes(const SegmentSizes& s)
      : shape(s.shape.local(s.split.size)),
        tensor(s.split.size),
        sequence_parallel(s.split.sequence_parallel),
        rows(static_cast<double>(s.micro_batch.rows())),
        own_rows(static_cast<double>(s.own_rows())),
        sequence(s.micro_batch.sequence),
        hidden(static_cast<double>(s.shape.hidden)),
        bytes(static_cast<double>(size_of(s.compute))),
        operand_bytes(s.fp8 ? static_cast<double>(size_of(DType::e4m3)) : bytes),
        fp8(s.fp8),
        gathers_operands(model::gathers_operands(s, SegmentKind::mlp)) {}

  ModelShape shape;  // this rank's part
  int tensor;
  bool sequence_parallel;
  double rows, own_rows;
  std::int64_t sequence;
  double hidden, bytes;
  double operand_bytes;  // per element of an operand of a block's product
  bool fp8;
  bool gathers_operands;  // of first products

  double product(double in, double out) const { return 2 * rows * in * out; }
  // Bytes of a product: each of its three tensors once, two of them as operands. A weight's gradient costs more, since it is
  // accumulated in fp32.
  double product_bytes(double from, double to, double operand) const {
    return (rows + to) * from * operand + traffic(rows, to, 1);
  }
  double gradient_bytes(double in, double out, double operand) const {
    return rows * (in + out) * operand + in * out * 2 * sizeof(float);
  }
  // Quantizing an operand of `columns` columns: it is read, and written with one byte per element in one or both forms. If its
  // scale is unknown (operand()), it is first read for its largest magnitude.
  PassWork scaled_operand(double columns, int forms) const {
    if (!fp8) return {};
    return {.memory_bytes = traffic(rows, columns, 1) + forms * rows * columns, .kernels = 1};
  }
  PassWork operand(double columns, int forms) const {
    PassWork work = scaled_operand(columns, forms);
    if (fp8) work += {.memory_bytes = traffic(rows, columns, 1), .kernels = 1};
    return work;
  }
  // The operand of a first product, whose scale is known: rounded, unless it was gathered in rounded form.
  PassWork first_operand(int forms) const { return gathers_operands ? PassWork{} : scaled_operand(hidden, forms); }
  // The transposition of a gathered operand in the weight pass.
  PassWork turned_operand() const {
    return gathers_operands ? PassWork{.memory_bytes = 2 * rows * hidden, .kernels = 1} : PassWork{};
  }
  // Reads and writes of `tensors` tensors of `columns` columns.
  double traffic(double of_rows, double columns, double tensors) const { return of_rows * columns * tensors * bytes; }
};

SegmentWork embedding_work(const Sizes& s) {
  SegmentWork work;
  work.forward = {.memory_bytes = s.traffic(s.rows, s.hidden, 3), .kernels = 1};
  work.backward_weight = {.memory_bytes = s.traffic(s.rows, s.hidden, 3), .kernels = 2};
  return work;
}

// Adds the norm in front of a segment.
void add_norm(SegmentWork& work, const Sizes& s) {
  work.norm_forward = {.memory_bytes = s.traffic(s.own_rows, s.hidden, 2), .kernels = 1};
  work.norm_backward = {.memory_bytes = s.traffic(s.own_rows, s.hidden, 5), .kernels = 2};
  if (!s.gathers_operands) return;
  for (PassWork* pass : {&work.norm_forward, &work.norm_backward})
    *pass += {.memory_bytes = s.traffic(s.own_rows, s.hidden, 1) + s.own_rows * s.hidden, .kernels = 1};
}

SegmentWork head_work(const Sizes& s) {
  const auto vocab = static_cast<double>(s.shape.padded_vocab);
  SegmentWork work;
  for (PassWork* pass : {&work.forward, &work.backward_input, &work.backward_weight})
    *pass = {.matrix_flops = s.product(s.hidden, vocab), .matrix_products = 1};
  work.forward.matrix_bytes = s.product_bytes(s.hidden, vocab, s.bytes);
  work.backward_input.matrix_bytes = s.product_bytes(vocab, s.hidden, s.bytes);
  work.backward_weight.matrix_bytes = s.gradient_bytes(s.hidden, vocab, s.bytes);
  work.loss = {.memory_bytes = s.traffic(s.rows, vocab, 2), .kernels = 2};  // a row stays in the caches between the two kernels
  add_norm(work, s);
  return work;
}

// The common part of attention and MLP: a norm, a column-parallel product, and a row-parallel one back into the residual
// stream. `in` and `out`: this rank's columns of the first product's output and of the last one's input. `forms`: of FP8
// operands in forward; the transposed form is for the weight pass, unless backward computes the operand again. `scaled`: the
// tensors of `out` columns in forward and of `in` columns in backward come with their scales.
struct OperandForms {
  int first = 2, last = 2;
};
SegmentWork half_work(const Sizes& s, double in, double out, bool has_in_bias, OperandForms forms, bool scaled) {
  const double products = s.product(s.hidden, in) + s.product(out, s.hidden);
  SegmentWork work;
  const auto bytes = [&](double from, double to) { return s.product_bytes(from, to, s.operand_bytes); };
  for (PassWork* pass : {&work.forward, &work.backward_input, &work.backward_weight})
    *pass = {.matrix_flops = products, .fp8_flops = s.fp8 ? products : 0, .matrix_products = 2};
  work.forward.matrix_bytes = bytes(s.hidden, in) + bytes(out, s.hidden);
  work.backward_input.matrix_bytes = bytes(s.hidden, out) + bytes(in, s.hidden);
  work.backward_weight.matrix_bytes =
      s.gradient_bytes(s.hidden, in, s.operand_bytes) + s.gradient_bytes(out, s.hidden, s.operand_bytes);
  // Sums for the biases' gradients; for the last product, over this rank's own rows. With FP8 operands they are found during
  // rounding, unless other ranks round some of the rows.
  const auto add_sums = [&](bool rounded, double rows, double columns) {
    work.backward_weight += {.memory_bytes = rounded ? 0 : s.traffic(rows, columns, 1), .kernels = 1};
    work.backward_input.kernels += rounded ? 1 : 0;
  };
  if (s.shape.bias) add_sums(s.fp8 && !s.sequence_parallel, s.own_rows, s.hidden);
  if (has_in_bias) add_sums(s.fp8, s.rows, in);
  const auto last = [&](double from, double to, int of_operand) {
    PassWork part = s.scaled_operand(from, of_operand);
    part += PassWork{.matrix_flops = s.product(from, to),
                     .fp8_flops = s.fp8 ? s.product(from, to) : 0,
                     .matrix_bytes = bytes(from, to),
                     .matrix_products = 1};
    return part;
  };
  work.forward_last = last(out, s.hidden, forms.last);
  work.input_last = last(in, s.hidden, 2);
  work.forward += s.first_operand(forms.first);
  work.forward += scaled ? s.scaled_operand(out, forms.last) : s.operand(out, forms.last);
  work.backward_input += s.first_operand(2);
  for (int operand = 0; operand < 2; ++operand) work.backward_weight += s.turned_operand();
  work.backward_input += scaled ? s.scaled_operand(in, 2) : s.operand(in, 2);
  work.residual = {.memory_bytes = s.traffic(s.own_rows, s.hidden, 3), .kernels = 1};
  add_norm(work, s);
  return work;
}

// Adds the recomputation of activations to backward_input. Full recomputation repeats forward except for the product that reads
// `last` columns; selective recomputation repeats the cheap operations. `scaled` as in half_work().
void add_recompute(SegmentWork& work, const Sizes& s, Recompute recompute, double last, bool scaled, const PassWork& cheap) {
  PassWork& input = work.backward_input;
  if (recompute == Recompute::selective) {
    input += cheap;
  } else if (recompute == Recompute::full) {
    PassWork again = work.forward;
    again.matrix_flops -= s.product(last, s.hidden);
    if (s.fp8) again.fp8_flops -= s.product(last, s.hidden);
    // The scales are known. Both operands are quantized for the weight pass, the first also for its product.
    const auto quantize_again = [&](const PassWork& before, const PassWork& needed) {
      again.memory_bytes -= before.memory_bytes - needed.memory_bytes;
      again.kernels -= before.kernels - needed.kernels;
    };
    quantize_again(s.first_operand(1), s.first_operand(2));
    quantize_again(scaled ? s.scaled_operand(last, 1) : s.operand(last, 1), s.scaled_operand(last, 1));
    again.matrix_bytes -= s.product_bytes(last, s.hidden, s.operand_bytes);
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
  const OperandForms forms{.first = recompute == Recompute::none ? 2 : 1, .last = recompute == Recompute::full ? 1 : 2};
  SegmentWork work = half_work(s, qkv, attention, s.shape.qkv_bias, forms, false);
  work.forward.attention_flops = scores;
  work.forward.attention_scores = scores / static_cast<double>(4 * s.shape.head_dim);
  // The attention kernel's own memory traffic overlaps its arithmetic.
  work.forward.memory_bytes += s.traffic(s.rows, qkv, rope ? 2 : 0);
  work.forward.kernels += 1 + (rope ? 1 : 0);
  work.backward_input.attention_flops = 2.5 * scores;  // scores once more, and four products of the same size
  work.backward_input.attention_scores = backward_scores * work.forward.attention_scores;
  work.backward_input.memory_bytes += s.traffic(s.rows, qkv, rope ? 2 : 0) + s.traffic(s.rows, attention, 2);
  work.backward_input.kernels += 2 + (rope ? 1 : 0);
  PassWork cheap = s.first_operand(1);
  if (norms) {
    const PassWork norm{.memory_bytes = s.traffic(s.rows, qkv, 2), .kernels = 1};
    cheap += {.memory_bytes = s.traffic(s.rows, qkv, rope ? 4 : 2), .kernels = rope ? 2 : 1};
    work.forward += norm;
    work.backward_input += {.memory_bytes = s.traffic(s.rows, normed, 3), .kernels = 2};
    work.backward_weight.kernels += 2;
  }
  add_recompute(work, s, recompute, attention, false, cheap);
  return work;
}

SegmentWork mlp_work(const Sizes& s, Recompute recompute) {
  const auto up = static_cast<double>(s.shape.up_dim()), ffn = static_cast<double>(s.shape.ffn);
  const int forms = recompute == Recompute::none ? 2 : 1;
  SegmentWork work = half_work(s, up, ffn, s.shape.bias, {.first = forms, .last = forms}, true);
  // GELU and its derivative are fused into products, which then write or read one more tensor. With FP8 operands GELU is
  // computed where it is rounded, so its input is read once more for the scale, and its derivative is a pass of its own.
  const bool swiglu = s.shape.mlp == Mlp::swiglu, own_pass = swiglu || s.fp8;
  work.forward.memory_bytes += s.traffic(s.rows, swiglu ? up + ffn : ffn, 1);
  work.forward.kernels += own_pass ? 1 : 0;
  work.backward_input.memory_bytes += swiglu ? s.traffic(s.rows, up + ffn, 2) : s.traffic(s.rows, ffn, own_pass ? 3 : 1);
  work.backward_input.kernels += own_pass ? 1 : 0;
  // SwiGLU's backward reads the inputs of its product anyway, so it also recomputes that.
  PassWork cheap{.memory_bytes = s.traffic(s.rows, swiglu ? ffn : (s.fp8 ? 0 : up + ffn), 1), .kernels = own_pass ? 0 : 1};
  cheap += s.first_operand(1);
  cheap += s.scaled_operand(ffn, 1);
  add_recompute(work, s, recompute, ffn, true, cheap);
  if (recompute == Recompute::full && own_pass) {
    work.backward_input.memory_bytes -= s.traffic(s.rows, up, 1);
    work.backward_input.kernels -= 1;
  }
  return work;
}

}  // namespace

PassWork& PassWork::operator+=(const PassWork& other) {
  matrix_flops += other.matrix_flops;
  fp8_flops += other.fp8_flops;
  matrix_bytes += other.matrix_bytes;
  matrix_products += other.matrix_products;
  attention_flops += other.attention_flops;
  attention_scores += other.attention_scores;
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
