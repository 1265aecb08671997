# Build type, ccache, warnings and sanitizers.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# With what CMake and GCC write into a build made relative, a checkout in another folder finds the results of this one.
find_program(CCACHE ccache)
if(CCACHE)
  set(launcher "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" CCACHE_NOHASHDIR=1 "${CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()

# A full build of units of several sources is several times less work; a change to one file is more. The sources of a room, and the
# tests of a folder, share one namespace for what only one of them uses, so names are not repeated there.
option(PLAIT_UNITY "Compile the sources of a room in units of several; OFF, for development: each alone" ON)
# A room in one unit is two thirds of the work of the same room in units of 12, since headers and templates are compiled once. It takes
# up to 2 GB.
set(PLAIT_UNITY_SOURCES 0 CACHE STRING "Sources in a unit; 0: all that a target has")
set(CMAKE_UNITY_BUILD ${PLAIT_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE ${PLAIT_UNITY_SOURCES})

# Installed programs find their libraries beside themselves (PlaitInstall.cmake).
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")

add_library(plait_options INTERFACE)
target_compile_options(plait_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wno-unknown-pragmas>
  # In a unit a local name may be that of another source's function, and every source is an included file.
  $<$<COMPILE_LANGUAGE:CXX>:$<IF:$<BOOL:${PLAIT_UNITY}>,-Wshadow=local -Wno-subobject-linkage,-Wshadow>>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees an overlapping copy in "literal" + std::string (GCC bug 105651) and uninitialized members of variants and
  # strings that it has itself inlined away.
  target_compile_options(plait_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict -Wno-maybe-uninitialized>)
endif()
if(PLAIT_SANITIZE)
  target_compile_options(plait_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${PLAIT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    -Wno-maybe-uninitialized>)
  # A program at a fixed address starts without 800,000 relocations, and the tests start thousands.
  target_compile_options(plait_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-pie>)
  target_link_options(plait_options INTERFACE -no-pie)
  if(PLAIT_SANITIZE MATCHES "undefined")
    # A check at every pointer that is followed is half the time to compile, and AddressSanitizer sees null pointers as it is.
    target_compile_options(plait_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=null,alignment>)
  endif()
  target_link_options(plait_options INTERFACE -fsanitize=${PLAIT_SANITIZE})
endif()
