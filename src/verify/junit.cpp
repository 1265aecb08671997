#include "verify/junit.h"

#include <spdlog/fmt/fmt.h>

#include <pugixml.hpp>
#include <sstream>

namespace plait::verify {
namespace {

struct JunitCounts {
  int tests = 0, failures = 0, errors = 0, skipped = 0;
  double seconds = 0;
};

void add_junit_counts(pugi::xml_node node, const JunitCounts& counts) {
  node.append_attribute("tests") = counts.tests;
  node.append_attribute("failures") = counts.failures;
  node.append_attribute("errors") = counts.errors;
  node.append_attribute("skipped") = counts.skipped;
  node.append_attribute("time") = fmt::format("{:.3f}", counts.seconds).c_str();
}

std::string without_controls(std::string text) {
  std::erase_if(text, [](unsigned char c) { return c < 0x20 && c != '\t' && c != '\n' && c != '\r'; });
  return text;
}

void add_junit_case(pugi::xml_node suite, const JunitCase& one, JunitCounts& counts) {
  pugi::xml_node test = suite.append_child("testcase");
  test.append_attribute("classname") = without_controls(one.class_name).c_str();
  test.append_attribute("name") = without_controls(one.name).c_str();
  test.append_attribute("time") = fmt::format("{:.3f}", one.seconds).c_str();
  ++counts.tests;
  counts.seconds += one.seconds;
  const char* kind = nullptr;
  switch (one.outcome) {
    case JunitOutcome::passed: return;
    case JunitOutcome::failure: kind = "failure", ++counts.failures; break;
    case JunitOutcome::error: kind = "error", ++counts.errors; break;
    case JunitOutcome::skipped: kind = "skipped", ++counts.skipped; break;
  }
  pugi::xml_node reason = test.append_child(kind);
  reason.append_attribute("message") = without_controls(one.message).c_str();
  if (!one.details.empty()) reason.text() = without_controls(one.details).c_str();
}

}  // namespace

std::string junit_xml(const std::string& name, const std::vector<JunitSuite>& suites) {
  pugi::xml_document document;
  pugi::xml_node root = document.append_child("testsuites");
  root.append_attribute("name") = name.c_str();
  JunitCounts all;
  for (const JunitSuite& suite : suites) {
    pugi::xml_node node = root.append_child("testsuite");
    node.append_attribute("name") = without_controls(suite.name).c_str();
    JunitCounts counts;
    for (const JunitCase& one : suite.cases) add_junit_case(node, one, counts);
    add_junit_counts(node, counts);
    all.tests += counts.tests, all.failures += counts.failures, all.errors += counts.errors, all.skipped += counts.skipped;
    all.seconds += counts.seconds;
  }
  add_junit_counts(root, all);
  std::ostringstream text;
  document.save(text, "  ");
  return text.str();
}

}  // namespace plait::verify
