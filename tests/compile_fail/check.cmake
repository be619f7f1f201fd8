# SPDX-License-Identifier: Apache-2.0
# Compiles one case of one file and judges the result. Run by ctest. With CASE=none the file must
# compile.

set(command "${COMPILER}" -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Werror
            "-I${INCLUDE}" "-I${GENERATED}" "${FILE}")
separate_arguments(FLAGS UNIX_COMMAND "${FLAGS}")
set(variant ${FLAGS} -include "${HEADERS}")
file(STRINGS "${FILE}" standard REGEX "^// standard: ")
if(standard)  # no precompiled header fits it
  set(variant "")
endif()
if(CASE STREQUAL "none")
  execute_process(COMMAND ${command} ${variant} RESULT_VARIABLE rc OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT rc EQUAL 0)
    message(FATAL_ERROR "${FILE} does not compile without any case:\n${out}")
  endif()
  return()
endif()

file(STRINGS "${FILE}" line REGEX "^#ifdef ${CASE}( |$)")
if(NOT line MATCHES "// expect: (.+)$")
  message(FATAL_ERROR "${FILE}: ${CASE} does not say what message it expects")
endif()
string(REGEX REPLACE " +\\| +" ";" expected "${CMAKE_MATCH_1}")
if(standard MATCHES ": (.+)$")  # the last option wins
  set(variant "-std=${CMAKE_MATCH_1}")
endif()
execute_process(COMMAND ${command} ${variant} "-D${CASE}" RESULT_VARIABLE rc OUTPUT_VARIABLE out ERROR_VARIABLE out)
if(rc EQUAL 0)
  message(FATAL_ERROR "${FILE}: ${CASE} compiles, and must not")
endif()
foreach(text IN LISTS expected)
  string(FIND "${out}" "${text}" at)
  if(NOT at EQUAL -1)
    return()
  endif()
endforeach()
message(FATAL_ERROR "${FILE}: ${CASE} fails for another reason than '${expected}':\n${out}")
