# Writes OUTPUT, the source of core/version.h, for VERSION and the commit that SOURCE is at. Run by every build; a file that would
# not change is left alone.
find_package(Git QUIET)
set(commit "")
if(Git_FOUND AND EXISTS "${SOURCE}/.git")
  execute_process(COMMAND "${GIT_EXECUTABLE}" -C "${SOURCE}" describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(content "#include \"core/version.h\"

namespace plait {

BuildVersion build_version() { return {\"${VERSION}\", \"${commit}\"}; }

}  // namespace plait
")
set(before "")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" before)
endif()
if(NOT before STREQUAL content)
  file(WRITE "${OUTPUT}" "${content}")
endif()
