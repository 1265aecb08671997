// Attention on the host, one block of query rows of one head at a time: only the keys a block may see are multiplied.
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

// Offsets of the parts of a packed buffer, in elements from the start of a batch entry's first row.
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

// Keys [begin, end).
struct Keys {
  std::int64_t begin = 0, end = 0;
};

// The keys that each row of one sequence sees.
class Sight {
 public:
  Sight(const AttentionShape& s, const View& starts, std::int64_t batch)
      : starts_(starts ? starts.as<std::int32_t>() + batch * s.sequence : nullptr), window_(s.window) {}
  Keys of(std::int64_t row) const {
    const std::int64_t start = starts_ ? starts_[row] : 0;
    return {window_ > 0 ? std::max(start, row - window_ + 1) : start, row + 1};
  }

 private:
  const std::int32_t* starts_;
  std::int64_t window_;
};

// Rows [first, first + rows). Their scores have a column for each key that any of them sees: from the first row's first key up
// to the last row's own.
struct Block {
  Block(const AttentionShape& s, const Sight& sight, std::int64_t first_row)
      : first(first_row),
        rows(std::min(block_rows, s.sequence - first_row)),
        first_key(sight.of(first_row).begin),
        columns(first_row + rows - first_key) {}
  // The keys that row i of the block sees, counted from first_key.
  Keys seen(const Sight& sight, std::int64_t i) const {
    const Keys keys = sight.of(first + i);
    return {keys.begin - first_key, keys.end - first_key};
  }
  std::int64_t first, rows, first_key, columns;
};

// scores[j] = exp(scores[j] - shift) for visible keys; the others become 0.
template <typename A>
void exponentiate_row(A* scores, Keys seen, std::int64_t columns, A shift) {
  std::fill(scores, scores + seen.begin, A(0));
  for (std::int64_t j = seen.begin; j < seen.end; ++j) scores[j] = exponential(scores[j] - shift);
  std::fill(scores + seen.end, scores + columns, A(0));
}

template <typename A>
void forward(const AttentionShape& s, const View& starts, const A* qkv, A* out, A* lse) {
  const Packing at(s);
  const A scale = static_cast<A>(1.0 / std::sqrt(static_cast<double>(s.head_dim)));
  std::vector<A> scores(static_cast<std::size_t>(std::min(block_rows, s.sequence) * s.sequence));
  for (std::int64_t b = 0; b < s.batch; ++b) {
    const Sight sight(s, starts, b);
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const A* base = qkv + b * s.sequence * at.row;
      for (std::int64_t first = 0; first < s.sequence; first += block_rows) {
        const Block block(s, sight, first);
        const std::int64_t rows = block.rows, columns = block.columns;
        const A *q = base + first * at.row + at.query_of(h), *seen_base = base + block.first_key * at.row;
        gemm<A>(rows, columns, s.head_dim, scale, {q, at.row}, {seen_base + at.key_of(h), at.row, Transpose::yes}, 0,
                scores.data(), columns);
        for (std::int64_t i = 0; i < rows; ++i) {
          A* row = scores.data() + i * columns;
          const Keys seen = block.seen(sight, i);
          const auto score = [row, seen](std::int64_t j) { return row[seen.begin + j]; };
          const A most = largest<A>(seen.end - seen.begin, score);
          exponentiate_row(row, seen, columns, most);
          const A total = ordered_sum<A>(seen.end - seen.begin, score);
          const A inverse = 1 / total;
          for (std::int64_t j = seen.begin; j < seen.end; ++j) row[j] *= inverse;
          lse[(b * s.heads + h) * s.sequence + first + i] = most + std::log(total);
        }
        gemm<A>(rows, s.head_dim, columns, 1, {scores.data(), columns}, {seen_base + at.value_of(h), at.row}, 0,
                out + (b * s.sequence + first) * at.out_row + h * s.head_dim, at.out_row);
      }
    }
  }
}

template <typename A>
void backward(const AttentionShape& s, const View& starts, const A* qkv, const A* out, const A* lse, const A* dout, A* dqkv) {
  const Packing at(s);
  const A scale = static_cast<A>(1.0 / std::sqrt(static_cast<double>(s.head_dim)));
  const std::size_t scratch = static_cast<std::size_t>(std::min(block_rows, s.sequence) * s.sequence);
  std::vector<A> probabilities(scratch), dscores(scratch);
  for (std::int64_t row = 0; row < s.batch * s.sequence; ++row) {
    std::fill(dqkv + row * at.row + at.keys, dqkv + (row + 1) * at.row, A(0));  // keys and values accumulate below
  }
  for (std::int64_t b = 0; b < s.batch; ++b) {
    const Sight sight(s, starts, b);
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const A* base = qkv + b * s.sequence * at.row;
      A* dbase = dqkv + b * s.sequence * at.row;
      for (std::int64_t first = 0; first < s.sequence; first += block_rows) {
        const Block block(s, sight, first);
        const std::int64_t rows = block.rows, columns = block.columns;
        const std::int64_t out_offset = (b * s.sequence + first) * at.out_row + h * s.head_dim;
        const A *q = base + first * at.row + at.query_of(h), *seen_base = base + block.first_key * at.row;
        A* seen_dbase = dbase + block.first_key * at.row;
        A* p = probabilities.data();
        A* ds = dscores.data();
        gemm<A>(rows, columns, s.head_dim, scale, {q, at.row}, {seen_base + at.key_of(h), at.row, Transpose::yes}, 0, p,
                columns);
        gemm<A>(rows, columns, s.head_dim, 1, {dout + out_offset, at.out_row},
                {seen_base + at.value_of(h), at.row, Transpose::yes}, 0, ds, columns);
        for (std::int64_t i = 0; i < rows; ++i) {
          A* p_row = p + i * columns;
          A* ds_row = ds + i * columns;
          const Keys seen = block.seen(sight, i);
          exponentiate_row(p_row, seen, columns, lse[(b * s.heads + h) * s.sequence + first + i]);
          const A* o = out + out_offset + i * at.out_row;
          const A* d_o = dout + out_offset + i * at.out_row;
          const A dot = ordered_sum<A>(s.head_dim, [&](std::int64_t d) { return o[d] * d_o[d]; });
          std::fill(ds_row, ds_row + seen.begin, A(0));
          for (std::int64_t j = seen.begin; j < seen.end; ++j) ds_row[j] = p_row[j] * (ds_row[j] - dot);
          std::fill(ds_row + seen.end, ds_row + columns, A(0));
        }
        gemm<A>(columns, s.head_dim, rows, 1, {p, columns, Transpose::yes}, {dout + out_offset, at.out_row}, 1,
                seen_dbase + at.value_of(h), at.row);
        gemm<A>(columns, s.head_dim, rows, scale, {ds, columns, Transpose::yes}, {q, at.row}, 1, seen_dbase + at.key_of(h),
                at.row);
        gemm<A>(rows, s.head_dim, columns, scale, {ds, columns}, {seen_base + at.key_of(h), at.row}, 0,
                dbase + first * at.row + at.query_of(h), at.row);
      }
    }
  }
}

}  // namespace

void attention_forward(StreamRef stream, OpContext&, const AttentionForward& args) {
  enqueue(stream, args.qkv.dtype, [args]<typename T>(std::type_identity<T>) {
    const Operand<T> qkv(args.qkv);
    Result<T> out(args.out);
    forward(args.shape, args.starts, qkv.data(), out.data(), args.lse.as<Arithmetic<T>>());
    out.finish();
  });
}

void attention_backward(StreamRef stream, OpContext&, const AttentionBackward& args) {
  enqueue(stream, args.qkv.dtype, [args]<typename T>(std::type_identity<T>) {
    const Operand<T> qkv(args.qkv), out(args.out), dout(args.dout);
    Result<T> dqkv(args.dqkv);
    backward(args.shape, args.starts, qkv.data(), out.data(), args.lse.as<Arithmetic<T>>(), dout.data(), dqkv.data());
    dqkv.finish();
  });
}

}  // namespace plait::ops::cpu
