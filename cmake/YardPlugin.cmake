# SPDX-License-Identifier: Apache-2.0
# Builds plugins. find_package(Switchyard) and add_subdirectory() of the sources include this file.
#
# yard_add_plugin(name
#   SOURCES file...                C, C++ or both
#   OPS op...                      every op that the plugin adds or has kernels for
#   [FUNCTIONS group...]
#   [VERSION version]              default: the project's version
#   [FEATURES feature...]          required features of the machine: sve2 cuda:sm_90
#   [DEVICES device...]            default: cpu
#   [BUILD tag]                    one word for people
#   [LIBS target...]               linked privately; never Switchyard itself
#   [INSTALL])                     into lib/yard/plugins below the prefix
#
# Adds the target <name>, which makes the file <name>.so. The library can be opened, closed and
# replaced: it exports only its query, and has no symbol that would keep it in the process. A check
# after linking reports such symbols, and a missing query or manifest.
#
# The arguments define the manifest. The sources see YARD_PLUGIN_NAME and YARD_PLUGIN_VERSION, so
# that both are stated once. If a source states YARD_MANIFEST itself, leave out OPS and FUNCTIONS.
#
# INSTALL puts the file into the folder below the project's install prefix that the library searches
# below its own prefix. If both have the same prefix (Switchyard_PREFIX), the library finds the
# plugin. YARD_PLUGIN_INSTALL_DIR can set another folder below the prefix, or an absolute one.

include_guard(GLOBAL)
cmake_policy(VERSION 3.25)  # here and in these functions, whatever the project says

# Checks words for the manifest. Each must match `pattern`.
function(yard_check_plugin_words name keyword pattern what)
  set(seen "")
  foreach(word IN LISTS ARGN)
    if(NOT word MATCHES "^(${pattern})$")
      message(FATAL_ERROR "yard_add_plugin(${name}): ${keyword} '${word}' is no ${what}")
    elseif(word IN_LIST seen)
      message(FATAL_ERROR "yard_add_plugin(${name}): ${keyword} names '${word}' twice")
    endif()
    list(APPEND seen "${word}")
  endforeach()
endfunction()

# The project must have enabled the languages of the sources. CMake itself would fail much later.
function(yard_check_plugin_sources name)
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  foreach(source IN LISTS ARGN)
    set(language "")
    if(source MATCHES "\\.c$")
      set(language C)
    elseif(source MATCHES "\\.(cc|cpp|cxx|C)$")
      set(language CXX)
    elseif(source MATCHES "\\.cu$")
      set(language CUDA)
    endif()
    if(language AND NOT language IN_LIST languages)
      message(FATAL_ERROR "yard_add_plugin(${name}): ${source} needs the language ${language}; say "
                          "project(... LANGUAGES ${language}) or enable_language(${language})")
    endif()
    cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE file)
    get_source_file_property(generated "${file}" GENERATED)
    if(NOT generated AND NOT source MATCHES "^\\$<" AND NOT EXISTS "${file}")
      message(FATAL_ERROR "yard_add_plugin(${name}): there is no file ${file}")
    endif()
  endforeach()
endfunction()

function(yard_check_plugin_arguments name)
  if(NOT name MATCHES "^[a-z0-9_.-]+$")
    message(FATAL_ERROR "yard_add_plugin(${name}): the name of a plugin has a-z, 0-9, '_', '.' and '-'")
  elseif(arg_UNPARSED_ARGUMENTS)
    list(GET arg_UNPARSED_ARGUMENTS 0 stray)
    message(FATAL_ERROR "yard_add_plugin(${name}): '${stray}' belongs to no keyword; known are SOURCES, "
                        "OPS, FUNCTIONS, VERSION, FEATURES, DEVICES, BUILD, LIBS and INSTALL")
  elseif(arg_KEYWORDS_MISSING_VALUES)
    list(GET arg_KEYWORDS_MISSING_VALUES 0 keyword)
    message(FATAL_ERROR "yard_add_plugin(${name}): nothing stands after ${keyword}")
  elseif(NOT arg_SOURCES)
    message(FATAL_ERROR "yard_add_plugin(${name}): SOURCES is missing")
  endif()
  set(part "[a-z0-9_]+")
  yard_check_plugin_words(${name} OPS "[a-z]${part}(\\.${part})*|[a-z]" "name of an op" ${arg_OPS})
  yard_check_plugin_words(${name} FUNCTIONS "[A-Za-z0-9_.-]+" "name of a group" ${arg_FUNCTIONS})
  yard_check_plugin_words(${name} FEATURES "([a-z_0-9]+:)?[a-z0-9_.-]+"
                          "feature: sve2, or cuda:sm_90" ${arg_FEATURES})
  yard_check_plugin_words(${name} DEVICES "[a-z_]+(:[0-9]+)?" "device: cpu, cuda, ..." ${arg_DEVICES})
  yard_check_plugin_words(${name} VERSION "[A-Za-z0-9._+~-]+" "version: one word" ${arg_VERSION})
  yard_check_plugin_words(${name} BUILD "[A-Za-z0-9._+~:-]+" "tag: one word" ${arg_BUILD})
  if(NOT arg_OPS AND NOT arg_FUNCTIONS)
    foreach(keyword IN ITEMS VERSION FEATURES DEVICES BUILD)
      if(arg_${keyword})
        message(FATAL_ERROR "yard_add_plugin(${name}): ${keyword} belongs to a manifest, and without OPS and "
                            "FUNCTIONS the source states its own (YARD_MANIFEST)")
      endif()
    endforeach()
  elseif(NOT arg_VERSION AND NOT PROJECT_VERSION)
    message(FATAL_ERROR "yard_add_plugin(${name}): VERSION is missing, and the project has none")
  endif()
  foreach(library IN LISTS arg_LIBS)
    if(library MATCHES "^(Switchyard::yard|yard)$")
      message(FATAL_ERROR "yard_add_plugin(${name}): a plugin does not link ${library}; the host hands it "
                          "all it needs, and plugin.h is found without")
    endif()
  endforeach()
endfunction()

# Writes a manifest from the arguments and sets `out` to the path of the file.
function(yard_write_plugin_manifest name version out)
  set(parts "")
  foreach(keyword IN ITEMS OPS FUNCTIONS DEVICES FEATURES BUILD)
    if(arg_${keyword})
      list(JOIN arg_${keyword} " " words)
      string(APPEND parts " YARD_MANIFEST_${keyword}(\"${words}\")")
    endif()
  endforeach()
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  set(suffix cc)
  if("C" IN_LIST languages)
    set(suffix c)
  endif()
  set(file "${CMAKE_CURRENT_BINARY_DIR}/${name}.manifest.${suffix}")
  file(CONFIGURE OUTPUT "${file}" CONTENT "/* Made by yard_add_plugin(${name}). */
#include <yard/plugin.h>
YARD_MANIFEST(\"${name}\", \"${version}\",${parts});
")
  set(${out} "${file}" PARENT_SCOPE)
endfunction()

function(yard_flag_plugin name)
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if("CXX" IN_LIST languages)
    target_compile_features(${name} PRIVATE cxx_std_20)
  endif()
  if("C" IN_LIST languages)
    target_compile_features(${name} PRIVATE c_std_11)
  endif()
  # GNU-unique symbols would keep the library in the process.
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)
  if("CUDA" IN_LIST languages AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fno-gnu-unique>)
  endif()
  set(map "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/YardPlugin.map")
  target_link_options(${name} PRIVATE "LINKER:--version-script=${map}")
  set_property(TARGET ${name} APPEND PROPERTY LINK_DEPENDS "${map}")
  # Report a missing library now instead of when the plugin is loaded. With a sanitizer, the program
  # provides the sanitizer's symbols.
  get_directory_property(options COMPILE_OPTIONS)
  if(NOT "${CMAKE_C_FLAGS} ${CMAKE_CXX_FLAGS} ${options}" MATCHES "-fsanitize")
    target_link_options(${name} PRIVATE LINKER:-z,defs)
  endif()
endfunction()

function(yard_add_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "INSTALL" "VERSION;BUILD"
                        "SOURCES;OPS;FUNCTIONS;FEATURES;DEVICES;LIBS")
  yard_check_plugin_arguments(${name})
  yard_check_plugin_sources(${name} ${arg_SOURCES})
  add_library(${name} MODULE ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES
      PREFIX "" SUFFIX ".so" C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden
      CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(${name} PRIVATE Switchyard::plugin_headers ${arg_LIBS})
  yard_flag_plugin(${name})
  if(arg_OPS OR arg_FUNCTIONS)
    set(version "${arg_VERSION}")
    if(NOT version)
      set(version "${PROJECT_VERSION}")
    endif()
    yard_write_plugin_manifest(${name} "${version}" manifest)
    target_sources(${name} PRIVATE "${manifest}")
    target_compile_definitions(${name} PRIVATE YARD_PLUGIN_NAME="${name}"
                                               YARD_PLUGIN_VERSION="${version}")
  endif()
  if(CMAKE_NM AND CMAKE_READELF)
    add_custom_command(TARGET ${name} POST_BUILD VERBATIM
        COMMAND "${CMAKE_COMMAND}" "-DPLUGIN=$<TARGET_FILE:${name}>" "-DNM=${CMAKE_NM}"
                "-DREADELF=${CMAKE_READELF}" -P "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/YardPluginCheck.cmake")
  else()
    message(STATUS "yard_add_plugin(${name}): there is no nm or readelf; the library will not be looked at")
  endif()
  if(arg_INSTALL)
    if(NOT YARD_PLUGIN_INSTALL_DIR)
      set(YARD_PLUGIN_INSTALL_DIR "${Switchyard_PLUGIN_SUBDIR}")
    endif()
    install(TARGETS ${name} LIBRARY DESTINATION "${YARD_PLUGIN_INSTALL_DIR}")
  endif()
endfunction()
