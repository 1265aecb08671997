# plait_room(NAME USES room... FOLDERS folder... CUDA_FOLDERS folder... LINKS library... PRIVATE_LINKS library...
#            RELEASE level SANITIZED level)
#
# One static library per folder of src/, made of the sources in it and in the FOLDERS below it. A room sees the headers of itself
# and of the rooms it USES, nothing else: its include root is a folder of the build tree that holds one link, to the room's own
# sources, so a wrong include does not compile.
#
# Sources in cuda/ and in the CUDA_FOLDERS (.cpp and .cu), and core's cuda_device.cpp, are built where plait has CUDA; those named
# no_cuda*.cpp, which stand in for them, where it has not. PLAIT_HAS_CUDA is 0 or 1 in the room's own sources.
#
# RELEASE and SANITIZED are optimization levels in place of the build type's, in a release build and under a sanitizer: the
# optimizer is a third of what a release build costs and half of one with sanitizers, and most rooms have no loop that repays it.
function(plait_room name)
  cmake_parse_arguments(ROOM "" "RELEASE;SANITIZED" "USES;FOLDERS;CUDA_FOLDERS;LINKS;PRIVATE_LINKS" ${ARGN})
  set(root "${CMAKE_BINARY_DIR}/include-roots/${name}")
  file(MAKE_DIRECTORY "${root}")
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}/${name}" "${root}/${name}" SYMBOLIC)
  set(patterns "${name}/*.cpp")
  foreach(folder IN LISTS ROOM_FOLDERS)
    list(APPEND patterns "${name}/${folder}/*.cpp")
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  if(PLAIT_HAS_CUDA)
    list(FILTER sources EXCLUDE REGEX "/no_cuda[^/]*\\.cpp$")
    foreach(folder IN LISTS ROOM_CUDA_FOLDERS ITEMS cuda)
      file(GLOB cuda_sources CONFIGURE_DEPENDS ${name}/${folder}/*.cu ${name}/${folder}/*.cpp)
      list(APPEND sources ${cuda_sources})
    endforeach()
  else()
    list(FILTER sources EXCLUDE REGEX "/cuda_[^/]*\\.cpp$")
  endif()
  add_library(plait_${name} STATIC ${sources})
  target_include_directories(plait_${name} PUBLIC "${root}")
  target_compile_definitions(plait_${name} PRIVATE PLAIT_HAS_CUDA=$<BOOL:${PLAIT_HAS_CUDA}>)
  plait_optimization(plait_${name} "${ROOM_RELEASE}" "${ROOM_SANITIZED}")
  target_link_libraries(plait_${name} PUBLIC plait_options ${ROOM_LINKS} PRIVATE ${ROOM_PRIVATE_LINKS})
  foreach(used IN LISTS ROOM_USES)
    target_link_libraries(plait_${name} PUBLIC plait_${used})
  endforeach()
endfunction()

function(plait_optimization target release sanitized)
  if(PLAIT_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${sanitized}>)
  else()
    target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:${release}>)
  endif()
endfunction()
