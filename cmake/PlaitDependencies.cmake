# Libraries from Debian (scripts/bootstrap installs them).
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(pugixml REQUIRED)
find_package(OpenSSL 3 REQUIRED COMPONENTS Crypto)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
# Patterns and normal forms of Hugging Face tokenizers.
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
# Data that is compressed.
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
# By hand: Debian 13's sentencepiece.pc asks for pkg-config files of packages that its own package does not depend on.
find_path(SENTENCEPIECE_INCLUDE_DIR sentencepiece_trainer.h REQUIRED)
find_library(SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)
find_library(SENTENCEPIECE_TRAIN_LIBRARY sentencepiece_train REQUIRED)
find_path(GLOO_INCLUDE_DIR gloo/context.h REQUIRED)
find_library(GLOO_LIBRARY gloo REQUIRED)
# Boost.Math: headers only.
find_path(BOOST_INCLUDE_DIR boost/math/distributions/binomial.hpp REQUIRED)
# Of the page that `plait study report` writes: templates (headers only), and the charting library, which becomes part of the
# program together with its licence.
find_path(MUSTACHE_INCLUDE_DIR kainjow/mustache.hpp REQUIRED)
find_file(CHART_JS NAMES chart.min.js Chart.min.js PATHS /usr/share/javascript/chart.js REQUIRED NO_DEFAULT_PATH)
find_file(CHART_JS_LICENCE NAMES copyright PATHS /usr/share/doc/libjs-chart.js REQUIRED NO_DEFAULT_PATH)
# NVML's header; the library belongs to the driver and is opened at run time.
find_path(NVML_INCLUDE_DIR nvml.h HINTS "${CMAKE_SOURCE_DIR}/.cache/nvml/include")
if(NOT NVML_INCLUDE_DIR)
  message(FATAL_ERROR "nvml.h was not found. Run scripts/bootstrap.")
endif()
include(PlaitOpenblas)
if(PLAIT_TESTS)
  find_package(GTest REQUIRED)
endif()

if(PLAIT_HAS_CUDA)
  find_package(CUDAToolkit ${PLAIT_CUDA_MINIMUM} REQUIRED)
  # cuDNN and NCCL: beside the toolkit, in the system's folders, or in the wheels of scripts/bootstrap.
  function(plait_find_cuda_library name header library soname)
    find_path(${name}_INCLUDE_DIR ${header} HINTS ${CUDAToolkit_INCLUDE_DIRS} "${PLAIT_CUDA_CACHE}/include")
    find_library(${name}_LIBRARY NAMES ${library} ${soname} HINTS ${CUDAToolkit_LIBRARY_DIR} "${PLAIT_CUDA_CACHE}/lib")
    if(NOT ${name}_INCLUDE_DIR OR NOT ${name}_LIBRARY)
      message(FATAL_ERROR "The CUDA build needs ${name}, but ${header} or lib${library}.so was not found. "
        "Run scripts/bootstrap --cuda, or build for CPUs only with -DPLAIT_CUDA=OFF.")
    endif()
  endfunction()
  plait_find_cuda_library(CUDNN cudnn.h cudnn libcudnn.so.9)
  plait_find_cuda_library(NCCL nccl.h nccl libnccl.so.2)
  find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS "${CMAKE_SOURCE_DIR}/.cache/cudnn-frontend/include")
  if(NOT CUDNN_FRONTEND_INCLUDE_DIR)
    message(FATAL_ERROR "The CUDA build needs the headers of cudnn-frontend. Run scripts/bootstrap.")
  endif()
endif()
