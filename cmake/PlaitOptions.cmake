# Build type, ccache, warnings and sanitizers.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${CCACHE}")
endif()

# Installed programs find their libraries beside themselves (PlaitInstall.cmake).
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")

add_library(plait_options INTERFACE)
target_compile_options(plait_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wno-unknown-pragmas>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees an overlapping copy in "literal" + std::string (GCC bug 105651) and uninitialized members of variants and
  # strings that it has itself inlined away.
  target_compile_options(plait_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict -Wno-maybe-uninitialized>)
endif()
if(PLAIT_SANITIZE)
  target_compile_options(plait_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${PLAIT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    -Wno-maybe-uninitialized>)
  target_link_options(plait_options INTERFACE -fsanitize=${PLAIT_SANITIZE})
endif()
