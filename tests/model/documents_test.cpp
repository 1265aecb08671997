// A sequence of several documents gives the same results as the documents alone.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "model/serial_model.h"

namespace plait::model {
namespace {

struct PackedCase {
  const char* name;
  Position position;
  std::int64_t window;
  Recompute recompute;
};

class PackedDocuments : public testing::TestWithParam<PackedCase> {
 protected:
  static constexpr std::int64_t sequence = 12;
  static ModelShape shape() {
    ModelShape s;
    s.layers = 3, s.hidden = 24, s.heads = 4, s.kv_heads = 2, s.head_dim = 8, s.ffn = 40, s.vocab = 37, s.padded_vocab = 48;
    s.max_sequence = sequence, s.position = GetParam().position;
    s.window = GetParam().window;
    if (s.window > 0) s.window_layers = {0, 2};
    return s;
  }
  static SerialModel make(MicroBatchShape micro_batch) {
    return SerialModel({shape(), {}, micro_batch, DType::f64, GetParam().recompute}, 42);
  }
};

TEST_P(PackedDocuments, HaveTheLogitsAndGradientsOfEachAlone) {
  const std::vector<std::vector<std::int64_t>> sequences = {{4, 1, 7}, {10, 2}};
  const auto rows = static_cast<std::int64_t>(sequences.size()) * sequence;
  SerialModel packed = make({static_cast<std::int64_t>(sequences.size()), sequence, Documents::separate});
  const Batch& batch = packed.batch();
  for (std::size_t b = 0, row = 0; b < sequences.size(); ++b) {
    std::int32_t start = 0;
    for (const std::int64_t length : sequences[b]) {
      for (std::int64_t i = 0; i < length; ++i) batch.starts.as<std::int32_t>()[row++] = start;
      start += static_cast<std::int32_t>(length);
    }
  }
  packed.run(false);
  std::vector<double> logits;
  for (std::int64_t i = 0; i < packed.logits().elements(); ++i) logits.push_back(SerialModel::get(packed.logits(), i));
  packed.run(true);

  std::vector<std::vector<double>> sums;
  for (std::size_t p = 0; p < packed.list().size(); ++p) sums.emplace_back(packed.gradient(p).elements(), 0.0);
  const std::int64_t columns = packed.logits().shape[1];
  std::int64_t first = 0;  // row of the packed batch
  for (const std::vector<std::int64_t>& lengths : sequences) {
    for (const std::int64_t length : lengths) {
      SerialModel alone = make({1, length});
      for (std::int64_t i = 0; i < length; ++i) {
        alone.batch().tokens.as<std::int32_t>()[i] = batch.tokens.as<std::int32_t>()[first + i];
        alone.batch().targets.as<std::int32_t>()[i] = batch.targets.as<std::int32_t>()[first + i];
      }
      alone.run(false);
      for (std::int64_t i = 0; i < length * columns; ++i) {
        ASSERT_NEAR(logits[static_cast<std::size_t>(first * columns + i)], SerialModel::get(alone.logits(), i), 1e-12)
            << "document of " << length << " at row " << first;
      }
      alone.run(true);
      // Each run's loss is the mean over its own rows.
      const double share = static_cast<double>(length) / static_cast<double>(rows);
      for (std::size_t p = 0; p < sums.size(); ++p) {
        for (std::size_t i = 0; i < sums[p].size(); ++i)
          sums[p][i] += share * SerialModel::get(alone.gradient(p), static_cast<std::int64_t>(i));
      }
      first += length;
    }
  }
  for (std::size_t p = 0; p < sums.size(); ++p) {
    const double norm = std::sqrt(std::inner_product(sums[p].begin(), sums[p].end(), sums[p].begin(), 0.0));
    ASSERT_GT(norm, 0) << packed.list()[p].name;
    for (std::size_t i = 0; i < sums[p].size(); ++i) {
      // The loss scale passes through a float.
      ASSERT_NEAR(SerialModel::get(packed.gradient(p), static_cast<std::int64_t>(i)), sums[p][i], 1e-6 * norm)
          << packed.list()[p].name << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PackedDocuments,
                         testing::Values(PackedCase{"learned", Position::learned, 0, Recompute::none},
                                         PackedCase{"rope", Position::rope, 0, Recompute::full},
                                         PackedCase{"rope_window", Position::rope, 3, Recompute::none},
                                         PackedCase{"learned_window", Position::learned, 5, Recompute::full}),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace plait::model
