// Validation of an operation's arguments, done once in front of both implementations. Private to ops.
//
// Every failure is an InternalError such as
//   linear_forward: argument 'bias' must be f32 [8], got bf16 [9]
#pragma once

#include <string>

#include "core/stream.h"
#include "core/view.h"
#include "ops/attention.h"
#include "ops/op_context.h"

namespace plait::ops {

class ArgumentCheck {
 public:
  ArgumentCheck(const char* op, StreamRef stream);
  ArgumentCheck(const char* op, StreamRef stream, const OpContext& context);  // also checks that both are on one device

  bool on_cuda() const { return device_.is_cuda(); }

  // Requires a tensor with `rank` dims and a compute type: f32, bf16, or f64 on the host.
  void compute_tensor(const char* name, const View& view, int rank) const;
  void tensor(const char* name, const View& view, DType dtype, const Shape& shape) const;           // required, exactly this
  void optional_tensor(const char* name, const View& view, DType dtype, const Shape& shape) const;  // exactly this, or empty
  // Requires [rows, columns] as find_scale() and quantize() (ops/quantize.h) need it.
  void fp8_operand(const char* name, const View& view) const;
  // Requires nothing, or what receives find_scale() of `written`.
  void scale_of(const char* name, const View& written, const View& scale) const;
  // Requires the gradient of a parameter: type `compute` or, for bf16, f32.
  void gradient(const char* name, const View& view, DType compute, const Shape& shape) const;
  void same_elements(const char* name, const View& view, std::int64_t elements) const;
  void given(const char* name, const View& view) const;
  void absent(const char* name, const View& view, const char* reason) const;
  void distinct(const char* name, const View& view, const char* other_name, const View& other) const;  // not the same memory
  // Any other rule: `rule` says what a correct argument satisfies, `got` what was found instead.
  void that(bool holds, const char* name, const char* rule, const std::string& got) const;

 private:
  [[noreturn]] void fail(const char* name, const std::string& expected, const std::string& got) const;

  const char* op_;
  Device device_;
};

std::string describe(const View& view);  // "f32 [4, 8]" or "nothing"

// The type of statistics, losses and log-sum-exps for a compute type: f64 for f64, otherwise f32.
DType statistics_type(DType compute);

// Shared by attention, rope and the norm of heads.
void check_attention_shape(const ArgumentCheck& check, const AttentionShape& shape);
// `starts` is required where documents are separate and must be empty otherwise.
void check_starts(const ArgumentCheck& check, const AttentionShape& shape, const View& starts);
Shape packed_qkv_shape(const AttentionShape& shape);  // [batch * sequence, (heads + 2 * kv_heads) * head_dim]

}  // namespace plait::ops
