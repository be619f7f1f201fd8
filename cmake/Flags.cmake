# SPDX-License-Identifier: Apache-2.0
# Flags for our own sources: `yard_flags` for all of them, `yard_library_flags` for the sources of
# libyard. Targets of users get neither.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
# A layer is compiled as one file, even inside another project, because parsing headers takes longer
# than compiling the rest. The preset dev turns this off.
if(NOT DEFINED CMAKE_UNITY_BUILD)
  set(CMAKE_UNITY_BUILD ON)
endif()
if(NOT CMAKE_UNITY_BUILD_BATCH_SIZE)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 50)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ${PROJECT_IS_TOP_LEVEL})

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Kind of build." FORCE)
  endif()
  find_program(YARD_CCACHE ccache)
  if(YARD_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # Without CCACHE_DEPEND every file that is not in the cache is preprocessed twice. Precompiled
    # headers are cached only with this sloppiness.
    set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros
                                    "${YARD_CCACHE}")
    set(CMAKE_C_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
endif()

add_library(yard_flags INTERFACE)
if(PROJECT_IS_TOP_LEVEL)
  target_compile_options(yard_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow $<$<BOOL:${YARD_WERROR}>:-Werror>)
else()
  target_compile_options(yard_flags INTERFACE -w)  # warnings are for those who can correct them
endif()
# g++ 12 warns of an overlapping copy in operator+ of a literal and a string (its bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(yard_flags INTERFACE -Wno-restrict)
endif()
# The default garbage collection of g++ takes a tenth of its time.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(yard_flags INTERFACE "SHELL:--param ggc-min-heapsize=524288")
endif()

# Do not relink programs when only the code of the shared library changes.
set(CMAKE_LINK_DEPENDS_NO_SHARED ON)

# yard_precompiled(name target... HEADERS ...)
#   Adds a target that parses the headers once, with the flags of the given targets. Other targets
#   use the result with REUSE_FROM in target_precompile_headers(), and need equal flags.
function(yard_precompiled name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS")
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/${name}.cc" CONTENT "")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/${name}.cc")
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_BINARY_DIR}/include")
  target_link_libraries(${name} PRIVATE yard_flags ${arg_UNPARSED_ARGUMENTS})
  target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
endfunction()
add_library(yard_no_optimisation INTERFACE)
target_compile_options(yard_no_optimisation INTERFACE -O0)

# Interposition would prevent inlining of calls inside the library. Every call reads the thread's
# hazard slot and counters; initial-exec makes each read one load instead of a function call.
add_library(yard_library_flags INTERFACE)
target_compile_options(yard_library_flags INTERFACE -fvisibility=hidden -fno-semantic-interposition
                                                    -ftls-model=initial-exec)
target_compile_options(yard_library_flags
                       INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fvisibility-inlines-hidden>)

# Fuzzers follow the branches of the layers and of the readers of model files. To instrument all
# code would double the time to compile.
add_library(yard_fuzzed_flags INTERFACE)

set(YARD_SANITIZE_FLAGS "")
if(YARD_SANITIZE STREQUAL "address")
  set(YARD_SANITIZE_FLAGS -fsanitize=address,undefined -fno-sanitize-recover=undefined
                          -fno-omit-frame-pointer)
elseif(YARD_SANITIZE STREQUAL "thread")
  set(YARD_SANITIZE_FLAGS -fsanitize=thread -fno-omit-frame-pointer)
elseif(NOT YARD_SANITIZE STREQUAL "")
  message(FATAL_ERROR "YARD_SANITIZE is '${YARD_SANITIZE}'; it can be empty, address or thread")
endif()
if(YARD_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "YARD_BUILD_FUZZERS needs clang: -DCMAKE_CXX_COMPILER=clang++")
  endif()
  target_compile_options(yard_fuzzed_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
add_compile_options(${YARD_SANITIZE_FLAGS})
# Instrumentation hides from g++ that an empty optional holds nothing, so g++ warns (its bug
# 105562).
if(YARD_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(yard_flags INTERFACE -Wno-maybe-uninitialized)
endif()
add_link_options(${YARD_SANITIZE_FLAGS})
# lld links several times as fast. Sanitized programs, which are large, and tests use it (see
# cmake/Testing.cmake).
find_program(YARD_LLD ld.lld)
mark_as_advanced(YARD_LLD)
if(YARD_SANITIZE AND YARD_LLD)
  add_link_options(-fuse-ld=lld)
endif()

# Programs written as users would write them get the whole interface and nothing else, so that no
# include can be forgotten.
if(YARD_BUILD_TESTS OR YARD_BUILD_DOCS_EXAMPLES)
  yard_precompiled(yard_user_headers yard_no_optimisation HEADERS <yard/yard.h>)
endif()
