// SPDX-License-Identifier: Apache-2.0
#include "plugin/libraries.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/dynamic_library.h"
#include "base/text.h"

namespace yard::plugin {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMostLibraries = 1000;

bool is_root_owned(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && info.st_uid == 0;
}

// A directory without links that belongs to the system.
bool is_of_system(const std::string& directory) {
  return (directory.starts_with("/usr/") || directory.starts_with("/lib")) &&
         is_root_owned(directory);
}

// A directory of a run path, and those below it where the dynamic loader looks for variants for processors.
std::vector<std::string> with_variants(const std::string& directory) {
  std::vector<std::string> to = {directory};
  for (const char* name :
       {"glibc-hwcaps", "tls", "haswell", "avx512_1", "x86_64", "aarch64", "atomics"}) {
    const std::string top = directory + "/" + name;
    std::error_code none;
    if (!fs::is_directory(top, none)) continue;
    to.push_back(top);
    for (fs::recursive_directory_iterator it(top, none), end; !none && it != end;
         it.increment(none))
      if (std::error_code ignored; it->is_directory(ignored)) to.push_back(it->path().string());
  }
  return to;
}

class Walk {
 public:
  Walk(const LibrarySearch& search, std::vector<PluginLibrary>& to) : search_(search), to_(to) {
    for (size_t at = 0; at < search.environment.size();) {
      const size_t end =
          std::min(search.environment.find_first_of(":;", at), search.environment.size());
      const std::string entry = search.environment.substr(at, end - at);
      for (std::string& d : with_variants(entry.empty() ? "." : entry))
        from_environment_.push_back(std::move(d));
      at = end + 1;
    }
  }

  // `origin` is what $ORIGIN stands for; `paths` are those of what needs this one.
  Refusal visit(const base::ElfReading& elf, const std::string& whose, const std::string& origin,
                std::vector<std::string> paths) {
    for (const std::string& list : elf.search_paths) {
      size_t at = 0;
      for (size_t end = 0; end != list.npos; at = end + 1) {
        end = list.find(':', at);
        std::string directory;
        YARD_RETURN_IF_REFUSED(
            expand(list.substr(at, end == list.npos ? end : end - at), whose, origin, directory));
        for (std::string& d : with_variants(directory)) {
          YARD_RETURN_IF_REFUSED(check_search_path(d, whose));
          paths.push_back(std::move(d));
        }
      }
    }
    for (const std::string& name : elf.needed) {
      if (name.find('/') != name.npos) {
        std::string path;
        YARD_RETURN_IF_REFUSED(expand(name, whose, origin, path));
        YARD_RETURN_IF_REFUSED(take(path, whose, paths));
        continue;
      }
      for (const auto* directories : {&paths, &from_environment_})
        for (const std::string& d : *directories)
          YARD_RETURN_IF_REFUSED(take(d + "/" + name, whose, paths));
    }
    return {};
  }

 private:
  static Refusal expand(const std::string& path, const std::string& whose,
                        const std::string& origin, std::string& to) {
    to = path;
    for (const std::string_view word : {"$ORIGIN", "${ORIGIN}"})
      if (to.starts_with(word)) to.replace(0, word.size(), origin);
    if (to.starts_with('/') && to.find('$') == to.npos) return {};
    return {PluginReason::kRelativePath,
            fmt::format("{} looks for libraries in {}: expected an absolute path", whose,
                        base::excerpt(path))};
  }

  // Whatever the directory holds, others must not add to it. One that is missing must not be theirs to create.
  Refusal check_search_path(const std::string& directory, const std::string& whose) {
    std::string at = directory;
    std::error_code none;
    while (at != "/" && fs::symlink_status(at, none).type() == fs::file_type::not_found)
      at = fs::path(at).parent_path().string();
    Refusal r = search_.directories.check(at);
    if (r.refused())
      r.detail = fmt::format("{} looks for libraries in {}: {}", whose, directory, r.detail);
    return r;
  }

  // A file that the dynamic loader may take, if it exists.
  Refusal take(const std::string& path, const std::string& whose,
               const std::vector<std::string>& paths) {
    const auto refuse = [&](PluginReason reason, const std::string& why) {
      return Refusal(reason, fmt::format("{} needs {}: {}", whose, path, why));
    };
    const base::File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    struct stat info;
    if (!file || ::fstat(file.fd(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
    std::string real;
    if (const Refusal r = search_.directories.check_file(path, &real); r.refused())
      return refuse(r.reason, r.detail);
    if (!seen_.insert({info.st_dev, info.st_ino}).second) return {};
    if (is_of_system(real) && info.st_uid == 0) return {};
    if (const std::string who = who_else_can_write(info, path);
        !who.empty() && !search_.settings.allow_writable)
      return refuse(PluginReason::kWritableByOthers, "it can be written by " + who);
    if (static_cast<uint64_t>(info.st_size) > search_.settings.max_file_bytes)
      return refuse(PluginReason::kTooLarge, fmt::format("it has {} bytes", info.st_size));
    if (to_.size() >= kMostLibraries)
      return refuse(PluginReason::kTooLarge, "there are too many libraries");
    const auto digest = digest_of(file, FileId(info));
    if (!digest.ok())
      return refuse(PluginReason::kUnreadable, std::string(digest.status().message()));
    to_.push_back({path, *digest});
    return visit(base::read_elf_notes(file, "", 0), path, fs::path(path).parent_path().string(),
                 paths);
  }

  Result<std::string> digest_of(const base::File& file, const FileId& id) {
    if (search_.digests != nullptr)
      for (const KnownDigest& k : *search_.digests)
        if (k.id == id) return k.sha256;
    auto digest = base::sha256(file, static_cast<uint64_t>(id.size));
    if (digest.ok() && search_.digests != nullptr) search_.digests->push_back({id, *digest});
    return digest;
  }

  const LibrarySearch& search_;
  std::vector<PluginLibrary>& to_;
  std::vector<std::string> from_environment_;
  std::set<std::pair<dev_t, ino_t>> seen_;
};

}  // namespace

Refusal find_libraries(const PluginFile& plugin, const LibrarySearch& search,
                       std::vector<PluginLibrary>& to) {
  to.clear();
  // The plugin is opened by its descriptor (base/dynamic_library.h), which is what $ORIGIN then stands for.
  return Walk(search, to).visit(plugin.elf, "it", "/proc/self/fd", {});
}

}  // namespace yard::plugin
