#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/types.h"

namespace plait::ops::cpu {

void convert(StreamRef stream, View from, View to) {
  stream.enqueue_host([=] {
    with_type(from.dtype, [&]<typename From>(std::type_identity<From>) {
      with_type(to.dtype, [&]<typename To>(std::type_identity<To>) {
        const From* source = from.as<From>();
        To* target = to.as<To>();
        for (std::int64_t i = 0, n = from.elements(); i < n; ++i)
          target[i] = store<To>(static_cast<Arithmetic<To>>(load(source[i])));
      });
    });
  });
}

void add(StreamRef stream, View x, View y) {
  stream.enqueue_host([=] {
    with_type(x.dtype, [&]<typename T>(std::type_identity<T>) {
      const T* from = x.as<T>();
      T* to = y.as<T>();
      for (std::int64_t i = 0, n = x.elements(); i < n; ++i) to[i] = store<T>(load(to[i]) + load(from[i]));
    });
  });
}

}  // namespace plait::ops::cpu
