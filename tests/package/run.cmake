# SPDX-License-Identifier: Apache-2.0
# Builds and runs one consumer project from an empty folder, as a user would. Run by ctest.

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
  # The launcher is set in the environment, because a list does not survive on a command line.
  set(ENV{CMAKE_CXX_COMPILER_LAUNCHER} "${LAUNCHER}")
  # Projects that contain the sources leave out optional parts. Both ways lead to
  # add_subdirectory(), so one of them builds the library without optimisation, and the other builds
  # everything except the library and what links it.
  set(options -DCMAKE_BUILD_TYPE=Release)
  set(targets all)
  if(NOT WAY STREQUAL "find_package")
    file(COPY "${CMAKE_CURRENT_LIST_DIR}/" DESTINATION "${WORK}/package")
    set(source "${WORK}/package/${WAY}")
    file(COPY_FILE "${source}/../find_package/main.cc" "${source}/main.cc")
    file(MAKE_DIRECTORY "${source}/third_party")
    file(CREATE_LINK "${ROOT}" "${source}/third_party/switchyard" SYMBOLIC)
    set(options -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DYARD_BUILD_SIMD=OFF -DYARD_BUILD_ONEDNN=OFF
        -DYARD_BUILD_PROMETHEUS=OFF)
  endif()
  if(WAY STREQUAL "fetch_content")
    list(APPEND options "-DFETCHCONTENT_SOURCE_DIR_SWITCHYARD=${ROOT}")
    set(targets example_c CMakeFiles/consumer.dir/main.cc.o)
  endif()
  must("${CMAKE_COMMAND}" -S "${source}" -B "${WORK}/build" -G "${GENERATOR}"
       "-DCMAKE_C_COMPILER=${CC}" "-DCMAKE_CXX_COMPILER=${CXX}"
       "-DCMAKE_PREFIX_PATH=${PREFIX}"
       "-DSWITCHYARD_SOURCE=${ROOT}" "-DBUILD_SHARED_LIBS=${SHARED}" ${options})
  must("${CMAKE_COMMAND}" --build "${WORK}/build" --parallel 2 --target ${targets})
  if(WAY STREQUAL "fetch_content")
    return()
  endif()
  must("${WORK}/build/consumer")
  return()
endif()
must("${WORK}/consumer")
