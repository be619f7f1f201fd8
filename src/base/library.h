// SPDX-License-Identifier: Apache-2.0
// Opens a shared library by the descriptor of its file. The file that was hashed and checked is the
// one that is mapped, even if its path changes meanwhile.
#pragma once

#include <yard/status.h>

#include <string>

#include "base/file.h"

namespace yard::base {

class DynamicLibrary {
 public:
  // Runs the library's constructors. The error is that of dlerror() for `path`.
  static Result<DynamicLibrary> open(const File& file, const std::string& path);
  ~DynamicLibrary() { close(); }
  DynamicLibrary(DynamicLibrary&& other) noexcept;

  // Returns null unless this library itself defines the symbol.
  void* symbol(const char* name) const noexcept;

  // Runs the destructors and unmaps the code, unless the same file is open elsewhere in the
  // process. Returns why the code stays, or nothing if it is gone or in use elsewhere.
  std::string close();
  // The library stays open until the process ends.
  void leave_open() noexcept { handle_ = nullptr; }

 private:
  DynamicLibrary() noexcept = default;
  void* handle_ = nullptr;
  const void* dynamic_ = nullptr;  // its dynamic section, which identifies it
  std::string pinned_by_;          // the reason if its code stays
};

}  // namespace yard::base
