// SPDX-License-Identifier: Apache-2.0
// Only files for this machine are read, so the structures of <elf.h> match the file.
#include "base/elf.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

namespace yard::base {
namespace {

#if defined(__x86_64__)
constexpr int kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr int kMachine = EM_AARCH64;
#endif

constexpr uint64_t kMostSegments = 256, kMostSections = 65280, kLargestSegment = 1 << 20;
constexpr uint64_t kLargestRead = 64 << 20;                  // in one read
constexpr uint64_t kMostTexts = 1024, kLongestName = 16384;  // in the dynamic segment

class Reader {
 public:
  explicit Reader(const File& file) : file_(file) {}

  ElfReading read(std::string_view owner, uint32_t type) {
    if (!header() || !segments() || !dynamic() || !notes(owner, type)) to_.notes.clear();
    return std::move(to_);
  }

  std::vector<std::string> unique_symbols(size_t most) {
    std::vector<std::string> found;
    if (!header()) return found;
    const auto sections = get<Elf64_Shdr>(header_.e_shoff, header_.e_shnum);
    for (const Elf64_Shdr& s : sections) {
      if (s.sh_type != SHT_DYNSYM || s.sh_link >= sections.size()) continue;
      const uint64_t names = sections[s.sh_link].sh_offset;
      for (const Elf64_Sym& symbol : get<Elf64_Sym>(s.sh_offset, s.sh_size / sizeof(Elf64_Sym)))
        if (ELF64_ST_BIND(symbol.st_info) == STB_GNU_UNIQUE && symbol.st_shndx != SHN_UNDEF &&
            found.size() < most)
          found.push_back(text_at(names + symbol.st_name, kLongestName).value_or("?"));
    }
    return found;
  }

 private:
  bool fail(PluginReason problem, std::string detail) {
    to_.problem = problem, to_.detail = std::move(detail);
    return false;
  }
  bool damaged(std::string detail) { return fail(PluginReason::kDamaged, std::move(detail)); }
  bool inside(uint64_t offset, uint64_t length) const {
    return offset <= size_ && length <= size_ - offset;
  }
  // Returns nothing if the file does not hold all elements, or if there are too many.
  template <class T>
  std::vector<T> get(uint64_t offset, uint64_t count) const {
    if (count == 0 || count > kLargestRead / sizeof(T) || !inside(offset, count * sizeof(T)))
      return {};
    std::vector<T> to(count);
    const size_t size = count * sizeof(T);
    const ssize_t n = file_.read_at(to.data(), size, static_cast<off_t>(offset));
    if (n != static_cast<ssize_t>(size)) to.clear();
    return to;
  }
  std::optional<std::string> text_at(uint64_t offset, uint64_t most) const {
    const auto bytes = get<char>(offset, std::min(most, size_ - std::min(offset, size_)));
    const auto end = std::ranges::find(bytes, '\0');
    return end == bytes.end() ? std::nullopt : std::optional(std::string(bytes.begin(), end));
  }

  bool header() {
    struct stat info;
    if (::fstat(file_.fd(), &info) != 0)
      return fail(PluginReason::kUnreadable, std::strerror(errno));
    size_ = static_cast<uint64_t>(info.st_size);
    const auto head = get<unsigned char>(0, EI_NIDENT);
    const auto whole = get<Elf64_Ehdr>(0, 1);
    if (head.empty() || std::memcmp(head.data(), ELFMAG, SELFMAG) != 0)
      return fail(PluginReason::kNotElf, "it is not an ELF file");
    if (head[EI_CLASS] != ELFCLASS64 || head[EI_DATA] != ELFDATA2LSB)
      return fail(PluginReason::kOtherMachine, "it is not for a 64-bit little-endian machine");
    if (whole.empty()) return damaged("it begins like an ELF file and ends too early");
    const Elf64_Ehdr& h = header_ = whole[0];
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
    segments_ = get<Elf64_Phdr>(h.e_phoff, h.e_phnum);
    if (segments_.empty() || h.e_phnum > kMostSegments || h.e_phentsize != sizeof(Elf64_Phdr))
      return outside("program", h.e_phnum, h.e_phentsize, h.e_phoff);
    if (h.e_shoff != 0 && (h.e_shnum > kMostSections || h.e_shentsize != sizeof(Elf64_Shdr) ||
                           !inside(h.e_shoff, h.e_shnum * sizeof(Elf64_Shdr))))
      return outside("section", h.e_shnum, h.e_shentsize, h.e_shoff);
    return true;
  }

  bool segments() {
    uint64_t end = 0;
    for (const Elf64_Phdr& p : segments_) {
      const auto i = &p - segments_.data();
      if (p.p_type == PT_NULL) continue;
      if (!inside(p.p_offset, p.p_filesz))
        return damaged(fmt::format("segment {} covers bytes {} to {} of a file of {} bytes", i,
                                   p.p_offset, p.p_offset + p.p_filesz, size_));
      if (p.p_type == PT_DYNAMIC && std::exchange(dynamic_, &p) != nullptr)
        return damaged("it has two dynamic segments");
      if (p.p_type != PT_LOAD) continue;
      const bool aligned = p.p_align <= 1 || ((p.p_align & (p.p_align - 1)) == 0 &&
                                              (p.p_vaddr - p.p_offset) % p.p_align == 0);
      uint64_t stop = 0;
      if (!aligned || p.p_filesz > p.p_memsz || p.p_vaddr < end ||
          __builtin_add_overflow(p.p_vaddr, p.p_memsz, &stop) || stop > (uint64_t{1} << 46))
        return damaged(fmt::format("segment {} contradicts itself or the one before it", i));
      end = stop;
    }
    if (end == 0) return damaged("it has nothing to load");
    if (dynamic_ == nullptr)
      return fail(PluginReason::kNotALibrary, "it has no dynamic segment: it is not linked");
    return true;
  }

  std::optional<uint64_t> offset_of(uint64_t address, uint64_t size) const {
    for (const Elf64_Phdr& l : segments_)
      if (l.p_type == PT_LOAD && address >= l.p_vaddr && address - l.p_vaddr <= l.p_filesz &&
          size <= l.p_filesz - (address - l.p_vaddr))
        return l.p_offset + (address - l.p_vaddr);
    return std::nullopt;
  }

  bool dynamic() {
    const Elf64_Phdr& p = *dynamic_;
    if (p.p_filesz > kLargestSegment || p.p_filesz % sizeof(Elf64_Dyn) != 0)
      return damaged(fmt::format("its dynamic segment has {} bytes", p.p_filesz));
    // The loader reads the table from memory, so the file must map this table to its address.
    if (offset_of(p.p_vaddr, p.p_filesz) != p.p_offset)
      return damaged("its dynamic segment is in no segment that is loaded");
    auto table = get<Elf64_Dyn>(p.p_offset, p.p_filesz / sizeof(Elf64_Dyn));
    const auto end = std::ranges::find(table, DT_NULL, &Elf64_Dyn::d_tag);
    if (end == table.end()) return damaged("its dynamic segment has no end");
    table.erase(end, table.end());
    uint64_t strings = 0, size = 0, flags = 0;
    for (const Elf64_Dyn& d : table) {
      if (d.d_tag == DT_STRTAB) strings = d.d_un.d_ptr;
      if (d.d_tag == DT_STRSZ) size = d.d_un.d_val;
      if (d.d_tag == DT_FLAGS_1) flags |= d.d_un.d_val;
    }
    if ((flags & DF_1_PIE) != 0) return fail(PluginReason::kNotALibrary, "it is a program");
    to_.never_unloads = (flags & DF_1_NODELETE) != 0;
    const auto text_table = offset_of(strings, size);
    for (const auto& [tag, value] : table) {
      const bool needed = tag == DT_NEEDED || tag == DT_FILTER || tag == DT_AUXILIARY;
      if (!needed && tag != DT_RPATH && tag != DT_RUNPATH) continue;
      const uint64_t at = value.d_val;
      std::optional<std::string> text;
      if (text_table && at < size)
        text = text_at(*text_table + at, std::min(size - at, kLongestName));
      if (!text) return damaged("the name of a library it needs, or its run path, cannot be read");
      if (to_.needed.size() + to_.run_paths.size() == kMostTexts)
        return damaged(fmt::format("it needs more than {} libraries", kMostTexts));
      (needed ? to_.needed : to_.run_paths).push_back(*std::move(text));
    }
    return true;
  }

  bool notes(std::string_view owner, uint32_t type) {
    for (const Elf64_Phdr& p : segments_) {
      if (p.p_type != PT_NOTE) continue;
      if (p.p_filesz > kLargestSegment)
        return damaged(fmt::format("its notes have {} bytes", p.p_filesz));
      const auto bytes = get<char>(p.p_offset, p.p_filesz);
      const uint64_t align = p.p_align == 8 ? 8 : 4;
      const auto aligned = [&](uint64_t n) { return (n + align - 1) / align * align; };
      for (uint64_t at = 0; at + sizeof(Elf64_Nhdr) <= bytes.size();) {
        Elf64_Nhdr n;
        std::memcpy(&n, bytes.data() + at, sizeof n);
        const uint64_t name = at + sizeof n, text = aligned(name + n.n_namesz);
        if (text + n.n_descsz > bytes.size()) break;
        at = aligned(text + n.n_descsz);
        const std::string_view who(bytes.data() + name, n.n_namesz);
        if (n.n_type != type || who.size() != owner.size() + 1 || !who.starts_with(owner)) continue;
        std::string_view what(bytes.data() + text, n.n_descsz);
        while (what.ends_with('\0')) what.remove_suffix(1);
        to_.notes.emplace_back(what);
      }
    }
    return true;
  }

  const File& file_;
  uint64_t size_ = 0;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Phdr> segments_;
  const Elf64_Phdr* dynamic_ = nullptr;
  ElfReading to_;
};

}  // namespace

ElfReading read_elf(const File& file, std::string_view owner, uint32_t type) {
  return Reader(file).read(owner, type);
}

std::vector<std::string> unique_symbols(const File& file, size_t most) {
  return Reader(file).unique_symbols(most);
}

}  // namespace yard::base
