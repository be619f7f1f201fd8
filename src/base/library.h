// SPDX-License-Identifier: Apache-2.0
// Opening a shared library from an open file, closing it, and why its code stays in the process.
//
// The file is opened by its descriptor, below /proc/self/fd, so that what was hashed and checked is what is mapped, even if
// its path changes meanwhile. The dynamic loader recognises a file that is open already by its device and inode.
#pragma once

#include <yard/status.h>

#include <string>

#include "base/file.h"

namespace yard::base {

class DynamicLibrary {
 public:
  // Runs the library's constructors. Errors are what dlerror() said, with `path` in place of the descriptor's name.
  static Result<DynamicLibrary> open(const File& file, const std::string& path);
  ~DynamicLibrary() { close(); }
  DynamicLibrary(DynamicLibrary&& other) noexcept;

  // A symbol that this library itself defines, not one it depends on. Null if there is none.
  void* symbol(const char* name) const noexcept;

  // Runs the destructors and unmaps the code, unless the same file is open elsewhere in the process. Returns why the code
  // stays; empty if it is gone or in use elsewhere.
  std::string close();
  // The library stays open until the process ends.
  void leave_open() noexcept { handle_ = nullptr; }

 private:
  DynamicLibrary() noexcept = default;
  void* handle_ = nullptr;
  const void* dynamic_ = nullptr;  // its dynamic section, which no two libraries share
  std::string pinned_by_;          // what would keep its code in the process
};

}  // namespace yard::base
