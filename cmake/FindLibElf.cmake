# SPDX-License-Identifier: Apache-2.0
# libelf, as the target LibElf::LibElf. Installed beside the package's configuration for static builds.

find_path(LIBELF_INCLUDE_DIR gelf.h)
find_library(LIBELF_LIBRARY elf)
mark_as_advanced(LIBELF_INCLUDE_DIR LIBELF_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibElf REQUIRED_VARS LIBELF_LIBRARY LIBELF_INCLUDE_DIR)
if(LibElf_FOUND AND NOT TARGET LibElf::LibElf)
  add_library(LibElf::LibElf UNKNOWN IMPORTED)
  set_target_properties(LibElf::LibElf PROPERTIES
      IMPORTED_LOCATION "${LIBELF_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${LIBELF_INCLUDE_DIR}")
endif()
