# SPDX-License-Identifier: Apache-2.0
# Looks for libraries of other projects. None is required here: a target that links one calls
# yard_need(), which names the missing package.

find_package(Threads REQUIRED)
find_package(fmt QUIET)
find_package(yaml-cpp QUIET)
if(TARGET yaml-cpp::yaml-cpp AND NOT TARGET yaml-cpp)  # as it is called from version 0.8 on
  add_library(yaml-cpp INTERFACE IMPORTED)
  target_link_libraries(yaml-cpp INTERFACE yaml-cpp::yaml-cpp)
endif()
find_package(nlohmann_json QUIET)
find_package(OpenSSL QUIET COMPONENTS Crypto)
if(YARD_BUILD_SIMD)
  find_package(hwy QUIET)
endif()
find_package(Python3 QUIET COMPONENTS Interpreter)
# The thread sanitizer does not know OpenMP's threads and would report false races.
if(YARD_BUILD_ONEDNN AND NOT YARD_SANITIZE STREQUAL "thread")
  # Debian's oneDNN for x86-64 requires OpenCL and ends the configuration if it is missing.
  find_package(OpenCL QUIET)
  if(OpenCL_FOUND OR NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    find_package(dnnl 2 QUIET)
  endif()
endif()
if(YARD_BUILD_PROMETHEUS)
  find_package(prometheus-cpp QUIET)
endif()
if(YARD_BUILD_TOOLS OR YARD_BUILD_TESTS OR YARD_BUILD_BENCH)
  find_package(CLI11 QUIET)
endif()
if(YARD_BUILD_TESTS OR YARD_BUILD_FUZZERS)
  find_package(GTest QUIET)
  find_package(rapidcheck QUIET)
  if(NOT TARGET rapidcheck)
    find_path(RAPIDCHECK_INCLUDE_DIR rapidcheck.h)
    find_library(RAPIDCHECK_LIBRARY rapidcheck)
    if(RAPIDCHECK_INCLUDE_DIR AND RAPIDCHECK_LIBRARY)
      add_library(rapidcheck UNKNOWN IMPORTED)
      set_target_properties(rapidcheck PROPERTIES
          IMPORTED_LOCATION "${RAPIDCHECK_LIBRARY}"
          INTERFACE_INCLUDE_DIRECTORIES "${RAPIDCHECK_INCLUDE_DIR}")
    endif()
  endif()
endif()
if(YARD_BUILD_BENCH)
  find_package(benchmark QUIET)
endif()

# The columns are target, Debian package, find_package name, and pkg-config name. A library without
# a pkg-config name has its linker option instead.
set(YARD_KNOWN_LIBRARIES
    "fmt::fmt|libfmt-dev|fmt|fmt"
    "yaml-cpp|libyaml-cpp-dev|yaml-cpp|yaml-cpp"
    "OpenSSL::Crypto|libssl-dev|OpenSSL|libcrypto"
    "hwy::hwy|libhwy-dev|hwy|libhwy"
    "DNNL::dnnl|libdnnl-dev|dnnl|-ldnnl"
    "CLI11::CLI11|libcli11-dev|CLI11|"
    "nlohmann_json::nlohmann_json|nlohmann-json3-dev|nlohmann_json|"
    "GTest::gmock|libgmock-dev|GTest|"
    "GTest::gtest|libgtest-dev|GTest|"
    "GTest::gtest_main|libgtest-dev|GTest|"
    "rapidcheck|librapidcheck-dev|rapidcheck|"
    "benchmark::benchmark|libbenchmark-dev|benchmark|")

# Fails with the name of the package if a library that `who` links is missing.
function(yard_need who)
  foreach(lib IN LISTS ARGN)
    foreach(known IN LISTS YARD_KNOWN_LIBRARIES)
      string(REPLACE "|" ";" row "${known}")
      list(GET row 0 target)
      list(GET row 1 package)
      if(target STREQUAL lib AND NOT TARGET ${lib})
        message(FATAL_ERROR "${who} needs ${lib}, which was not found. "
                            "On Debian: apt install ${package}, or scripts/setup.sh build test")
      endif()
    endforeach()
  endforeach()
endfunction()
