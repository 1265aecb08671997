// What the ranks of a layout found when they compared themselves with the serial run.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "parallel/ledger.h"
#include "verify/difference.h"
#include "verify/divergence.h"

namespace plait::verify {

enum class ErrorKind {
  loss,       // of every step
  norm,       // of the gradients, likewise
  gradient,   // of every parameter in the first step with a target that counts
  parameter,  // every one after the last step
  weight,     // what segments compute with then: parameters, rounded and gathered
};
inline constexpr std::array error_kinds = {ErrorKind::loss, ErrorKind::norm, ErrorKind::gradient, ErrorKind::parameter,
                                           ErrorKind::weight};
std::string to_string(ErrorKind kind);

struct VerifyFindings {
  std::array<ErrorSummary, error_kinds.size()> errors;  // by kind
  std::optional<Divergence> first_divergence;           // where it was looked for
  // By rank, each the mean of its steps after the first (of the only one, where there is one).
  std::vector<parallel::Ledger> ledgers;

  ErrorSummary& of(ErrorKind kind) { return errors[static_cast<std::size_t>(kind)]; }
  const ErrorSummary& of(ErrorKind kind) const { return errors[static_cast<std::size_t>(kind)]; }
  // Whether anything was compared at all.
  bool measured() const { return !of(ErrorKind::loss).where.empty(); }
  double of_bound() const;  // the largest share of a bound that any error took
  bool passed() const { return of_bound() <= 1; }
  void merge(const VerifyFindings& other);  // of the ranks after these
};
void to_json(nlohmann::ordered_json& json, const VerifyFindings& findings);
void from_json(const nlohmann::ordered_json& json, VerifyFindings& findings);

}  // namespace plait::verify
