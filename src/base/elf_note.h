// SPDX-License-Identifier: Apache-2.0
// Reading a shared library without running its code: whether it can be mapped in this process, and its notes. Files are
// untrusted: everything is checked, and nothing is mapped, so that a file that is truncated meanwhile is an error and
// not a signal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace yard::base {

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
  std::string detail;              // of the problem
  std::vector<std::string> notes;  // the texts of the matching notes, without NULs at their ends
  bool never_unloads = false;      // the file asks for it (DF_1_NODELETE)
};

// The notes of an owner and type. Everything the dynamic loader will map must lie inside of the file.
ElfReading read_elf_notes(const File& file, std::string_view owner, uint32_t type);
// The same from memory; for fuzzing. The bytes may be changed.
ElfReading read_elf_notes(char* bytes, size_t size, std::string_view owner, uint32_t type);

// Symbols of a library that keep it from being unloaded (STB_GNU_UNIQUE), at most `most` of them.
std::vector<std::string> unique_symbols(const File& file, size_t most);

}  // namespace yard::base
