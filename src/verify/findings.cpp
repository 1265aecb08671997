#include "verify/findings.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <tuple>

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

std::string Divergence::text() const {
  const std::string size = error >= not_finite ? "not finite" : fmt::format("relative error {:.2g}", error);
  return fmt::format("step {}, {}, rank {} ({}), {} (bound {:.1e}){}", step, what, rank, to_string(at), size, bound,
                     remark.empty() ? "" : "; " + remark);
}

bool Divergence::before(const Divergence& other) const {
  return std::tie(step, part, order, index, rank) < std::tie(other.step, other.part, other.order, other.index, other.rank);
}

double VerifyFindings::of_bound() const {
  double largest = 0;
  for (const ErrorSummary& summary : errors) largest = std::max(largest, summary.of_bound);
  return largest;
}

void VerifyFindings::merge(const VerifyFindings& other) {
  for (const ErrorKind kind : error_kinds) of(kind).merge(other.of(kind));
  const std::optional<Divergence>& theirs = other.first_divergence;
  if (theirs && (!first_divergence || theirs->before(*first_divergence))) first_divergence = theirs;
  ledgers.insert(ledgers.end(), other.ledgers.begin(), other.ledgers.end());
}

}  // namespace plait::verify
