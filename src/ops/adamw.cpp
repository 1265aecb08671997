#include "ops/adamw.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "ops/adamw_table.h"
#include "ops/argument_check.h"
#include "ops/implementations.h"

namespace plait::ops {
namespace {

void check_optimizer_state(const ArgumentCheck& check, const View& state) {
  check.that(state && state.bytes() >= sizeof(OptimizerState), "optimizer_state", "at least the bytes of one OptimizerState",
             describe(state));
}

}  // namespace

UpdateCoefficients update_coefficients(const UpdateSettings& s) {
  require(s.update >= 1, "update_coefficients: updates count from 1");
  const auto correction = [&](float beta) {
    return 1.0 / (1.0 - std::pow(static_cast<double>(beta), static_cast<double>(s.update)));
  };
  return {.lr = s.lr,
          .beta1 = s.beta1,
          .beta2 = s.beta2,
          .epsilon = s.epsilon,
          .weight_decay = s.weight_decay,
          .clip = s.clip,
          .correction1 = correction(s.beta1),
          .correction2 = correction(s.beta2),
          .update = s.update};
}

void norm_to_clip(StreamRef stream, const NormToClip& args) {
  const ArgumentCheck check("norm_to_clip", stream);
  check.given("sum_of_squares", args.sum_of_squares);
  const DType dtype = args.sum_of_squares.dtype;
  check.that((dtype == DType::f32 || (dtype == DType::f64 && !check.on_cuda())) && args.sum_of_squares.elements() >= 1,
             "sum_of_squares", "one f32 (or on the host f64)", describe(args.sum_of_squares));
  const auto check_number = [&](const char* name, const View& number) {
    check.that(number && number.dtype == dtype && number.elements() >= 1, name, "one number of sum_of_squares' type",
               describe(number));
  };
  check_number("loss", args.loss);
  check_number("ignored", args.ignored);
  check.that(args.targets >= 1, "targets", "at least 1", std::to_string(args.targets));
  check.that(args.update != nullptr, "update", "given", "nothing");
  check_optimizer_state(check, args.optimizer_state);
  return check.on_cuda() ? cuda::norm_to_clip(stream, args) : cpu::norm_to_clip(stream, args);
}

std::size_t adamw_table_bytes(const std::vector<AdamWRange>& ranges, DType moments) {
  std::int64_t pieces = 0;
  for (const AdamWRange& s : ranges) pieces += (s.count + adamw_piece_elements - 1) / adamw_piece_elements;
  return static_cast<std::size_t>(pieces * bytes_of_piece(moments));
}

std::vector<std::uint8_t> adamw_table(const std::vector<AdamWRange>& ranges, DType moments) {
  std::vector<AdamWPiece> pieces;
  std::vector<ElementNumbers> numbers;
  for (const AdamWRange& s : ranges) {
    require(s.offset >= 0 && s.gradient_offset >= 0 && s.state_offset >= 0 && s.count >= 0,
            "adamw_table: negative offset or count in a range");
    require(s.numbers.columns > 0 && s.numbers.column >= 0 && s.numbers.column < s.numbers.columns && s.numbers.skip >= 0,
            "adamw_table: a range begins in a column that it does not have");
    for (std::int64_t done = 0; done < s.count; done += adamw_piece_elements) {
      const std::int64_t count = std::min(adamw_piece_elements, s.count - done);
      pieces.push_back({s.offset + done, s.gradient_offset + done, s.state_offset + done, static_cast<std::int32_t>(count),
                        s.decay ? 1 : 0});
      if (moments == DType::bf16) numbers.push_back(s.numbers.from(done));
    }
  }
  const std::size_t bytes = pieces.size() * sizeof(AdamWPiece);
  std::vector<std::uint8_t> table(bytes + numbers.size() * sizeof(ElementNumbers));
  if (!pieces.empty()) std::memcpy(table.data(), pieces.data(), bytes);
  if (!numbers.empty()) std::memcpy(table.data() + bytes, numbers.data(), table.size() - bytes);
  return table;
}

void adamw(StreamRef stream, const AdamW& args) {
  const ArgumentCheck check("adamw", stream);
  check.compute_tensor("weights", args.weights, 1);
  const DType state_type = statistics_type(args.weights.dtype);
  check.gradient("gradients", args.gradients, args.weights.dtype, {args.gradients.elements()});
  check.tensor("master", args.master, state_type, {args.master.elements()});
  const bool bf16_moments = args.m.dtype == DType::bf16 && state_type == DType::f32;
  const DType moment_type = bf16_moments ? DType::bf16 : state_type;
  check.tensor("m", args.m, moment_type, args.master.shape);
  check.tensor("v", args.v, moment_type, args.master.shape);
  check.that(args.table && args.table.dtype == DType::u8 && args.table.elements() % bytes_of_piece(moment_type) == 0, "table",
             "the u8 table that adamw_table returned", describe(args.table));
  check_optimizer_state(check, args.optimizer_state);
  return check.on_cuda() ? cuda::adamw(stream, args) : cpu::adamw(stream, args);
}

}  // namespace plait::ops
