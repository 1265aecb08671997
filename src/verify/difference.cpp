#include "verify/difference.h"

#include <algorithm>
#include <cmath>

namespace plait::verify {

void Difference::add(double a, double b) {
  const double difference = std::abs(a - b);
  largest_ = std::max(largest_, std::isfinite(difference) ? difference : not_finite);
}

double Difference::relative(double scale) const {
  const double error = scale > 0 ? largest_ / scale : largest_;
  return std::isfinite(error) ? std::min(error, not_finite) : not_finite;
}

double relative_difference(double a, double b) {
  Difference difference;
  difference.add(a, b);
  return difference.relative(std::abs(b));
}

void ErrorSummary::add(double error, double bound, const std::string& at) {
  merge({error, std::min(error / bound, not_finite), at});
}

void ErrorSummary::merge(const ErrorSummary& other) {
  largest = std::max(largest, other.largest);
  if (other.where.empty() || (!where.empty() && other.of_bound <= of_bound)) return;
  of_bound = other.of_bound;
  where = other.where;
}

void to_json(nlohmann::ordered_json& json, const ErrorSummary& summary) {
  json = {{"largest", summary.largest}, {"of_bound", summary.of_bound}, {"where", summary.where}};
}

void from_json(const nlohmann::ordered_json& json, ErrorSummary& summary) {
  summary = {json.at("largest").get<double>(), json.at("of_bound").get<double>(), json.at("where").get<std::string>()};
}

}  // namespace plait::verify
