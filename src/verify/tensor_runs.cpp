#include "verify/tensor_runs.h"

#include <algorithm>

#include "core/error.h"

namespace plait::verify {
namespace {

using model::ElementRun;

// Columns of a tensor that is split by columns, as segments of which every tensor-parallel rank has its share: query, key and
// value heads, gate and up, or all of them together. `name` is an activation's; its gradient is split in the same way.
std::vector<std::int64_t> segments_of(const std::string& name, const model::ModelShape& s, std::int64_t columns) {
  if (name.ends_with("qkv")) return {s.heads * s.head_dim, s.kv_heads * s.head_dim, s.kv_heads * s.head_dim};
  if (name.ends_with("up") && s.mlp == model::Mlp::swiglu) return {s.ffn, s.ffn};
  return {columns};
}

// A tensor as a matrix. The head dim of [batch, heads, sequence] is one of columns.
std::int64_t columns_of(const std::vector<std::int64_t>& shape) {
  if (shape.size() == 1) return 1;
  std::int64_t columns = 1;
  for (std::size_t dim = 1; dim < shape.size(); ++dim) columns *= shape[dim];
  return columns;
}

std::vector<ElementRun> column_runs(const parallel::RankPlan& plan, const runtime::WrittenTensor& tensor,
                                    const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& whole) {
  const int rank = plan.sizes.split.rank;
  const std::int64_t here = columns_of(shape), there = columns_of(whole);
  const auto own = segments_of(tensor.name, plan.local_shape(), here);
  const auto all = segments_of(tensor.name, plan.sizes.shape, there);
  // Only logits have padded columns, and different numbers of them on different ranks.
  const std::int64_t last = tensor.name.ends_with("logits") ? plan.sizes.shape.vocab : there;
  std::vector<ElementRun> runs;
  for (std::int64_t row = 0; row < shape[0]; ++row) {
    std::int64_t own_first = 0, all_first = 0;
    for (std::size_t s = 0; s < own.size(); ++s) {
      const std::int64_t first = all_first + rank * own[s];
      const std::int64_t count = std::min(own[s], last - first);
      if (count > 0) runs.push_back({row * here + own_first, row * there + first, count});
      own_first += own[s];
      all_first += all[s];
    }
  }
  return runs;
}

}  // namespace

std::vector<ElementRun> serial_runs(const parallel::RankPlan& plan, const runtime::WrittenTensor& tensor,
                                    const std::vector<std::int64_t>& whole) {
  if (tensor.parameter >= 0) {
    const model::Parameter& parameter = plan.parameters[static_cast<std::size_t>(tensor.parameter)];
    return model::whole_runs(parameter.part, 0, parameter.stored);
  }
  std::vector<std::int64_t> shape;
  for (int dim = 0; dim < tensor.view.shape.rank(); ++dim) shape.push_back(tensor.view.shape[dim]);
  if (tensor.split == model::Split::columns) return column_runs(plan, tensor, shape, whole);
  const std::int64_t elements = tensor.view.elements(), columns = columns_of(shape);
  require(columns == columns_of(whole), "serial_runs: " + tensor.name + " has other columns than in the serial run");
  const bool shares_rows = tensor.split == model::Split::residual && plan.sizes.split.sequence_parallel;
  const std::int64_t first_row = shares_rows ? plan.sizes.split.rank * shape[0] : 0;
  return {{0, first_row * columns, elements}};
}

}  // namespace plait::verify
