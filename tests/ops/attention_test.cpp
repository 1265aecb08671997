#include "ops/attention.h"

#include "ops/op_test.h"

namespace plait::ops {
namespace {

struct AttentionCase {
  AttentionShape s;
  std::string name() const {
    return "batch" + std::to_string(s.batch) + "_sequence" + std::to_string(s.sequence) + "_heads" + std::to_string(s.heads) +
           "_kv" + std::to_string(s.kv_heads) + "_dim" + std::to_string(s.head_dim) +
           (s.window > 0 ? "_window" + std::to_string(s.window) : "") +
           (s.documents == Documents::separate ? "_documents" : "");
  }
};

Shape qkv_shape(const AttentionShape& s) { return {s.batch * s.sequence, (s.heads + 2 * s.kv_heads) * s.head_dim}; }

Tensors attention_inputs(const AttentionShape& s) {
  return {{"qkv", random_tensor(qkv_shape(s), "qkv", 1.2)},
          {"dout", random_tensor({s.batch * s.sequence, s.heads * s.head_dim}, "dout")}};
}

Tensors run_attention(const Precision& p, const AttentionShape& s, const Tensors& in) {
  OpDevice device(p.device);
  const DType dtype = p.compute;
  EXPECT_LE(attention_workspace_bytes(device.context(), s, dtype),
            workspace_bytes(p.device, {s, dtype, device.context().options().deterministic}));
  AttentionForward forward;
  forward.shape = s;
  forward.qkv = device.put(in.at("qkv"), dtype);
  if (s.documents == Documents::separate) forward.starts = device.put(document_starts(s.batch, s.sequence));
  forward.out = device.poisoned({s.batch * s.sequence, s.heads * s.head_dim}, dtype);
  forward.lse = device.poisoned({s.batch, s.heads, s.sequence}, dtype == DType::f64 ? DType::f64 : DType::f32);
  attention_forward(device.stream(), device.context(), forward);
  AttentionBackward backward;
  backward.shape = s;
  backward.qkv = forward.qkv;
  backward.starts = forward.starts;
  backward.out = forward.out;
  backward.lse = forward.lse;
  backward.dout = device.put(in.at("dout"), dtype);
  backward.dqkv = device.poisoned(qkv_shape(s), dtype);
  attention_backward(device.stream(), device.context(), backward);
  return {{"out", device.get(forward.out)}, {"lse", device.get(forward.lse)}, {"dqkv", device.get(backward.dqkv)}};
}

// The definition, one query at a time: independent of the blocks and products of the host implementation.
Tensors attention_by_definition(const AttentionShape& s, const Tensor& qkv) {
  Tensor out{{s.batch * s.sequence, s.heads * s.head_dim}, {}}, lse{{s.batch, s.heads, s.sequence}, {}};
  out.values.resize(static_cast<std::size_t>(out.shape.elements()));
  const std::int64_t row = (s.heads + 2 * s.kv_heads) * s.head_dim;
  const auto at = [&](std::int64_t b, std::int64_t t, std::int64_t head, std::int64_t d) {
    return qkv.values[static_cast<std::size_t>((b * s.sequence + t) * row + head * s.head_dim + d)];
  };
  const std::vector<std::int32_t> starts = document_starts(s.batch, s.sequence);
  const auto first_seen = [&](std::int64_t b, std::int64_t i) {
    std::int64_t first = 0;
    if (s.documents == Documents::separate) first = starts[static_cast<std::size_t>(b * s.sequence + i)];
    return s.window > 0 ? std::max(first, i - s.window + 1) : first;
  };
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const std::int64_t key = s.heads + h / (s.heads / s.kv_heads), value = key + s.kv_heads;
      for (std::int64_t i = 0; i < s.sequence; ++i) {
        std::vector<double> weights;
        double total = 0;
        const std::int64_t first = first_seen(b, i);
        for (std::int64_t j = first; j <= i; ++j) {
          double score = 0;
          for (std::int64_t d = 0; d < s.head_dim; ++d) score += at(b, i, h, d) * at(b, j, key, d);
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(s.head_dim))));
          total += weights.back();
        }
        lse.values.push_back(std::log(total));
        for (std::int64_t d = 0; d < s.head_dim; ++d) {
          double sum = 0;
          for (std::int64_t j = first; j <= i; ++j) sum += weights[static_cast<std::size_t>(j - first)] * at(b, j, value, d);
          out.values[static_cast<std::size_t>((b * s.sequence + i) * s.heads * s.head_dim + h * s.head_dim + d)] = sum / total;
        }
      }
    }
  }
  return {{"out", out}, {"lse", lse}};
}

// Probabilities and their gradients pass through bf16 on the way to out and dqkv: a few roundings more than one.
Precision widened(Precision p) {
  if (p.compute == DType::bf16) p.norm_error = 1e-2, p.largest_error = 3e-2;
  return p;
}

constexpr Documents separate = Documents::separate;

class AttentionTest : public OpTest<AttentionCase> {};

TEST_P(AttentionTest, MatchesTheOracle) {
  const Tensors in = rounded(attention_inputs(shape().s), precision().compute);
  expect_close(run_attention(precision(), shape().s, in), run_attention(oracle, shape().s, in), widened(precision()));
}

INSTANTIATE_TEST_SUITE_P(Host, AttentionTest,
                         testing::ValuesIn(cases<AttentionCase>(one_type(host_precisions()),
                                                                {{{2, 7, 2, 2, 8}},
                                                                 {{1, 130, 4, 2, 16}},
                                                                 {{3, 64, 2, 1, 32}},
                                                                 {{1, 200, 4, 2, 16, 70}},
                                                                 {{2, 130, 2, 1, 8, 33, Documents::separate}}})),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, AttentionTest,
                         testing::ValuesIn(cases<AttentionCase>(one_type(gpu_precisions()),
                                                                {{{1, 64, 2, 2, 64}},
                                                                 {{3, 200, 12, 12, 64}},
                                                                 {{2, 200, 14, 2, 64}},
                                                                 {{2, 333, 8, 2, 128}},
                                                                 {{1, 1024, 5, 5, 80}},
                                                                 {{2, 200, 14, 2, 64, 37}},
                                                                 {{1, 1024, 4, 4, 128, 256}},
                                                                 {{3, 333, 8, 2, 128, 0, separate}},
                                                                 {{2, 200, 4, 2, 64, 37, separate}},
                                                                 {{4, 1024, 5, 5, 64, 0, separate}},
                                                                 {{2, 77, 4, 4, 80, 0, separate}}})),
                         case_name);

TEST(AttentionHostTest, MatchesItsDefinition) {
  for (const AttentionShape s :
       {AttentionShape{2, 9, 4, 2, 6}, AttentionShape{1, 70, 2, 2, 8}, AttentionShape{1, 1, 3, 1, 4},
        AttentionShape{1, 140, 2, 1, 4, 1}, AttentionShape{2, 140, 2, 1, 4, 67}, AttentionShape{1, 30, 2, 2, 4, 31},
        AttentionShape{3, 140, 4, 2, 4, 0, separate}, AttentionShape{3, 140, 2, 2, 4, 9, separate}}) {
    const Tensors in = attention_inputs(s), expected = attention_by_definition(s, in.at("qkv")),
                  got = run_attention(oracle, s, in);
    expect_close("out", got.at("out"), expected.at("out"), 1e-13, 1e-13);
    expect_close("lse", got.at("lse"), expected.at("lse"), 1e-13, 1e-13);
  }
}

TEST(AttentionHostTest, GivesTheSameBitsOnEveryRun) {
  const AttentionShape s{2, 100, 4, 2, 16};
  const Tensors in = attention_inputs(s);
  const Precision f32{DeviceKind::host, DType::f32, DType::f32, 0, 0};
  expect_same_bits(run_attention(f32, s, in), run_attention(f32, s, in));
}

TEST(AttentionHostTest, AsksForStartsWhereDocumentsAreSeparate) {
  OpDevice device(DeviceKind::host);
  AttentionForward args;
  args.shape = {1, 4, 2, 2, 4, 0, separate};
  args.qkv = device.poisoned(qkv_shape(args.shape), DType::f32);
  args.out = device.poisoned({4, 8}, DType::f32), args.lse = device.poisoned({1, 2, 4}, DType::f32);
  EXPECT_THROW(attention_forward(device.stream(), device.context(), args), InternalError);
  args.starts = device.put(std::vector<std::int32_t>{0, 0, 0, 0});
  args.shape.documents = Documents::joined;
  EXPECT_THROW(attention_forward(device.stream(), device.context(), args), InternalError);
}

TEST(AttentionGradientTest, MatchesCentralDifferences) {
  for (const AttentionShape s : {AttentionShape{2, 5, 2, 2, 3}, AttentionShape{1, 6, 4, 2, 4}, AttentionShape{1, 67, 2, 1, 2},
                                 AttentionShape{1, 70, 2, 1, 2, 5}, AttentionShape{2, 9, 2, 1, 3, 0, separate},
                                 AttentionShape{1, 70, 4, 2, 2, 6, separate}}) {
    const Tensors in = attention_inputs(s);
    const Tensor gradient = run_attention(oracle, s, in).at("dqkv");
    expect_gradient("qkv", in, gradient,
                    [&](const Tensors& at) { return dot(run_attention(oracle, s, at).at("out"), in.at("dout")); });
  }
}

}  // namespace
}  // namespace plait::ops
