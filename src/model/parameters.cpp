#include "model/parameters.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/philox.h"

namespace plait::model {
namespace {

constexpr float weight_std = 0.02f;  // GPT-2

std::string prefix_of(const ModelShape& s, int segment) { return "blocks." + std::to_string(s.layer(segment)) + "."; }

// Adds parameters to a list, each as one tensor-parallel rank's part.
class ParameterList {
 public:
  ParameterList(const ModelShape& shape, const TensorSplit& split) : s_(shape), split_(split) {}

  std::vector<Parameter> take() { return std::move(list_); }

  // A parameter that every rank of the tensor group holds whole.
  Parameter& whole(std::string name, Shape shape, int segment, View SegmentParameters::* view) {
    const std::int64_t columns = shape.rank() == 1 ? 1 : shape[1];
    Parameter& p = add(std::move(name), shape, shape, segment, view);
    p.part = {{{0, 0, shape[0]}}, columns, 0, columns};
    p.replica = split_.rank > 0;
    return p;
  }
  // The same, but each rank computes gradients only from its own rows of the residual stream.
  Parameter& of_own_rows(std::string name, Shape shape, int segment, View SegmentParameters::* view) {
    Parameter& p = whole(std::move(name), shape, segment, view);
    if (split_.sequence_parallel) p.partial = p.partial.with(segment_axis);
    return p;
  }

  // Split by rows (column-parallel: by output): the tensor is a stack of parts of `part_rows` rows each, and every rank
  // has its share of each part: its query, key and value heads, or its gate and up columns.
  Parameter& split_rows(std::string name, const std::vector<std::int64_t>& part_rows, std::int64_t columns, int segment,
                        View SegmentParameters::* view) {
    TensorPart part{{}, columns, 0, columns};
    std::int64_t rows = 0, whole_rows = 0;
    for (const std::int64_t all : part_rows) {
      const std::int64_t share = all / split_.size;
      part.rows.push_back({rows, whole_rows + split_.rank * share, share});
      rows += share;
      whole_rows += all;
    }
    Parameter& p = add(std::move(name), {rows, columns}, {whole_rows, columns}, segment, view);
    p.part = std::move(part);
    return p;
  }

  // The bias of a matrix that split_rows() splits, split like its rows.
  void split_bias(std::string name, const std::vector<std::int64_t>& part_rows, int segment, View SegmentParameters::* view) {
    Parameter& p = split_rows(std::move(name), part_rows, 1, segment, view);
    p.shape = {p.shape[0]};
    p.stored_shape = {p.stored_shape[0]};
  }

  // Split by columns (row-parallel: by input).
  Parameter& split_columns(std::string name, std::int64_t rows, std::int64_t columns, int segment,
                           View SegmentParameters::* view) {
    const std::int64_t share = columns / split_.size;
    Parameter& p = add(std::move(name), {rows, share}, {rows, columns}, segment, view);
    p.part = {{{0, 0, rows}}, share, split_.rank * share, columns};
    return p;
  }

  // The gain of the norm of each query or key head. A rank computes its gradient from its own heads, with all rows.
  void head_gain(std::string name, int segment, View SegmentParameters::* view) {
    Parameter& p = whole(std::move(name), {s_.head_dim}, segment, view);
    p.init = Init::one;
    if (split_.size > 1) p.partial = p.partial.with(segment_axis);
  }

  void norm(const std::string& name, int segment) {
    const auto vector = [&](const char* suffix, Init init, View SegmentParameters::* view) {
      Parameter& p = whole(name + suffix, {s_.hidden}, segment, view);
      p.init = init;
      p.norm = true;
      if (split_.sequence_parallel) p.partial = p.partial.with(segment_axis);
    };
    vector(".weight", Init::one, &SegmentParameters::norm_weight);
    if (s_.norm == ops::NormKind::layer_norm && s_.bias) vector(".bias", Init::zero, &SegmentParameters::norm_bias);
  }

  // A table split by vocabulary. The padding is at the end of the last ranks' rows.
  Parameter& table(std::string name, int segment, View SegmentParameters::* view) {
    Parameter& p = split_rows(std::move(name), {s_.padded_vocab}, s_.hidden, segment, view);
    const std::int64_t rows = s_.padded_vocab / split_.size;
    p.stored = std::clamp<std::int64_t>(s_.vocab - split_.rank * rows, 0, rows) * s_.hidden;
    p.stored_shape = {s_.vocab, s_.hidden};
    weights(p, weight_std);
    return p;
  }

  static void weights(Parameter& p, float std) {
    p.init = Init::normal;
    p.std = std;
    p.decay = true;
  }

  static void product(Parameter& p, float std, ops::Quantized QuantizedParameters::* operand) {
    weights(p, std);
    p.operand = operand;
  }

 private:
  Parameter& add(std::string name, Shape shape, Shape stored_shape, int segment, View SegmentParameters::* view) {
    list_.push_back({.name = std::move(name),
                     .shape = shape,
                     .stored = shape.elements(),
                     .stored_shape = stored_shape,
                     .part = {},
                     .segment = segment,
                     .view = view});
    return list_.back();
  }

  const ModelShape& s_;
  const TensorSplit& split_;
  std::vector<Parameter> list_;
};

// The two projections back into the residual stream are scaled down with depth (GPT-2, Radford et al. 2019, section 2.3).
float residual_std(const ModelShape& s) { return weight_std / std::sqrt(2.0f * static_cast<float>(s.layers)); }

void add_attention(ParameterList& list, const ModelShape& s, int segment) {
  const std::string prefix = prefix_of(s, segment);
  const std::int64_t query = s.heads * s.head_dim, key = s.kv_heads * s.head_dim;
  const std::vector<std::int64_t> qkv = {query, key, key};
  list.norm(prefix + "attention_norm", segment);
  ParameterList::product(
      list.split_rows(prefix + "attention.qkv.weight", qkv, s.hidden, segment, &SegmentParameters::qkv_weight), weight_std,
      &QuantizedParameters::qkv);
  if (s.qkv_bias) list.split_bias(prefix + "attention.qkv.bias", qkv, segment, &SegmentParameters::qkv_bias);
  if (s.qk_norm) {
    list.head_gain(prefix + "attention.query_norm.weight", segment, &SegmentParameters::query_gain);
    list.head_gain(prefix + "attention.key_norm.weight", segment, &SegmentParameters::key_gain);
  }
  ParameterList::product(
      list.split_columns(prefix + "attention.output.weight", s.hidden, query, segment, &SegmentParameters::output_weight),
      residual_std(s), &QuantizedParameters::output);
  if (s.bias) list.of_own_rows(prefix + "attention.output.bias", {s.hidden}, segment, &SegmentParameters::output_bias);
}

void add_mlp(ParameterList& list, const ModelShape& s, int segment) {
  const std::string prefix = prefix_of(s, segment);
  const std::vector<std::int64_t> up = s.mlp == Mlp::swiglu ? std::vector{s.ffn, s.ffn} : std::vector{s.ffn};
  list.norm(prefix + "mlp_norm", segment);
  ParameterList::product(list.split_rows(prefix + "mlp.up.weight", up, s.hidden, segment, &SegmentParameters::up_weight),
                         weight_std, &QuantizedParameters::up);
  if (s.bias) list.split_bias(prefix + "mlp.up.bias", up, segment, &SegmentParameters::up_bias);
  ParameterList::product(
      list.split_columns(prefix + "mlp.down.weight", s.hidden, s.ffn, segment, &SegmentParameters::down_weight),
      residual_std(s), &QuantizedParameters::down);
  if (s.bias) list.of_own_rows(prefix + "mlp.down.bias", {s.hidden}, segment, &SegmentParameters::down_bias);
}

}  // namespace

std::vector<Parameter> parameters(const ModelShape& s, const TensorSplit& split, const std::vector<int>& segments) {
  const auto holds = [&](int segment) { return std::find(segments.begin(), segments.end(), segment) != segments.end(); };
  ParameterList list(s, split);
  const bool table_elsewhere = s.tie_embeddings && holds(0) != holds(s.head_segment());
  const auto table = [&](int segment) -> Parameter& {
    Parameter& p = list.table("embedding.tokens.weight", segment, &SegmentParameters::tokens);
    if (table_elsewhere) p.partial = p.partial.with(stage_axis);
    return p;
  };
  for (const int segment : segments) {
    switch (s.kind(segment)) {
      case SegmentKind::embedding:
        table(segment);
        if (s.position == Position::learned) {
          Parameter& positions =
              list.whole("embedding.positions.weight", {s.max_sequence, s.hidden}, segment, &SegmentParameters::positions);
          ParameterList::weights(positions, weight_std);
          positions.decay = false;
        }
        break;
      case SegmentKind::attention: add_attention(list, s, segment); break;
      case SegmentKind::mlp: add_mlp(list, s, segment); break;
      case SegmentKind::head:
        list.norm("head.norm", segment);
        if (!s.tie_embeddings) list.table("head.weight", segment, &SegmentParameters::head_weight);
        if (s.tie_embeddings && !holds(0)) {
          table(segment).replica = true;
        }
        break;
    }
  }
  return list.take();
}

std::vector<Parameter> parameters(const ModelShape& shape) {
  std::vector<int> all(static_cast<std::size_t>(shape.segments()));
  std::iota(all.begin(), all.end(), 0);
  return parameters(shape, {}, all);
}

std::vector<ElementBlock> whole_blocks(const TensorPart& part, std::int64_t first, std::int64_t count) {
  std::vector<ElementBlock> blocks;
  const std::int64_t end = first + count, width = part.columns;
  for (const TensorPart::Rows& rows : part.rows) {
    const std::int64_t rows_end = std::min(end, (rows.first + rows.count) * width);
    for (std::int64_t at = std::max(first, rows.first * width); at < rows_end;) {
      // A range may begin and end within a row.
      const std::int64_t row = at / width, column = at % width;
      const bool is_whole = column == 0 && rows_end - at >= width;
      blocks.push_back({.first = at,
                        .row = rows.whole_first + row - rows.first,
                        .rows = is_whole ? (rows_end - at) / width : 1,
                        .column = part.column_first + column,
                        .columns = is_whole ? width : std::min(rows_end - at, width - column)});
      at += blocks.back().elements();
    }
  }
  return blocks;
}

std::vector<ElementRun> whole_runs(const TensorPart& part, std::int64_t first, std::int64_t count) {
  std::vector<ElementRun> runs;
  const auto add = [&](std::int64_t here, std::int64_t there, std::int64_t elements) {
    if (!runs.empty() && runs.back().whole_first + runs.back().count == there) {
      runs.back().count += elements;
    } else {
      runs.push_back({here, there, elements});
    }
  };
  for (const ElementBlock& block : whole_blocks(part, first, count)) {
    const std::int64_t there = block.row * part.whole_columns + block.column;
    if (block.columns == part.whole_columns) {
      add(block.first, there, block.elements());
      continue;
    }
    for (std::int64_t row = 0; row < block.rows; ++row)
      add(block.first + row * block.columns, there + row * part.whole_columns, block.columns);
  }
  return runs;
}

void initial_values(const Parameter& parameter, std::uint64_t seed, std::int64_t first, std::span<float> values) {
  switch (parameter.init) {
    case Init::zero:
    case Init::one: std::fill(values.begin(), values.end(), parameter.init == Init::one ? 1.0f : 0.0f); break;
    case Init::normal: {
      const Random random(seed, parameter.name);
      for (const ElementRun& run : whole_runs(parameter.part, first, std::ssize(values))) {
        random.fill_normal(static_cast<std::uint64_t>(run.whole_first),
                           values.subspan(static_cast<std::size_t>(run.first - first), static_cast<std::size_t>(run.count)));
      }
      for (float& v : values) v *= parameter.std;
      break;
    }
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (first + static_cast<std::int64_t>(i) >= parameter.stored) values[i] = 0.0f;
  }
}

std::vector<SegmentParameters> bind_parameters(const ModelShape& s, const std::vector<Parameter>& list,
                                               std::span<const View> views) {
  require(list.size() == views.size(), "bind_parameters: one view for every parameter");
  std::vector<SegmentParameters> segments(static_cast<std::size_t>(s.segments()));
  for (std::size_t i = 0; i < list.size(); ++i) {
    require(views[i].shape == list[i].shape, "bind_parameters: shape of " + list[i].name);
    segments[static_cast<std::size_t>(list[i].segment)].*list[i].view = views[i];
    if (list[i].view == &SegmentParameters::tokens && s.tie_embeddings) segments.back().head_weight = views[i];
  }
  return segments;
}

std::vector<QuantizedParameters> bind_quantized(const ModelShape& s, const std::vector<Parameter>& list,
                                                std::span<const ops::Quantized> quantized) {
  require(list.size() == quantized.size(), "bind_quantized: one entry for every parameter");
  std::vector<QuantizedParameters> segments(static_cast<std::size_t>(s.segments()));
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].operand) segments[static_cast<std::size_t>(list[i].segment)].*list[i].operand = quantized[i];
  }
  return segments;
}

}  // namespace plait::model
