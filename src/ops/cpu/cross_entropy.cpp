#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/math.h"
#include "ops/cpu/types.h"
#include "ops/implementations.h"

namespace plait::ops::cpu {
namespace {

template <typename A>
constexpr A minus_infinity = -std::numeric_limits<A>::infinity();

// The logits [rows, columns] that a call works on, of which columns >= vocab are padding.
template <typename T>
class LogitRows {
 public:
  using A = Arithmetic<T>;
  LogitRows(const View& logits, std::int64_t vocab)
      : logits_(logits.as<T>()),
        columns_(logits.shape[1]),
        vocab_(vocab),
        exponentials_(std::make_unique_for_overwrite<A[]>(static_cast<std::size_t>(vocab))) {}

  A logit(std::int64_t row, std::int64_t column) const { return load(at(row)[column]); }

  A most(std::int64_t row) const {
    const T* from = at(row);
    return vocab_ == 0 ? minus_infinity<A> : largest<A>(vocab_, [&](std::int64_t i) { return load(from[i]); });
  }

  // exp(logit - shift) of a row, kept until the next call, and their sum.
  void exponentiate(std::int64_t row, A shift) {
    const T* from = at(row);
    A* to = exponentials_.get();
    for (std::int64_t i = 0; i < vocab_; ++i) to[i] = exponential(load(from[i]) - shift);
  }
  double sum() const {
    return ordered_sum<double>(vocab_, [&](std::int64_t i) { return exponentials_[static_cast<std::size_t>(i)]; });
  }

  // Turns the logits of the row exponentiated last into (exponential / total - onehot) * scale; target -1: not in these
  // columns.
  void write_gradient(std::int64_t row, double total, A scale, std::int64_t target) {
    T* to = at(row);
    const A* from = exponentials_.get();
    const A factor = static_cast<A>(static_cast<double>(scale) / total);
    for (std::int64_t i = 0; i < vocab_; ++i) to[i] = store<T>(from[i] * factor);
    if (target >= 0) to[target] = store<T>(from[target] * factor - scale);
    std::fill(to + vocab_, to + columns_, T(A(0)));
  }
  void write_zeros(std::int64_t row) { std::fill(at(row), at(row) + columns_, T(A(0))); }

 private:
  T* at(std::int64_t row) const { return logits_ + row * columns_; }

  T* logits_;
  std::int64_t columns_, vocab_;
  std::unique_ptr<A[]> exponentials_;
};

void require_in_vocabulary(bool holds) { require(holds, "cross_entropy: a target outside the vocabulary"); }

template <typename T>
void whole_rows(const CrossEntropy& args) {
  using A = Arithmetic<T>;
  const std::int32_t* targets = args.targets.as<std::int32_t>();
  A* losses = args.losses.as<A>();
  LogitRows<T> logits(args.logits, args.vocab);
  for (std::int64_t row = 0; row < args.logits.shape[0]; ++row) {
    const std::int64_t target = targets[row];
    if (target == -1) {
      losses[row] = 0;
      if (args.write_gradient) logits.write_zeros(row);
      continue;
    }
    require_in_vocabulary(target >= 0 && target < args.vocab);
    const A most = logits.most(row);
    logits.exponentiate(row, most);
    const double total = logits.sum();
    losses[row] = static_cast<A>(std::log(total)) + most - logits.logit(row, target);
    if (args.write_gradient) logits.write_gradient(row, total, args.scale, target);
  }
}

// The part's column of a target; -1 if it has none.
std::int64_t column_of(std::int64_t target, std::int64_t first_token, std::int64_t vocab, std::int64_t columns) {
  const std::int64_t column = target - first_token;
  require_in_vocabulary(target >= -1 && (column < vocab || column >= columns));
  return column >= 0 && column < vocab ? column : -1;
}

// The number to subtract from logits whose largest is `most`: -inf - -inf is not a number.
template <typename A>
A finite_shift(A most) {
  return most == minus_infinity<A> ? A(0) : most;
}

template <typename T>
void part_statistics(const CrossEntropyStatistics& args) {
  using A = Arithmetic<T>;
  const std::int32_t* targets = args.targets.as<std::int32_t>();
  A* statistics = args.statistics.as<A>();
  LogitRows<T> logits(args.logits, args.vocab);
  for (std::int64_t row = 0; row < args.logits.shape[0]; ++row) {
    const std::int64_t target = column_of(targets[row], args.first_token, args.vocab, args.logits.shape[1]);
    const A most = logits.most(row);
    logits.exponentiate(row, finite_shift(most));
    statistics[row * 3] = most;
    statistics[row * 3 + 1] = static_cast<A>(logits.sum());
    statistics[row * 3 + 2] = target < 0 ? A(0) : logits.logit(row, target);
  }
}

template <typename T>
void part_finish(const CrossEntropyFinish& args) {
  using A = Arithmetic<T>;
  const std::int64_t rows = args.logits.shape[0], ranks = args.statistics.shape[0];
  const std::int32_t* targets = args.targets.as<std::int32_t>();
  A* losses = args.losses.as<A>();
  LogitRows<T> logits(args.logits, args.vocab);
  for (std::int64_t row = 0; row < rows; ++row) {
    if (targets[row] == -1) {
      losses[row] = 0;
      if (args.write_gradient) logits.write_zeros(row);
      continue;
    }
    const auto of_rank = [&](std::int64_t rank) { return args.statistics.as<A>() + (rank * rows + row) * 3; };
    const A most = largest<A>(ranks, [&](std::int64_t rank) { return of_rank(rank)[0]; });
    const A shift = finite_shift(most);
    double total = 0;
    A target_logit = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const A* statistics = of_rank(rank);
      total += static_cast<double>(statistics[1]) * std::exp(static_cast<double>(statistics[0]) - static_cast<double>(shift));
      target_logit += statistics[2];
    }
    losses[row] = static_cast<A>(std::log(total)) + most - target_logit;
    if (!args.write_gradient) continue;
    logits.exponentiate(row, shift);
    logits.write_gradient(row, total, args.scale, column_of(targets[row], args.first_token, args.vocab, args.logits.shape[1]));
  }
}

}  // namespace

void cross_entropy(StreamRef stream, const CrossEntropy& args) {
  enqueue(stream, args.logits.dtype, [args]<typename T>(std::type_identity<T>) { whole_rows<T>(args); });
}

void cross_entropy_statistics(StreamRef stream, const CrossEntropyStatistics& args) {
  enqueue(stream, args.logits.dtype, [args]<typename T>(std::type_identity<T>) { part_statistics<T>(args); });
}

void cross_entropy_finish(StreamRef stream, const CrossEntropyFinish& args) {
  enqueue(stream, args.logits.dtype, [args]<typename T>(std::type_identity<T>) { part_finish<T>(args); });
}

}  // namespace plait::ops::cpu
