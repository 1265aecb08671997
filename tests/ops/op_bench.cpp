// Times every operation of a training step at the shapes of known models, on the GPU, in bf16 with f32 gradients:
//   op_bench [MODEL ...]      MODEL: 124m, 1558m, qwen1.5b, qwen3-1.7b
// Prints for each op its median time, its rate (TFLOP/s for products and attention, GB/s of the bytes it must move for the
// rest), how often a step runs it, and at the end the sum over a step, which is what the step cannot be faster than.
//
// Inputs are random. Every repetition works on another set of buffers where one set could stay in the cache.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/philox.h"
#include "core/stream.h"
#include "ops/adamw.h"
#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/op_context.h"
#include "ops/reduce.h"
#include "ops/rope.h"

namespace plait::ops {
namespace {

struct Model {
  std::string name;
  std::int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, padded_vocab, batch, sequence;
  bool gpt;              // LayerNorm, biases, learned positions, GELU; otherwise RMSNorm, RoPE, SwiGLU, biases in qkv only
  bool qk_norm = false;  // and then no biases
  std::int64_t rows() const { return batch * sequence; }
  std::int64_t qkv() const { return (heads + 2 * kv_heads) * head_dim; }
  std::int64_t up() const { return gpt ? ffn : 2 * ffn; }
};

constexpr std::int64_t cache_bytes = 64 << 20;
constexpr int most_sets = 4;
constexpr int repetitions = 10;

class Bench {
 public:
  Bench() : device_{DeviceKind::cuda, 0}, memory_(device_), stream_(current(device_)) {
    workspace_ = memory_.allocate(workspace_bytes(DeviceKind::cuda, {{32, 1024, 32, 2, 128}}));
    context_ = make_op_context(device_, View(workspace_.data(), DType::u8, {static_cast<std::int64_t>(workspace_.bytes())}));
    std::vector<float> normal(std::size_t{16} << 20);
    Random(1, "bench").fill_normal(0, normal);
    std::vector<BFloat16> rounded(normal.size());
    std::transform(normal.begin(), normal.end(), rounded.begin(), [](float x) { return BFloat16(x); });
    random_f32_ = memory_.allocate(normal.size() * sizeof(float));
    random_bf16_ = memory_.allocate(rounded.size() * sizeof(BFloat16));
    stream().copy(random_f32_.data(), normal.data(), random_f32_.bytes());
    stream().copy(random_bf16_.data(), rounded.data(), random_bf16_.bytes());
    stream().synchronize();
  }

  StreamRef stream() const { return stream_.ref(); }
  OpContext& context() { return *context_; }

  View tensor(DType dtype, Shape shape) {
    buffers_.push_back(memory_.allocate(std::max<std::size_t>(View(nullptr, dtype, shape).bytes(), 256)));
    const View view(buffers_.back().data(), dtype, shape);
    const Buffer& source = dtype == DType::bf16 ? random_bf16_ : random_f32_;
    for (std::size_t done = 0; done < view.bytes(); done += source.bytes()) {
      stream().copy(static_cast<char*>(view.data) + done, source.data(), std::min(source.bytes(), view.bytes() - done));
    }
    return view;
  }
  View bf16(Shape shape) { return tensor(DType::bf16, shape); }
  View f32(Shape shape) { return tensor(DType::f32, shape); }
  View e4m3(Shape shape) { return tensor(DType::e4m3, shape); }
  View indices(std::int64_t count, std::int64_t bound) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    const Random random(2, "indices");
    for (std::size_t i = 0; i < values.size(); ++i) {
      // Squared uniform: some tokens are much more common than others, as in text.
      const double u = static_cast<double>(random.uniform(i));
      values[i] = static_cast<std::int32_t>(u * u * u * static_cast<double>(bound));
    }
    return bytes(DType::i32, {count}, values.data());
  }
  View bytes(DType dtype, Shape shape, const void* data) {
    buffers_.push_back(memory_.allocate(View(nullptr, dtype, shape).bytes()));
    const View view(buffers_.back().data(), dtype, shape);
    stream().copy(view.data, data, view.bytes());
    stream().synchronize();
    return view;
  }

  // `prepare` allocates one set of buffers and returns the call. `bytes` are those the op must move, `flops` what it must
  // compute.
  void time(const std::string& what, std::int64_t per_step, double moved_bytes, double flops,
            const std::function<std::function<void()>()>& prepare) {
    const int sets = moved_bytes > 8.0 * cache_bytes ? 1 : moved_bytes > 2.0 * cache_bytes ? 2 : most_sets;
    std::vector<std::function<void()>> calls;
    for (int i = 0; i < sets; ++i) calls.push_back(prepare());
    for (const auto& call : calls) call();
    Event start(device_, EventTiming::on), stop(device_, EventTiming::on);
    std::vector<float> times;
    for (int i = 0; i < repetitions; ++i) {
      stream().record(start);
      calls[static_cast<std::size_t>(i % sets)]();
      stream().record(stop);
      stop.synchronize();
      times.push_back(elapsed_ms(start, stop) * 1000.0f);
    }
    std::sort(times.begin(), times.end());
    const double microseconds = static_cast<double>(times[times.size() / 2]);
    step_microseconds_ += microseconds * static_cast<double>(per_step);
    if (flops > 0) {
      std::printf("%-34s %9.1f us %8.1f TFLOP/s  x%-3ld %8.2f ms\n", what.c_str(), microseconds, flops / microseconds * 1e-6,
                  per_step, microseconds * static_cast<double>(per_step) / 1000);
    } else {
      std::printf("%-34s %9.1f us %8.0f GB/s     x%-3ld %8.2f ms\n", what.c_str(), microseconds,
                  moved_bytes / microseconds * 1e-3, per_step, microseconds * static_cast<double>(per_step) / 1000);
    }
    std::fflush(stdout);
    buffers_.clear();
  }

  double take_step_microseconds() { return std::exchange(step_microseconds_, 0.0); }

 private:
  static Device current(Device device) {
    make_current(device);
    return device;
  }
  Device device_;
  DeviceMemory memory_;
  Stream stream_;
  Buffer workspace_, random_f32_, random_bf16_;
  std::vector<Buffer> buffers_;
  std::unique_ptr<OpContext> context_;
  double step_microseconds_ = 0;
};

struct LinearShape {
  std::string name;
  std::int64_t in, out, per_step;
  bool bias, residual, gelu;
  bool gelu_input;  // backward passes through the gelu whose output was this layer's input
};

void time_linear(Bench& bench, const Model& m, const LinearShape& l) {
  const std::int64_t rows = m.rows();
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(l.in) * static_cast<double>(l.out);
  const double bytes = 2.0 * static_cast<double>(rows * l.in + rows * l.out + l.in * l.out);
  const std::string shape = " " + std::to_string(l.in) + "->" + std::to_string(l.out);
  bench.time(l.name + " forward" + shape, l.per_step, bytes, flops, [&] {
    LinearForward args{.x = bench.bf16({rows, l.in}),
                       .w = bench.bf16({l.out, l.in}),
                       .bias = {},
                       .residual = {},
                       .y = bench.bf16({rows, l.out}),
                       .pre_activation = {}};
    if (l.bias) args.bias = bench.bf16({l.out});
    if (l.residual) args.residual = bench.bf16({rows, l.out});
    if (l.gelu) {
      args.epilogue = Epilogue::gelu;
      args.pre_activation = bench.bf16({rows, l.out});
    }
    return [&bench, args] { linear_forward(bench.stream(), bench.context(), args); };
  });
  bench.time(l.name + " backward input", l.per_step, bytes, flops, [&] {
    LinearBackwardInput args{
        .dy = bench.bf16({rows, l.out}), .w = bench.bf16({l.out, l.in}), .pre_activation = {}, .dx = bench.bf16({rows, l.in})};
    if (l.gelu_input) args.pre_activation = bench.bf16({rows, l.in});
    return [&bench, args] { linear_backward_input(bench.stream(), bench.context(), args); };
  });
  const auto weight = [&](const std::string& name, std::int64_t per_step, bool bias, bool accumulate) {
    bench.time(l.name + " " + name, per_step, bytes, flops, [&] {
      LinearBackwardWeight args{.dy = bench.bf16({rows, l.out}),
                                .x = bench.bf16({rows, l.in}),
                                .dw = bench.f32({l.out, l.in}),
                                .dbias = {},
                                .accumulate = accumulate};
      if (bias) args.dbias = bench.f32({l.out});
      return [&bench, args] { linear_backward_weight(bench.stream(), bench.context(), args); };
    });
  };
  weight("backward weight", l.per_step, l.bias, false);
  if (l.bias) weight("backward weight, no bias", 0, false, false);
  weight("backward weight, accumulate", 0, l.bias, true);
}

// `what`: how it differs from that of a step, or nothing.
void time_attention(Bench& bench, const Model& m, const std::string& what, std::int64_t window, Documents documents) {
  const std::int64_t rows = m.rows(), heads_dim = m.heads * m.head_dim, per_step = what.empty() ? m.layers : 0;
  const AttentionShape shape{m.batch, m.sequence, m.heads, m.kv_heads, m.head_dim, window, documents};
  std::printf("attention%s: workspace %.1f MB\n", what.c_str(),
              static_cast<double>(attention_workspace_bytes(bench.context(), shape, DType::bf16)) * 1e-6);
  const auto all = static_cast<double>(m.sequence), seen = static_cast<double>(window);
  const double keys = window > 0 ? seen - seen * seen / (2 * all) : all / 2;
  const double flops = 4.0 * static_cast<double>(m.batch * m.heads * m.sequence * m.head_dim) * keys;
  const auto starts = [&] {
    if (documents == Documents::joined) return View();
    const std::int64_t length = m.sequence / 4;
    std::vector<std::int32_t> list;
    for (std::int64_t i = 0; i < rows; ++i) list.push_back(static_cast<std::int32_t>(i % m.sequence / length * length));
    return bench.bytes(DType::i32, {rows}, list.data());
  };
  bench.time("attention forward" + what, per_step, 1e9, flops, [&] {
    const AttentionForward args{shape, bench.bf16({rows, m.qkv()}), starts(), bench.bf16({rows, heads_dim}),
                                bench.f32({m.batch, m.heads, m.sequence})};
    return [&bench, args] { attention_forward(bench.stream(), bench.context(), args); };
  });
  bench.time("attention backward" + what, per_step, 1e9, 2.5 * flops, [&] {
    const View qkv = bench.bf16({rows, m.qkv()}), documents_of = starts(), out = bench.bf16({rows, heads_dim}),
               lse = bench.f32({m.batch, m.heads, m.sequence});
    attention_forward(bench.stream(), bench.context(), {shape, qkv, documents_of, out, lse});
    const AttentionBackward args{
        shape, qkv, documents_of, out, lse, bench.bf16({rows, heads_dim}), bench.bf16({rows, m.qkv()})};
    return [&bench, args] { attention_backward(bench.stream(), bench.context(), args); };
  });
}

void time_model(Bench& bench, const Model& m) {
  std::printf("\n%s: %ld layers, hidden %ld, %ld x %ld tokens\n", m.name.c_str(), m.layers, m.hidden, m.batch, m.sequence);
  const std::int64_t rows = m.rows(), h = m.hidden;
  const double activation_bytes = 2.0 * static_cast<double>(rows * h);

  time_linear(bench, m, {"qkv", h, m.qkv(), m.layers, !m.qk_norm, false, false, false});
  time_linear(bench, m, {"output", m.heads * m.head_dim, h, m.layers, m.gpt, true, false, false});
  time_linear(bench, m, {"up", h, m.up(), m.layers, m.gpt, false, m.gpt, false});
  time_linear(bench, m, {"down", m.ffn, h, m.layers, m.gpt, true, false, m.gpt});
  time_linear(bench, m, {"head", h, m.padded_vocab, 1, false, false, false, false});

  time_attention(bench, m, "", 0, Documents::joined);
  time_attention(bench, m, ", window of a quarter", m.sequence / 4, Documents::joined);
  time_attention(bench, m, ", documents of a quarter", 0, Documents::separate);

  const NormKind kind = m.gpt ? NormKind::layer_norm : NormKind::rms_norm;
  bench.time("norm forward", 2 * m.layers + 1, 2 * activation_bytes, 0, [&] {
    NormForward args{.kind = kind,
                     .x = {bench.bf16({rows, h})},
                     .bias = {},
                     .gamma = bench.bf16({h}),
                     .beta = {},
                     .residual = {},
                     .y = bench.bf16({rows, h}),
                     .mean = {},
                     .rstd = bench.f32({rows})};
    if (m.gpt) {
      args.beta = bench.bf16({h});
      args.mean = bench.f32({rows});
    }
    return [&bench, args] { norm_forward(bench.stream(), bench.context(), args); };
  });
  bench.time("norm backward + residual", 2 * m.layers + 1, 4 * activation_bytes, 0, [&] {
    NormBackward args{.kind = kind,
                      .x = bench.bf16({rows, h}),
                      .gamma = bench.bf16({h}),
                      .mean = {},
                      .rstd = bench.f32({rows}),
                      .dy = {bench.bf16({rows, h})},
                      .dresidual = bench.bf16({rows, h}),
                      .dx = bench.bf16({rows, h}),
                      .dgamma = bench.f32({h}),
                      .dbeta = {}};
    if (m.gpt) {
      args.mean = bench.f32({rows});
      args.dbeta = bench.f32({h});
    }
    return [&bench, args] { norm_backward(bench.stream(), bench.context(), args); };
  });

  // Of what the last product of an MLP reads, with FP8 operands.
  const double operand = static_cast<double>(rows * m.ffn);
  for (const OperandOf of : {OperandOf::x, OperandOf::gelu}) {
    const std::string what = of == OperandOf::gelu ? " that GELU makes" : "";
    bench.time("scale of an FP8 operand" + what, m.layers, 2 * operand, 0, [&] {
      const View x = bench.bf16({rows, m.ffn}), scale = bench.f32({scale_floats});
      return [&bench, x, scale, of] { find_scale(bench.stream(), bench.context(), x, scale, of); };
    });
    bench.time("FP8 operand" + what + ", sums of rows too", m.layers, 4 * operand, 0, [&] {
      const View x = bench.bf16({rows, m.ffn}), sums = bench.f32({m.ffn});
      const Quantized out{
          .values = bench.e4m3(x.shape), .transposed = bench.e4m3({m.ffn, rows}), .scale = bench.f32({scale_floats})};
      return [&bench, x, out, sums, of] { quantize(bench.stream(), bench.context(), x, out, {.out = sums}, of); };
    });
  }
  bench.time("FP8 operand transposed", m.layers, 2 * operand, 0, [&] {
    const View values = bench.e4m3({rows, m.ffn}), transposed = bench.e4m3({m.ffn, rows});
    return [&bench, values, transposed] { transpose(bench.stream(), bench.context(), values, transposed); };
  });
  for (const bool values : {true, false}) {
    for (const bool transposed : {false, true}) {
      if (!values && !transposed) continue;
      const std::string form = values && transposed ? "in both forms" : values ? "as it lies" : "transposed";
      bench.time("FP8 operand " + form, m.layers, (2 + (values ? 1 : 0) + (transposed ? 1 : 0)) * operand, 0, [&] {
        const View x = bench.bf16({rows, m.ffn});
        Quantized out{.values = {}, .transposed = {}, .scale = bench.f32({scale_floats})};
        if (values) out.values = bench.e4m3({rows, m.ffn});
        if (transposed) out.transposed = bench.e4m3({m.ffn, rows});
        return [&bench, x, out] { quantize(bench.stream(), bench.context(), x, out); };
      });
    }
  }

  const AttentionShape shape{m.batch, m.sequence, m.heads, m.kv_heads, m.head_dim};
  if (!m.gpt) {
    const double ffn_bytes = 2.0 * static_cast<double>(rows * m.ffn);
    bench.time("swiglu forward", m.layers, 3 * ffn_bytes, 0, [&] {
      const View gate_up = bench.bf16({rows, 2 * m.ffn}), y = bench.bf16({rows, m.ffn});
      return [&bench, gate_up, y] { swiglu_forward(bench.stream(), bench.context(), gate_up, y); };
    });
    bench.time("swiglu backward", m.layers, 5 * ffn_bytes, 0, [&] {
      const View gate_up = bench.bf16({rows, 2 * m.ffn}), dy = bench.bf16({rows, m.ffn}),
                 dgate_up = bench.bf16({rows, 2 * m.ffn});
      return [&bench, gate_up, dy, dgate_up] { swiglu_backward(bench.stream(), bench.context(), gate_up, dy, dgate_up); };
    });
    bench.time("rope", 2 * m.layers, 2.0 * 2.0 * static_cast<double>(rows * (m.heads + m.kv_heads) * m.head_dim), 0, [&] {
      const Rope args{
          .shape = shape, .table = bench.f32({m.sequence, m.head_dim}), .starts = {}, .qkv = bench.bf16({rows, m.qkv()})};
      return [&bench, args] { rope(bench.stream(), args); };
    });
  }
  if (m.qk_norm) {
    const double head_bytes = 2.0 * static_cast<double>(rows * m.head_dim);
    bench.time("norm of queries and keys", m.layers, 2 * head_bytes * static_cast<double>(m.heads + 2 * m.kv_heads), 0, [&] {
      const QkNormForward args{.shape = shape,
                               .x = bench.bf16({rows, m.qkv()}),
                               .query_gain = bench.bf16({m.head_dim}),
                               .key_gain = bench.bf16({m.head_dim}),
                               .y = bench.bf16({rows, m.qkv()})};
      return [&bench, args] { qk_norm_forward(bench.stream(), args); };
    });
    bench.time("norm of queries and keys backward", m.layers, 3 * head_bytes * static_cast<double>(m.heads + m.kv_heads), 0,
               [&] {
                 const QkNormBackward args{.shape = shape,
                                           .x = bench.bf16({rows, m.qkv()}),
                                           .query_gain = bench.bf16({m.head_dim}),
                                           .key_gain = bench.bf16({m.head_dim}),
                                           .dqkv = bench.bf16({rows, m.qkv()}),
                                           .dquery_gain = bench.f32({m.head_dim}),
                                           .dkey_gain = bench.f32({m.head_dim})};
                 return [&bench, args] { qk_norm_backward(bench.stream(), bench.context(), args); };
               });
  }

  bench.time("embedding forward", 1, (m.gpt ? 2 : 2) * activation_bytes, 0, [&] {
    EmbeddingForward args{.tokens = bench.indices(rows, m.vocab),
                          .starts = {},
                          .tokens_table = bench.bf16({m.padded_vocab, h}),
                          .positions_table = {},
                          .y = bench.bf16({rows, h}),
                          .sequence = m.sequence};
    if (m.gpt) args.positions_table = bench.bf16({m.sequence, h});
    return [&bench, args] { embedding_forward(bench.stream(), args); };
  });
  for (const bool bytes_vocabulary : {false, true}) {
    bench.time(bytes_vocabulary ? "embedding backward, 256 tokens" : "embedding backward, tied", bytes_vocabulary ? 0 : 1,
               (m.gpt ? 2 : 1) * activation_bytes, 0, [&] {
                 const std::int64_t vocab = bytes_vocabulary ? 256 : m.vocab;
                 EmbeddingBackward args{.tokens = bench.indices(rows, vocab),
                                        .starts = {},
                                        .dy = bench.bf16({rows, h}),
                                        .dtokens_table = bench.f32({bytes_vocabulary ? 256 : m.padded_vocab, h}),
                                        .dpositions_table = {},
                                        .sequence = m.sequence,
                                        .accumulate_tokens = true};
                 if (m.gpt) args.dpositions_table = bench.f32({m.sequence, h});
                 return [&bench, args] { embedding_backward(bench.stream(), bench.context(), args); };
               });
  }
  bench.time("cross entropy, in place", 1, 4.0 * static_cast<double>(rows * m.padded_vocab), 0, [&] {
    const CrossEntropy args{.logits = bench.bf16({rows, m.padded_vocab}),
                            .targets = bench.indices(rows, m.vocab),
                            .losses = bench.f32({rows}),
                            .vocab = m.vocab,
                            .scale = 1.0f / static_cast<float>(rows)};
    return [&bench, args] { cross_entropy(bench.stream(), args); };
  });
  const std::int64_t half_vocab = m.padded_vocab / 2;
  bench.time("cross entropy statistics, half the vocabulary", 0, 2.0 * static_cast<double>(rows * half_vocab), 0, [&] {
    const CrossEntropyStatistics args{.logits = bench.bf16({rows, half_vocab}),
                                      .targets = bench.indices(rows, m.vocab),
                                      .statistics = bench.f32({rows, 3}),
                                      .vocab = m.vocab};
    return [&bench, args] { cross_entropy_statistics(bench.stream(), args); };
  });
  bench.time("cross entropy finish, half the vocabulary", 0, 4.0 * static_cast<double>(rows * half_vocab), 0, [&] {
    const CrossEntropyFinish args{.logits = bench.bf16({rows, half_vocab}),
                                  .targets = bench.indices(rows, m.vocab),
                                  .statistics = bench.f32({2, rows, 3}),
                                  .losses = bench.f32({rows}),
                                  .vocab = m.vocab,
                                  .scale = 1.0f / static_cast<float>(rows)};
    return [&bench, args] { cross_entropy_finish(bench.stream(), args); };
  });
  bench.time("add bias and residual", 0, 3 * activation_bytes, 0, [&] {
    const AddBiasResidual args{
        .x = bench.bf16({rows, h}), .bias = bench.bf16({h}), .residual = bench.bf16({rows, h}), .y = bench.bf16({rows, h})};
    return [&bench, args] { add_bias_residual(bench.stream(), args); };
  });

  const std::int64_t parameters =
      m.layers * (h * m.qkv() + m.heads * m.head_dim * h + h * m.up() + m.ffn * h) + m.padded_vocab * h;
  bench.time("sum of squares, all gradients", 1, 4.0 * static_cast<double>(parameters), 0, [&] {
    const View gradients = bench.f32({parameters}), out = bench.f32({1});
    return [&bench, gradients, out] { sum_of_squares(bench.stream(), bench.context(), {&gradients, 1}, out); };
  });
  const auto time_adamw = [&](const char* name, std::int64_t per_step, DType moments) {
    const double bytes = 14.0 + 4.0 * static_cast<double>(size_of(moments));
    bench.time(name, per_step, bytes * static_cast<double>(parameters), 0, [&, moments] {
      const std::vector<std::uint8_t> table = adamw_table({{0, 0, 0, parameters, true}}, moments);
      const View state = bench.f32({optimizer_state_floats}), zero = bench.f32({1});
      const View first = bench.tensor(moments, {parameters}), second = bench.tensor(moments, {parameters});
      for (const View& view : {second, state, zero}) bench.stream().zero(view.data, view.bytes());
      const UpdateCoefficients settings = update_coefficients({.update = 10, .lr = 1e-4f});
      const auto& update = *static_cast<const UpdateCoefficients*>(bench.bytes(DType::u8, {sizeof(settings)}, &settings).data);
      norm_to_clip(
          bench.stream(),
          {.sum_of_squares = zero, .loss = zero, .ignored = zero, .targets = 1, .update = &update, .optimizer_state = state});
      const AdamW args{.table = bench.bytes(DType::u8, {static_cast<std::int64_t>(table.size())}, table.data()),
                       .gradients = bench.f32({parameters}),
                       .master = bench.f32({parameters}),
                       .m = first,
                       .v = second,
                       .weights = bench.bf16({parameters}),
                       .optimizer_state = state};
      return [&bench, args] { adamw(bench.stream(), args); };
    });
  };
  time_adamw("adamw, all parameters", 1, DType::f32);
  time_adamw("adamw, all parameters, bf16 moments", 0, DType::bf16);
  const double step = bench.take_step_microseconds();
  std::printf("%s: sum over a step %.2f ms, %.0f tokens/s\n", m.name.c_str(), step / 1000,
              static_cast<double>(rows) / step * 1e6);
}

}  // namespace
}  // namespace plait::ops

int main(int argc, char** argv) {
  using plait::ops::Model;
  std::string why;
  if (plait::cuda_device_count(&why) == 0) {
    std::fprintf(stderr, "op_bench needs a GPU: %s\n", why.c_str());
    return 3;
  }
  const std::vector<Model> models{{"124m", 12, 768, 12, 12, 64, 3072, 50257, 50304, 32, 1024, true},
                                  {"1558m", 48, 1600, 25, 25, 64, 6400, 50257, 50304, 16, 1024, true},
                                  {"qwen1.5b", 28, 1536, 12, 2, 128, 8960, 151936, 151936, 32, 1024, false},
                                  {"qwen3-1.7b", 28, 2048, 16, 8, 128, 6144, 151936, 151936, 32, 1024, false, true}};
  plait::ops::Bench bench;
  const std::vector<std::string> wanted(argv + 1, argv + argc);
  for (const Model& model : models) {
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), model.name) != wanted.end())
      plait::ops::time_model(bench, model);
  }
  std::printf("\nmatrix products: problem, candidates, microseconds of the first and of the chosen one\n");
  for (const std::string& line : bench.context().choices()) {
    const std::size_t algorithm = line.rfind(' ', line.rfind(' ', line.rfind(' ') - 1) - 1);
    std::printf("%s%s\n", line.substr(0, line.rfind(' ', algorithm - 1)).c_str(), line.substr(algorithm).c_str());
  }
  return 0;
}
