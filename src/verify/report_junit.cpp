#include "verify/report_junit.h"

#include <spdlog/fmt/fmt.h>

#include <pugixml.hpp>
#include <sstream>

#include "train/report/ledger_text.h"

namespace plait::verify {
namespace {

struct Counts {
  int tests = 0, failures = 0, errors = 0, skipped = 0;
  double seconds = 0;
};

void add_counts(pugi::xml_node node, const Counts& counts) {
  node.append_attribute("tests") = counts.tests;
  node.append_attribute("failures") = counts.failures;
  node.append_attribute("errors") = counts.errors;
  node.append_attribute("skipped") = counts.skipped;
  node.append_attribute("time") = fmt::format("{:.3f}", counts.seconds).c_str();
}

pugi::xml_node add_case(pugi::xml_node suite, const std::string& model, const std::string& layout, double seconds) {
  pugi::xml_node test = suite.append_child("testcase");
  test.append_attribute("classname") = ("plait.verify." + model).c_str();
  test.append_attribute("name") = layout.c_str();
  test.append_attribute("time") = fmt::format("{:.3f}", seconds).c_str();
  return test;
}

void add_reason(pugi::xml_node test, const char* kind, const std::string& message, const std::string& details) {
  pugi::xml_node reason = test.append_child(kind);
  reason.append_attribute("message") = message.c_str();
  if (!details.empty()) reason.text() = details.c_str();
}

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

void add_layout(pugi::xml_node suite, const LayoutResult& result, Counts& counts) {
  pugi::xml_node test = add_case(suite, result.model, result.layout, result.seconds);
  ++counts.tests;
  counts.seconds += result.seconds;
  const VerifyFindings& f = result.findings;
  if (!f.measured()) {
    ++counts.errors;
    add_reason(test, "error", result.failure, "");
  } else if (!result.passed()) {
    ++counts.failures;
    add_reason(test, "failure", message_of(result), details_of(f) + train::ledger_table(f.ledgers) + "\n");
  }
}

}  // namespace

std::string to_junit(const VerifyReport& report) {
  pugi::xml_document document;
  pugi::xml_node suites = document.append_child("testsuites");
  suites.append_attribute("name") = "plait verify";
  Counts all;
  for (const ModelReport& model : report.models) {
    pugi::xml_node suite = suites.append_child("testsuite");
    suite.append_attribute("name") = ("plait.verify." + model.name).c_str();
    Counts counts;
    for (const LayoutResult& result : report.layouts) {
      if (result.model == model.name) add_layout(suite, result, counts);
    }
    for (const RefusedLayout& refused : report.refused) {
      if (refused.model != model.name) continue;
      ++counts.tests, ++counts.skipped;
      add_reason(add_case(suite, refused.model, refused.layout, 0), "skipped", refused.reason, "");
    }
    add_counts(suite, counts);
    all.tests += counts.tests, all.failures += counts.failures, all.errors += counts.errors, all.skipped += counts.skipped;
    all.seconds += counts.seconds;
  }
  add_counts(suites, all);
  std::ostringstream text;
  document.save(text, "  ");
  return text.str();
}

}  // namespace plait::verify
