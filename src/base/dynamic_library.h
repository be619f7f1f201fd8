// SPDX-License-Identifier: Apache-2.0
// A shared library, opened from an open file, and whether closing it removed its code.
//
// The file is opened by its descriptor (/proc/self/fd/N), so that what was hashed and checked is what is mapped, even if
// its path changes meanwhile. The descriptor stays open while the code may be mapped: the dynamic loader identifies
// libraries by that name, and would confuse another file of the same number with this one.
#pragma once

#include <yard/result.h>

#include <memory>
#include <string>

#include "base/file.h"

namespace yard::base {

class DynamicLibrary {
 public:
  // Runs the library's constructors. The error is what dlerror() said, with `path` in place of the
  // descriptor's name.
  static Result<DynamicLibrary> open(File file, const std::string& path);
  ~DynamicLibrary();
  DynamicLibrary(DynamicLibrary&&) noexcept;
  DynamicLibrary& operator=(DynamicLibrary&&) noexcept;

  // A symbol that this library itself defines, not one it depends on. Null if there is none.
  void* symbol(const char* name) const noexcept;

  // Runs the destructors and unmaps the code, unless the same file is open elsewhere in the process. Empty if it is gone
  // or in use elsewhere, otherwise why it stays: the library is *pinned*, and its descriptor stays open.
  std::string close();

  const File& file() const noexcept { return file_; }

 private:
  struct Use;
  DynamicLibrary() noexcept = default;
  File file_;
  void* handle_ = nullptr;
  Use* use_ = nullptr;  // of this file by this process; never freed
  const void* base_ = nullptr;
};

}  // namespace yard::base
