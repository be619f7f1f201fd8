// SPDX-License-Identifier: Apache-2.0
// A shared library, opened from a file that is open already, and proof of whether closing it removed it.
//
// The file is opened by its descriptor (/proc/self/fd/N), so what was hashed and looked at is what is
// mapped, whatever happens to its path meanwhile. The descriptor stays open as long as the code may be
// there: the dynamic loader knows libraries by that name and would take another file of the same number
// for this one.
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

  // Runs the destructors and takes the code out, unless somebody else has the same file open. Empty if it
  // is gone or still used elsewhere, otherwise what keeps it: the library is *pinned*, and its descriptor
  // stays open for good.
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
