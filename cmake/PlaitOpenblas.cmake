# plait_openblas: the real BLAS of OpenBLAS (single and double precision) as one shared library of ours.
#
# Debian's libopenblas.so carries LAPACK and the complex types too: 36 MB, and libgfortran behind it. Linked from the static
# archive, with only cblas_s*, cblas_d* and openblas_* exported, it is a third of that and needs nothing but libc, which keeps the
# installed tree small. The kernels are still chosen at run time; only processors of before 2011 (no AVX) share the SSE3 kernels
# of one of them, and the last of AMD's Bulldozer family those of Piledriver.
pkg_check_modules(OPENBLAS REQUIRED IMPORTED_TARGET openblas)
find_library(OPENBLAS_ARCHIVE libopenblas.a HINTS ${OPENBLAS_LIBRARY_DIRS} ${OPENBLAS_LIBDIR})

if(NOT OPENBLAS_ARCHIVE)
  message(STATUS "plait: no libopenblas.a; linking the shared OpenBLAS, so an installed tree will be larger")
  add_library(plait_openblas INTERFACE)
  target_link_libraries(plait_openblas INTERFACE PkgConfig::OPENBLAS)
  return()
endif()

set(exports "${CMAKE_BINARY_DIR}/openblas")
if(NOT EXISTS "${exports}.ld" OR "${OPENBLAS_ARCHIVE}" IS_NEWER_THAN "${exports}.ld")
  execute_process(COMMAND ${CMAKE_NM} --defined-only "${OPENBLAS_ARCHIVE}"
    OUTPUT_VARIABLE symbols ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL " T (cblas_[sd][a-z0-9_]+|openblas_[a-z_]+)\n" symbols "${symbols}")
  list(TRANSFORM symbols REPLACE "[ T\n]" "")
  list(REMOVE_DUPLICATES symbols)
  if(NOT "cblas_sgemm" IN_LIST symbols)
    message(FATAL_ERROR "${OPENBLAS_ARCHIVE} does not define cblas_sgemm. Install libopenblas-dev (scripts/bootstrap).")
  endif()
  list(JOIN symbols ";\n" lines)
  file(WRITE "${exports}.map" "{ global:\n${lines};\nlocal: *; };\n")
  list(JOIN symbols "\n" lines)
  file(WRITE "${exports}.ld" "EXTERN(\n${lines}\n)\n")
endif()

set(shared_kernels "")
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  foreach(processor ATOM BARCELONA BOBCAT CORE2 DUNNINGTON NANO NEHALEM OPTERON_SSE3 PENRYN)
    list(APPEND shared_kernels "LINKER:--defsym=gotoblas_${processor}=gotoblas_PRESCOTT")
  endforeach()
  foreach(processor STEAMROLLER EXCAVATOR)
    list(APPEND shared_kernels "LINKER:--defsym=gotoblas_${processor}=gotoblas_PILEDRIVER")
  endforeach()
endif()

file(CONFIGURE OUTPUT "${exports}.c" CONTENT "")
add_library(plait_openblas SHARED "${exports}.c")
target_include_directories(plait_openblas SYSTEM INTERFACE ${OPENBLAS_INCLUDE_DIRS})
target_link_libraries(plait_openblas PRIVATE "${exports}.ld" "${OPENBLAS_ARCHIVE}" m Threads::Threads)
target_link_options(plait_openblas PRIVATE ${shared_kernels} "LINKER:--version-script=${exports}.map" LINKER:--no-undefined)
set_target_properties(plait_openblas PROPERTIES LINK_DEPENDS "${OPENBLAS_ARCHIVE}")
