# SPDX-License-Identifier: Apache-2.0
# Builds and runs one consumer project the way a user would, from an empty folder; run by ctest.

function(must)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE rc)
  if(NOT rc EQUAL 0)
    message(FATAL_ERROR "${WAY}: failed (${rc}): ${ARGN}")
  endif()
endfunction()

set(source "${CMAKE_CURRENT_LIST_DIR}/${WAY}")
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")

if(WAY STREQUAL "plain_c")
  set(ENV{PKG_CONFIG_PATH} "${PREFIX}/${LIBDIR}/pkgconfig")
  set(static "")
  if(NOT SHARED)
    set(static --static)
  endif()
  find_program(PKG_CONFIG NAMES pkg-config pkgconf REQUIRED)
  execute_process(COMMAND "${PKG_CONFIG}" ${static} --cflags --libs switchyard
                  OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND "${PKG_CONFIG}" --modversion switchyard OUTPUT_VARIABLE found
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  if(NOT found STREQUAL VERSION)
    message(FATAL_ERROR "switchyard.pc says version ${found}, the project ${VERSION}")
  endif()
  separate_arguments(flags UNIX_COMMAND "${flags}")
  must("${CC}" -std=c11 -Wall -Wextra -Wpedantic -Werror "${source}/main.c" -o "${WORK}/consumer"
       ${flags} "-Wl,-rpath,${PREFIX}/${LIBDIR}")
else()
  # Not by an option: a list does not survive on a command line.
  set(ENV{CMAKE_CXX_COMPILER_LAUNCHER} "${LAUNCHER}")
  # A project that carries the sources is also built for debugging, and may do without what is optional.
  set(type Release)
  set(more "")
  if(WAY STREQUAL "add_subdirectory")
    set(type Debug)
    set(more -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DYARD_BUILD_SIMD=OFF -DYARD_BUILD_ONEDNN=OFF
        -DYARD_BUILD_PROMETHEUS=OFF)
  endif()
  must("${CMAKE_COMMAND}" -S "${source}" -B "${WORK}" -G "${GENERATOR}" -DCMAKE_BUILD_TYPE=${type}
       "-DCMAKE_C_COMPILER=${CC}" "-DCMAKE_CXX_COMPILER=${CXX}"
       "-DCMAKE_PREFIX_PATH=${PREFIX}"
       "-DSWITCHYARD_SOURCE=${ROOT}" "-DBUILD_SHARED_LIBS=${SHARED}"
       -DCMAKE_UNITY_BUILD=ON ${more})
  must("${CMAKE_COMMAND}" --build "${WORK}" --parallel 2)
endif()
must("${WORK}/consumer")
