#include "ops/reduce.h"

#include "ops/argument_check.h"
#include "ops/implementations.h"

namespace plait::ops {

void sum_rows(StreamRef stream, OpContext& context, View x, const RowSums& sums) {
  const ArgumentCheck check("sum_rows", stream, context);
  check.compute_tensor("x", x, 2);
  check.gradient("sums.out", sums.out, x.dtype, {x.shape[1]});
  return check.on_cuda() ? cuda::sum_rows(stream, context, x, sums) : cpu::sum_rows(stream, context, x, sums);
}

namespace {

void check_result(const ArgumentCheck& check, const View& out, DType dtype) {
  check.that(out && out.dtype == dtype && out.elements() >= 1, "out", dtype == DType::f64 ? "one f64" : "one f32",
             describe(out));
}

}  // namespace

void sum(StreamRef stream, OpContext& context, View values, View out, float scale, bool accumulate) {
  const ArgumentCheck check("sum", stream, context);
  check.compute_tensor("values", values, values.shape.rank());
  check.that(values.dtype != DType::bf16, "values", "f32 or f64", describe(values));
  check_result(check, out, values.dtype);
  return check.on_cuda() ? cuda::sum(stream, context, values, out, scale, accumulate)
                         : cpu::sum(stream, context, values, out, scale, accumulate);
}

void sum_of_squares(StreamRef stream, OpContext& context, std::span<const View> parts, View out) {
  const ArgumentCheck check("sum_of_squares", stream, context);
  for (const View& part : parts) {
    check.compute_tensor("parts", part, part.shape.rank());
    check.that(part.dtype == parts.front().dtype, "parts", "all of one type", describe(part));
  }
  check_result(check, out, parts.empty() ? out.dtype : statistics_type(parts.front().dtype));
  if (parts.empty()) return stream.zero(out.data, size_of(out.dtype));
  return check.on_cuda() ? cuda::sum_of_squares(stream, context, parts, out) : cpu::sum_of_squares(stream, context, parts, out);
}

void count_ignored(StreamRef stream, View targets, View out, bool accumulate) {
  const ArgumentCheck check("count_ignored", stream);
  check.tensor("targets", targets, DType::i32, targets.shape);
  check_result(check, out, out.dtype == DType::f64 && !check.on_cuda() ? DType::f64 : DType::f32);
  return check.on_cuda() ? cuda::count_ignored(stream, targets, out, accumulate)
                         : cpu::count_ignored(stream, targets, out, accumulate);
}

}  // namespace plait::ops
