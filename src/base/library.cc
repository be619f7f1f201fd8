// SPDX-License-Identifier: Apache-2.0
#include "base/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <map>
#include <utility>

#include "base/elf.h"
#include "base/mutex.h"
#include "base/random.h"

namespace yard::base {
namespace {

// Makes an unused path of the open file, because descriptors are reused and the dynamic loader
// takes a known name for the library that it has opened before. The parts "/" and "/." are the bits
// of a random number.
std::string new_name_of(const File& file) {
  std::string digits;
  for (uint64_t number = thread_random(); number > 0; number /= 2)
    digits += number % 2 == 1 ? "/." : "/";
  return fmt::format("/proc/self/fd{}/{}", digits, file.fd());
}

const void* section_of(const void* address) {
  Dl_info info;
  struct link_map* map = nullptr;
  const int found = dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP);
  return found != 0 && map != nullptr ? map->l_ld : nullptr;
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

struct OpenLibraries {
  Mutex lock{Rank::kLoader};
  std::map<const void*, int> counts;  // by dynamic section
};

}  // namespace

Result<DynamicLibrary> DynamicLibrary::open(const File& file, const std::string& path) {
  OpenLibraries& all = process_wide<OpenLibraries>();  // made here, where memory may run out
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
  struct link_map* map = nullptr;
  dlinfo(library.handle_, RTLD_DI_LINKMAP, &map);
  library.dynamic_ = map->l_ld;
  const std::lock_guard lock(all.lock);
  ++all.counts[library.dynamic_];
  return library;
}

void* DynamicLibrary::symbol(const char* name) const noexcept {
  void* found = handle_ != nullptr ? dlsym(handle_, name) : nullptr;
  return found != nullptr && section_of(found) == dynamic_ ? found : nullptr;
}

std::string DynamicLibrary::close() {
  if (handle_ == nullptr) return {};
  const OpeningLibrary gate;
  dlclose(std::exchange(handle_, nullptr));
  OpenLibraries& all = process_wide<OpenLibraries>();
  std::unique_lock lock(all.lock);
  // If memory ran out in open(), the library was not counted.
  const auto count = all.counts.find(dynamic_);
  const bool in_use = count != all.counts.end() && --count->second > 0;
  if (count != all.counts.end() && !in_use) all.counts.erase(count);
  lock.unlock();
  return !in_use && section_of(dynamic_) == dynamic_ ? pinned_by_ : "";
}

DynamicLibrary::DynamicLibrary(DynamicLibrary&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      dynamic_(other.dynamic_),
      pinned_by_(std::move(other.pinned_by_)) {}

}  // namespace yard::base
