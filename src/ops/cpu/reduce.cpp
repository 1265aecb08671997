#include "ops/reduce.h"

#include <algorithm>
#include <vector>

#include "ops/cpu/column_sums.h"
#include "ops/cpu/math.h"
#include "ops/cpu/types.h"
#include "ops/implementations.h"

namespace plait::ops::cpu {

void sum_rows(StreamRef stream, OpContext&, View x, const RowSums& sums) {
  enqueue(stream, x.dtype, sums.out.dtype, [x, sums]<typename T, typename G>(std::type_identity<T>, std::type_identity<G>) {
    sum_rows<T>(x, sums.out.as<G>(), sums.accumulate);
  });
}

namespace {

// Sums blocks of 4096 neighbours first, then their sums.
template <typename Term>
double blocked_sum(std::int64_t count, Term term) {
  constexpr std::int64_t block = 4096;
  return ordered_sum<double>((count + block - 1) / block, [&](std::int64_t b) {
    const std::int64_t first = b * block;
    return ordered_sum<double>(std::min(block, count - first), [&](std::int64_t i) { return term(first + i); });
  });
}

template <typename S>
void put(const View& out, double value, bool accumulate) {
  S* to = out.as<S>();
  *to = static_cast<S>(accumulate ? static_cast<double>(*to) + value : value);
}

}  // namespace

void sum(StreamRef stream, OpContext&, View values, View out, float scale, bool accumulate) {
  enqueue(stream, values.dtype, [=]<typename T>(std::type_identity<T>) {
    const T* from = values.as<T>();
    const double total = blocked_sum(values.elements(), [from](std::int64_t i) { return load(from[i]); });
    put<Statistic<T>>(out, static_cast<double>(scale) * total, accumulate);
  });
}

void sum_of_squares(StreamRef stream, OpContext&, std::span<const View> parts, View out) {
  enqueue(stream, parts.front().dtype,
          [parts = std::vector<View>(parts.begin(), parts.end()), out]<typename T>(std::type_identity<T>) {
            double total = 0;
            for (const View& part : parts) {
              total += blocked_sum(part.elements(), [from = part.as<T>()](std::int64_t i) {
                const double value = static_cast<double>(load(from[i]));
                return value * value;
              });
            }
            put<Statistic<T>>(out, total, false);
          });
}

void count_ignored(StreamRef stream, View targets, View out, bool accumulate) {
  stream.enqueue_host([=] {
    const auto* from = targets.as<std::int32_t>();
    const auto ignored = static_cast<double>(std::count(from, from + targets.elements(), -1));
    with_type(out.dtype, [&]<typename T>(std::type_identity<T>) { put<Statistic<T>>(out, ignored, accumulate); });
  });
}

}  // namespace plait::ops::cpu
