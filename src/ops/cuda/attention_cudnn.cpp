#include "ops/cuda/attention.h"

#include <cudnn_frontend.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>

#include "core/error.h"
#include "ops/cuda/libraries.h"

namespace plait::ops::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

enum Uid : std::int64_t { uid_q = 1, uid_k, uid_v, uid_out, uid_lse, uid_dout, uid_dq, uid_dk, uid_dv, uid_starts };

void check_graph(fe::error_t status, const AttentionShape& s, const char* what) {
  if (status.is_good()) return;
  const bool separate = s.documents == Documents::separate;
  throw DeviceError(std::string("cuDNN attention, ") + what + ": batch " + std::to_string(s.batch) + ", sequence " +
                    std::to_string(s.sequence) + ", heads " + std::to_string(s.heads) + ", kv_heads " +
                    std::to_string(s.kv_heads) + ", head_dim " + std::to_string(s.head_dim) +
                    (s.window > 0 ? ", window " + std::to_string(s.window) : "") + (separate ? ", separate documents" : "") +
                    " in bf16: " + status.get_message() + "; a head_dim of 64 or 128 works on every supported GPU" +
                    (separate ? " that is Hopper or newer: separate documents need that, or precision.compute=fp32" : ""));
}

// cuDNN's dims are always [batch, heads, sequence, head_dim]; the strides say where that lies in our packed rows.
Tensor packed_tensor(Graph& graph, std::int64_t uid, const AttentionShape& s, std::int64_t heads, std::int64_t row_elements) {
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_uid(uid)
                          .set_dim({s.batch, heads, s.sequence, s.head_dim})
                          .set_stride({s.sequence * row_elements, s.head_dim, row_elements, 1}));
}

void place_output(const Tensor& tensor, std::int64_t uid, const AttentionShape& s, std::int64_t heads,
                  std::int64_t row_elements) {
  tensor->set_output(true)
      .set_uid(uid)
      .set_dim({s.batch, heads, s.sequence, s.head_dim})
      .set_stride({s.sequence * row_elements, s.head_dim, row_elements, 1});
}

std::int64_t qkv_row(const AttentionShape& s) { return (s.heads + 2 * s.kv_heads) * s.head_dim; }
std::int64_t out_row(const AttentionShape& s) { return s.heads * s.head_dim; }

float softmax_scale(const AttentionShape& s) { return 1.0f / std::sqrt(static_cast<float>(s.head_dim)); }

std::unique_ptr<Graph> new_graph() {
  auto graph = std::make_unique<Graph>();
  graph->set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  return graph;
}

// Scores of keys before the row's document become minus infinity; `starts` is [batch, 1, sequence, 1].
Tensor hide_other_documents(const std::shared_ptr<Graph>& graph, const Tensor& scores, const Tensor& starts) {
  const auto pointwise = [](fe::PointwiseMode_t mode, const char* name) {
    return fe::graph::Pointwise_attributes().set_mode(mode).set_name(name);
  };
  const Tensor key = graph->pointwise(
      scores, pointwise(fe::PointwiseMode_t::GEN_INDEX, "key").set_axis(3).set_compute_data_type(fe::DataType_t::INT32));
  key->set_data_type(fe::DataType_t::INT32);
  const Tensor seen = graph->pointwise(
      key, starts, pointwise(fe::PointwiseMode_t::CMP_GE, "in_document").set_compute_data_type(fe::DataType_t::BOOLEAN));
  seen->set_data_type(fe::DataType_t::BOOLEAN);
  const auto hidden =
      std::make_shared<fe::graph::Tensor_attributes>(fe::graph::attn::score_modifiers::get_negative_inf_value());
  return graph->pointwise(scores, hidden, seen, pointwise(fe::PointwiseMode_t::BINARY_SELECT, "hide_other_documents"));
}

// Masks the scores. cuDNN takes its own masks or ours, not both: where documents are separate, ours includes cuDNN's.
template <typename Attributes>
void mask(Attributes& attributes, Graph& graph, const AttentionShape& s) {
  constexpr auto aligned = fe::DiagonalAlignment_t::TOP_LEFT;
  if (s.documents == Documents::joined) {
    attributes.set_diagonal_alignment(aligned).set_diagonal_band_right_bound(0);
    if (s.window > 0) attributes.set_diagonal_band_left_bound(static_cast<int>(s.window));
    return;
  }
  const Tensor starts = graph.tensor(fe::graph::Tensor_attributes()
                                         .set_uid(uid_starts)
                                         .set_data_type(fe::DataType_t::INT32)
                                         .set_dim({s.batch, 1, s.sequence, 1})
                                         .set_stride({s.sequence, s.sequence, 1, 1}));
  attributes.set_score_mod([s, starts](std::shared_ptr<Graph> inner, Tensor scores) {
    std::optional<std::int64_t> left;
    if (s.window > 0) left = s.window;
    const Tensor in_band = fe::graph::attn::score_modifiers::sliding_window_mask(inner, scores, aligned, left, 0, s.sequence,
                                                                                 s.sequence, nullptr, nullptr);
    return hide_other_documents(inner, in_band, starts);
  });
}

std::unique_ptr<Graph> forward_graph(cudnnHandle_t handle, const AttentionShape& s) {
  auto graph = new_graph();
  const Tensor q = packed_tensor(*graph, uid_q, s, s.heads, qkv_row(s));
  const Tensor k = packed_tensor(*graph, uid_k, s, s.kv_heads, qkv_row(s));
  const Tensor v = packed_tensor(*graph, uid_v, s, s.kv_heads, qkv_row(s));
  auto attributes =
      fe::graph::SDPA_attributes().set_name("attention_forward").set_generate_stats(true).set_attn_scale(softmax_scale(s));
  mask(attributes, *graph, s);
  const auto [out, lse] = graph->sdpa(q, k, v, attributes);
  place_output(out, uid_out, s, s.heads, out_row(s));
  lse->set_output(true)
      .set_uid(uid_lse)
      .set_data_type(fe::DataType_t::FLOAT)
      .set_dim({s.batch, s.heads, s.sequence, 1})
      .set_stride({s.heads * s.sequence, s.sequence, 1, 1});
  check_graph(graph->build(handle, {fe::HeurMode_t::A}), s, "forward");
  return graph;
}

std::unique_ptr<Graph> backward_graph(cudnnHandle_t handle, const AttentionShape& s, bool deterministic) {
  auto graph = new_graph();
  const Tensor q = packed_tensor(*graph, uid_q, s, s.heads, qkv_row(s));
  const Tensor k = packed_tensor(*graph, uid_k, s, s.kv_heads, qkv_row(s));
  const Tensor v = packed_tensor(*graph, uid_v, s, s.kv_heads, qkv_row(s));
  const Tensor out = packed_tensor(*graph, uid_out, s, s.heads, out_row(s));
  const Tensor dout = packed_tensor(*graph, uid_dout, s, s.heads, out_row(s));
  const Tensor lse = graph->tensor(fe::graph::Tensor_attributes()
                                       .set_uid(uid_lse)
                                       .set_data_type(fe::DataType_t::FLOAT)
                                       .set_dim({s.batch, s.heads, s.sequence, 1})
                                       .set_stride({s.heads * s.sequence, s.sequence, 1, 1}));
  auto attributes = fe::graph::SDPA_backward_attributes()
                        .set_name("attention_backward")
                        .set_attn_scale(softmax_scale(s))
                        .set_deterministic_algorithm(deterministic);
  mask(attributes, *graph, s);
  const auto [dq, dk, dv] = graph->sdpa_backward(q, k, v, out, dout, lse, attributes);
  place_output(dq, uid_dq, s, s.heads, qkv_row(s));
  place_output(dk, uid_dk, s, s.kv_heads, qkv_row(s));
  place_output(dv, uid_dv, s, s.kv_heads, qkv_row(s));
  check_graph(graph->build(handle, {fe::HeurMode_t::A}), s, "backward");
  return graph;
}

using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, Documents>;
Key key_of(const AttentionShape& s) { return {s.batch, s.sequence, s.heads, s.kv_heads, s.head_dim, s.window, s.documents}; }

// The query, key and value parts of a packed bf16 buffer.
struct Parts {
  void *q, *k, *v;
};
Parts parts_of(const View& packed, const AttentionShape& s) {
  auto* first = static_cast<BFloat16*>(packed.data);
  return {first, first + s.heads * s.head_dim, first + (s.heads + s.kv_heads) * s.head_dim};
}

struct Compiled {
  std::unique_ptr<Graph> graph;
  std::size_t workspace_bytes = 0;
};

Compiled compiled(std::unique_ptr<Graph> graph) {
  const auto bytes = static_cast<std::size_t>(graph->get_workspace_size());
  return {std::move(graph), bytes};
}

}  // namespace

struct CudnnAttention::Implementation {
  bool deterministic = false;
  cudnnHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  std::map<Key, Compiled> forward, backward;

  Compiled& forward_for(const AttentionShape& s) {
    auto found = forward.find(key_of(s));
    if (found == forward.end()) found = forward.emplace(key_of(s), compiled(forward_graph(handle, s))).first;
    return found->second;
  }
  Compiled& backward_for(const AttentionShape& s) {
    auto found = backward.find(key_of(s));
    if (found == backward.end()) found = backward.emplace(key_of(s), compiled(backward_graph(handle, s, deterministic))).first;
    return found->second;
  }
  void execute(cudaStream_t on, Compiled& what, const AttentionShape& s, std::unordered_map<std::int64_t, void*>& pointers,
               const View& workspace) {
    require(what.workspace_bytes <= workspace.bytes(), "attention needs " + std::to_string(what.workspace_bytes) +
                                                           " bytes of workspace, the context has " +
                                                           std::to_string(workspace.bytes()) + "; use a smaller micro-batch");
    if (on != stream) {
      check(cudnnSetStream(handle, on));
      stream = on;
    }
    check_graph(what.graph->execute(handle, pointers, workspace.data), s, "execution");
  }
};

CudnnAttention::CudnnAttention(bool deterministic) : implementation_(std::make_unique<Implementation>()) {
  implementation_->deterministic = deterministic;
  check(cudnnCreate(&implementation_->handle));
}

CudnnAttention::~CudnnAttention() {
  implementation_->forward.clear();
  implementation_->backward.clear();
  static_cast<void>(cudnnDestroy(implementation_->handle));
}

std::size_t CudnnAttention::workspace_bytes(const AttentionShape& shape) {
  return std::max(implementation_->forward_for(shape).workspace_bytes, implementation_->backward_for(shape).workspace_bytes);
}

void CudnnAttention::forward(cudaStream_t stream, const AttentionForward& args, View workspace) {
  const Parts parts = parts_of(args.qkv, args.shape);
  std::unordered_map<std::int64_t, void*> pointers{
      {uid_q, parts.q}, {uid_k, parts.k}, {uid_v, parts.v}, {uid_out, args.out.data}, {uid_lse, args.lse.data}};
  if (args.starts) pointers[uid_starts] = args.starts.data;
  implementation_->execute(stream, implementation_->forward_for(args.shape), args.shape, pointers, workspace);
}

void CudnnAttention::backward(cudaStream_t stream, const AttentionBackward& args, View workspace) {
  const Parts in = parts_of(args.qkv, args.shape), gradient = parts_of(args.dqkv, args.shape);
  std::unordered_map<std::int64_t, void*> pointers{{uid_q, in.q},
                                                   {uid_k, in.k},
                                                   {uid_v, in.v},
                                                   {uid_out, args.out.data},
                                                   {uid_lse, args.lse.data},
                                                   {uid_dout, args.dout.data},
                                                   {uid_dq, gradient.q},
                                                   {uid_dk, gradient.k},
                                                   {uid_dv, gradient.v}};
  if (args.starts) pointers[uid_starts] = args.starts.data;
  implementation_->execute(stream, implementation_->backward_for(args.shape), args.shape, pointers, workspace);
}

}  // namespace plait::ops::cuda
