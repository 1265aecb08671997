// The ranks' findings when they compared a layout with the serial run.
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
  gradient,   // of every parameter in the first step with a counted target
  parameter,  // of every one after the last step
  weight,     // used by segments then: parameters, rounded and gathered
};
inline constexpr std::array error_kinds = {ErrorKind::loss, ErrorKind::norm, ErrorKind::gradient, ErrorKind::parameter,
                                           ErrorKind::weight};
std::string to_string(ErrorKind kind);

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
void to_json(nlohmann::ordered_json& json, const VerifyFindings& findings);
void from_json(const nlohmann::ordered_json& json, VerifyFindings& findings);

}  // namespace plait::verify
