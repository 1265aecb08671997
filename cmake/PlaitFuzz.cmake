# Fuzzing: with -DPLAIT_FUZZ=ON everything is built for libFuzzer with AddressSanitizer and UndefinedBehaviorSanitizer. Needs clang and
# its run time, from version 16 on: older ones have no std::source_location (Debian: clang-16, libclang-rt-16-dev):
#
#   cmake -S . -B build/fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++-16 -DCMAKE_C_COMPILER=clang-16 -DPLAIT_FUZZ=ON -DPLAIT_CUDA=OFF
#   cmake --build build/fuzz --target topology_import_fuzz config_fuzz
#   build/fuzz/tests/fuzz/topology_import_fuzz -max_total_time=600 -dict=tests/fuzz/topology.dict NEW_INPUTS \
#     tests/fuzz/corpus/topology tests/topology/topologies
#
# Without it the same entry functions run over the same corpus as ordinary tests (tests/fuzz/CMakeLists.txt).
option(PLAIT_FUZZ "Build the libFuzzer targets; clang only" OFF)
if(PLAIT_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang" OR CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
    message(FATAL_ERROR "PLAIT_FUZZ needs clang 16 or later: -DCMAKE_CXX_COMPILER=clang++-16 -DCMAKE_C_COMPILER=clang-16")
  endif()
  if(PLAIT_SANITIZE)
    message(FATAL_ERROR "PLAIT_FUZZ brings its own sanitizers: leave PLAIT_SANITIZE empty")
  endif()
  target_compile_options(plait_options INTERFACE
    -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  target_link_options(plait_options INTERFACE -fsanitize=address,undefined)
endif()
