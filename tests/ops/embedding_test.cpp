#include "ops/embedding.h"

#include "ops/op_test.h"

namespace plait::ops {
namespace {

struct EmbeddingShape {
  std::int64_t batch = 0, sequence = 0, vocab = 0, dim = 0;
  bool positions = false, accumulate = false, documents = false;
  std::string name() const {
    return "batch" + std::to_string(batch) + "_sequence" + std::to_string(sequence) + "_vocab" + std::to_string(vocab) +
           "_dim" + std::to_string(dim) + (positions ? "_positions" : "") + (accumulate ? "_accumulate" : "") +
           (documents ? "_documents" : "");
  }
  std::int64_t rows() const { return batch * sequence; }
  std::int64_t position_rows() const { return sequence + 2; }  // a table longer than the sequence
};

// Half of the tokens are drawn from four: rows that many positions add to.
std::vector<std::int32_t> tokens_of(const EmbeddingShape& s) {
  std::vector<std::int32_t> tokens = random_indices(s.rows(), s.vocab, "tokens");
  const std::vector<std::int32_t> frequent = random_indices(s.rows(), std::min<std::int64_t>(4, s.vocab), "frequent");
  for (std::size_t i = 0; i < tokens.size(); i += 2) tokens[i] = frequent[i];
  tokens[0] = static_cast<std::int32_t>(s.vocab - 1);
  return tokens;
}

Tensors embedding_inputs(const EmbeddingShape& s) {
  Tensors in{{"tokens_table", random_tensor({s.vocab, s.dim}, "tokens_table")}, {"dy", random_tensor({s.rows(), s.dim}, "dy")}};
  if (s.positions) in["positions_table"] = random_tensor({s.position_rows(), s.dim}, "positions_table");
  if (s.accumulate) {
    in["present_tokens"] = random_tensor({s.vocab, s.dim}, "present_tokens");
    in["present_positions"] = random_tensor({s.position_rows(), s.dim}, "present_positions");
  }
  return in;
}

Tensor embedding_forward_on(DeviceKind kind, DType dtype, const EmbeddingShape& s, const Tensors& in) {
  OpDevice device(kind);
  EmbeddingForward args;
  args.tokens = device.put(tokens_of(s));
  if (s.documents) args.starts = device.put(document_starts(s.batch, s.sequence));
  args.tokens_table = device.put(in.at("tokens_table"), dtype);
  if (s.positions) args.positions_table = device.put(in.at("positions_table"), dtype);
  args.y = device.poisoned({s.rows(), s.dim}, dtype);
  args.sequence = s.sequence;
  embedding_forward(device.stream(), args);
  return device.get(args.y);
}

Tensors embedding_backward_on(const Precision& p, const EmbeddingShape& s, const Tensors& in) {
  OpDevice device(p.device);
  EmbeddingBackward args;
  args.tokens = device.put(tokens_of(s));
  if (s.documents) args.starts = device.put(document_starts(s.batch, s.sequence));
  args.dy = device.put(in.at("dy"), p.compute);
  args.dtokens_table =
      s.accumulate ? device.put(in.at("present_tokens"), p.gradient) : device.poisoned({s.vocab, s.dim}, p.gradient);
  if (s.positions) {
    args.dpositions_table = s.accumulate ? device.put(in.at("present_positions"), p.gradient)
                                         : device.poisoned({s.position_rows(), s.dim}, p.gradient);
  }
  args.sequence = s.sequence;
  args.accumulate_tokens = args.accumulate_positions = s.accumulate;
  embedding_backward(device.stream(), device.context(), args);
  Tensors result{{"dtokens_table", device.get(args.dtokens_table)}};
  if (s.positions) result["dpositions_table"] = device.get(args.dpositions_table);
  return result;
}

class EmbeddingTest : public OpTest<EmbeddingShape> {};

TEST_P(EmbeddingTest, ForwardMatchesTheOracle) {
  const Tensors in = rounded(embedding_inputs(shape()), precision().compute);
  expect_close("y", embedding_forward_on(precision().device, precision().compute, shape(), in),
               embedding_forward_on(DeviceKind::host, DType::f64, shape(), in), precision().norm_error,
               precision().largest_error);
}

TEST_P(EmbeddingTest, BackwardMatchesTheOracle) {
  const Tensors in = rounded(embedding_inputs(shape()), precision().compute);
  Precision bounds = precision();
  if (bounds.gradient == DType::f32) bounds.norm_error = 1e-5, bounds.largest_error = 5e-5;  // no rounding to bf16 on the way
  expect_close(embedding_backward_on(precision(), shape(), in), embedding_backward_on(oracle, shape(), in), bounds);
}

TEST_P(EmbeddingTest, BackwardGivesTheSameBitsOnEveryRun) {
  const Tensors in = rounded(embedding_inputs(shape()), precision().compute);
  expect_same_bits(embedding_backward_on(precision(), shape(), in), embedding_backward_on(precision(), shape(), in));
}

INSTANTIATE_TEST_SUITE_P(Host, EmbeddingTest,
                         testing::ValuesIn(cases<EmbeddingShape>(host_precisions(), {{2, 6, 11, 5, true},
                                                                                     {3, 40, 300, 16, true, true},
                                                                                     {1, 9, 4, 8},
                                                                                     {2, 17, 64, 33, false, true},
                                                                                     {3, 40, 300, 16, true, true, true},
                                                                                     {2, 17, 64, 33, true, false, true}})),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, EmbeddingTest,
                         testing::ValuesIn(cases<EmbeddingShape>(gpu_precisions(), {{3, 200, 50304, 72, true, true},
                                                                                    {2, 333, 1000, 776, true},
                                                                                    {1, 77, 151936, 40},
                                                                                    {8, 1024, 256, 96, true, true},
                                                                                    {2, 64, 5, 1000, false, true},
                                                                                    {3, 333, 1000, 776, true, false, true},
                                                                                    {8, 1024, 256, 96, true, true, true}})),
                         case_name);

// By the definition: the position of a token counts from the start of its document.
TEST(EmbeddingHostTest, PositionsBeginAnewWithEachDocument) {
  const EmbeddingShape s{2, 9, 6, 2, true, false, true};
  const Tensors in = embedding_inputs(s);
  const Tensor y = embedding_forward_on(DeviceKind::host, DType::f64, s, in);
  const std::vector<std::int32_t> starts = document_starts(s.batch, s.sequence), tokens = tokens_of(s);
  EXPECT_GT(*std::max_element(starts.begin(), starts.end()), 0);
  for (std::int64_t row = 0; row < s.rows(); ++row) {
    const std::int64_t position = row % s.sequence - starts[static_cast<std::size_t>(row)];
    for (std::int64_t i = 0; i < s.dim; ++i) {
      const auto of = [&](const char* table, std::int64_t entry) {
        return in.at(table).values[static_cast<std::size_t>(entry * s.dim + i)];
      };
      EXPECT_DOUBLE_EQ(y.values[static_cast<std::size_t>(row * s.dim + i)],
                       of("tokens_table", tokens[static_cast<std::size_t>(row)]) + of("positions_table", position));
    }
  }
}

TEST(EmbeddingGradientTest, MatchesCentralDifferences) {
  for (const EmbeddingShape s :
       {EmbeddingShape{2, 5, 6, 3, true}, EmbeddingShape{3, 4, 9, 2}, EmbeddingShape{2, 9, 6, 3, true, false, true}}) {
    const Tensors in = embedding_inputs(s), gradients = embedding_backward_on(oracle, s, in);
    const auto loss = [&](const Tensors& at) {
      return dot(embedding_forward_on(DeviceKind::host, DType::f64, s, at), in.at("dy"));
    };
    expect_gradient("tokens_table", in, gradients.at("dtokens_table"), loss);
    if (s.positions) expect_gradient("positions_table", in, gradients.at("dpositions_table"), loss);
  }
}

TEST(EmbeddingGradientTest, AccumulateAddsToWhatIsThere) {
  EmbeddingShape s{2, 6, 11, 5, true, true};
  const Tensors in = embedding_inputs(s), sum = embedding_backward_on(oracle, s, in);
  s.accumulate = false;
  Tensors expected = embedding_backward_on(oracle, s, in);
  for (auto& [name, tensor] : expected) {
    const Tensor& present = in.at(name == "dtokens_table" ? "present_tokens" : "present_positions");
    for (std::size_t i = 0; i < tensor.values.size(); ++i) tensor.values[i] += present.values[i];
    expect_close(name, sum.at(name), tensor, 1e-14, 1e-14);
  }
}

// The vocabulary split into parts of rows, as tensor-parallel ranks hold it; the last part is the shortest.
struct VocabularyPart {
  std::int64_t first_token = 0, rows = 0;
};

std::vector<VocabularyPart> parts_of(std::int64_t vocab, std::int64_t parts) {
  std::vector<VocabularyPart> all;
  const std::int64_t rows = (vocab + parts - 1) / parts;
  for (std::int64_t first = 0; first < vocab; first += rows) all.push_back({first, std::min(rows, vocab - first)});
  return all;
}

Tensor table_rows(const Tensor& table, const VocabularyPart& part) {
  const std::int64_t dim = table.shape[1];
  const auto first = table.values.begin() + part.first_token * dim;
  return {{part.rows, dim}, {first, first + part.rows * dim}};
}

class EmbeddingPartsTest : public OpTest<EmbeddingShape> {};

TEST_P(EmbeddingPartsTest, ForwardOfThePartsSumsToTheWhole) {
  const EmbeddingShape& s = shape();
  const DType dtype = precision().compute;
  const Tensors in = rounded(embedding_inputs(s), dtype);
  const Tensor expected = embedding_forward_on(DeviceKind::host, DType::f64, s, in);
  const std::vector<std::int32_t> tokens = tokens_of(s);
  for (const std::int64_t parts : {1, 2, 3, 4}) {
    SCOPED_TRACE(std::to_string(parts) + " parts");
    Tensor sum{expected.shape, std::vector<double>(expected.values.size(), 0.0)};
    for (const VocabularyPart& part : parts_of(s.vocab, parts)) {
      OpDevice device(precision().device);
      EmbeddingForward args;
      args.tokens = device.put(tokens);
      args.tokens_table = device.put(table_rows(in.at("tokens_table"), part), dtype);
      // One part adds the positions: the first, which many of the tokens are not in.
      if (s.positions && part.first_token == 0) args.positions_table = device.put(in.at("positions_table"), dtype);
      args.y = device.poisoned(expected.shape, dtype);
      args.sequence = s.sequence;
      args.first_token = part.first_token;
      embedding_forward(device.stream(), args);
      const Tensor y = device.get(args.y);
      for (std::size_t i = 0; i < y.values.size(); ++i) {
        const std::int64_t entry = tokens[i / static_cast<std::size_t>(s.dim)] - part.first_token;
        if (!args.positions_table && (entry < 0 || entry >= part.rows)) {
          ASSERT_EQ(y.values[i], 0.0) << "element " << i;
        }
        sum.values[i] += y.values[i];
      }
    }
    expect_close("y", sum, expected, precision().norm_error, precision().largest_error);
  }
}

TEST_P(EmbeddingPartsTest, BackwardGivesEachPartItsRowsOfTheWhole) {
  const EmbeddingShape& s = shape();
  const Tensors in = rounded(embedding_inputs(s), precision().compute);
  Precision bounds = precision();
  if (bounds.gradient == DType::f32) bounds.norm_error = 1e-5, bounds.largest_error = 5e-5;
  const Tensors expected = embedding_backward_on(oracle, s, in);
  for (const std::int64_t parts : {1, 2, 3, 4}) {
    SCOPED_TRACE(std::to_string(parts) + " parts");
    Tensors got{{"dtokens_table", {expected.at("dtokens_table").shape, {}}}};
    for (const VocabularyPart& part : parts_of(s.vocab, parts)) {
      OpDevice device(precision().device);
      EmbeddingBackward args;
      args.tokens = device.put(tokens_of(s));
      args.dy = device.put(in.at("dy"), precision().compute);
      args.dtokens_table = s.accumulate ? device.put(table_rows(in.at("present_tokens"), part), precision().gradient)
                                        : device.poisoned({part.rows, s.dim}, precision().gradient);
      if (s.positions) {
        args.dpositions_table = s.accumulate ? device.put(in.at("present_positions"), precision().gradient)
                                             : device.poisoned({s.position_rows(), s.dim}, precision().gradient);
      }
      args.sequence = s.sequence;
      args.first_token = part.first_token;
      args.accumulate_tokens = args.accumulate_positions = s.accumulate;
      embedding_backward(device.stream(), device.context(), args);
      const Tensor rows = device.get(args.dtokens_table);
      std::vector<double>& all = got["dtokens_table"].values;
      all.insert(all.end(), rows.values.begin(), rows.values.end());
      if (s.positions) got["dpositions_table"] = device.get(args.dpositions_table);  // every part has all of them
    }
    expect_close(got, expected, bounds);
  }
}

INSTANTIATE_TEST_SUITE_P(Host, EmbeddingPartsTest,
                         testing::ValuesIn(cases<EmbeddingShape>(
                             host_precisions(), {{2, 6, 11, 5, true}, {3, 40, 300, 16, true, true}, {1, 9, 4, 8}})),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, EmbeddingPartsTest,
                         testing::ValuesIn(cases<EmbeddingShape>(gpu_precisions(), {{3, 200, 5003, 72, true, true},
                                                                                    {2, 333, 1000, 40, true},
                                                                                    {8, 1024, 256, 96, false, true},
                                                                                    {2, 64, 5, 1000}})),
                         case_name);

}  // namespace
}  // namespace plait::ops
