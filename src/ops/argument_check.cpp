#include "ops/argument_check.h"

#include "core/error.h"
#include "ops/quantize.h"

namespace plait::ops {
namespace {

std::string typed_shape(DType dtype, const Shape& shape) { return std::string(to_string(dtype)) + " " + shape.to_string(); }

bool is_compute_type(DType dtype, bool on_cuda) {
  return dtype == DType::f32 || dtype == DType::bf16 || (dtype == DType::f64 && !on_cuda);
}

}  // namespace

std::string describe(const View& view) { return view ? typed_shape(view.dtype, view.shape) : "nothing"; }

DType statistics_type(DType compute) { return compute == DType::f64 ? DType::f64 : DType::f32; }

ArgumentCheck::ArgumentCheck(const char* op, StreamRef stream) : op_(op) {
  if (!stream) fail("stream", "a stream", "an empty StreamRef");
  device_ = stream.device();
  if constexpr (!PLAIT_HAS_CUDA) {
    if (device_.is_cuda()) fail("stream", "a host stream (plait was built without CUDA)", to_string(device_));
  }
}

ArgumentCheck::ArgumentCheck(const char* op, StreamRef stream, const OpContext& context) : ArgumentCheck(op, stream) {
  const Device of_context = context.device();
  const bool same = of_context.kind == device_.kind && (!on_cuda() || of_context.index == device_.index);
  if (!same) fail("context", "a context of the stream's device " + to_string(device_), to_string(of_context));
}

void ArgumentCheck::compute_tensor(const char* name, const View& view, int rank) const {
  if (view && view.shape.rank() == rank && is_compute_type(view.dtype, on_cuda())) return;
  fail(name, std::string(on_cuda() ? "f32 or bf16" : "f32, f64 or bf16") + " with " + std::to_string(rank) + " dims",
       describe(view));
}

void ArgumentCheck::tensor(const char* name, const View& view, DType dtype, const Shape& shape) const {
  if (view && view.dtype == dtype && view.shape == shape) return;
  fail(name, typed_shape(dtype, shape), describe(view));
}

void ArgumentCheck::optional_tensor(const char* name, const View& view, DType dtype, const Shape& shape) const {
  if (view) tensor(name, view, dtype, shape);
}

void ArgumentCheck::gradient(const char* name, const View& view, DType compute, const Shape& shape) const {
  const bool type_fits = view.dtype == compute || (compute == DType::bf16 && view.dtype == DType::f32);
  if (view && type_fits && view.shape == shape) return;
  fail(name, (compute == DType::bf16 ? "f32 or " : "") + typed_shape(compute, shape), describe(view));
}

void ArgumentCheck::fp8_operand(const char* name, const View& view) const {
  compute_tensor(name, view, 2);
  if (!on_cuda()) return;
  tensor(name, view, DType::bf16, view.shape);
  that(view.shape[1] % fp8_multiple == 0, name, "of columns that are a multiple of 16", describe(view));
}

void ArgumentCheck::scale_of(const char* name, const View& written, const View& scale) const {
  optional_tensor("scale", scale, DType::f32, {scale_floats});
  if (scale) fp8_operand(name, written);
}

void ArgumentCheck::same_elements(const char* name, const View& view, std::int64_t elements) const {
  if (view && view.elements() == elements) return;
  fail(name, "of " + std::to_string(elements) + " elements", describe(view));
}

void ArgumentCheck::given(const char* name, const View& view) const {
  if (!view) fail(name, "given", "nothing");
}

void ArgumentCheck::absent(const char* name, const View& view, const char* reason) const {
  if (view) fail(name, std::string("empty ") + reason, describe(view));
}

void ArgumentCheck::distinct(const char* name, const View& view, const char* other_name, const View& other) const {
  if (view && view.data == other.data) fail(name, std::string("other memory than '") + other_name + "'", "the same memory");
}

void ArgumentCheck::that(bool holds, const char* name, const char* rule, const std::string& got) const {
  if (!holds) fail(name, rule, got);
}

void ArgumentCheck::fail(const char* name, const std::string& expected, const std::string& got) const {
  throw InternalError(std::string(op_) + ": argument '" + name + "' must be " + expected + ", got " + got);
}

}  // namespace plait::ops
