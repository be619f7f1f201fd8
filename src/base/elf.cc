// SPDX-License-Identifier: Apache-2.0
#include "base/elf.h"

#include <fmt/format.h>
#include <gelf.h>
#include <libelf.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

namespace yard::base {
namespace {

#if defined(__x86_64__)
constexpr int kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr int kMachine = EM_AARCH64;
#endif

constexpr size_t kMostSegments = 256, kMostSections = 65280;
constexpr uint64_t kLargestNotes = 1 << 20, kLargestDynamic = 1 << 20;
constexpr uint64_t kMostTexts = 1024, kLongestName = 16384;  // of the dynamic segment

using ElfHandle = std::unique_ptr<Elf, int (*)(Elf*)>;

class Reader {
 public:
  Reader(Elf* elf, uint64_t file_size, std::string_view owner, uint32_t type)
      : elf_(elf), size_(file_size), owner_(owner), type_(type) {}

  ElfReading read() {
    if (!header() || !segments() || !dynamic() || !notes()) to_.notes.clear();
    return std::move(to_);
  }

 private:
  bool fail(PluginReason problem, std::string detail) {
    to_.problem = problem, to_.detail = std::move(detail);
    return false;
  }
  bool damaged(std::string detail) { return fail(PluginReason::kDamaged, std::move(detail)); }
  Elf_Data* chunk(uint64_t offset, uint64_t size, Elf_Type type) const {
    return elf_getdata_rawchunk(elf_, static_cast<int64_t>(offset), size, type);
  }
  bool inside(uint64_t offset, uint64_t length) const {
    return offset <= size_ && length <= size_ - offset;
  }

  bool header() {
    GElf_Ehdr h;
    if (gelf_getehdr(elf_, &h) == nullptr) return damaged("its ELF header cannot be read");
    if (h.e_machine != kMachine)
      return fail(PluginReason::kOtherMachine,
                  fmt::format("it is for ELF machine {}, this one is {}", h.e_machine, kMachine));
    if (h.e_type != ET_DYN)
      return fail(PluginReason::kNotALibrary,
                  fmt::format("ELF type {} is not a shared library ({})", h.e_type, ET_DYN));
    if (h.e_version != EV_CURRENT || h.e_ehsize != sizeof(Elf64_Ehdr))
      return damaged(
          fmt::format("its ELF header states version {} and {} bytes", h.e_version, h.e_ehsize));
    const auto outside = [&](const char* what, size_t count, size_t size, uint64_t at) {
      return damaged(fmt::format("{} {} headers of {} bytes at {} are not in a file of {} bytes",
                                 count, what, size, at, size_));
    };
    if (h.e_phnum == 0 || h.e_phnum > kMostSegments || h.e_phentsize != sizeof(Elf64_Phdr) ||
        !inside(h.e_phoff, uint64_t{h.e_phnum} * sizeof(Elf64_Phdr)))
      return outside("program", h.e_phnum, h.e_phentsize, h.e_phoff);
    if (h.e_shoff != 0 && (h.e_shnum > kMostSections || h.e_shentsize != sizeof(Elf64_Shdr) ||
                           !inside(h.e_shoff, uint64_t{h.e_shnum} * sizeof(Elf64_Shdr))))
      return outside("section", h.e_shnum, h.e_shentsize, h.e_shoff);
    segments_.resize(h.e_phnum);
    return true;
  }

  // Checks what the dynamic loader would map.
  bool segments() {
    uint64_t end = 0;
    size_t loads = 0;
    for (size_t i = 0; i < segments_.size(); ++i) {
      GElf_Phdr& p = segments_[i];
      if (gelf_getphdr(elf_, static_cast<int>(i), &p) == nullptr)
        return damaged(fmt::format("program header {} cannot be read", i));
      if (p.p_type == PT_NULL) continue;
      if (!inside(p.p_offset, p.p_filesz))
        return damaged(fmt::format("segment {} covers bytes {} to {} of a file of {} bytes", i,
                                   p.p_offset, p.p_offset + p.p_filesz, size_));
      if (p.p_type == PT_DYNAMIC && std::exchange(dynamic_, &p) != nullptr)
        return damaged("it has two dynamic segments");
      if (p.p_type != PT_LOAD) continue;
      ++loads;
      const bool aligned = p.p_align <= 1 || ((p.p_align & (p.p_align - 1)) == 0 &&
                                              (p.p_vaddr - p.p_offset) % p.p_align == 0);
      uint64_t stop = 0;
      if (!aligned || p.p_filesz > p.p_memsz || p.p_vaddr < end ||
          __builtin_add_overflow(p.p_vaddr, p.p_memsz, &stop) || stop > (uint64_t{1} << 46))
        return damaged(fmt::format("segment {} contradicts itself or the one before it", i));
      end = stop;
    }
    if (loads == 0) return damaged("it has nothing to load");
    if (dynamic_ == nullptr)
      return fail(PluginReason::kNotALibrary, "it has no dynamic segment: it is not linked");
    return true;
  }

  // Where in the file this memory of the loaded library comes from.
  std::optional<uint64_t> offset_of(uint64_t address, uint64_t size) const {
    for (const GElf_Phdr& l : segments_)
      if (l.p_type == PT_LOAD && address >= l.p_vaddr && address - l.p_vaddr <= l.p_filesz &&
          size <= l.p_filesz - (address - l.p_vaddr))
        return l.p_offset + (address - l.p_vaddr);
    return std::nullopt;
  }

  bool dynamic() {
    const GElf_Phdr& p = *dynamic_;
    if (p.p_filesz > kLargestDynamic || p.p_filesz % sizeof(Elf64_Dyn) != 0)
      return damaged(fmt::format("its dynamic segment has {} bytes", p.p_filesz));
    // The dynamic loader reads the table from memory, so the file must have it at the same place.
    if (offset_of(p.p_vaddr, p.p_filesz) != p.p_offset)
      return damaged("its dynamic segment is in no segment that is loaded");
    Elf_Data* const data = chunk(p.p_offset, p.p_filesz, ELF_T_DYN);
    if (data == nullptr) return damaged("its dynamic segment cannot be read");
    std::vector<std::pair<std::vector<std::string>*, uint64_t>> texts;
    uint64_t strings = 0, strings_size = 0;
    for (size_t i = 0; i < p.p_filesz / sizeof(Elf64_Dyn); ++i) {
      GElf_Dyn d;
      if (gelf_getdyn(data, static_cast<int>(i), &d) == nullptr) break;
      if (d.d_tag == DT_NULL) return read_texts(texts, strings, strings_size);
      if (d.d_tag == DT_NEEDED || d.d_tag == DT_FILTER || d.d_tag == DT_AUXILIARY)
        texts.emplace_back(&to_.needed, d.d_un.d_val);
      if (d.d_tag == DT_RPATH || d.d_tag == DT_RUNPATH)
        texts.emplace_back(&to_.run_paths, d.d_un.d_val);
      if (d.d_tag == DT_STRTAB) strings = d.d_un.d_ptr;
      if (d.d_tag == DT_STRSZ) strings_size = d.d_un.d_val;
      if (d.d_tag != DT_FLAGS_1) continue;
      to_.never_unloads = (d.d_un.d_val & DF_1_NODELETE) != 0;
      if ((d.d_un.d_val & DF_1_PIE) != 0)
        return fail(PluginReason::kNotALibrary, "it is a program");
    }
    return damaged("its dynamic segment has no end");
  }

  // Texts of the dynamic segment, given by where they begin in its string table.
  bool read_texts(const std::vector<std::pair<std::vector<std::string>*, uint64_t>>& texts,
                  uint64_t address, uint64_t size) {
    if (texts.size() > kMostTexts)
      return damaged(fmt::format("it needs {} libraries", texts.size()));
    const auto table = offset_of(address, size);
    for (const auto& [to, at] : texts) {
      Elf_Data* const data = table && at < size
                                 ? chunk(*table + at, std::min(size - at, kLongestName), ELF_T_BYTE)
                                 : nullptr;
      const char* const text = data != nullptr ? static_cast<const char*>(data->d_buf) : "";
      const size_t length = data != nullptr ? ::strnlen(text, data->d_size) : 0;
      if (data == nullptr || length == data->d_size)
        return damaged("the name of a library it needs, or its run path, cannot be read");
      to->emplace_back(text, length);
    }
    return true;
  }

  bool notes() {
    for (const GElf_Phdr& p : segments_) {
      if (p.p_type != PT_NOTE) continue;
      if (p.p_filesz > kLargestNotes)
        return damaged(fmt::format("its notes have {} bytes", p.p_filesz));
      if (Elf_Data* const data =
              chunk(p.p_offset, p.p_filesz, p.p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR))
        notes_of(*data);
    }
    return true;
  }

  void notes_of(Elf_Data& data) {
    GElf_Nhdr n;
    size_t name = 0, text = 0;
    for (size_t at = 0; at < data.d_size;) {
      const size_t next = gelf_getnote(&data, at, &n, &name, &text);
      if (next <= at || next > data.d_size) return;
      at = next;
      const char* bytes = static_cast<const char*>(data.d_buf);
      if (name > data.d_size || n.n_namesz > data.d_size - name || text > data.d_size ||
          n.n_descsz > data.d_size - text)
        return;
      // The NUL counts as part of an owner's name.
      const std::string_view who(bytes + name, n.n_namesz);
      if (n.n_type != type_ || who.size() != owner_.size() + 1 || !who.starts_with(owner_))
        continue;
      std::string_view what(bytes + text, n.n_descsz);
      while (what.ends_with('\0')) what.remove_suffix(1);
      to_.notes.emplace_back(what);
    }
  }

  Elf* elf_;
  uint64_t size_;
  std::string_view owner_;
  uint32_t type_;
  std::vector<GElf_Phdr> segments_;
  const GElf_Phdr* dynamic_ = nullptr;
  ElfReading to_;
};

ElfReading problem(PluginReason kind, const char* detail) { return {kind, detail, {}, {}, {}, {}}; }

// `head` is the beginning of the file, which is checked before libelf reads it.
ElfReading read(ElfHandle elf, const unsigned char* head, size_t head_size, uint64_t size,
                std::string_view owner, uint32_t type) {
  if (head_size < EI_NIDENT || std::memcmp(head, ELFMAG, SELFMAG) != 0)
    return problem(PluginReason::kNotElf, "it is not an ELF file");
  if (head[EI_CLASS] != ELFCLASS64 || head[EI_DATA] != ELFDATA2LSB)
    return problem(PluginReason::kOtherMachine, "it is not for a 64-bit little-endian machine");
  if (elf == nullptr || elf_kind(elf.get()) != ELF_K_ELF || size < sizeof(Elf64_Ehdr))
    return problem(PluginReason::kDamaged, "it begins like an ELF file and ends too early");
  return Reader(elf.get(), size, owner, type).read();
}

ElfHandle open_elf(const File& file) {
  elf_version(EV_CURRENT);
  return {elf_begin(file.fd(), ELF_C_READ, nullptr), elf_end};
}

}  // namespace

ElfReading read_elf(const File& file, std::string_view owner, uint32_t type) {
  struct stat info;
  unsigned char head[EI_NIDENT] = {};
  const ssize_t n = ::fstat(file.fd(), &info) == 0 ? file.read_at(head, sizeof head, 0) : -1;
  if (n < 0) return problem(PluginReason::kUnreadable, std::strerror(errno));
  return read(open_elf(file), head, static_cast<size_t>(n), static_cast<uint64_t>(info.st_size),
              owner, type);
}

ElfReading read_elf(char* bytes, size_t size, std::string_view owner, uint32_t type) {
  elf_version(EV_CURRENT);
  const auto* head = reinterpret_cast<const unsigned char*>(bytes);
  ElfHandle elf(size >= EI_NIDENT ? elf_memory(bytes, size) : nullptr, elf_end);
  return read(std::move(elf), head, size, size, owner, type);
}

std::vector<std::string> unique_symbols(const File& file, size_t most) {
  std::vector<std::string> found;
  const ElfHandle elf = open_elf(file);
  for (Elf_Scn* s = nullptr; elf != nullptr && (s = elf_nextscn(elf.get(), s)) != nullptr;) {
    GElf_Shdr h;
    if (gelf_getshdr(s, &h) == nullptr || h.sh_type != SHT_DYNSYM || h.sh_entsize == 0) continue;
    Elf_Data* data = elf_getdata(s, nullptr);
    for (int i = 0; data != nullptr && found.size() < most; ++i) {
      GElf_Sym symbol;
      if (gelf_getsym(data, i, &symbol) == nullptr) break;
      if (GELF_ST_BIND(symbol.st_info) != STB_GNU_UNIQUE || symbol.st_shndx == SHN_UNDEF) continue;
      const char* name = elf_strptr(elf.get(), h.sh_link, symbol.st_name);
      if (name != nullptr) found.emplace_back(name);
    }
  }
  return found;
}

}  // namespace yard::base
