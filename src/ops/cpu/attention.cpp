// Causal attention on the host, one block of query rows of one head at a time: only the keys a block may see are multiplied.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/cpu/gemm.h"
#include "ops/cpu/math.h"
#include "ops/cpu/types.h"
#include "ops/implementations.h"

namespace plait::ops::cpu {
namespace {

constexpr std::int64_t block_rows = 64;

// Where the parts of a packed buffer lie, in elements from the start of a batch entry's first row.
struct Packing {
  explicit Packing(const AttentionShape& s)
      : row((s.heads + 2 * s.kv_heads) * s.head_dim),
        out_row(s.heads * s.head_dim),
        head_dim(s.head_dim),
        keys(s.heads * s.head_dim),
        values((s.heads + s.kv_heads) * s.head_dim),
        group(s.heads / s.kv_heads) {}
  std::int64_t query_of(std::int64_t head) const { return head * head_dim; }
  std::int64_t key_of(std::int64_t head) const { return keys + head / group * head_dim; }
  std::int64_t value_of(std::int64_t head) const { return values + head / group * head_dim; }
  std::int64_t row, out_row, head_dim, keys, values, group;
};

// scores[i, 0 .. visible) = exp(scores[i] - shift); what lies behind the diagonal becomes 0.
template <typename A>
void exponentiate_row(A* scores, std::int64_t visible, std::int64_t columns, A shift) {
  for (std::int64_t j = 0; j < visible; ++j) scores[j] = exponential(scores[j] - shift);
  std::fill(scores + visible, scores + columns, A(0));
}

template <typename A>
void forward(const AttentionShape& s, const A* qkv, A* out, A* lse) {
  const Packing at(s);
  const A scale = static_cast<A>(1.0 / std::sqrt(static_cast<double>(s.head_dim)));
  std::vector<A> scores(static_cast<std::size_t>(std::min(block_rows, s.sequence) * s.sequence));
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const A* base = qkv + b * s.sequence * at.row;
      for (std::int64_t first = 0; first < s.sequence; first += block_rows) {
        const std::int64_t rows = std::min(block_rows, s.sequence - first), columns = first + rows;
        const A* q = base + first * at.row + at.query_of(h);
        gemm<A>(rows, columns, s.head_dim, scale, {q, at.row}, {base + at.key_of(h), at.row, Transpose::yes}, 0, scores.data(),
                columns);
        for (std::int64_t i = 0; i < rows; ++i) {
          A* row = scores.data() + i * columns;
          const std::int64_t visible = first + i + 1;
          const A most = largest<A>(visible, [&](std::int64_t j) { return row[j]; });
          exponentiate_row(row, visible, columns, most);
          const A total = ordered_sum<A>(visible, [&](std::int64_t j) { return row[j]; });
          const A inverse = 1 / total;
          for (std::int64_t j = 0; j < visible; ++j) row[j] *= inverse;
          lse[(b * s.heads + h) * s.sequence + first + i] = most + std::log(total);
        }
        gemm<A>(rows, s.head_dim, columns, 1, {scores.data(), columns}, {base + at.value_of(h), at.row}, 0,
                out + (b * s.sequence + first) * at.out_row + h * s.head_dim, at.out_row);
      }
    }
  }
}

template <typename A>
void backward(const AttentionShape& s, const A* qkv, const A* out, const A* lse, const A* dout, A* dqkv) {
  const Packing at(s);
  const A scale = static_cast<A>(1.0 / std::sqrt(static_cast<double>(s.head_dim)));
  const std::size_t scratch = static_cast<std::size_t>(std::min(block_rows, s.sequence) * s.sequence);
  std::vector<A> probabilities(scratch), dscores(scratch);
  for (std::int64_t row = 0; row < s.batch * s.sequence; ++row) {
    std::fill(dqkv + row * at.row + at.keys, dqkv + (row + 1) * at.row, A(0));  // keys and values accumulate below
  }
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const A* base = qkv + b * s.sequence * at.row;
      A* dbase = dqkv + b * s.sequence * at.row;
      for (std::int64_t first = 0; first < s.sequence; first += block_rows) {
        const std::int64_t rows = std::min(block_rows, s.sequence - first), columns = first + rows;
        const std::int64_t out_offset = (b * s.sequence + first) * at.out_row + h * s.head_dim;
        const A* q = base + first * at.row + at.query_of(h);
        A* p = probabilities.data();
        A* ds = dscores.data();
        gemm<A>(rows, columns, s.head_dim, scale, {q, at.row}, {base + at.key_of(h), at.row, Transpose::yes}, 0, p, columns);
        gemm<A>(rows, columns, s.head_dim, 1, {dout + out_offset, at.out_row}, {base + at.value_of(h), at.row, Transpose::yes},
                0, ds, columns);
        for (std::int64_t i = 0; i < rows; ++i) {
          A* p_row = p + i * columns;
          A* ds_row = ds + i * columns;
          const std::int64_t visible = first + i + 1;
          exponentiate_row(p_row, visible, columns, lse[(b * s.heads + h) * s.sequence + first + i]);
          const A* o = out + out_offset + i * at.out_row;
          const A* d_o = dout + out_offset + i * at.out_row;
          const A dot = ordered_sum<A>(s.head_dim, [&](std::int64_t d) { return o[d] * d_o[d]; });
          for (std::int64_t j = 0; j < visible; ++j) ds_row[j] = p_row[j] * (ds_row[j] - dot);
          std::fill(ds_row + visible, ds_row + columns, A(0));
        }
        gemm<A>(columns, s.head_dim, rows, 1, {p, columns, Transpose::yes}, {dout + out_offset, at.out_row}, 1,
                dbase + at.value_of(h), at.row);
        gemm<A>(columns, s.head_dim, rows, scale, {ds, columns, Transpose::yes}, {q, at.row}, 1, dbase + at.key_of(h), at.row);
        gemm<A>(rows, s.head_dim, columns, scale, {ds, columns}, {base + at.key_of(h), at.row}, 0,
                dbase + first * at.row + at.query_of(h), at.row);
      }
    }
  }
}

}  // namespace

void attention_forward(StreamRef stream, OpContext&, const AttentionForward& args) {
  stream.enqueue_host([args] {
    with_type(args.qkv.dtype, [&]<typename T>(std::type_identity<T>) {
      const Operand<T> qkv(args.qkv);
      Result<T> out(args.out);
      forward(args.shape, qkv.data(), out.data(), args.lse.as<Arithmetic<T>>());
      out.finish();
    });
  });
}

void attention_backward(StreamRef stream, OpContext&, const AttentionBackward& args) {
  stream.enqueue_host([args] {
    with_type(args.qkv.dtype, [&]<typename T>(std::type_identity<T>) {
      const Operand<T> qkv(args.qkv), out(args.out), dout(args.dout);
      Result<T> dqkv(args.dqkv);
      backward(args.shape, qkv.data(), out.data(), args.lse.as<Arithmetic<T>>(), dout.data(), dqkv.data());
      dqkv.finish();
    });
  });
}

}  // namespace plait::ops::cpu
