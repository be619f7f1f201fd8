# SPDX-License-Identifier: Apache-2.0
# Adds the parts of libyard: layers (folders of src/) and backends (folders of backends/).
#
# yard_layer(name [IN_CALLS] SOURCES ... [TESTS ...] [STRESS ...] [LIBS ...] [TEST_LIBS ...])
#   Adds a static library yard_<name> that sees include/, src/ and exactly the layers that
#   src/LAYERS allows. Calls run the code of IN_CALLS layers, so they are optimised as the build
#   type says, for a sanitizer too: tests that make random calls would run four times as long. Of
#   these, YARD_BRIEF_IN_CALLS are not optimised for the address sanitizer. The other layers run when
#   something changes or asks. They are compiled with -O1, which takes half the time, or without
#   optimisation for a sanitizer. TESTS make the program <name>_test. STRESS makes the program
#   <name>_stress_test, which also runs under the thread sanitizer. LIBS are external libraries,
#   linked privately.
#
# yard_backend(name [TEST_ONLY] [COMPUTES] SOURCES ... [OPS ...] [TESTS ...] [LIBS ...]
#              [TEST_LIBS ...] [REQUIRES ...])
#   Adds a static library yard_backend_<name> that sees only include/ and its own folder. Its query
#   is called yard_query_<name>. The backend becomes part of libyard unless it is TEST_ONLY. It is
#   left out if a target of REQUIRES does not exist. A backend that COMPUTES has loops over elements
#   that take minutes under the address sanitizer without optimisation; others are not optimised
#   there. OPS are the ops that it has kernels for. They label its tests, and tests/conformance
#   verifies each.

set(YARD_LAYERS_FILE "${PROJECT_SOURCE_DIR}/src/LAYERS")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${YARD_LAYERS_FILE}")

# Reads src/LAYERS. YARD_LAYERS lists the layers in order, and YARD_BELOW_<layer> lists all layers
# that the layer may include.
set(YARD_LAYERS "")
file(STRINGS "${YARD_LAYERS_FILE}" lines REGEX "^[a-z]")
foreach(line IN LISTS lines)
  if(NOT line MATCHES "^([a-z_]+):([a-z_ ]*)$")
    message(FATAL_ERROR "src/LAYERS: cannot read '${line}'; a line is `layer: layer layer`")
  endif()
  set(layer "${CMAKE_MATCH_1}")
  string(STRIP "${CMAKE_MATCH_2}" direct)
  separate_arguments(direct)
  set(below "")
  foreach(d IN LISTS direct)
    if(NOT d IN_LIST YARD_LAYERS)
      message(FATAL_ERROR "src/LAYERS: '${layer}' names '${d}', which is not above it in the file")
    endif()
    list(APPEND below ${d} ${YARD_BELOW_${d}})
  endforeach()
  list(REMOVE_DUPLICATES below)
  set(YARD_BELOW_${layer} "${below}")
  list(APPEND YARD_LAYERS ${layer})
endforeach()

# Adds a target to the parts that src/CMakeLists.txt collects for libyard.
function(yard_part target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:yard_flags>
                                          $<BUILD_INTERFACE:yard_library_flags> ${ARGN})
  set_property(GLOBAL APPEND PROPERTY YARD_PARTS ${target})
  set_property(GLOBAL APPEND PROPERTY YARD_PRIVATE_LIBS ${ARGN})
endfunction()

# Most layers are optimised little and include the same headers, so the headers are precompiled. The
# preset dev does not precompile, to show missing includes. Another project's compiler cache may not
# be configured for precompiled headers.
add_library(yard_layer_flags INTERFACE)
# Optimising instrumented code takes twice as long as compiling it.
if(YARD_SANITIZE)
  target_compile_options(yard_layer_flags INTERFACE -O0)
else()
  target_compile_options(yard_layer_flags INTERFACE $<$<CONFIG:Release,RelWithDebInfo>:-O1>)
endif()
# Calls spend little of their time in these layers. Without optimisation clang takes half the time to
# compile them for the address sanitizer, and random calls take as long as before.
set(YARD_BRIEF_IN_CALLS exec functions health runtime)
set(YARD_LAYERS_PRECOMPILED OFF)
if(CMAKE_UNITY_BUILD AND TARGET fmt::fmt AND (PROJECT_IS_TOP_LEVEL OR NOT CMAKE_CXX_COMPILER_LAUNCHER))
  set(YARD_LAYERS_PRECOMPILED ON)
  yard_precompiled(yard_layer_headers yard_library_flags yard_fuzzed_flags yard_layer_flags fmt::fmt
                   HEADERS <algorithm> <array> <atomic> <chrono> <deque> <filesystem> <fmt/format.h> <functional> <map>
                           <memory> <mutex> <optional> <set> <span> <string> <thread> <unordered_map> <vector> <yard/yard.h>)
  set_target_properties(yard_layer_headers PROPERTIES POSITION_INDEPENDENT_CODE ON)
endif()

function(yard_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "IN_CALLS" "" "SOURCES;TESTS;STRESS;LIBS;TEST_LIBS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "yard_layer(${name}): SOURCES missing, or stray '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  if(NOT name IN_LIST YARD_LAYERS)
    message(FATAL_ERROR "yard_layer(${name}): src/LAYERS does not name it")
  endif()
  yard_need("yard_${name}" ${arg_LIBS})
  add_library(yard_${name} STATIC ${arg_SOURCES})
  target_include_directories(yard_${name} PUBLIC "${PROJECT_SOURCE_DIR}/include"
                             "${PROJECT_BINARY_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
  foreach(below IN LISTS YARD_BELOW_${name})
    if(TARGET yard_${below})
      target_link_libraries(yard_${name} PUBLIC yard_${below})
    endif()
  endforeach()
  yard_part(yard_${name} Threads::Threads ${CMAKE_DL_LIBS} ${arg_LIBS})
  target_link_libraries(yard_${name} PRIVATE $<BUILD_INTERFACE:yard_fuzzed_flags>)
  if(NOT arg_IN_CALLS OR (YARD_SANITIZE STREQUAL "address" AND name IN_LIST YARD_BRIEF_IN_CALLS))
    target_link_libraries(yard_${name} PRIVATE $<BUILD_INTERFACE:yard_layer_flags>)
    if(YARD_LAYERS_PRECOMPILED)
      target_precompile_headers(yard_${name} REUSE_FROM yard_layer_headers)
    endif()
  endif()
  # yard_internal has all layers as a group. A layer beside the group would move external libraries
  # in front of it, where a linker that takes only needed libraries leaves them out.
  set(test_libs yard_${name} ${arg_LIBS} ${arg_TEST_LIBS})
  if("yard_internal" IN_LIST arg_TEST_LIBS)
    set(test_libs ${arg_TEST_LIBS})
  endif()
  if(arg_TESTS)
    yard_test(${name}_test SOURCES ${arg_TESTS} LIBS ${test_libs})
  endif()
  if(arg_STRESS)
    yard_test(${name}_stress_test SOURCES ${arg_STRESS} LABELS tsan
              LIBS ${test_libs})
  endif()
endfunction()

function(yard_backend name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TEST_ONLY;COMPUTES" ""
                        "SOURCES;OPS;TESTS;LIBS;TEST_LIBS;REQUIRES")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "yard_backend(${name}): SOURCES missing, or stray '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  if(arg_TEST_ONLY AND NOT (YARD_BUILD_TESTS OR YARD_BUILD_BENCH))
    return()
  endif()
  foreach(required IN LISTS arg_REQUIRES)
    if(NOT TARGET ${required})
      message(STATUS "Backend ${name} is left out: ${required} was not found")
      return()
    endif()
  endforeach()
  set(target yard_backend_${name})
  add_library(${target} STATIC ${arg_SOURCES})
  target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}/include"
                                              "${CMAKE_CURRENT_SOURCE_DIR}")
  # yard_add_plugin() sets the same definitions, so that the same sources make a plugin.
  target_compile_definitions(${target} PRIVATE YARD_PLUGIN_QUERY=yard_query_${name}
      YARD_PLUGIN_NAME="${name}" YARD_PLUGIN_VERSION="${PROJECT_VERSION}")
  if(YARD_SANITIZE STREQUAL "address" AND NOT arg_COMPUTES)
    target_compile_options(${target} PRIVATE -O0)
  endif()
  if(arg_TEST_ONLY)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_link_libraries(${target} PRIVATE yard_flags yard_library_flags ${arg_LIBS})
  else()
    yard_part(${target} ${arg_LIBS})
    set_property(GLOBAL APPEND PROPERTY YARD_BUILTIN_BACKENDS ${name})
    foreach(op IN LISTS arg_OPS)
      set_property(GLOBAL APPEND PROPERTY YARD_BACKEND_OPS "${name}/${op}")
    endforeach()
  endif()
  if(arg_TESTS)
    yard_test(backend_${name}_test SOURCES ${arg_TESTS} LIBS ${target} ${arg_TEST_LIBS}
              OPS ${arg_OPS} BACKENDS ${name})
  endif()
endfunction()
