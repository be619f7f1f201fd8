// SPDX-License-Identifier: Apache-2.0
#include "plugin/candidate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/elf_note.h"

namespace yard::plugin {
namespace {

// Where the file is, and where each link on the way to it is: whoever can write there can put another in its place.
Refusal check_directories(const std::string& path, Directories& directories) {
  constexpr int kMostLinks = 40;  // as the system has it; what goes on further cannot be opened
  std::filesystem::path at = path;
  for (int i = 0; i <= kMostLinks; ++i) {
    YARD_RETURN_IF_REFUSED(directories.check(at.parent_path().string()));
    std::error_code none;
    const std::filesystem::path to = std::filesystem::read_symlink(at, none);
    if (none) break;
    at = at.parent_path() / to;  // which is `to` if that is absolute
  }
  return {};
}

Refusal open_file(Candidate& c, bool allow_writable) {
  // Without blocking: it may be a pipe.
  c.file = base::File(::open(c.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!c.file)
    return {
        errno == ENOENT || errno == ENOTDIR ? PluginReason::kNotFound : PluginReason::kUnreadable,
        std::strerror(errno)};
  struct stat info;
  if (::fstat(c.file.fd(), &info) != 0) return {PluginReason::kUnreadable, std::strerror(errno)};
  if (!S_ISREG(info.st_mode)) {
    c.file = base::File();  // nobody must read what may have no end
    return {PluginReason::kUnreadable, "it is not a regular file"};
  }
  c.id = {info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
  if (allow_writable) return {};
  const std::string who = who_else_can_write(info);
  if (who.empty()) return {};
  return {PluginReason::kWritableByOthers, fmt::format("the file can be written by {}", who)};
}

Refusal read_manifest(Candidate& c) {
  const base::ElfReading elf =
      base::read_elf_notes(c.file, YARD_MANIFEST_OWNER, YARD_MANIFEST_TYPE);
  switch (elf.problem) {
    case base::ElfProblem::kNone: break;
    case base::ElfProblem::kUnreadable: return {PluginReason::kUnreadable, elf.detail};
    case base::ElfProblem::kNotElf: return {PluginReason::kNotElf, elf.detail};
    case base::ElfProblem::kDamaged: return {PluginReason::kDamaged, elf.detail};
    case base::ElfProblem::kOtherMachine: return {PluginReason::kOtherMachine, elf.detail};
    case base::ElfProblem::kNotSharedLibrary: return {PluginReason::kNotALibrary, elf.detail};
  }
  if (elf.notes.empty())
    return {PluginReason::kNoManifest,
            "it has no note of Switchyard; YARD_MANIFEST in plugin.h makes one"};
  if (elf.notes.size() > 1)
    return {PluginReason::kBadManifest, fmt::format("it has {} manifests", elf.notes.size())};
  return parse_manifest(elf.notes[0], c.manifest);
}

}  // namespace

Candidate look_at(const std::string& path, Directories& directories, bool allow_writable,
                  const Process& process) {
  Candidate c;
  c.path = path;
  c.refusal = path.starts_with('/')
                  ? check_directories(path, directories)
                  : Refusal(PluginReason::kRelativePath, "the path does not begin with '/'");
  if (!c.refusal.refused()) c.refusal = open_file(c, allow_writable);
  if (!c.refusal.refused()) c.refusal = read_manifest(c);
  if (!c.refusal.refused()) c.refusal = check_manifest(c.manifest, process);
  return c;
}

}  // namespace yard::plugin
