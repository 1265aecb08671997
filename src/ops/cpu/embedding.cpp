#include <algorithm>
#include <numeric>
#include <vector>

#include "ops/cpu/types.h"
#include "ops/implementations.h"

namespace plait::ops::cpu {
namespace {

// The table row of each token, or -1 where it is in another part of the vocabulary.
class TableRows {
 public:
  TableRows(const View& tokens, const View& table, std::int64_t first_token)
      : tokens_(tokens.as<std::int32_t>()), first_token_(first_token), count_(table.shape[0]) {}
  std::int64_t operator[](std::int64_t row) const {
    const std::int64_t entry = tokens_[row] - first_token_;
    return entry >= 0 && entry < count_ ? entry : -1;
  }

 private:
  const std::int32_t* tokens_;
  std::int64_t first_token_, count_;
};

std::int64_t position_of(std::int64_t row, std::int64_t sequence, const View& starts) {
  return row % sequence - (starts ? starts.as<std::int32_t>()[row] : 0);
}

template <typename T>
void forward(const EmbeddingForward& args) {
  const std::int64_t rows = args.y.shape[0], dim = args.y.shape[1];
  const TableRows entries(args.tokens, args.tokens_table, args.first_token);
  const std::vector<T> zeros(static_cast<std::size_t>(dim), T(Arithmetic<T>(0)));
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t entry = entries[row];
    const T* token = entry < 0 ? zeros.data() : args.tokens_table.as<T>() + entry * dim;
    T* y = args.y.as<T>() + row * dim;
    if (!args.positions_table) {
      std::copy(token, token + dim, y);
      continue;
    }
    const T* position = args.positions_table.as<T>() + position_of(row, args.sequence, args.starts) * dim;
    for (std::int64_t i = 0; i < dim; ++i) y[i] = store<T>(load(token[i]) + load(position[i]));
  }
}

// table[index[k]] += dy[rows[k]], where equal indices are neighbours: one rounding per table row, for any G.
template <typename T, typename G>
void add_rows(const std::vector<std::int64_t>& rows, const auto& index_of, const T* dy, G* table, std::int64_t dim) {
  std::vector<Arithmetic<G>> sums(static_cast<std::size_t>(dim));
  for (std::size_t k = 0; k < rows.size();) {
    const std::int64_t index = index_of(rows[k]);
    G* entry = table + index * dim;
    for (std::int64_t i = 0; i < dim; ++i) sums[static_cast<std::size_t>(i)] = load(entry[i]);
    for (; k < rows.size() && index_of(rows[k]) == index; ++k) {
      const T* from = dy + rows[k] * dim;
      for (std::int64_t i = 0; i < dim; ++i) sums[static_cast<std::size_t>(i)] += load(from[i]);
    }
    for (std::int64_t i = 0; i < dim; ++i) entry[i] = store<G>(sums[static_cast<std::size_t>(i)]);
  }
}

template <typename T, typename G>
void backward(const EmbeddingBackward& args) {
  const std::int64_t dim = args.dy.shape[1];
  const TableRows entries(args.tokens, args.dtokens_table, args.first_token);
  const T* dy = args.dy.as<T>();
  std::vector<std::int64_t> rows(static_cast<std::size_t>(args.dy.shape[0]));
  std::iota(rows.begin(), rows.end(), 0);
  const auto add_by = [&](const View& gradient, bool accumulate, const auto& index_of) {
    G* table = gradient.as<G>();
    if (!accumulate) std::fill(table, table + gradient.elements(), G(Arithmetic<G>(0)));
    std::stable_sort(rows.begin(), rows.end(), [&](std::int64_t a, std::int64_t b) { return index_of(a) < index_of(b); });
    add_rows(rows, index_of, dy, table, dim);
  };
  if (args.dpositions_table) {
    add_by(args.dpositions_table, args.accumulate_positions,
           [&](std::int64_t row) { return position_of(row, args.sequence, args.starts); });
    std::sort(rows.begin(), rows.end());
  }
  std::erase_if(rows, [&](std::int64_t row) { return entries[row] < 0; });
  add_by(args.dtokens_table, args.accumulate_tokens, [&](std::int64_t row) { return entries[row]; });
}

}  // namespace

void embedding_forward(StreamRef stream, const EmbeddingForward& args) {
  enqueue(stream, args.y.dtype, [args]<typename T>(std::type_identity<T>) { forward<T>(args); });
}

void embedding_backward(StreamRef stream, OpContext&, const EmbeddingBackward& args) {
  enqueue(stream, args.dy.dtype, args.dtokens_table.dtype,
          [args]<typename T, typename G>(std::type_identity<T>, std::type_identity<G>) { backward<T, G>(args); });
}

}  // namespace plait::ops::cpu
