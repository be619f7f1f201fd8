# SPDX-License-Identifier: Apache-2.0
# Checks a plugin after linking: cmake -DPLUGIN= -DNM= -DREADELF= -P YardPluginCheck.cmake
#
# Fails if Switchyard would refuse the file. Warns if the plugin could not be unloaded.

function(look out)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE text ERROR_VARIABLE error RESULT_VARIABLE rc)
  if(NOT rc EQUAL 0)
    message(FATAL_ERROR "cannot look at ${PLUGIN}: ${error}")
  endif()
  set(${out} "\n${text}" PARENT_SCOPE)
endfunction()

set(ENV{LC_ALL} C)
cmake_path(GET PLUGIN FILENAME name)
look(symbols "${NM}" -D "${PLUGIN}")
look(dynamic "${READELF}" -d "${PLUGIN}")
look(notes "${READELF}" -n "${PLUGIN}")

if(NOT symbols MATCHES "\n[0-9a-f]+ [TtWi] yard_plugin_query\n")
  message(FATAL_ERROR "${name} does not export yard_plugin_query. Define it in one of the sources: "
                      "const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t abi, const yard_host_t* host)")
endif()

string(REGEX MATCHALL "\n *Yard +0x" manifests "${notes}")
list(LENGTH manifests count)
if(count EQUAL 0)
  message(FATAL_ERROR "${name} has no manifest. Give yard_add_plugin() the OPS it serves, or state "
                      "YARD_MANIFEST in one of the sources")
elseif(count GREATER 1)
  message(FATAL_ERROR "${name} has ${count} manifests. Either yard_add_plugin() gets OPS or FUNCTIONS, "
                      "or one source states YARD_MANIFEST, not both")
endif()

if(symbols MATCHES "\n[0-9a-f]+ u ([^\n]*)")
  message(WARNING "${name} cannot be unloaded: ${CMAKE_MATCH_1} is a GNU-unique symbol. Compile everything "
                  "that is linked into it with -fno-gnu-unique")
endif()
if(symbols MATCHES "\n +U __cxa_thread_atexit")
  message(WARNING "${name} stays loaded as long as threads that used it live: it has a thread_local with a "
                  "destructor. Take scratch memory from the host instead")
endif()
if(dynamic MATCHES "NODELETE")
  message(WARNING "${name} cannot be unloaded: it was linked with -z nodelete")
endif()
