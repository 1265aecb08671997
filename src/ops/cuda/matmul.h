// Matrix products through cuBLASLt: one plan per problem, made at first use, with the fastest of the timed algorithms.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/view.h"
#include "ops/op_context.h"

namespace plait::ops::cuda {

// The epilogue fused after the product. `vector` and `aux` are operands in MatmulOperands.
enum class MatmulEpilogue : std::uint8_t {
  none,
  bias,           // + vector[m], in the type of d
  gelu_aux,       // aux = value before gelu; d = gelu(value)
  gelu_aux_bias,  // both
  dgelu,          // times gelu'(aux)
};

// d[m, n] = epilogue(op(a)[m, k] · op(b)[k, n] + (adds_c ? c : 0)), column-major as in cuBLASLt, no gaps between columns.
// Accumulates in float; f32 inputs are multiplied in full f32. e4m3 inputs, which need transpose_a and no transpose_b, give the
// product times both scales. The struct holds everything a plan depends on, so it is the key of a plan.
struct MatmulProblem {
  bool transpose_a = false, transpose_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  DType input = DType::bf16, output = DType::bf16;
  MatmulEpilogue epilogue = MatmulEpilogue::none;
  bool adds_c = false;
  int alignment = 16;  // bytes, of every matrix; at most 16
  friend auto operator<=>(const MatmulProblem&, const MatmulProblem&) = default;
};

struct MatmulOperands {
  const void *a = nullptr, *b = nullptr, *c = nullptr;
  void* d = nullptr;
  void* vector = nullptr;
  void* aux = nullptr;
  const void *a_scale = nullptr, *b_scale = nullptr;  // one float each, for e4m3 inputs
};

class MatmulPlans {
 public:
  MatmulPlans(Device device, View workspace, const OpContextOptions& options);
  ~MatmulPlans();
  MatmulPlans(const MatmulPlans&) = delete;
  MatmulPlans& operator=(const MatmulPlans&) = delete;

  // Enqueues the product. Returns false, with nothing enqueued, if cuBLASLt has no algorithm for this problem; the caller then
  // does without the fused epilogue.
  [[nodiscard]] bool run(cudaStream_t stream, const MatmulProblem& problem, const MatmulOperands& operands);

  void set_tuning(bool on) { tuning_ = on; }
  int untuned_problems() const { return untuned_problems_; }

  std::vector<std::string> choices() const;
  bool adopt_choice(const std::string& line);  // false: not a line of this device and library

 private:
  struct Plan;
  // True if candidates may be timed now: tuning is on, more than one candidate is wanted, and the stream is not being captured.
  bool may_time(cudaStream_t stream) const;
  std::unique_ptr<Plan> describe(const MatmulProblem& problem) const;
  std::vector<cublasLtMatmulHeuristicResult_t> heuristics(const Plan& plan, int wanted, std::size_t workspace_limit) const;
  std::vector<cublasLtMatmulAlgo_t> candidates(const Plan& plan, int wanted) const;
  Plan& plan_for(cudaStream_t stream, const MatmulProblem& problem, const MatmulOperands& operands);
  void time_candidates(cudaStream_t stream, Plan& plan, const MatmulOperands& operands,
                       const std::vector<cublasLtMatmulAlgo_t>& candidates) const;
  cublasStatus_t launch(cudaStream_t stream, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
                        const MatmulOperands& operands) const;

  Device device_;
  View workspace_;
  std::size_t matmul_workspace_bytes_ = 0;
  OpContextOptions options_;
  std::string identity_;  // device model and library version: choices hold for these only
  bool tuning_ = true;
  int untuned_problems_ = 0;
  cublasLtHandle_t handle_ = nullptr;
  std::map<MatmulProblem, std::unique_ptr<Plan>> plans_;
};

}  // namespace plait::ops::cuda
