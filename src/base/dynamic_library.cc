// SPDX-License-Identifier: Apache-2.0
#include "base/dynamic_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>

#include <atomic>
#include <mutex>

#include "base/elf_note.h"
#include "base/fork.h"

namespace yard::base {

// How often a file is open as a library in this process, and under which descriptor the dynamic loader
// knows it. Changed under the lock, whose holder may have gone in a forked child.
struct DynamicLibrary::Use {
  dev_t device;
  ino_t inode;
  std::atomic<int> count{0};
  std::atomic<int> known_as{-1};
  Use* next = nullptr;

  static Use* of(const struct stat& file);
};

DynamicLibrary::Use* DynamicLibrary::Use::of(const struct stat& file) {
  static std::atomic<Use*> all{nullptr};
  Use* first = all.load(std::memory_order_acquire);
  Use* unused = nullptr;
  for (Use* u = first; u != nullptr; u = u->next) {
    if (u->count == 0)
      unused = u;
    else if (u->device == file.st_dev && u->inode == file.st_ino)
      return u;
  }
  if (unused != nullptr) {
    unused->device = file.st_dev, unused->inode = file.st_ino;
    return unused;
  }
  auto* made = new Use{file.st_dev, file.st_ino, 0, -1, first};
  all.store(made, std::memory_order_release);
  return made;
}

namespace {

// Opening and closing is one at a time: the dynamic loader does the same. A library's constructor may open
// another.
std::recursive_mutex& lock() {
  static PerProcess<std::recursive_mutex> mutex;
  return mutex.get();
}

std::string name_of(const File& file) { return fmt::format("/proc/self/fd/{}", file.fd()); }

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

Result<DynamicLibrary> DynamicLibrary::open(File file, const std::string& path) {
  struct stat info;
  if (::fstat(file.fd(), &info) != 0)
    return Status(Code::kNotFound, fmt::format("{}: it cannot be looked at", path));
  DynamicLibrary library;
  const std::string name = name_of(file);
  const std::lock_guard guard(lock());
  library.file_ = std::move(file);
  library.handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle_ == nullptr) {
    const char* said = dlerror();
    std::string text = said != nullptr ? said : "dlopen failed and does not say why";
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += path.size())
      text.replace(at, name.size(), path);
    return Status(Code::kInvalidArgument, std::move(text));
  }
  library.base_ = base_of(library.handle_);
  library.use_ = Use::of(info);
  if (library.use_->count++ == 0) library.use_->known_as = library.file_.fd();
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
  const std::lock_guard guard(lock());
  const bool last = --use_->count == 0;
  dlclose(std::exchange(handle_, nullptr));
  if (!last) {
    if (use_->known_as == file_.fd()) file_.release();  // the last one closes it
    file_ = File();
    return {};
  }
  Search search{base_, false};
  dl_iterate_phdr(look, &search);
  std::string why;
  if (search.found) {
    why = what_pins(file_);
    if (use_->known_as == file_.fd()) file_.release();
  } else if (use_->known_as != file_.fd()) {
    const File other(use_->known_as);
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

}  // namespace yard::base
