// Where what a test needs lies: of this checkout and this build. In one generated source (CMakeLists.txt), so that the others
// compile to the same in every checkout.
#pragma once

namespace plait::test_paths {

extern const char* const source;  // the checkout
extern const char* const plait;   // programs and libraries that were built
extern const char* const dropped_wait;
extern const char* const dropped_program_wait;
extern const char* const planted_fault;
extern const char* const fake_nvml;

}  // namespace plait::test_paths
