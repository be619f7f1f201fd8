# SPDX-License-Identifier: Apache-2.0
# Installs and exports the libraries. find_package(Switchyard) gives Switchyard::yard and
# yard_add_plugin(), and pkg-config gives switchyard.

include(CMakePackageConfigHelpers)

install(TARGETS yard yard_metrics yard_plugin_headers EXPORT SwitchyardTargets)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/yard" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES "${PROJECT_BINARY_DIR}/include/yard/version.h"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/yard")
if(TARGET yard_tool)
  install(TARGETS yard_tool EXPORT SwitchyardTargets)
endif()

# Users of a static libyard must also link its private libraries.
set(YARD_FIND_DEPENDENCIES "find_dependency(Threads)\n")
set(YARD_PC_REQUIRES "")
set(YARD_PC_LIBS "")
if(NOT BUILD_SHARED_LIBS)
  get_property(private_libs GLOBAL PROPERTY YARD_PRIVATE_LIBS)
  list(REMOVE_DUPLICATES private_libs)
  foreach(known IN LISTS YARD_KNOWN_LIBRARIES)
    string(REPLACE "|" ";" row "${known}")
    list(GET row 0 target)
    list(GET row 2 package)
    list(GET row 3 pc)
    if(target IN_LIST private_libs)
      string(APPEND YARD_FIND_DEPENDENCIES "find_dependency(${package})\n")
      if(pc MATCHES "^-l")
        string(APPEND YARD_PC_LIBS " ${pc}")
      else()
        string(APPEND YARD_PC_REQUIRES " ${pc}")
      endif()
    endif()
  endforeach()
  get_property(prometheus GLOBAL PROPERTY YARD_METRICS_LIBS)
  if(prometheus)
    string(APPEND YARD_FIND_DEPENDENCIES "find_dependency(prometheus-cpp)\n")
  endif()
endif()

set(cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Switchyard")
install(EXPORT SwitchyardTargets NAMESPACE Switchyard:: DESTINATION "${cmake_dir}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/SwitchyardConfig.cmake.in"
                              "${PROJECT_BINARY_DIR}/SwitchyardConfig.cmake"
                              INSTALL_DESTINATION "${cmake_dir}"
                              PATH_VARS Switchyard_PLUGIN_SUBDIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/SwitchyardConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_SOURCE_DIR}/cmake/YardPlugin.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/YardPlugin.map"
              "${PROJECT_SOURCE_DIR}/cmake/YardPluginCheck.cmake"
              "${PROJECT_BINARY_DIR}/SwitchyardConfig.cmake"
              "${PROJECT_BINARY_DIR}/SwitchyardConfigVersion.cmake" DESTINATION "${cmake_dir}")

cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_LIBDIR BASE_DIRECTORY "/" OUTPUT_VARIABLE libdir)
string(REGEX REPLACE "[^/]+" ".." up "${libdir}/pkgconfig")
string(REGEX REPLACE "^/" "" up "${up}")
configure_file("${PROJECT_SOURCE_DIR}/cmake/switchyard.pc.in" "${PROJECT_BINARY_DIR}/switchyard.pc"
               @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/switchyard.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
