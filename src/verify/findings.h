// The ranks' findings when they compared a layout with the serial run: differences in relation to their bounds, and the first
// place where the layout departs from it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/word.h"
#include "core/limits.h"
#include "core/names.h"
#include "parallel/ledger_json.h"
#include "parallel/mesh.h"

namespace plait::verify {

// The error of a value that is NaN or infinite. JSON has neither.
inline constexpr double not_finite = 1e300;

// max |a - b|: the numerator of a tensor's relative error, max |a - b| / max |b| over the whole tensor. Elements are measured
// by the largest because rounding errors of a sum do not shrink with the sum.
class Difference {
 public:
  void add(double a, double b);
  double largest() const { return largest_; }
  // `scale`: max |b|. A tensor of zeros is compared absolutely.
  double relative(double scale) const;

 private:
  double largest_ = 0;
};

double relative_difference(double a, double b);

// All errors of one kind.
struct ErrorSummary {
  double largest = 0;   // relative error
  double of_bound = 0;  // the largest error as a share of its own bound; above 1 is a failure
  std::string where;    // of that one

  void add(double error, double bound, const std::string& where);
  void merge(const ErrorSummary& other);  // of other ranks or layouts
};

// The compared parts of a step, in their order of computation.
enum class StepPart {
  tensors,     // written by forward and backward, instruction by instruction
  gradients,   // after reductions
  loss,        // after the sum over ranks
  norm,        // of the gradients, likewise
  parameters,  // after the update
  weights,     // used by segments from then on
};

// Divergences are ordered by time: step, part, then `order` and `index` within the part, then rank.
struct Divergence {
  // The place in execution.
  std::int64_t step = 0;
  StepPart part = StepPart::tensors;
  std::int64_t order = 0;  // parallel::execution_order, or segments in backward order
  std::int64_t index = 0;  // of the tensor among those of that order
  int rank = 0;

  parallel::Coordinates at = {};  // of the rank
  std::string what = {};          // "backward_input micro-batch 0 segment 3: gradient of qkv"
  std::string tensor = {};        // the last part of `what` alone
  int segment = -1, micro_batch = -1;
  double error = 0, bound = 0;
  std::string remark = {};  // further knowledge; may be empty

  // "step 1, backward_input micro-batch 0 segment 3: gradient of qkv, rank 2 (pipeline 1, data 0, tensor 0), relative error
  // 0.7 (bound 1.0e-05)"
  std::string text() const;
  bool before(const Divergence& other) const;
};

enum class ErrorKind {
  loss,       // of every step
  norm,       // of the gradients, likewise
  gradient,   // of every parameter in the first step with a counted target
  parameter,  // of every one after the last step
  weight,     // used by segments then: parameters, rounded and gathered
};
inline constexpr std::array error_kinds = {ErrorKind::loss, ErrorKind::norm, ErrorKind::gradient, ErrorKind::parameter,
                                           ErrorKind::weight};

struct VerifyFindings {
  std::array<ErrorSummary, error_kinds.size()> errors;  // by kind
  std::optional<Divergence> first_divergence;           // if it was searched for
  // By rank, each the mean of its steps after the first (or of the only one).
  std::vector<parallel::Ledger> ledgers;

  ErrorSummary& of(ErrorKind kind) { return errors[static_cast<std::size_t>(kind)]; }
  const ErrorSummary& of(ErrorKind kind) const { return errors[static_cast<std::size_t>(kind)]; }
  // True if anything was compared.
  bool measured() const { return !of(ErrorKind::loss).where.empty(); }
  double of_bound() const;  // the largest error as a share of its bound
  bool passed() const { return of_bound() <= 1; }
  void merge(const VerifyFindings& other);  // of the ranks after these
};

}  // namespace plait::verify

namespace plait {
template <>
inline constexpr auto names<verify::ErrorKind> =
    std::to_array<Name<verify::ErrorKind>>({{verify::ErrorKind::loss, "loss"},
                                            {verify::ErrorKind::norm, "norm"},
                                            {verify::ErrorKind::gradient, "gradient"},
                                            {verify::ErrorKind::parameter, "parameter"},
                                            {verify::ErrorKind::weight, "weight"}});
}  // namespace plait

namespace plait::verify {

inline constexpr record::Text any_words = record::lines(1 << 20);

void declare(auto& field, Of<ErrorSummary> auto& summary) {
  field("largest", summary.largest);
  field("of_bound", summary.of_bound);
  field("where", summary.where, any_words);
}

void declare(auto& field, Of<Divergence> auto& d) {
  field.derived("text", d.text());
  field("step", d.step);
  field("part", d.part, record::whole(0, static_cast<std::int64_t>(StepPart::weights)));
  field("order", d.order);
  field("index", d.index);
  field("rank", d.rank);
  field("what", d.what, any_words);
  field("tensor", d.tensor, any_words);
  field("segment", d.segment);
  field("micro_batch", d.micro_batch);
  field("error", d.error);
  field("bound", d.bound);
  field("remark", d.remark, any_words);
  AxisSet::all().for_each([&](Axis axis) {
    const bool is_taken = axis == segment_axis;  // by the name of the tensor that differs
    field(is_taken ? "tensor_parallel" : to_string(axis), d.at[axis]);
  });
}

void declare(auto& field, Of<VerifyFindings> auto& findings) {
  for (const ErrorKind kind : error_kinds) field(to_string(kind), findings.of(kind));
  field("ledgers", findings.ledgers, record::at_most(static_cast<std::size_t>(limits::ranks.most)));
  field("first_divergence", findings.first_divergence);
}

}  // namespace plait::verify
