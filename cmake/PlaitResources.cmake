# plait_resources(target header namespace name=file...): files that are part of the program. Each becomes a std::string_view
# `name` of `namespace`, which `header` declares; the sources are made again when a file changes.
#
# As a script (cmake -P), it writes OUTPUT, the definition of NAME, from FILE.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ "${FILE}" text)
  # GCC and Clang take a literal of any length.
  set(mark "plait_resource")
  string(FIND "${text}" ")${mark}\"" end)
  if(NOT end EQUAL -1)
    message(FATAL_ERROR "${FILE} holds )${mark}\", which ends a literal of C++")
  endif()
  file(WRITE "${OUTPUT}" "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n\nconst std::string_view ${NAME} = R\"${mark}(${text})${mark}\";\n\n}  // namespace ${NAMESPACE}\n")
  return()
endif()

set(plait_resources_script "${CMAKE_CURRENT_LIST_FILE}")
function(plait_resources target header namespace)
  foreach(resource IN LISTS ARGN)
    string(REGEX MATCH "^([a-z_]+)=(.*)$" matched "${resource}")
    set(name "${CMAKE_MATCH_1}")
    set(file "${CMAKE_MATCH_2}")
    set(output "${CMAKE_BINARY_DIR}/resources/${name}.cpp")
    add_custom_command(OUTPUT "${output}" DEPENDS "${file}" "${plait_resources_script}"
      COMMAND "${CMAKE_COMMAND}" "-DFILE=${file}" "-DOUTPUT=${output}" "-DHEADER=${header}" "-DNAMESPACE=${namespace}"
        "-DNAME=${name}" -P "${plait_resources_script}"
      COMMENT "Resource ${name}" VERBATIM)
    target_sources(${target} PRIVATE "${output}")
    set_source_files_properties("${output}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
endfunction()
