#include "verify/findings.h"

#include <algorithm>

#include "core/error.h"
#include "parallel/ledger_json.h"

namespace plait::verify {

std::string to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::loss: return "loss";
    case ErrorKind::norm: return "norm";
    case ErrorKind::gradient: return "gradient";
    case ErrorKind::parameter: return "parameter";
    case ErrorKind::weight: return "weight";
  }
  throw InternalError("to_string: unknown kind of error");
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

void to_json(nlohmann::ordered_json& json, const VerifyFindings& findings) {
  json = nlohmann::ordered_json::object();
  for (const ErrorKind kind : error_kinds) json[to_string(kind)] = findings.of(kind);
  json["ledgers"] = findings.ledgers;
  if (findings.first_divergence) json["first_divergence"] = *findings.first_divergence;
}

void from_json(const nlohmann::ordered_json& json, VerifyFindings& findings) {
  for (const ErrorKind kind : error_kinds) json.at(to_string(kind)).get_to(findings.of(kind));
  json.at("ledgers").get_to(findings.ledgers);
  if (json.contains("first_divergence")) findings.first_divergence = json.at("first_divergence").get<Divergence>();
}

}  // namespace plait::verify
