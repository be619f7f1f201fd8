# SPDX-License-Identifier: Apache-2.0
# yard_test(name [MEASURES] [SLOW] [SCALES] SOURCES ... [LIBS ...] [LABELS ...]
#           [OPS ...] [FUNCTIONS ...] [BACKENDS ...])
#
# Adds a GoogleTest program as one entry of ctest. A process for each test would cost half a minute
# of processor time in all, and under the address sanitizer seconds each for the search for leaks.
# Programs that a test starts do not search for leaks. LIBS are targets: `yard` for the public
# interface, `yard_internal` for everything, or single layers such as `yard_op`. With the label
# `tsan`, the program also runs under the thread sanitizer. With the label `soak`, it is built for
# the soaks of tests/soak.txt. OPS, FUNCTIONS and BACKENDS name the subjects of the test. They
# become the labels op:NAME, function:NAME and backend:NAME, so that `ctest -L` finds the tests that
# a change affects.
#
# A test that MEASURES is optimised and runs alone. Other tests run once, so compiling without
# optimisation is faster. A test that is SLOW starts before others, so that nothing waits for it at
# the end. A test that SCALES is slow, multiplies its rounds by TEST_SCALE, and has the label
# `full`: `make check-full` runs it with more rounds.

if(YARD_BUILD_TESTS)
  yard_need("YARD_BUILD_TESTS" GTest::gmock GTest::gtest GTest::gtest_main rapidcheck)
  add_library(yard_test_flags INTERFACE)
  target_link_libraries(yard_test_flags INTERFACE yard_flags GTest::gmock GTest::gtest_main rapidcheck
                                                  Threads::Threads)
  if(YARD_LLD)
    target_link_options(yard_test_flags INTERFACE -fuse-ld=lld)
  endif()
  add_custom_target(yard_tsan_tests)
  add_custom_target(yard_soak_tests)
  if(TARGET rapidcheck_gtest)
    target_link_libraries(yard_test_flags INTERFACE rapidcheck_gtest)
  endif()
  # Parsing the headers of GoogleTest and of the library takes longer than compiling most tests.
  yard_precompiled(yard_test_headers yard_test_flags yard_no_optimisation
                   HEADERS <gmock/gmock.h> <gtest/gtest.h> <atomic> <chrono> <functional> <map> <memory> <optional> <string>
                           <thread> <vector> <yard/plugin.hpp> <yard/yard.h>)
endif()

# Sets the variable `to` to the labels for the subjects of a test.
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
  cmake_parse_arguments(PARSE_ARGV 1 arg "MEASURES;SLOW;SCALES" ""
                        "SOURCES;LIBS;LABELS;OPS;FUNCTIONS;BACKENDS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "yard_test(${name}): SOURCES missing, or stray '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  set(timeout 900)
  if(arg_SCALES)
    list(APPEND arg_LABELS full)
    set(timeout 3600)
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
    # A program that forks needs an allocator that survives the fork. A program can have only one
    # allocator of ours.
    list(TRANSFORM arg_SOURCES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" REGEX "^[^/]" OUTPUT_VARIABLE paths)
    foreach(path IN LISTS paths)
      file(STRINGS "${path}" forks REGEX "fork\\(\\)|true_in_child")
      if(forks AND NOT "yard_failing_allocations" IN_LIST arg_LIBS)
        target_link_libraries(${name} PRIVATE yard_at_fork)
        break()
      endif()
    endforeach()
  endif()
  foreach(label IN ITEMS tsan soak)
    if(label IN_LIST arg_LABELS)
      add_dependencies(yard_${label}_tests ${name})
    endif()
  endforeach()
  set(order "")
  if(arg_MEASURES)
    set(order RUN_SERIAL ON)
  elseif(arg_SLOW OR arg_SCALES)
    set(order COST 100)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} LABELS "${arg_LABELS}" ${order})
  if(YARD_SANITIZE STREQUAL "address")
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "ASAN_OPTIONS=detect_leaks=1")
  endif()
endfunction()
