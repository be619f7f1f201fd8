// SPDX-License-Identifier: Apache-2.0
// Tests a library that is built byte by byte, so that every field can have an invalid value. The
// tests of plugins cover files that linkers make.
#include "base/library.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/elf.h"
#include "base/testing_files.h"

namespace yard::base {
namespace {

#if defined(__x86_64__)
constexpr int kThisMachine = EM_X86_64;
#else
constexpr int kThisMachine = EM_AARCH64;
#endif

// One loaded segment that holds everything, a dynamic table and notes.
struct Tiny {
  Elf64_Ehdr header{};
  Elf64_Phdr load{}, dynamic{}, notes{};
  Elf64_Dyn table[2]{};
  struct Note {
    Elf64_Nhdr header;
    char owner[8];
    char text[8];
  } note[2]{};

  Tiny() {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64, header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_DYN, header.e_machine = kThisMachine, header.e_version = EV_CURRENT;
    header.e_ehsize = sizeof header, header.e_phentsize = sizeof load, header.e_phnum = 3;
    header.e_phoff = sizeof header;
    load.p_type = PT_LOAD, load.p_filesz = load.p_memsz = sizeof(Tiny), load.p_align = 4096;
    place(dynamic, PT_DYNAMIC, table, sizeof table);
    place(notes, PT_NOTE, note, sizeof note);
    notes.p_align = 4;
    put(note[0], "Other", "first"), put(note[1], "Yard", "x=1\n");
  }
  void place(Elf64_Phdr& p, uint32_t type, const void* what, size_t size) {
    p.p_type = type;
    p.p_offset = p.p_vaddr =
        static_cast<size_t>(static_cast<const char*>(what) - reinterpret_cast<const char*>(this));
    p.p_filesz = p.p_memsz = size;
  }
  static void put(Note& n, const char* owner, const char* text) {
    n.header = {static_cast<uint32_t>(std::strlen(owner) + 1), 8, 1};
    std::strncpy(n.owner, owner, sizeof n.owner);
    std::strncpy(n.text, text, sizeof n.text);
  }
  ElfReading read(size_t size = sizeof(Tiny)) const {
    std::string bytes(reinterpret_cast<const char*>(this), size);
    return read_elf(file_of(bytes), "Yard", 1);
  }
};

TEST(ElfNotes, AreFoundByOwnerAndType) {
  const ElfReading r = Tiny().read();
  EXPECT_EQ(r.problem, PluginReason::kNone) << r.detail;
  ASSERT_EQ(r.notes.size(), 1u);
  EXPECT_EQ(r.notes[0], "x=1\n");
  Tiny t;
  t.note[1].header.n_type = 7;
  EXPECT_TRUE(t.read().notes.empty());
  Tiny::put(t.note[0], "Yard", "y=2\n");
  EXPECT_EQ(t.read().notes.size(), 1u);
  t.note[1].header.n_type = 1;
  EXPECT_EQ(t.read().notes.size(), 2u);
}

TEST(ElfNotes, CutAnywhereItIsAProblem) {
  for (size_t size = 0; size < sizeof(Tiny); ++size) {
    const ElfReading r = Tiny().read(size);
    EXPECT_NE(r.problem, PluginReason::kNone) << size;
    EXPECT_FALSE(r.detail.empty()) << size;
    EXPECT_TRUE(r.notes.empty()) << size;
  }
}

TEST(ElfNotes, EveryByteMayBeAnything) {
  for (size_t at = 0; at < sizeof(Tiny); ++at)
    for (const int value : {0, 1, 0x7f, 0x80, 0xff}) {
      Tiny t;
      reinterpret_cast<unsigned char*>(&t)[at] = static_cast<unsigned char>(value);
      const ElfReading r = t.read();
      EXPECT_EQ(r.problem == PluginReason::kNone, r.detail.empty());
    }
}

TEST(ElfNotes, ProblemsAreToldApart) {
  const auto problem = [](auto change) {
    Tiny t;
    change(t);
    return t.read().problem;
  };
  EXPECT_EQ(problem([](Tiny& t) { t.header.e_ident[1] = 'x'; }), PluginReason::kNotElf);
  EXPECT_EQ(problem([](Tiny& t) { t.header.e_ident[EI_CLASS] = ELFCLASS32; }),
            PluginReason::kOtherMachine);
  EXPECT_EQ(problem([](Tiny& t) { t.header.e_machine = EM_SPARC; }), PluginReason::kOtherMachine);
  EXPECT_EQ(problem([](Tiny& t) { t.header.e_type = ET_EXEC; }), PluginReason::kNotALibrary);
  EXPECT_EQ(problem([](Tiny& t) { t.dynamic.p_type = PT_NULL; }), PluginReason::kNotALibrary);
  EXPECT_EQ(
      problem([](Tiny& t) { t.table[0].d_tag = DT_FLAGS_1, t.table[0].d_un.d_val = DF_1_PIE; }),
      PluginReason::kNotALibrary);
  EXPECT_EQ(problem([](Tiny& t) { t.load.p_filesz = ~0ull; }), PluginReason::kDamaged);
  EXPECT_EQ(problem([](Tiny& t) { t.load.p_memsz = 1; }), PluginReason::kDamaged);
  EXPECT_EQ(problem([](Tiny& t) { t.load.p_type = PT_NULL; }), PluginReason::kDamaged);
  EXPECT_EQ(problem([](Tiny& t) { t.dynamic.p_vaddr += 16; }), PluginReason::kDamaged);
  EXPECT_EQ(problem([](Tiny& t) { t.table[0].d_tag = t.table[1].d_tag = DT_NEEDED; }),
            PluginReason::kDamaged);
}

TEST(ElfNotes, WhatAsksNeverToBeUnloadedSaysSo) {
  Tiny t;
  EXPECT_FALSE(t.read().never_unloads);
  t.table[0].d_tag = DT_FLAGS_1, t.table[0].d_un.d_val = DF_1_NODELETE;
  EXPECT_TRUE(t.read().never_unloads);
}

TEST(ElfNotes, AFileThatCannotBeReadIsSuch) {
  EXPECT_EQ(read_elf(File(), "Yard", 1).problem, PluginReason::kUnreadable);
}

}  // namespace
}  // namespace yard::base
