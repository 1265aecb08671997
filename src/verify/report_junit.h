// Writes a verification as JUnit XML, which CI systems show: a test suite per model, a test case per layout.
#pragma once

#include <string>

#include "verify/verify.h"

namespace plait::verify {

// A layout that departed from the serial run has a <failure>, one that did not run to its end an <error>, a refused one is
// <skipped>.
std::string to_junit(const VerifyReport& report);

}  // namespace plait::verify
