// Element types on the host: the type in which an element is computed, and the conversions to and from it.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "core/dtype.h"
#include "core/error.h"
#include "core/stream.h"
#include "core/view.h"

namespace plait::ops::cpu {

// bf16 is only storage.
template <typename T>
using Arithmetic = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;

// The type of statistics and losses for elements of type T (see statistics_type()).
template <typename T>
using Statistic = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T>
Arithmetic<T> load(T value) {
  return static_cast<Arithmetic<T>>(value);
}
template <typename T>
T store(Arithmetic<T> value) {
  return T(value);
}

// Calls f(std::type_identity<T>{}) for the T that `dtype` names.
template <typename F>
void with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: return f(std::type_identity<float>{});
    case DType::f64: return f(std::type_identity<double>{});
    case DType::bf16: return f(std::type_identity<BFloat16>{});
    default: throw InternalError("host op: no arithmetic with " + std::string(to_string(dtype)));
  }
}

// Calls f for a parameter gradient's type G with compute type T: T itself or, for bf16, f32.
template <typename T, typename F>
void with_gradient_type(DType dtype, F&& f) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (dtype == DType::f32) return f(std::type_identity<float>{});
  }
  f(std::type_identity<T>{});
}

// Enqueues f(std::type_identity<T>{}) on a host stream, for the T that `dtype` names.
template <typename F>
void enqueue(StreamRef stream, DType dtype, F f) {
  stream.enqueue_host([dtype, f = std::move(f)] { with_type(dtype, f); });
}

// Enqueues f(std::type_identity<T>{}, std::type_identity<G>{}), also with the type of a parameter's gradient.
template <typename F>
void enqueue(StreamRef stream, DType dtype, DType gradient, F f) {
  enqueue(stream, dtype, [gradient, f = std::move(f)]<typename T>(std::type_identity<T> type) {
    with_gradient_type<T>(gradient, [&](auto gradient_type) { f(type, gradient_type); });
  });
}

// The elements of a tensor as numbers to compute with: its own memory, or for bf16 a float copy.
template <typename T>
class Operand {
 public:
  explicit Operand(const View& view) : data_(reinterpret_cast<const Arithmetic<T>*>(view.as<T>())) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      const std::int64_t count = view.elements();
      copy_ = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(count));
      const BFloat16* from = view.as<BFloat16>();
      for (std::int64_t i = 0; i < count; ++i) copy_[static_cast<std::size_t>(i)] = load(from[i]);
      data_ = copy_.get();
    }
  }
  const Arithmetic<T>* data() const { return data_; }

 private:
  std::unique_ptr<float[]> copy_;
  const Arithmetic<T>* data_;
};

// The buffer in which a result of type T is computed: its own memory, or for bf16 float scratch that finish() rounds into it.
template <typename T>
class Result {
 public:
  explicit Result(const View& view) : view_(view) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      scratch_ = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(view.elements()));
      data_ = scratch_.get();
    } else {
      data_ = view.as<T>();
    }
  }
  Arithmetic<T>* data() { return data_; }
  // Starts from the values already in the result.
  void load_present() {
    if constexpr (std::is_same_v<T, BFloat16>) {
      const BFloat16* from = view_.as<BFloat16>();
      for (std::int64_t i = 0, n = view_.elements(); i < n; ++i) data_[i] = load(from[i]);
    }
  }
  void finish() {
    if constexpr (std::is_same_v<T, BFloat16>) {
      BFloat16* to = view_.as<BFloat16>();
      for (std::int64_t i = 0, n = view_.elements(); i < n; ++i) to[i] = store<BFloat16>(data_[i]);
    }
  }

 private:
  View view_;
  std::unique_ptr<float[]> scratch_;
  Arithmetic<T>* data_ = nullptr;
};

}  // namespace plait::ops::cpu
