# SPDX-License-Identifier: Apache-2.0
# Makes a plugin project with the installed command outside this tree, and follows its README:
# build, test, install, call. KIND is cpp or c, or `kernels` to make a project for each built-in op.
# Run by ctest.
#
# The installation is moved first, to test that its parts find each other in a new place.

set(folder /tmp)
if(DEFINED ENV{TMPDIR})
  set(folder "$ENV{TMPDIR}")
endif()
string(RANDOM LENGTH 12 random)
set(work "${folder}/yard_plugin_${KIND}_${random}")

function(must)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE rc)
  if(NOT rc EQUAL 0)
    file(REMOVE_RECURSE "${work}")
    message(FATAL_ERROR "plugin ${KIND}: failed (${rc}): ${ARGN}")
  endif()
endfunction()

file(MAKE_DIRECTORY "${work}/moved")
file(COPY "${PREFIX}/" DESTINATION "${work}/moved" USE_SOURCE_PERMISSIONS)
set(PREFIX "${work}/moved")
unset(ENV{YARD_PLUGINS})
unset(ENV{YARD_PLUGIN_PATH})
set(ENV{XDG_STATE_HOME} "${work}/state")  # the command stores results of verifications here
set(yard "${PREFIX}/${BINDIR}/yard")

# Makes kernels for existing ops, alternately in C and C++. Each builds without changes. They can be
# verified next to a lock file that does not list them, and in an environment with such a lock file.
if(KIND STREQUAL "kernels")
  file(MAKE_DIRECTORY "${work}/all" "${work}/searched")
  string(REPEAT "0" 64 zeros)
  file(WRITE "${work}/searched/yard.lock" "other 1.0 sha256:${zeros}\n")
  file(CHMOD "${work}/searched/yard.lock" PERMISSIONS OWNER_READ OWNER_WRITE)
  set(ENV{YARD_PLUGIN_PATH} "${work}/searched")
  set(ENV{YARD_LOG_LEVEL} off)
  execute_process(COMMAND "${yard}" list --json OUTPUT_VARIABLE listed COMMAND_ERROR_IS_FATAL ANY)
  string(JSON count LENGTH "${listed}" ops)
  math(EXPR last "${count} - 1")
  set(all "cmake_minimum_required(VERSION 3.25)\nproject(all LANGUAGES C CXX)\nenable_testing()\n")
  foreach(i RANGE ${last})
    string(JSON op GET "${listed}" ops ${i} name)
    string(REPLACE "." "_" word "${op}")
    math(EXPR is_c "${i} % 2")
    if(is_c)
      set(name ${word}_c)
      must("${yard}" plugin new ${name} --dir "${work}/all/${name}" --for-op ${op} --c)
    else()
      set(name ${word}_cpp)
      must("${yard}" plugin new ${name} --dir "${work}/all/${name}" --for-op ${op})
    endif()
    string(APPEND all "add_subdirectory(${name})\n")  # one configuration for all projects
    file(COPY "${work}/searched/yard.lock" DESTINATION "${work}/build/${name}")
  endforeach()
  file(WRITE "${work}/all/CMakeLists.txt" "${all}")
  must("${CMAKE_COMMAND}" -S "${work}/all" -B "${work}/build" -G "${GENERATOR}"
       "-DCMAKE_C_COMPILER=${CC}" "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_PREFIX_PATH=${PREFIX}"
       # The kernels compute nothing, so optimisation is a waste of time.
       -DCMAKE_C_FLAGS_RELEASE=-O0 -DCMAKE_CXX_FLAGS_RELEASE=-O0
       "-DCMAKE_C_FLAGS=-Wall -Wextra -Wno-unused-parameter -Werror"
       "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wno-unused-parameter -Werror")
  must("${CMAKE_COMMAND}" --build "${work}/build")
  # The kernels decline every call until they are written, so they do not count as verified.
  foreach(name IN ITEMS rms_norm softmax)
    file(GLOB library "${work}/build/${name}_c*/${name}_c*.so")
    execute_process(COMMAND "${yard}" verify "${library}" RESULT_VARIABLE code ERROR_VARIABLE said)
    if(NOT code EQUAL 1 OR NOT said MATCHES "not compared on any call: .*not written yet")
      message(FATAL_ERROR "plugin kernels: expected an unwritten kernel of ${name}, got ${code}: ${said}")
    endif()
  endforeach()
  file(REMOVE_RECURSE "${work}")
  return()
endif()

if(KIND STREQUAL "c")
  set(flavour --c)
  set(compiler "-DCMAKE_C_COMPILER=${CC}")
else()
  set(flavour "")
  set(compiler "-DCMAKE_CXX_COMPILER=${CXX}")
endif()
must("${yard}" plugin new sample --dir "${work}/sample" --op sample.scale ${flavour})
must("${CMAKE_COMMAND}" -S "${work}/sample" -B "${work}/build" -G "${GENERATOR}" ${compiler}
     "-DCMAKE_PREFIX_PATH=${PREFIX}"
     "-DCMAKE_EXPORT_COMPILE_COMMANDS=OFF" --warn-uninitialized)
must("${CMAKE_COMMAND}" --build "${work}/build")
must("${CMAKE_CTEST_COMMAND}" --test-dir "${work}/build" --output-on-failure --no-tests=error)

# With a prefix, the plugin is installed only below that prefix.
set(installed "${LIBDIR}/yard/plugins/sample.so")
must("${CMAKE_COMMAND}" --install "${work}/build" --prefix "${work}/elsewhere")
if(NOT EXISTS "${work}/elsewhere/${installed}" OR EXISTS "${PREFIX}/${installed}")
  message(FATAL_ERROR "plugin ${KIND}: install does not obey --prefix")
endif()
# Without a prefix, the plugin is installed where this Switchyard finds it.
must("${CMAKE_COMMAND}" --install "${work}/build")
if(NOT EXISTS "${PREFIX}/${installed}")
  message(FATAL_ERROR "plugin ${KIND}: ${PREFIX}/${installed} is not there")
endif()
must("${yard}" run "sample.scale(f32[8,64], by=2.0)" --force default.sample --repeat 1)

# Builds the example without a build system, with the command at the top of its file.
if(KIND STREQUAL "c")
  must("${CC}" -std=c11 -O2 -shared -fPIC -fvisibility=hidden -Wall -Wextra -Wpedantic -Werror
       "-I${PREFIX}/${INCLUDEDIR}" "${ROOT}/examples/plugins/c_plugin.c" -o "${work}/example_c.so")
  must("${yard}" verify --quick "${work}/example_c.so")

  # The tests of the project must detect a wrong kernel.
  file(READ "${work}/sample/sample.c" text)
  string(REPLACE "job->from[i] * job->factor" "job->from[i] + job->factor" wrong "${text}")
  if(wrong STREQUAL text)
    message(FATAL_ERROR "plugin c: there is no such line to spoil")
  endif()
  file(WRITE "${work}/sample/sample.c" "${wrong}")
  must("${CMAKE_COMMAND}" --build "${work}/build")
  execute_process(COMMAND "${CMAKE_CTEST_COMMAND}" --test-dir "${work}/build" RESULT_VARIABLE rc
                  OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(rc EQUAL 0 OR NOT text MATCHES "verify \\(Failed\\)" OR text MATCHES "probe \\(Failed\\)")
    message(FATAL_ERROR "plugin c: a wrong kernel should fail to verify (${rc}): ${text}")
  endif()
endif()
file(REMOVE_RECURSE "${work}")
