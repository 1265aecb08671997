# `cmake --install build/release --prefix DIR --strip` makes a relocatable tree that runs on a machine with nothing but glibc and,
# for GPUs, the driver and the CUDA libraries:
#
#   bin/plait    finds its libraries in ../lib, CUDA's in the system's folders or LD_LIBRARY_PATH
#   lib/         every shared library the program needs except glibc's and CUDA's: the C++ run time too, because a GPU node is
#                often older than the machine that built
#   tests/       the test programs, on request: cmake --install ... --component tests
#
# Copied libraries look for one another in their own folder only ($ORIGIN). libgloo is the exception: it needs libibverbs, whose
# device drivers belong to the system's copy. Loading ours instead would take InfiniBand from NCCL without a word, so libgloo
# looks in the system's folders first and takes ours only where the system has none.
find_program(PLAIT_PATCHELF patchelf)

install(TARGETS plait RUNTIME DESTINATION bin)
get_target_property(openblas_type plait_openblas TYPE)
if(openblas_type STREQUAL "SHARED_LIBRARY")
  install(TARGETS plait_openblas LIBRARY DESTINATION lib)
endif()

set(plait_install_libraries [==[
  if(NOT PATCHELF)
    message(FATAL_ERROR "Installing needs patchelf. Run scripts/bootstrap, then configure again.")
  endif()
  set(tree "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
  file(GLOB programs "${tree}/${FOLDER}/*")
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${programs} RESOLVED_DEPENDENCIES_VAR libraries
    PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|util)\\.so"
      "^lib(cuda|cudart|cublas|cublasLt|cudnn|nccl|nvrtc|cupti|nvidia-ml)\\.so"
    POST_EXCLUDE_REGEXES "^${tree}/")
  foreach(library IN LISTS libraries)
    file(INSTALL "${library}" DESTINATION "${CMAKE_INSTALL_PREFIX}/lib" FOLLOW_SYMLINK_CHAIN)
    get_filename_component(name "${library}" NAME)
    file(REAL_PATH "${tree}/lib/${name}" copy)
    set(search "\$ORIGIN")
    if(name MATCHES "^libgloo")
      set(search "/usr/lib/x86_64-linux-gnu:/usr/lib64:\$ORIGIN")
    endif()
    execute_process(COMMAND "${PATCHELF}" --set-rpath "${search}" "${copy}" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
]==])

install(CODE "set(PATCHELF \"${PLAIT_PATCHELF}\")\nset(FOLDER bin)\n${plait_install_libraries}")
if(PLAIT_TESTS)
  install(CODE "set(PATCHELF \"${PLAIT_PATCHELF}\")\nset(FOLDER tests)\n${plait_install_libraries}"
    COMPONENT tests EXCLUDE_FROM_ALL)
endif()
