// SPDX-License-Identifier: Apache-2.0
// Opens a shared library by the descriptor of its file. The mapped file is the one that was hashed
// and checked, even if its path changes meanwhile.
#pragma once

#include <yard/status.h>

#include <string>

#include "base/file.h"

namespace yard::base {

class DynamicLibrary {
 public:
  // Runs the library's constructors. The error is the text of dlerror() for `path`.
  static Result<DynamicLibrary> open(const File& file, const std::string& path);
  ~DynamicLibrary() { close(); }
  DynamicLibrary(DynamicLibrary&& other) noexcept;

  // Returns null unless this library itself defines the symbol.
  void* symbol(const char* name) const noexcept;

  // Runs the destructors and unmaps the code, unless the process has opened the file elsewhere.
  // Returns why the code stays, or nothing if it is gone or used elsewhere.
  std::string close();
  void leave_open() noexcept { handle_ = nullptr; }

 private:
  DynamicLibrary() noexcept = default;
  void* handle_ = nullptr;
  const void* dynamic_ = nullptr;  // the dynamic section, which identifies the library
  std::string pinned_by_;          // why the code stays
};

}  // namespace yard::base
