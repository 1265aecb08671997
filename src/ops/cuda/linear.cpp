// Linear layers on cuBLASLt. The library is column-major: a row-major [rows, columns] tensor is its [columns, rows] matrix, so
// every product below computes the transpose of its contract without moving a byte.
//
// Where the library has no algorithm with the fused epilogue (odd dims, unaligned pointers), the product runs plain and our own
// kernels do the rest.
#include <algorithm>
#include <string>

#include "core/error.h"
#include "ops/cuda/op_context.h"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

cudaStream_t native_stream(StreamRef stream) { return static_cast<cudaStream_t>(stream.native()); }

int common_alignment(std::initializer_list<const void*> pointers) {
  std::uintptr_t bits = 16;
  for (const void* pointer : pointers) bits |= reinterpret_cast<std::uintptr_t>(pointer);
  return static_cast<int>(bits & (~bits + 1));
}

// The library's epilogues read vectors and pre-activations by 16-byte accesses.
bool fits_epilogue(std::int64_t m, std::initializer_list<const void*> pointers) {
  return m % 8 == 0 && common_alignment(pointers) == 16;
}

// Transposes both operands so that the summed index comes last, as FP8 products need it.
void use_quantized(MatmulProblem& problem, MatmulOperands& operands, const View& a, const View& a_scale, const View& b,
                   const View& b_scale) {
  problem.transpose_a = true;
  problem.transpose_b = false;
  problem.input = DType::e4m3;
  problem.alignment = std::min(problem.alignment, common_alignment({a.data, b.data}));
  operands.a = a.data, operands.a_scale = a_scale.data;
  operands.b = b.data, operands.b_scale = b_scale.data;
}

void run_plain(CudaOpContext& context, StreamRef stream, MatmulProblem problem, const MatmulOperands& operands) {
  problem.epilogue = MatmulEpilogue::none;
  if (context.matmul.run(native_stream(stream), problem, operands)) return;
  throw DeviceError("cuBLASLt has no algorithm for a product of m " + std::to_string(problem.m) + ", n " +
                    std::to_string(problem.n) + ", k " + std::to_string(problem.k) + " in " +
                    std::string(to_string(problem.input)) + " on " + device_name(context.device()) +
                    (problem.input == DType::e4m3 ? "; FP8 products need a GPU of Ada, Hopper or later"
                                                  : "; pad the model's dims to multiples of 8"));
}

bool run_fused(CudaOpContext& context, StreamRef stream, MatmulProblem problem, MatmulEpilogue epilogue,
               const MatmulOperands& operands) {
  problem.epilogue = epilogue;
  return context.matmul.run(native_stream(stream), problem, operands);
}

}  // namespace

void linear_forward(StreamRef stream, OpContext& op_context, const LinearForward& args) {
  CudaOpContext& context = cuda_context(op_context);
  const std::int64_t rows = args.x.shape[0], in = args.x.shape[1], out = args.w.shape[0];
  if (rows == 0) return;
  MatmulProblem problem{.transpose_a = true,
                        .transpose_b = false,
                        .m = out,
                        .n = rows,
                        .k = in,
                        .input = args.x.dtype,
                        .output = args.y.dtype,
                        .adds_c = static_cast<bool>(args.residual),
                        .alignment = common_alignment({args.w.data, args.x.data, args.residual.data, args.y.data})};
  MatmulOperands operands{.a = args.w.data,
                          .b = args.x.data,
                          .c = args.residual.data,
                          .d = args.y.data,
                          .vector = args.bias.data,
                          .aux = args.pre_activation.data};
  if (args.x8) use_quantized(problem, operands, args.w8.values, args.w8.scale, args.x8.values, args.x8.scale);
  if (args.epilogue == Epilogue::gelu) {
    // In FP8, the library's epilogues with GELU take longer than a separate pass of our own.
    const MatmulEpilogue epilogue = args.bias ? MatmulEpilogue::gelu_aux_bias : MatmulEpilogue::gelu_aux;
    if (!args.x8 && fits_epilogue(out, {args.bias.data, args.pre_activation.data}) &&
        run_fused(context, stream, problem, epilogue, operands))
      return;
    LinearForward plain = args;
    plain.epilogue = Epilogue::none;
    plain.y = args.pre_activation;
    plain.pre_activation = {};
    cuda::linear_forward(stream, op_context, plain);
    cuda::gelu_forward(stream, context, args.pre_activation, args.y);
    return;
  }
  if (!args.bias) return run_plain(context, stream, problem, operands);
  if (fits_epilogue(out, {args.bias.data}) && run_fused(context, stream, problem, MatmulEpilogue::bias, operands)) return;
  run_plain(context, stream, problem, operands);
  add_bias_residual(stream, {.x = args.y, .bias = args.bias, .residual = {}, .y = args.y});
}

void linear_backward_input(StreamRef stream, OpContext& op_context, const LinearBackwardInput& args) {
  CudaOpContext& context = cuda_context(op_context);
  const std::int64_t rows = args.dy.shape[0], out = args.dy.shape[1], in = args.w.shape[1];
  if (rows == 0) return;
  MatmulProblem problem{.transpose_a = false,
                        .transpose_b = false,
                        .m = in,
                        .n = rows,
                        .k = out,
                        .input = args.dy.dtype,
                        .output = args.dx.dtype,
                        .adds_c = args.accumulate,
                        .alignment = common_alignment({args.w.data, args.dy.data, args.dx.data})};
  MatmulOperands operands{.a = args.w.data,
                          .b = args.dy.data,
                          .c = args.dx.data,
                          .d = args.dx.data,
                          .vector = nullptr,
                          .aux = args.pre_activation.data};
  if (args.dy8) use_quantized(problem, operands, args.w8.transposed, args.w8.scale, args.dy8.values, args.dy8.scale);
  if (!args.pre_activation) return run_plain(context, stream, problem, operands);
  require(args.pre_activation.data != args.dx.data, "linear_backward_input: pre_activation may not be dx");
  if (!args.dy8 && fits_epilogue(in, {args.pre_activation.data}) &&
      run_fused(context, stream, problem, MatmulEpilogue::dgelu, operands))
    return;
  run_plain(context, stream, problem, operands);
  cuda::gelu_backward(stream, context, args.pre_activation, args.dx, args.dx);
}

void linear_backward_weight(StreamRef stream, OpContext& op_context, const LinearBackwardWeight& args) {
  CudaOpContext& context = cuda_context(op_context);
  const std::int64_t rows = args.dy.shape[0], out = args.dy.shape[1], in = args.x.shape[1];
  if (rows == 0) {
    if (!args.accumulate) {
      stream.zero(args.dw.data, args.dw.bytes());
      if (args.dbias) stream.zero(args.dbias.data, args.dbias.bytes());
    }
    return;
  }
  MatmulProblem problem{.transpose_a = false,
                        .transpose_b = true,
                        .m = in,
                        .n = out,
                        .k = rows,
                        .input = args.dy.dtype,
                        .output = args.dw.dtype,
                        .adds_c = args.accumulate,
                        .alignment = common_alignment({args.x.data, args.dy.data, args.dw.data})};
  MatmulOperands operands{
      .a = args.x.data, .b = args.dy.data, .c = args.dw.data, .d = args.dw.data, .vector = nullptr, .aux = nullptr};
  if (args.dy8) use_quantized(problem, operands, args.x8.transposed, args.x8.scale, args.dy8.transposed, args.dy8.scale);
  run_plain(context, stream, problem, operands);
  // cuBLASLt can sum dy in this product's epilogue (BGRADB), but measured on H200 that costs more than a pass over dy: at the
  // shapes of GPT-2 and Qwen2.5 between 0 and 12 % of product and pass together.
  if (args.dbias) cuda::sum_rows(stream, context, args.dy, {.out = args.dbias, .accumulate = args.accumulate});
}

}  // namespace plait::ops::cuda
