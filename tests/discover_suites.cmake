# Writes OUTPUT, the CTest tests of PROGRAM: one for each suite. A process for each test would cost more than most tests do: under
# AddressSanitizer, or with CUDA's libraries to load, a start takes a tenth of a second. Run after PROGRAM was linked.
#
#   APART    tests whose name (SUITE.TEST/PARAMETER) one of these regular expressions finds are CTest tests of their own. They are
#            divided by @@: as one, they would be more than CMake compiles
#   SWEEPS   so are these; they carry the label `sweep` besides
#   LABEL    label of all but suites whose name starts with Gpu: those carry the label `gpu`. Where there is a GPU, their tests
#            are apart, each in a process that has used none
#   COST     CTest starts the costly first: sweeps before all, which take longest, and what is apart before its room's suites
#   SKIPPED  exit status of a program that skipped a test and failed none (child_process.cpp)
#
# A suite of which some tests were skipped counts as skipped. So what skips by itself belongs into APART.
string(REPLACE "@@" ";" APART "${APART}")
string(REPLACE "@@" ";" SWEEPS "${SWEEPS}")
# Sets RESULT to whether one of the expressions of LIST finds NAME.
function(is_among name list result)
  foreach(expression IN LISTS ${list})
    if(name MATCHES "${expression}")
      set(${result} ON PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${result} OFF PARENT_SCOPE)
endfunction()

foreach(part IN ITEMS suites gpu_suites gpu_tests)
  set(${part} "")
endforeach()

# Appends to LIST the CTest test NAME, which runs what FILTER finds.
macro(add_entry list name filter labels cost)
  string(APPEND ${list} "add_test([==[${name}]==] [==[${PROGRAM}]==] [==[--gtest_filter=${filter}]==])\n"
    "set_tests_properties([==[${name}]==] PROPERTIES LABELS [==[${labels}]==] COST ${cost} SKIP_RETURN_CODE ${SKIPPED}\n"
    "  TIMEOUT 600 WORKING_DIRECTORY [==[${FOLDER}]==])\n")
endmacro()

# Ends the suite: what is left of it is one CTest test.
macro(end_suite)
  if(together)
    string(REPLACE ";" ":" filter "${apart}")
    if(apart)
      set(filter "${suite}.*-${filter}")
    else()
      set(filter "${suite}.*")
    endif()
    if(gpu)
      add_entry(gpu_suites "${suite}" "${filter}" gpu ${COST})
    else()
      add_entry(suites "${suite}" "${filter}" "${LABEL}" ${COST})
    endif()
  endif()
endmacro()

execute_process(COMMAND "${PROGRAM}" --gtest_list_tests WORKING_DIRECTORY "${FOLDER}" TIMEOUT 60
  OUTPUT_VARIABLE listing RESULT_VARIABLE result)
if(NOT result STREQUAL "0")
  message(FATAL_ERROR "${PROGRAM} --gtest_list_tests: ${result}\n${listing}")
endif()
# Lines as a list; a value that a test was given may hold what lists are made of.
string(REGEX REPLACE " +#[^\n]*" "" listing "${listing}")
string(REPLACE "\n" ";" listing "${listing}")
math(EXPR cost_apart "${COST} + 1")
math(EXPR cost_sweep "${COST} + 100")
set(suite "")
set(together OFF)
foreach(line IN LISTS listing)
  if(line MATCHES "^([^ ]+)\\.$")
    end_suite()
    set(suite "${CMAKE_MATCH_1}")
    set(together OFF)
    set(apart "")
    set(gpu OFF)
    if(suite MATCHES "^(.*/)?Gpu")
      set(gpu ON)
    endif()
  elseif(line MATCHES "^  ([^ ]+)$")
    set(test "${suite}.${CMAKE_MATCH_1}")
    is_among("${test}" SWEEPS is_sweep)
    is_among("${test}" APART is_apart)
    if(gpu)
      add_entry(gpu_tests "${test}" "${test}" gpu ${COST})
      set(together ON)
    elseif(is_sweep)
      add_entry(suites "${test}" "${test}" "${LABEL};sweep" ${cost_sweep})
      list(APPEND apart "${test}")
    elseif(is_apart)
      add_entry(suites "${test}" "${test}" "${LABEL}" ${cost_apart})
      list(APPEND apart "${test}")
    else()
      set(together ON)
    endif()
  endif()
endforeach()
end_suite()

file(WRITE "${OUTPUT}" "${suites}if(EXISTS \"/dev/nvidiactl\")\n${gpu_tests}else()\n${gpu_suites}endif()\n")
