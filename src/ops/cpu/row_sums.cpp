#include "ops/row_sums.h"

#include "ops/cpu/column_sums.h"
#include "ops/cpu/types.h"
#include "ops/implementations.h"

namespace plait::ops::cpu {

void sum_rows(StreamRef stream, OpContext&, View x, const RowSums& sums) {
  stream.enqueue_host([x, sums] {
    with_type(x.dtype, [&]<typename T>(std::type_identity<T>) {
      with_gradient_type<T>(sums.out.dtype,
                            [&]<typename G>(std::type_identity<G>) { sum_rows<T>(x, sums.out.as<G>(), sums.accumulate); });
    });
  });
}

}  // namespace plait::ops::cpu
