# SPDX-License-Identifier: Apache-2.0
# Tests the messages of yard_add_plugin() for wrong arguments, and the findings of the check of a
# linked library. Run by ctest. With CASE the script makes one wrong call.

cmake_minimum_required(VERSION 3.25)
set(modules "${CMAKE_CURRENT_LIST_DIR}/../../cmake")

set(uses
    "(Acme SOURCES a.c OPS f)|name of a plugin has a-z"
    "(acme OPS f)|SOURCES is missing"
    "(acme SOURCES)|nothing stands after SOURCES"
    "(acme a.c OPS f)|'a.c' belongs to no keyword"
    "(acme SOURCES a.c OPS Foo VERSION 1.0)|OPS 'Foo' is no name of an op"
    "(acme SOURCES a.c OPS f. VERSION 1.0)|OPS 'f.' is no name of an op"
    "(acme SOURCES a.c OPS \"f g\" VERSION 1.0)|OPS 'f g' is no name of an op"
    "(acme SOURCES a.c OPS f g f VERSION 1.0)|OPS names 'f' twice"
    "(acme SOURCES a.c OPS f FEATURES gpu:x:y VERSION 1)|FEATURES 'gpu:x:y' is no feature"
    "(acme SOURCES a.c OPS f DEVICES CUDA VERSION 1)|DEVICES 'CUDA' is no device"
    "(acme SOURCES a.c OPS f VERSION \"1 beta\")|VERSION '1 beta' is no version: one word"
    "(acme SOURCES a.c OPS f)|VERSION is missing, and the project has none"
    "(acme SOURCES a.c VERSION 1.0)|VERSION belongs to a manifest"
    "(acme SOURCES a.c FEATURES sve2)|FEATURES belongs to a manifest"
    "(acme SOURCES a.c OPS f VERSION 1 LIBS Switchyard::yard)|a plugin does not link Switchyard::yard"
    "(acme SOURCES a.c OPS f VERSION 1)|a.c needs the language C"
    "(acme SOURCES a.cc OPS f VERSION 1)|a.cc needs the language CXX")

if(DEFINED CASE)
  list(GET uses ${CASE} use)
  string(REGEX REPLACE "\\|.*" "" use "${use}")
  include("${modules}/YardPlugin.cmake")
  cmake_language(EVAL CODE "yard_add_plugin${use}")
  return()
endif()

# Runs a command and looks for words in its output.
function(says words fails)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE rc OUTPUT_VARIABLE text ERROR_VARIABLE text)
  string(REGEX REPLACE "[ \n]+" " " text "${text}")
  string(FIND "${text}" "${words}" at)
  if(at EQUAL -1 OR (fails AND rc EQUAL 0) OR (NOT fails AND NOT rc EQUAL 0))
    message(SEND_ERROR "expected '${words}', found (${rc}): ${text}")
  endif()
endfunction()

set(case 0)
foreach(use IN LISTS uses)
  string(REGEX REPLACE ".*\\|" "" words "${use}")
  says("${words}" TRUE "${CMAKE_COMMAND}" -DCASE=${case} -P "${CMAKE_CURRENT_LIST_FILE}")
  math(EXPR case "${case} + 1")
endforeach()

function(look file words fails)
  if(EXISTS "${PLUGINS}/${file}.so")
    says("${words}" ${fails} "${CMAKE_COMMAND}" "-DPLUGIN=${PLUGINS}/${file}.so" "-DNM=${NM}"
         "-DREADELF=${READELF}" -P "${modules}/YardPluginCheck.cmake")
  elseif(NOT file STREQUAL "pinned_unique")  # only some compilers make such symbols
    message(SEND_ERROR "${PLUGINS}/${file}.so was not built")
  endif()
endfunction()
look(answer "" FALSE)
look(no_symbol "does not export yard_plugin_query" TRUE)
look(no_manifest "no_manifest.so has no manifest" TRUE)
look(pinned_unique "is a GNU-unique symbol" FALSE)
look(pinned_thread "thread_local with a destructor" FALSE)
look(two_manifests "has 2 manifests" TRUE)
