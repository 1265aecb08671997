# plait_room(NAME USES room... SOURCES file... LINKS library...)
#
# One static library per folder of src/. A room sees the headers of itself and of the rooms it USES, nothing else: its include
# root is a folder of the build tree that holds one link, to the room's own sources, so a wrong include does not compile.
function(plait_room name)
  cmake_parse_arguments(ROOM "" "" "USES;SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  set(root "${CMAKE_BINARY_DIR}/include-roots/${name}")
  file(MAKE_DIRECTORY "${root}")
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}/${name}" "${root}/${name}" SYMBOLIC)
  add_library(plait_${name} STATIC ${ROOM_SOURCES})
  target_include_directories(plait_${name} PUBLIC "${root}")
  target_link_libraries(plait_${name} PUBLIC plait_options ${ROOM_LINKS} PRIVATE ${ROOM_PRIVATE_LINKS})
  foreach(used IN LISTS ROOM_USES)
    target_link_libraries(plait_${name} PUBLIC plait_${used})
  endforeach()
endfunction()
