// SPDX-License-Identifier: Apache-2.0
#include "base/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <set>
#include <utility>

#include "base/elf.h"
#include "base/mutex.h"
#include "base/random.h"

namespace yard::base {
namespace {

// A path of the open file that nobody has used: the dynamic loader takes a name that it knows for
// the same library, and descriptors are recycled. "/" and "/." are the bits of a random number.
std::string new_name_of(const File& file) {
  std::string digits;
  for (uint64_t number = thread_random(); number > 0; number /= 2)
    digits += number % 2 == 1 ? "/." : "/";
  return fmt::format("/proc/self/fd{}/{}", digits, file.fd());
}

const void* dynamic_section(void* handle) {
  struct link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr ? map->l_ld : nullptr;
}

bool is_loaded(const void* dynamic) {
  const auto look = [](struct dl_phdr_info* info, size_t, void* section) {
    for (int i = 0; i < info->dlpi_phnum; ++i)
      if (info->dlpi_phdr[i].p_type == PT_DYNAMIC &&
          reinterpret_cast<void*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr) == section)
        return 1;
    return 0;
  };
  return dl_iterate_phdr(look, const_cast<void*>(dynamic)) != 0;
}

std::string what_pins(const File& file) {
  const auto unique = unique_symbols(file, 4);
  if (!unique.empty())
    return fmt::format("it defines GNU-unique symbols ({}); build it with -fno-gnu-unique",
                       fmt::join(unique, ", "));
  if (read_elf(file, "", 0).never_unloads)
    return "it is linked with -z nodelete, which forbids to unload it";
  return "a thread has yet to run the destructor of a thread_local of it, or another library uses "
         "it";
}

// The dynamic sections of open libraries. A library that is open twice is listed twice.
struct OpenLibraries {
  Mutex lock{Rank::kLoader};
  std::multiset<const void*> sections;

  void add(const void* dynamic) {
    const std::lock_guard hold(lock);
    sections.insert(dynamic);
  }
  // Returns whether it is still open elsewhere.
  bool remove(const void* dynamic) {
    const std::lock_guard hold(lock);
    if (const auto it = sections.find(dynamic); it != sections.end()) sections.erase(it);
    return sections.contains(dynamic);
  }
};

}  // namespace

Result<DynamicLibrary> DynamicLibrary::open(const File& file, const std::string& path) {
  DynamicLibrary library;
  const std::string name = new_name_of(file);
  library.pinned_by_ = what_pins(file);
  const OpeningLibrary gate;
  library.handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle_ == nullptr) {
    const char* said = dlerror();
    std::string text = said != nullptr ? said : "dlopen failed and does not say why";
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += path.size())
      text.replace(at, name.size(), path);
    return Status(Code::kInvalidArgument, std::move(text));
  }
  library.dynamic_ = dynamic_section(library.handle_);
  process_wide<OpenLibraries>().add(library.dynamic_);
  return library;
}

void* DynamicLibrary::symbol(const char* name) const noexcept {
  void* found = handle_ != nullptr ? dlsym(handle_, name) : nullptr;
  Dl_info info;
  struct link_map* map = nullptr;
  if (found == nullptr ||
      dladdr1(found, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 ||
      map == nullptr || map->l_ld != dynamic_)
    return nullptr;
  return found;
}

std::string DynamicLibrary::close() {
  if (handle_ == nullptr) return {};
  const OpeningLibrary gate;
  dlclose(std::exchange(handle_, nullptr));
  const bool in_use = process_wide<OpenLibraries>().remove(dynamic_);
  return !in_use && is_loaded(dynamic_) ? pinned_by_ : "";
}

DynamicLibrary::DynamicLibrary(DynamicLibrary&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      dynamic_(other.dynamic_),
      pinned_by_(std::move(other.pinned_by_)) {}

}  // namespace yard::base
