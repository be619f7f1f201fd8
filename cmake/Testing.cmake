# SPDX-License-Identifier: Apache-2.0
# yard_test(name [MEASURES] [SLOW] [SCALES] SOURCES ... [LIBS ...] [LABELS ...] [TIMEOUT seconds]
#           [OPS ...] [FUNCTIONS ...] [BACKENDS ...])
#
# One GoogleTest program, each of its tests an entry of ctest. LIBS are targets: `yard` for what users see,
# `yard_internal` for everything, or single layers (`yard_op`). With the label `tsan` it is run under the thread sanitizer;
# with `soak` it is built for it, since tests/soak.txt names it. OPS, FUNCTIONS and BACKENDS name what it tests; they
# become the labels op:NAME, function:NAME and backend:NAME, by which `ctest -L` finds what a change affects.
#
# A test that MEASURES is optimised and runs alone; the others are compiled and run once, which is quicker without.
# A test that is SLOW starts before others, so that none is left waiting for it at the end.
# A test that SCALES is slow, multiplies its rounds by TEST_SCALE and has the label `full`: `make check-full`
# runs it with more of them.
#
# Under the address sanitizer a program is one entry: looking for leaks takes seconds at each exit. What it starts does
# not look for them.

if(YARD_BUILD_TESTS)
  include(GoogleTest)
  yard_need("YARD_BUILD_TESTS" GTest::gmock GTest::gtest GTest::gtest_main rapidcheck)
  add_library(yard_test_flags INTERFACE)
  target_link_libraries(yard_test_flags INTERFACE yard_flags GTest::gmock GTest::gtest_main rapidcheck
                                                  Threads::Threads)
  add_custom_target(yard_tsan_tests)
  if(TARGET rapidcheck_gtest)
    target_link_libraries(yard_test_flags INTERFACE rapidcheck_gtest)
  endif()
  # Reading the headers of GoogleTest and of the library takes longer than compiling most tests.
  yard_precompiled(yard_test_headers <gmock/gmock.h> <gtest/gtest.h> <atomic> <chrono> <functional> <map>
                   <memory> <optional> <string> <thread> <vector> <yard/plugin.hpp> <yard/yard.h>)
  target_link_libraries(yard_test_headers PRIVATE yard_test_flags)
endif()

# The labels of what a test is about, in the variable `to`.
function(yard_labels to)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "OPS;FUNCTIONS;BACKENDS")
  set(labels "")
  foreach(kind IN ITEMS op function backend)
    string(TOUPPER "${kind}S" keyword)
    foreach(item IN LISTS arg_${keyword})
      list(APPEND labels "${kind}:${item}")
    endforeach()
  endforeach()
  set(${to} "${labels}" PARENT_SCOPE)
endfunction()

function(yard_test name)
  if(NOT YARD_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "MEASURES;SLOW;SCALES" "TIMEOUT"
                        "SOURCES;LIBS;LABELS;OPS;FUNCTIONS;BACKENDS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "yard_test(${name}): SOURCES missing, or stray '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  if(arg_SCALES)
    list(APPEND arg_LABELS full)
    set(arg_TIMEOUT 900)
  elseif(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  yard_labels(about OPS ${arg_OPS} FUNCTIONS ${arg_FUNCTIONS} BACKENDS ${arg_BACKENDS})
  list(APPEND arg_LABELS ${about})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE yard_test_flags ${arg_LIBS})
  if(arg_MEASURES)
    target_compile_options(${name} PRIVATE -O2)
  else()
    target_compile_options(${name} PRIVATE -O0)
    target_precompile_headers(${name} REUSE_FROM yard_test_headers)
  endif()
  set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 16)
  set(in_c ${arg_SOURCES})
  list(FILTER in_c INCLUDE REGEX "\\.c$")
  set_source_files_properties(${in_c} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
                              SKIP_UNITY_BUILD_INCLUSION ON)
  if(YARD_SANITIZE STREQUAL "address")
    target_link_libraries(${name} PRIVATE yard_leaks)
    # A program that forks needs an allocator that survives it. There is no place for two of our own.
    list(TRANSFORM arg_SOURCES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" REGEX "^[^/]" OUTPUT_VARIABLE paths)
    foreach(path IN LISTS paths)
      file(STRINGS "${path}" forks REGEX "fork\\(\\)|true_in_child")
      if(forks AND NOT "yard_failing_allocations" IN_LIST arg_LIBS)
        target_link_libraries(${name} PRIVATE yard_at_fork)
        break()
      endif()
    endforeach()
  endif()
  if("tsan" IN_LIST arg_LABELS OR "soak" IN_LIST arg_LABELS)
    add_dependencies(yard_tsan_tests ${name})
  endif()
  set(order "")
  if(arg_MEASURES)
    set(order RUN_SERIAL ON)
  elseif(arg_SLOW OR arg_SCALES)
    set(order COST 100)
  endif()
  if(YARD_SANITIZE STREQUAL "address")
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 900 LABELS "${arg_LABELS}" ${order}
                         ENVIRONMENT "ASAN_OPTIONS=detect_leaks=1")
    return()
  endif()
  list(LENGTH arg_LABELS count)
  if(count LESS 2)
    gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120
                         PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" ${order})
    return()
  endif()
  # Which keeps one label only: the others are set once the tests are known.
  gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120
                       PROPERTIES TIMEOUT ${arg_TIMEOUT} ${order})
  set(file "${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake")
  file(WRITE "${file}" "if(${name}_TESTS)\n  set_tests_properties(\${${name}_TESTS} PROPERTIES"
                       " LABELS \"${arg_LABELS}\")\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${file}")
endfunction()
