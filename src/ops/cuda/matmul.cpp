#include "ops/cuda/matmul.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <optional>
#include <sstream>

#include "core/cuda_check.h"
#include "core/error.h"
#include "ops/cuda/libraries.h"

namespace plait::ops::cuda {
namespace {

// NVIDIA advises 32 MiB for Hopper; split-k algorithms for tall weight gradients use more.
constexpr std::size_t most_matmul_workspace_bytes = std::size_t{64} << 20;

constexpr int timing_rounds = 5;

cudaDataType_t library_type(DType dtype) {
  if (dtype == DType::e4m3) return CUDA_R_8F_E4M3;
  return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

cublasLtEpilogue_t library_epilogue(MatmulEpilogue epilogue) {
  switch (epilogue) {
    case MatmulEpilogue::none: return CUBLASLT_EPILOGUE_DEFAULT;
    case MatmulEpilogue::bias: return CUBLASLT_EPILOGUE_BIAS;
    case MatmulEpilogue::gelu_aux: return CUBLASLT_EPILOGUE_GELU_AUX;
    case MatmulEpilogue::gelu_aux_bias: return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case MatmulEpilogue::dgelu: return CUBLASLT_EPILOGUE_DGELU;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

bool has_aux(MatmulEpilogue e) {
  return e == MatmulEpilogue::gelu_aux || e == MatmulEpilogue::gelu_aux_bias || e == MatmulEpilogue::dgelu;
}
bool has_vector(MatmulEpilogue e) { return e == MatmulEpilogue::bias || e == MatmulEpilogue::gelu_aux_bias; }

template <typename T>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublas_lt().MatmulDescSetAttribute(description, attribute, &value, sizeof value));
}
template <typename T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check(cublas_lt().MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
}

struct LayoutDeleter {
  void operator()(cublasLtMatrixLayout_t layout) const { static_cast<void>(cublas_lt().MatrixLayoutDestroy(layout)); }
};
using Layout = std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>, LayoutDeleter>;

Layout make_layout(DType dtype, std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublas_lt().MatrixLayoutCreate(&layout, library_type(dtype), static_cast<std::uint64_t>(rows),
                                       static_cast<std::uint64_t>(columns), rows));
  return Layout(layout);
}

struct DescriptionDeleter {
  void operator()(cublasLtMatmulDesc_t description) const { static_cast<void>(cublas_lt().MatmulDescDestroy(description)); }
};
struct PreferenceDeleter {
  void operator()(cublasLtMatmulPreference_t preference) const {
    static_cast<void>(cublas_lt().MatmulPreferenceDestroy(preference));
  }
};

struct EventDeleter {
  void operator()(cudaEvent_t event) const { static_cast<void>(cudaEventDestroy(event)); }
};
using TimingEvent = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, EventDeleter>;
TimingEvent make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event));
  return TimingEvent(event);
}

struct DeviceFree {
  void operator()(void* memory) const { static_cast<void>(cudaFree(memory)); }
};

std::string problem_text(const MatmulProblem& p) {
  std::ostringstream text;
  text << p.transpose_a << ' ' << p.transpose_b << ' ' << p.m << ' ' << p.n << ' ' << p.k << ' ' << to_string(p.input) << ' '
       << to_string(p.output) << ' ' << static_cast<int>(p.epilogue) << ' ' << p.adds_c << ' ' << p.alignment;
  return text.str();
}

bool read_problem(std::istream& text, MatmulProblem& p) {
  std::string input, output;
  int epilogue = 0;
  if (!(text >> p.transpose_a >> p.transpose_b >> p.m >> p.n >> p.k >> input >> output >> epilogue >> p.adds_c >> p.alignment))
    return false;
  const auto type_of = [](const std::string& name, std::initializer_list<DType> types) {
    const auto type = std::find_if(types.begin(), types.end(), [&](DType t) { return to_string(t) == name; });
    return type == types.end() ? std::nullopt : std::optional(*type);
  };
  const auto input_type = type_of(input, {DType::bf16, DType::f32, DType::e4m3}),
             output_type = type_of(output, {DType::bf16, DType::f32});
  if (!input_type || !output_type || epilogue < 0 || epilogue > static_cast<int>(MatmulEpilogue::dgelu)) return false;
  p.input = *input_type;
  p.output = *output_type;
  p.epilogue = static_cast<MatmulEpilogue>(epilogue);
  return p.m > 0 && p.n > 0 && p.k > 0;
}

std::string hex(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const std::uint64_t word : algorithm.data) {
    for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[(word >> shift) & 15u];
  }
  return text;
}

bool read_hex(const std::string& text, cublasLtMatmulAlgo_t& algorithm) {
  if (text.size() != std::size(algorithm.data) * 16) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return false;
    std::uint64_t& word = algorithm.data[i / 16];
    word = (word << 4) | static_cast<std::uint64_t>(digit);
  }
  return true;
}

constexpr const char* line_prefix = "matmul";

}  // namespace

struct MatmulPlans::Plan {
  MatmulProblem problem;
  std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>, DescriptionDeleter> description;
  Layout a, b, c, d;
  bool available = false;
  cublasLtMatmulAlgo_t algorithm{};
  // Set where candidates were timed: the library's first choice and the chosen one.
  int candidates = 0;
  float first_microseconds = 0, best_microseconds = 0;
};

MatmulPlans::MatmulPlans(Device device, View workspace, const OpContextOptions& options)
    : device_(device),
      workspace_(workspace),
      matmul_workspace_bytes_(std::min(workspace.bytes(), most_matmul_workspace_bytes)),
      options_(options) {
  identity_ = device_name(device) + " cublaslt-" + std::to_string(cublas_lt().GetVersion());
  std::replace(identity_.begin(), identity_.end(), ' ', '-');
  check(cublas_lt().Create(&handle_));
}

MatmulPlans::~MatmulPlans() {
  plans_.clear();
  static_cast<void>(cublas_lt().Destroy(handle_));
}

std::unique_ptr<MatmulPlans::Plan> MatmulPlans::describe(const MatmulProblem& p) const {
  auto plan = std::make_unique<Plan>();
  plan->problem = p;
  cublasLtMatmulDesc_t description = nullptr;
  check(cublas_lt().MatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  plan->description.reset(description);
  set(description, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(description, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, library_epilogue(p.epilogue));
  if (has_vector(p.epilogue)) set(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, library_type(p.output));
  if (has_aux(p.epilogue)) set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.m);
  plan->a = make_layout(p.input, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k);
  plan->b = make_layout(p.input, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n);
  plan->c = make_layout(p.output, p.m, p.n);
  plan->d = make_layout(p.output, p.m, p.n);
  return plan;
}

std::vector<cublasLtMatmulHeuristicResult_t> MatmulPlans::heuristics(const Plan& plan, int wanted,
                                                                     std::size_t workspace_limit) const {
  cublasLtMatmulPreference_t raw = nullptr;
  check(cublas_lt().MatmulPreferenceCreate(&raw));
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, PreferenceDeleter> preference(raw);
  set(raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_limit);
  const auto alignment = static_cast<std::uint32_t>(plan.problem.alignment);
  set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
  set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
  set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
  set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
  // Only schemes that sum the parts of split-k in fp32 are allowed. Others sum them in the output's type, and one in no fixed
  // order.
  if (options_.deterministic || plan.problem.output != DType::f32) {
    const std::uint32_t in_float = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    set(raw, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, in_float);
  }
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(std::max(wanted, 1)));
  int found = 0;
  const cublasStatus_t status =
      cublas_lt().MatmulAlgoGetHeuristic(handle_, plan.description.get(), plan.a.get(), plan.b.get(), plan.c.get(),
                                         plan.d.get(), raw, static_cast<int>(results.size()), results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
  check(status);
  results.resize(static_cast<std::size_t>(found));
  std::erase_if(results, [](const cublasLtMatmulHeuristicResult_t& r) { return r.state != CUBLAS_STATUS_SUCCESS; });
  return results;
}

// The library returns at most eight algorithms, ranked by a model that overrates split-k for weight gradients. Asked for
// algorithms without a workspace, which excludes split-k, it returns others. The two lists are interleaved; the first choice
// stays first.
std::vector<cublasLtMatmulAlgo_t> MatmulPlans::candidates(const Plan& plan, int wanted) const {
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  const auto with_workspace = heuristics(plan, wanted, matmul_workspace_bytes_);
  const auto without = wanted > 1 ? heuristics(plan, wanted, 0) : std::vector<cublasLtMatmulHeuristicResult_t>{};
  const auto add = [&](const std::vector<cublasLtMatmulHeuristicResult_t>& from, std::size_t i) {
    if (i >= from.size() || algorithms.size() >= static_cast<std::size_t>(wanted)) return;
    const auto same = [&](const cublasLtMatmulAlgo_t& known) { return std::memcmp(&known, &from[i].algo, sizeof known) == 0; };
    if (std::none_of(algorithms.begin(), algorithms.end(), same)) algorithms.push_back(from[i].algo);
  };
  for (std::size_t i = 0; i < std::max(with_workspace.size(), without.size()); ++i) {
    add(with_workspace, i);
    add(without, i);
  }
  return algorithms;
}

cublasStatus_t MatmulPlans::launch(cudaStream_t stream, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
                                   const MatmulOperands& operands) const {
  const MatmulEpilogue epilogue = plan.problem.epilogue;
  if (has_vector(epilogue)) set(plan.description.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.vector);
  if (has_aux(epilogue)) set(plan.description.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.aux);
  if (plan.problem.input == DType::e4m3) {
    set(plan.description.get(), CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, operands.a_scale);
    set(plan.description.get(), CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, operands.b_scale);
  }
  const float alpha = 1.0f, beta = plan.problem.adds_c ? 1.0f : 0.0f;
  const void* c = plan.problem.adds_c ? operands.c : operands.d;
  return cublas_lt().Matmul(handle_, plan.description.get(), &alpha, operands.a, plan.a.get(), operands.b, plan.b.get(), &beta,
                            c, plan.c.get(), operands.d, plan.d.get(), &algorithm, workspace_.data, matmul_workspace_bytes_,
                            stream);
}

bool MatmulPlans::may_time(cudaStream_t stream) const {
  if (!tuning_ || options_.deterministic || options_.matmul_candidates <= 1) return false;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &capture));
  return capture == cudaStreamCaptureStatusNone;
}

void MatmulPlans::time_candidates(cudaStream_t stream, Plan& plan, const MatmulOperands& operands,
                                  const std::vector<cublasLtMatmulAlgo_t>& candidates) const {
  plan.candidates = static_cast<int>(candidates.size());
  plan.algorithm = candidates.front();
  if (candidates.size() < 2) return;

  // An output that is also an input would change from run to run: keep a copy, or go without timing when there is no room.
  const std::size_t output_bytes = static_cast<std::size_t>(plan.problem.m * plan.problem.n) * size_of(plan.problem.output);
  const bool output_is_input =
      (plan.problem.adds_c && operands.c == operands.d) || (operands.aux != nullptr && operands.aux == operands.d);
  std::unique_ptr<void, DeviceFree> saved;
  if (output_is_input) {
    void* memory = nullptr;
    if (cudaMalloc(&memory, output_bytes) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return;
    }
    saved.reset(memory);
    check(cudaMemcpyAsync(saved.get(), operands.d, output_bytes, cudaMemcpyDeviceToDevice, stream));
  }

  const TimingEvent start = make_event(), stop = make_event();
  std::vector<std::vector<float>> times(candidates.size());
  std::vector<bool> usable(candidates.size(), true);
  for (int round = 0; round < timing_rounds; ++round) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (!usable[i]) continue;
      // Evicts the operands from the cache, as the ops between two calls of a step do, and lets the launches queue up.
      if (workspace_.bytes() > matmul_workspace_bytes_) {
        check(cudaMemsetAsync(static_cast<char*>(workspace_.data) + matmul_workspace_bytes_, 0,
                              std::min(workspace_.bytes() - matmul_workspace_bytes_, std::size_t{128} << 20), stream));
      }
      check(cudaEventRecord(start.get(), stream));
      const cublasStatus_t status = launch(stream, plan, candidates[i], operands);
      check(cudaEventRecord(stop.get(), stream));
      check(cudaEventSynchronize(stop.get()));
      if (status != CUBLAS_STATUS_SUCCESS) {
        usable[i] = false;
        continue;
      }
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, start.get(), stop.get()));
      times[i].push_back(milliseconds * 1000.0f);
    }
  }
  if (output_is_input) check(cudaMemcpyAsync(operands.d, saved.get(), output_bytes, cudaMemcpyDeviceToDevice, stream));
  check(cudaStreamSynchronize(stream));

  plan.best_microseconds = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!usable[i]) continue;
    std::sort(times[i].begin(), times[i].end());
    const float median = times[i][times[i].size() / 2];
    if (i == 0) plan.first_microseconds = median;
    if (median < plan.best_microseconds) {
      plan.best_microseconds = median;
      plan.algorithm = candidates[i];
    }
  }
}

MatmulPlans::Plan& MatmulPlans::plan_for(cudaStream_t stream, const MatmulProblem& problem, const MatmulOperands& operands) {
  if (const auto found = plans_.find(problem); found != plans_.end()) return *found->second;
  auto plan = describe(problem);
  const bool timed = may_time(stream);
  // The library's check of an epilogue looks at the pointers too.
  if (has_vector(problem.epilogue)) set(plan->description.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.vector);
  if (has_aux(problem.epilogue)) set(plan->description.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.aux);
  const std::vector<cublasLtMatmulAlgo_t> algorithms = candidates(*plan, timed ? options_.matmul_candidates : 1);
  plan->available = !algorithms.empty();
  if (plan->available) {
    plan->algorithm = algorithms.front();
    if (timed) time_candidates(stream, *plan, operands, algorithms);
    if (!tuning_) ++untuned_problems_;
  }
  return *plans_.emplace(problem, std::move(plan)).first->second;
}

bool MatmulPlans::run(cudaStream_t stream, const MatmulProblem& problem, const MatmulOperands& operands) {
  const Plan& plan = plan_for(stream, problem, operands);
  if (!plan.available) return false;
  check(launch(stream, plan, plan.algorithm, operands));
  return true;
}

std::vector<std::string> MatmulPlans::choices() const {
  std::vector<std::string> lines;
  for (const auto& [problem, plan] : plans_) {
    if (!plan->available) continue;
    std::ostringstream line;
    line << line_prefix << ' ' << identity_ << ' ' << problem_text(problem) << ' ' << hex(plan->algorithm) << ' '
         << plan->candidates << ' ' << plan->first_microseconds << ' ' << plan->best_microseconds;
    lines.push_back(line.str());
  }
  return lines;
}

bool MatmulPlans::adopt_choice(const std::string& line) {
  std::istringstream text(line);
  std::string prefix, identity, algorithm_text;
  MatmulProblem problem;
  if (!(text >> prefix >> identity) || prefix != line_prefix || identity != identity_ || !read_problem(text, problem))
    return false;
  auto plan = describe(problem);
  if (!(text >> algorithm_text) || !read_hex(algorithm_text, plan->algorithm)) return false;
  if (!(text >> plan->candidates >> plan->first_microseconds >> plan->best_microseconds)) return false;
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = cublas_lt().MatmulAlgoCheck(handle_, plan->description.get(), plan->a.get(), plan->b.get(),
                                                            plan->c.get(), plan->d.get(), &plan->algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > matmul_workspace_bytes_) return false;
  plan->available = true;
  plans_[problem] = std::move(plan);
  return true;
}

}  // namespace plait::ops::cuda
