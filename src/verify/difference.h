// Differences between two sets of numbers, in relation to their bounds.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

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
void to_json(nlohmann::ordered_json& json, const ErrorSummary& summary);
void from_json(const nlohmann::ordered_json& json, ErrorSummary& summary);

}  // namespace plait::verify
