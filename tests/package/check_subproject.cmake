# SPDX-License-Identifier: Apache-2.0
# Checks what a project around Switchyard's sources gets: only the library, and plugins as with an
# installed Switchyard.
foreach(unasked IN ITEMS yard_tool yard_test_flags base_test)
  if(TARGET ${unasked})
    message(FATAL_ERROR "a subproject builds ${unasked}, which was not requested")
  endif()
endforeach()
# The library's layers use unity builds. The project around it need not, and does not get our
# warnings.
get_target_property(unity yard_dispatch UNITY_BUILD)
get_target_property(ours consumer UNITY_BUILD)
if(NOT unity OR ours)
  message(FATAL_ERROR "expected a unity build of the library alone, got '${unity}' and '${ours}'")
endif()
yard_add_plugin(example_c SOURCES "${SWITCHYARD_SOURCE}/examples/plugins/c_plugin.c" INSTALL)
