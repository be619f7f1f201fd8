// SPDX-License-Identifier: Apache-2.0
// Looking at a shared library without running any of it: whether it can be mapped here, and what its notes
// say. Files are strangers: nothing in them is believed before it is checked, and no part of the file is
// mapped, so a file that is cut while it is read is an error and not a signal.
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
  kDamaged,       // cut short, or it contradicts itself
  kOtherMachine,  // another processor, word size or byte order
  kNotSharedLibrary,
};

struct ElfReading {
  ElfProblem problem = ElfProblem::kNone;
  std::string detail;              // for people: what is wrong, with figures
  std::vector<std::string> notes;  // the texts of the notes asked for, without NULs at their ends
  bool never_unloads = false;      // the file asks for it (DF_1_NODELETE)
};

// The notes of an owner and type. Everything the dynamic loader will map must lie inside of the file.
ElfReading read_elf_notes(const File& file, std::string_view owner, uint32_t type);
// The same from memory; for fuzzing. The bytes may be changed.
ElfReading read_elf_notes(char* bytes, size_t size, std::string_view owner, uint32_t type);

// Symbols of a library that keep it from being unloaded (STB_GNU_UNIQUE), at most `most` of them.
std::vector<std::string> unique_symbols(const File& file, size_t most);

}  // namespace yard::base
