// SPDX-License-Identifier: Apache-2.0
// Shared libraries: read without running their code, and opened.
#pragma once

#include <yard/status.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace yard::base {

// Identifies a file as long as it is open or mapped.
struct FileKey {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileKey&) const = default;
};

// Whether the memory at an address is mapped from that file. Reads /proc/self/maps.
bool is_mapped_from(const void* address, const File& file);

// A library that is opened from an open file, and whether closing it removed its code.
//
// The file is opened by its descriptor, below /proc/self/fd, so that what was hashed and checked is what is mapped, even if
// its path changes meanwhile. The dynamic loader identifies libraries by name; a name is used for no other file in the
// life of the process, so that it does not matter who closes the descriptor and which file gets its number.
class DynamicLibrary {
 public:
  // Runs the library's constructors. `key` is that of the file when it was checked: an error if the descriptor refers to
  // another file now, or if another one was mapped. Other errors are what dlerror() said, with `path` in place of the
  // descriptor's name.
  static Result<DynamicLibrary> open(File file, const FileKey& key, const std::string& path);
  ~DynamicLibrary();
  DynamicLibrary(DynamicLibrary&&) noexcept;
  DynamicLibrary& operator=(DynamicLibrary&&) noexcept;

  // A symbol that this library itself defines, not one it depends on. Null if there is none.
  void* symbol(const char* name) const noexcept;

  // Runs the destructors and unmaps the code, unless the same file is open elsewhere in the process. Empty if it is gone
  // or in use elsewhere, otherwise why it stays: the library is *pinned*.
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

// Reading a library without running its code: whether it can be mapped in this process, and its notes. Files are untrusted:
// everything is checked, and nothing is mapped, so that a file that is truncated meanwhile is an error and not a signal.
enum class ElfProblem {
  kNone,
  kUnreadable,    // the file cannot be read
  kNotElf,        // it is something else
  kDamaged,       // truncated or inconsistent
  kOtherMachine,  // another processor, word size or byte order
  kNotSharedLibrary,
};

struct ElfReading {
  ElfProblem problem = ElfProblem::kNone;
  std::string detail;               // of the problem
  std::vector<std::string> notes;   // the texts of the matching notes, without NULs at their ends
  bool never_unloads = false;       // the file asks for it (DF_1_NODELETE)
  std::vector<std::string> needed;  // libraries that are loaded with it, as it names them
  std::vector<std::string> search_paths;  // RPATH and RUNPATH: directories, separated by ':'
};

// The notes of an owner and type. Everything the dynamic loader will map must lie inside of the file.
ElfReading read_elf_notes(const File& file, std::string_view owner, uint32_t type);
// The same from memory; for fuzzing. The bytes may be changed.
ElfReading read_elf_notes(char* bytes, size_t size, std::string_view owner, uint32_t type);

// Symbols of a library that keep it from being unloaded (STB_GNU_UNIQUE), at most `most` of them.
std::vector<std::string> unique_symbols(const File& file, size_t most);

}  // namespace yard::base
