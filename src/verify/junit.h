// Writes JUnit XML, which CI systems show: suites of cases, each of which passed or gives a reason.
#pragma once

#include <string>
#include <vector>

namespace plait::verify {

enum class JunitOutcome { passed, failure, error, skipped };

struct JunitCase {
  std::string class_name;  // "plait.verify.gpt2"
  std::string name;
  double seconds = 0;
  JunitOutcome outcome = JunitOutcome::passed;
  std::string message, details;  // unless it passed
};

struct JunitSuite {
  std::string name;
  std::vector<JunitCase> cases;
};

// The document, with the root's `name`; counts and times are summed here. Control characters, which XML 1.0 does not allow, are
// left out.
std::string junit_xml(const std::string& name, const std::vector<JunitSuite>& suites);

}  // namespace plait::verify
