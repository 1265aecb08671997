#include "verify/report_junit.h"

#include <spdlog/fmt/fmt.h>

#include "train/report/ledger_text.h"
#include "verify/junit.h"

namespace plait::verify {
namespace {

constexpr int wide = 240;  // wider than any terminal

std::string details_of(const VerifyFindings& findings) {
  std::string text;
  for (const ErrorKind kind : error_kinds) {
    const ErrorSummary& s = findings.of(kind);
    text += fmt::format("{}: largest relative error {:.3g}; {:.3g} of its bound at {}\n", to_string(kind), s.largest,
                        s.of_bound, s.where);
  }
  return text;
}

std::string message_of(const LayoutResult& result) {
  const VerifyFindings& f = result.findings;
  std::string message = f.first_divergence ? f.first_divergence->text() : result.failure;
  for (const train::ExceededBound& bound : result.exceeded) message += (message.empty() ? "" : "; ") + bound.text();
  return message;
}

JunitCase case_of(const LayoutResult& result, const std::string& suite) {
  JunitCase test{suite, result.layout, result.seconds, JunitOutcome::passed, "", ""};
  const VerifyFindings& f = result.findings;
  if (!f.measured()) {
    test.outcome = JunitOutcome::error, test.message = result.failure;
  } else if (!result.passed()) {
    test.outcome = JunitOutcome::failure, test.message = message_of(result);
    test.details = details_of(f) + train::ledger_table(f.ledgers).text(wide);
  }
  return test;
}

}  // namespace

std::string to_junit(const VerifyReport& report) {
  std::vector<JunitSuite> suites;
  for (const ModelReport& model : report.models) {
    JunitSuite& suite = suites.emplace_back(JunitSuite{"plait.verify." + model.name, {}});
    for (const LayoutResult& result : report.layouts) {
      if (result.model == model.name) suite.cases.push_back(case_of(result, suite.name));
    }
    for (const RefusedLayout& refused : report.refused) {
      if (refused.model == model.name)
        suite.cases.push_back({suite.name, refused.layout, 0, JunitOutcome::skipped, refused.reason, ""});
    }
  }
  return junit_xml("plait verify", suites);
}

}  // namespace plait::verify
