// SPDX-License-Identifier: Apache-2.0
#include "base/dynamic_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gelf.h>
#include <libelf.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <tuple>

#include "base/fork.h"

namespace yard::base {

// A file that is open as a library in this process, or pinned. Changed under the lock, whose holder may have gone in a
// forked child.
struct DynamicLibrary::Use {
  FileKey file;
  // Of no other file in the life of the process; part of the names that the dynamic loader gets.
  uint64_t number;
  std::atomic<int> count{0};
  std::atomic<bool> pinned{false};
  Use* next = nullptr;

  static Use* of(const FileKey& file);
};

DynamicLibrary::Use* DynamicLibrary::Use::of(const FileKey& file) {
  static std::atomic<Use*> all{nullptr};
  static std::atomic<uint64_t> numbers{0};
  Use* first = all.load(std::memory_order_acquire);
  Use* unused = nullptr;
  for (Use* u = first; u != nullptr; u = u->next) {
    if (u->count == 0 && !u->pinned)
      unused = u;
    else if (u->file == file)
      return u;
  }
  if (unused != nullptr) {
    unused->file = file, unused->number = ++numbers;
    return unused;
  }
  auto* made = new Use{file, ++numbers, 0, false, first};
  all.store(made, std::memory_order_release);
  return made;
}

namespace {

// A path of the open file that differs by `number`, which is written in binary as "/" and "/.": the dynamic loader takes
// a name that it knows for the same library, and descriptors are recycled.
std::string name_of(const File& file, uint64_t number) {
  std::string digits;
  for (; number > 0; number /= 2) digits.insert(0, number % 2 == 1 ? "/." : "/");
  return fmt::format("/proc/self/fd{}/{}", digits, file.fd());
}

// False if other code in the process has closed the descriptor and another file may have its number.
bool refers_to(const File& file, const FileKey& key) {
  struct stat info;
  return ::fstat(file.fd(), &info) == 0 && FileKey{info.st_dev, info.st_ino} == key;
}

// Where the library is in memory.
const void* base_of(void* handle) {
  struct link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return nullptr;
  return map->l_ld;
}

struct Search {
  const void* dynamic;  // the library's dynamic section: no two libraries share it
  bool found;
};

int look(struct dl_phdr_info* info, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  for (int i = 0; i < info->dlpi_phnum; ++i)
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
      search.found |= reinterpret_cast<const void*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr) ==
                      search.dynamic;
  return search.found ? 1 : 0;
}

std::string what_pins(const File& file) {
  const auto unique = unique_symbols(file, 4);
  if (!unique.empty()) {
    std::string names = unique[0];
    for (size_t i = 1; i < unique.size(); ++i) names += ", " + unique[i];
    return fmt::format("it defines GNU-unique symbols ({}); build it with -fno-gnu-unique", names);
  }
  if (read_elf_notes(file, "", 0).never_unloads)
    return "it is linked with -z nodelete, which forbids to unload it";
  return "a thread has yet to run the destructor of a thread_local of it, or another library uses "
         "it";
}

}  // namespace

bool is_mapped_from(const void* address, const File& file) {
  // The maps have other device numbers than stat() on some file systems, so that the file is mapped to compare.
  void* const sample = ::mmap(nullptr, 1, PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (sample == MAP_FAILED) return false;
  const std::unique_ptr<FILE, int (*)(FILE*)> maps(std::fopen("/proc/self/maps", "re"),
                                                   std::fclose);
  using Where = std::tuple<unsigned, unsigned, unsigned long>;  // device and inode
  std::optional<Where> found, expected;
  const auto inside = [](const void* p, uintptr_t begin, uintptr_t end) {
    return begin <= reinterpret_cast<uintptr_t>(p) && reinterpret_cast<uintptr_t>(p) < end;
  };
  char* line = nullptr;
  size_t room = 0;
  while (maps != nullptr && !(found && expected) && ::getline(&line, &room, maps.get()) > 0) {
    uintptr_t begin = 0, end = 0;
    unsigned major = 0, minor = 0;
    unsigned long inode = 0;
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %*x %x:%x %lu", &begin, &end, &major,
                    &minor, &inode) != 5)
      continue;
    if (inside(address, begin, end)) found = Where(major, minor, inode);
    if (inside(sample, begin, end)) expected = Where(major, minor, inode);
  }
  std::free(line);
  ::munmap(sample, 1);
  return found && expected && std::get<2>(*found) != 0 && *found == *expected;
}

Result<DynamicLibrary> DynamicLibrary::open(File file, const FileKey& key,
                                            const std::string& path) {
  if (!refers_to(file, key))
    return Status(
        Code::kNotFound,
        fmt::format("{}: its descriptor {} no longer refers to the file that was checked; "
                    "other code in the process has closed it",
                    path, file.release()));
  const LibraryLock lock;  // one at a time: the dynamic loader does the same
  DynamicLibrary library;
  library.use_ = Use::of(key);
  const std::string name = name_of(file, library.use_->number);
  library.file_ = std::move(file);
  ++library.use_->count;  // before constructors run, which may open others
  try {
    library.handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  } catch (...) {  // of a constructor
    --library.use_->count;
    throw;
  }
  if (library.handle_ == nullptr) {
    --library.use_->count;
    const char* said = dlerror();
    std::string text = said != nullptr ? said : "dlopen failed and does not say why";
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += path.size())
      text.replace(at, name.size(), path);
    return Status(Code::kInvalidArgument, std::move(text));
  }
  library.base_ = base_of(library.handle_);
  if (!is_mapped_from(library.base_, library.file_))
    return Status(
        Code::kConflict,
        fmt::format("{}: the dynamic loader has mapped another file than the one that was "
                    "checked, or /proc/self/maps cannot be read",
                    path));  // `library` closes it
  return library;
}

void* DynamicLibrary::symbol(const char* name) const noexcept {
  void* found = handle_ != nullptr ? dlsym(handle_, name) : nullptr;
  Dl_info info;
  struct link_map* map = nullptr;
  if (found == nullptr ||
      dladdr1(found, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 ||
      map == nullptr || map->l_ld != base_)
    return nullptr;
  return found;
}

std::string DynamicLibrary::close() {
  if (handle_ == nullptr) return {};
  const LibraryLock lock;  // one at a time: the dynamic loader does the same
  if (!refers_to(file_, use_->file)) file_.release();
  const bool last = --use_->count == 0;
  dlclose(std::exchange(handle_, nullptr));
  std::string why;
  if (last) {
    Search search{base_, false};
    dl_iterate_phdr(look, &search);
    use_->pinned = search.found;
    if (search.found) why = what_pins(file_);
  }
  file_ = File();
  return why;
}

DynamicLibrary::~DynamicLibrary() { close(); }

DynamicLibrary::DynamicLibrary(DynamicLibrary&& other) noexcept
    : file_(std::move(other.file_)),
      handle_(std::exchange(other.handle_, nullptr)),
      use_(other.use_),
      base_(other.base_) {}

DynamicLibrary& DynamicLibrary::operator=(DynamicLibrary&& other) noexcept {
  if (this != &other) {
    close();
    file_ = std::move(other.file_);
    handle_ = std::exchange(other.handle_, nullptr);
    use_ = other.use_, base_ = other.base_;
  }
  return *this;
}

namespace {

#if defined(__x86_64__)
constexpr int kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr int kMachine = EM_AARCH64;
#endif

constexpr size_t kMostSegments = 256, kMostSections = 65280;
constexpr uint64_t kLargestNotes = 1 << 20, kLargestDynamic = 1 << 20;
constexpr uint64_t kMostNeeded = 1024, kLongestNeeded = 16384;  // of libraries that are needed

using ElfHandle = std::unique_ptr<Elf, int (*)(Elf*)>;

// What stands at the beginning of a file, before libelf is let at it.
ElfProblem identify(const unsigned char* ident, size_t size) {
  if (size < EI_NIDENT || std::memcmp(ident, ELFMAG, SELFMAG) != 0) return ElfProblem::kNotElf;
  return ident[EI_CLASS] == ELFCLASS64 && ident[EI_DATA] == ELFDATA2LSB ? ElfProblem::kNone
                                                                        : ElfProblem::kOtherMachine;
}

class Reader {
 public:
  Reader(Elf* elf, uint64_t file_size, std::string_view owner, uint32_t type)
      : elf_(elf), size_(file_size), owner_(owner), type_(type) {}

  ElfReading read() {
    if (header() && segments() && dynamic()) notes();
    return std::move(to_);
  }

 private:
  bool fail(ElfProblem problem, std::string detail) {
    to_.problem = problem, to_.detail = std::move(detail);
    to_.notes.clear();
    return false;
  }
  bool damaged(std::string detail) { return fail(ElfProblem::kDamaged, std::move(detail)); }
  bool inside(uint64_t offset, uint64_t length) const {
    return offset <= size_ && length <= size_ - offset;
  }

  bool header() {
    GElf_Ehdr h;
    if (gelf_getehdr(elf_, &h) == nullptr) return damaged("its ELF header cannot be read");
    if (h.e_machine != kMachine)
      return fail(ElfProblem::kOtherMachine,
                  fmt::format("it is for ELF machine {}, this one is {}", h.e_machine, kMachine));
    if (h.e_type != ET_DYN)
      return fail(ElfProblem::kNotSharedLibrary,
                  fmt::format("ELF type {} is not a shared library ({})", h.e_type, ET_DYN));
    if (h.e_version != EV_CURRENT || h.e_ehsize != sizeof(Elf64_Ehdr))
      return damaged(
          fmt::format("its ELF header states version {} and {} bytes", h.e_version, h.e_ehsize));
    if (h.e_phnum == 0 || h.e_phnum > kMostSegments || h.e_phentsize != sizeof(Elf64_Phdr) ||
        !inside(h.e_phoff, uint64_t{h.e_phnum} * sizeof(Elf64_Phdr)))
      return damaged(
          fmt::format("{} program headers of {} bytes at {} are not in a file of {} bytes",
                      h.e_phnum, h.e_phentsize, h.e_phoff, size_));
    if (h.e_shoff != 0 && (h.e_shnum > kMostSections || h.e_shentsize != sizeof(Elf64_Shdr) ||
                           !inside(h.e_shoff, uint64_t{h.e_shnum} * sizeof(Elf64_Shdr))))
      return damaged(
          fmt::format("{} section headers of {} bytes at {} are not in a file of {} bytes",
                      h.e_shnum, h.e_shentsize, h.e_shoff, size_));
    segments_ = h.e_phnum;
    return true;
  }

  // What the dynamic loader would map and run on.
  bool segments() {
    uint64_t end = 0;
    size_t loads = 0;
    for (size_t i = 0; i < segments_; ++i) {
      GElf_Phdr p;
      if (gelf_getphdr(elf_, static_cast<int>(i), &p) == nullptr)
        return damaged(fmt::format("program header {} cannot be read", i));
      if (p.p_type == PT_NULL) continue;
      // The table of segments itself, and what only exists in memory, need no bytes.
      if (!inside(p.p_offset, p.p_filesz))
        return damaged(fmt::format("segment {} covers bytes {} to {} of a file of {} bytes", i,
                                   p.p_offset, p.p_offset + p.p_filesz, size_));
      if (p.p_type == PT_DYNAMIC) {
        if (dynamic_) return damaged("it has two dynamic segments");
        dynamic_ = p;
      }
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
    if (!dynamic_)
      return fail(ElfProblem::kNotSharedLibrary, "it has no dynamic segment: it is not linked");
    return true;
  }

  bool dynamic() {
    const GElf_Phdr& p = *dynamic_;
    if (p.p_filesz > kLargestDynamic || p.p_filesz % sizeof(Elf64_Dyn) != 0)
      return damaged(fmt::format("its dynamic segment has {} bytes", p.p_filesz));
    // The loader reads the table where it is in memory: the file must have it there.
    bool mapped = false;
    for (size_t i = 0; i < segments_ && !mapped; ++i) {
      GElf_Phdr l;
      mapped = gelf_getphdr(elf_, static_cast<int>(i), &l) != nullptr && l.p_type == PT_LOAD &&
               p.p_vaddr >= l.p_vaddr && p.p_vaddr - l.p_vaddr <= l.p_filesz &&
               p.p_filesz <= l.p_filesz - (p.p_vaddr - l.p_vaddr) &&
               p.p_offset == l.p_offset + (p.p_vaddr - l.p_vaddr);
    }
    if (!mapped) return damaged("its dynamic segment is in no segment that is loaded");
    Elf_Data* data =
        elf_getdata_rawchunk(elf_, static_cast<int64_t>(p.p_offset), p.p_filesz, ELF_T_DYN);
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
        texts.emplace_back(&to_.search_paths, d.d_un.d_val);
      if (d.d_tag == DT_STRTAB) strings = d.d_un.d_ptr;
      if (d.d_tag == DT_STRSZ) strings_size = d.d_un.d_val;
      if (d.d_tag != DT_FLAGS_1) continue;
      to_.never_unloads = (d.d_un.d_val & DF_1_NODELETE) != 0;
      if ((d.d_un.d_val & DF_1_PIE) != 0)
        return fail(ElfProblem::kNotSharedLibrary, "it is a program");
    }
    return damaged("its dynamic segment has no end");
  }

  // Texts of the dynamic segment, given by where they begin in its string table.
  bool read_texts(const std::vector<std::pair<std::vector<std::string>*, uint64_t>>& texts,
                  uint64_t address, uint64_t size) {
    if (texts.size() > kMostNeeded)
      return damaged(fmt::format("it needs {} libraries", texts.size()));
    for (const auto& [to, at] : texts) {
      Elf_Data* data = nullptr;
      for (size_t i = 0; i < segments_ && data == nullptr && at < size; ++i) {
        GElf_Phdr l;
        if (gelf_getphdr(elf_, static_cast<int>(i), &l) != nullptr && l.p_type == PT_LOAD &&
            address >= l.p_vaddr && address - l.p_vaddr <= l.p_filesz &&
            size <= l.p_filesz - (address - l.p_vaddr))
          data = elf_getdata_rawchunk(elf_,
                                      static_cast<int64_t>(l.p_offset + (address - l.p_vaddr) + at),
                                      std::min(size - at, kLongestNeeded), ELF_T_BYTE);
      }
      const char* const text = data != nullptr ? static_cast<const char*>(data->d_buf) : nullptr;
      const size_t length = text != nullptr ? ::strnlen(text, data->d_size) : 0;
      if (text == nullptr || length == data->d_size)
        return damaged("the name of a library it needs, or its run path, cannot be read");
      to->emplace_back(text, length);
    }
    return true;
  }

  void notes() {
    for (size_t i = 0; i < segments_; ++i) {
      GElf_Phdr p;
      if (gelf_getphdr(elf_, static_cast<int>(i), &p) == nullptr || p.p_type != PT_NOTE) continue;
      if (p.p_filesz > kLargestNotes) {
        damaged(fmt::format("its notes have {} bytes", p.p_filesz));
        return;
      }
      Elf_Data* data = elf_getdata_rawchunk(elf_, static_cast<int64_t>(p.p_offset), p.p_filesz,
                                            p.p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR);
      if (data != nullptr) notes_of(*data);
    }
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
      std::string_view who(bytes + name, n.n_namesz);
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
  size_t segments_ = 0;
  std::optional<GElf_Phdr> dynamic_;
  ElfReading to_;
};

ElfReading reading_of(ElfProblem problem, const char* detail) {
  ElfReading r;
  r.problem = problem, r.detail = detail;
  return r;
}

ElfReading read(ElfHandle elf, const unsigned char* head, size_t head_size, uint64_t size,
                std::string_view owner, uint32_t type) {
  switch (identify(head, head_size)) {
    case ElfProblem::kNone: break;
    case ElfProblem::kNotElf: return reading_of(ElfProblem::kNotElf, "it is not an ELF file");
    default:
      return reading_of(ElfProblem::kOtherMachine, "it is not for a 64-bit little-endian machine");
  }
  if (elf == nullptr || elf_kind(elf.get()) != ELF_K_ELF || size < sizeof(Elf64_Ehdr))
    return reading_of(ElfProblem::kDamaged, "it begins like an ELF file and ends too early");
  return Reader(elf.get(), size, owner, type).read();
}

ElfHandle open_elf(const File& file) {
  elf_version(EV_CURRENT);
  return {elf_begin(file.fd(), ELF_C_READ, nullptr), elf_end};
}

}  // namespace

ElfReading read_elf_notes(const File& file, std::string_view owner, uint32_t type) {
  struct stat info;
  if (::fstat(file.fd(), &info) != 0)
    return reading_of(ElfProblem::kUnreadable, std::strerror(errno));
  unsigned char head[EI_NIDENT] = {};
  const ssize_t n = file.read_at(head, sizeof head, 0);
  if (n < 0) return reading_of(ElfProblem::kUnreadable, std::strerror(errno));
  return read(open_elf(file), head, static_cast<size_t>(n), static_cast<uint64_t>(info.st_size),
              owner, type);
}

ElfReading read_elf_notes(char* bytes, size_t size, std::string_view owner, uint32_t type) {
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
