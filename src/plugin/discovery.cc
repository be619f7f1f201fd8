// SPDX-License-Identifier: Apache-2.0
// Loader: finding plugins, listing and forgetting them, and which of them could be loaded.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "base/file.h"
#include "base/lists.h"
#include "base/log.h"
#include "base/text.h"
#include "plugin/loader.h"
#include "plugin/search.h"

namespace yard::plugin {
namespace {

bool exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

// Also true for a dangling link, which is an error to report.
bool has_file(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

// The file of a plugin given by name; empty if there is none.
std::string file_of(const std::string& name, const std::vector<std::string>& directories) {
  for (const std::string& d : directories)
    for (const std::string& file : {d + "/" + name + ".so", d + "/lib" + name + ".so"})
      if (exists(file)) return file;
  return {};
}

PluginRecord refused_record(const RefusedPath& refused) {
  PluginRecord r;
  r.path = refused.path;
  r.refuse(refused.refusal);
  return r;
}

}  // namespace

Refusal Loader::Locks::allows(const PluginRecord& r) const {
  if (problem.refused()) return problem;
  if (!present) return {};
  return file.allows(r.manifest.name, r.manifest.version, r.sha256);
}

Refusal Loader::locked_out(const Locks& locks, const PluginRecord& r) const {
  const auto& free = settings_.unlocked;
  return base::contains(free, r.path) ? Refusal() : locks.allows(r);
}

Loader::Locks Loader::read_locks(const std::vector<std::string>& directories) const {
  Locks locks;
  Directories trusted(settings_.allow_writable);
  std::set<std::string> paths;
  if (!settings_.lock_file.empty())
    paths.insert(settings_.lock_file);
  else
    for (const std::string& d : directories)
      if (has_file(d + "/" + kLockFileName)) paths.insert(d + "/" + kLockFileName);
  for (const std::string& path : paths) {
    locks.present = true;
    struct stat info;
    // It may be a link, and directories on the way may be.
    if (const Refusal r = trusted.check_file(path); r.reason == PluginReason::kWritableByOthers) {
      locks.problem = {PluginReason::kBadLockFile, fmt::format("{}: {}", path, r.detail)};
      continue;
    }
    const std::string who = settings_.allow_writable || ::stat(path.c_str(), &info) != 0
                                ? std::string()
                                : who_else_can_write(info, path);
    if (!who.empty()) {
      locks.problem = {PluginReason::kBadLockFile,
                       fmt::format("{} can be written by {}", path, who)};
      continue;
    }
    auto file = LockFile::read(path);
    if (file.ok())
      locks.file.add(*file);
    else
      locks.problem = {PluginReason::kBadLockFile, std::string(file.status().message())};
  }
  return locks;
}

void Loader::add_lock_directory(const std::string& directory) {
  Edit edit(*this);
  if (!base::contains(edit->lock_directories, directory))
    edit->lock_directories.push_back(directory);
}

std::vector<std::string> Loader::places(const LoaderState& state,
                                        std::vector<RefusedPath>& refused) const {
  std::vector<std::string> to = state.places;
  std::vector<std::string> directories = absolute_paths(state.environment.path, ':', refused);
  if (settings_.installed && exists(installed_directory()))
    directories.push_back(installed_directory());
  if (!base::trim(state.environment.plugins).empty())
    for (std::string_view given : base::split(state.environment.plugins, ',')) {
      const bool is_name = base::is_bare_word(given);
      const std::string file =
          is_name ? file_of(std::string(given), directories) : std::string(given);
      if (is_name && file.empty())
        refused.push_back(
            {std::string(given),
             {PluginReason::kNotFound,
              fmt::format("YARD_PLUGINS names it, and neither {0}.so nor lib{0}.so is "
                          "in a plugin directory",
                          given)}});
      else
        to.push_back(file);
    }
  to.insert(to.end(), directories.begin(), directories.end());
  return to;
}

PluginRecord Loader::record_of(const std::string& path, bool given, LoaderState& state,
                               Directories& directories) const {
  const PluginRecord* old = state.index.find_path(path);
  if (old != nullptr) {
    struct stat info;
    const bool same = ::stat(path.c_str(), &info) == 0 && old->id == FileId(info);
    if (old->in_process()) return *old;
    if (same && old->state() != PluginState::kRefused) {
      PluginRecord r = *old;
      if (given) r.last_state = PluginState::kFound;
      return r;
    }
  }
  PluginFile c = open_plugin_file(path, directories, settings_, process_);
  PluginRecord r;
  r.path = path, r.id = c.id, r.manifest = std::move(c.manifest);
  // Calls may still use the library, although the plugin was refused.
  if (old != nullptr && old->id == c.id)
    r.keep_alive = old->keep_alive, r.library = old->library,
    r.library_status = old->library_status;
  if (c.refusal.refused()) r.refuse(std::move(c.refusal));
  return r;
}

void Loader::search_again(const std::vector<std::string>& given) {
  LoaderState& s = state();
  std::vector<RefusedPath> refused;
  Directories directories(settings_.allow_writable);
  Found found = search(places(s, refused), directories);
  for (RefusedPath& r : refused) found.refused.push_back(std::move(r));

  PluginIndex next;
  std::vector<PluginRecord>& records = next.records();
  std::set<std::string> paths;
  std::set<std::pair<dev_t, ino_t>> files;
  const auto add = [&](PluginRecord r) {
    if (!paths.insert(r.path).second) return;
    if (r.id.inode != 0 && !files.insert({r.id.device, r.id.inode}).second) return;
    records.push_back(std::move(r));
  };
  for (const std::string& file : found.files)
    add(record_of(file, base::contains(given, file), s, directories));
  for (const RefusedPath& r : found.refused) add(refused_record(r));
  // Plugins in the process, and those requested by path, stay known.
  for (const PluginRecord& r : s.index.records())
    if (r.in_process() || r.by_path || r.state() == PluginState::kPinned) add(r);

  for (const std::string& d : found.directories) add_lock_directory(d);
  const Locks locks = read_locks(s.lock_directories);
  for (PluginRecord& r : records) {
    if (r.state() != PluginState::kFound) continue;
    const PluginRecord* other = next.precedent(r);
    r.sha256.clear();
    if (other != nullptr)
      r.refuse({PluginReason::kDuplicateName,
                fmt::format("'{}' comes before it, as {}{}", r.manifest.name, other->path,
                            other->state() == PluginState::kFound || other->in_process()
                                ? ""
                                : ", which was unloaded; load() of this path takes this one")});
    else if (Refusal locked = locked_out(locks, r); locked.refused())
      r.refuse(std::move(locked));
  }
  for (const PluginRecord& r : records)
    if (r.state() == PluginState::kRefused)
      LoadingLock::log(LogLevel::kWarn, std::string(to_status(r.path, r.refusal).message()));
  Edit edit(*this);
  edit->index = std::move(next);
}

Status Loader::discover(const std::vector<std::string>& given) {
  return change([&] { return discover_held(given); });
}

Status Loader::discover_held(const std::vector<std::string>& given) {
  {
    Edit edit(*this);
    edit->searched = edit->searching = true;
    std::vector<std::string> places = given;
    for (const std::string& p : edit->places)
      if (!base::contains(given, p)) places.push_back(p);
    edit->places = std::move(places);
  }
  search_again(given);
  std::vector<std::string> wanted, wanted_groups;
  for (const PluginRecord& r : state().index.records()) {
    if (r.state() != PluginState::kFound) continue;
    for (const std::string& op : r.manifest.ops)
      if (services_.in_use(op)) wanted.push_back(op);
    for (const std::string& group : r.manifest.groups)
      if (services_.group_in_use && services_.group_in_use(group)) wanted_groups.push_back(group);
  }
  Edit(*this)->searching = false;
  load_for(PluginOffer::kOp, wanted);
  load_for(PluginOffer::kGroup, wanted_groups);
  Status problem;
  const auto add = [&](Status found) {
    if (problem.ok())
      problem = std::move(found);
    else if (!found.ok())
      problem.note(std::string(found.message()));
  };
  for (const PluginRecord& r : state().index.records()) {
    if (r.state() == PluginState::kRefused && base::contains(given, r.path))
      add(to_status(r.path, r.refusal));
  }
  // Relative paths can never be used, and are not searched again.
  Edit edit(*this);
  std::erase_if(edit->places, [&](const std::string& p) {
    const PluginRecord* r = edit->index.find_path(p);
    return r != nullptr && r->refusal.reason == PluginReason::kRelativePath;
  });
  return problem;
}

void Loader::set_environment(FromEnvironment environment) {
  const bool changed = exclusive([&] {
    if (state().searched && state().environment == environment) return false;
    Edit edit(*this);
    edit->environment = std::move(environment);
    return true;
  });
  if (changed) discover({}).ignore();
}

PluginRecord Loader::inspected(const std::string& path) const {
  Directories directories(settings_.allow_writable);
  PluginFile c = open_plugin_file(path, directories, settings_, process_);
  PluginRecord r;
  r.path = path, r.id = c.id, r.manifest = std::move(c.manifest);
  if (c.file) {
    auto digest = c.digest();
    if (digest.ok())
      r.sha256 = *digest;
    else if (!c.refusal.refused())
      c.refusal = {PluginReason::kUnreadable, std::string(digest.status().message())};
  }
  if (c.refusal.refused()) r.refuse(std::move(c.refusal));
  return r;
}

PluginInfo Loader::inspect(const std::string& path) { return with_results(inspected(path).info()); }

PluginInfo Loader::would_load(const std::string& path) {
  PluginRecord r = inspected(path);
  if (r.state() != PluginState::kRefused) {
    std::vector<std::string> directories;
    {
      LoaderState& s = state();
      const std::lock_guard lock(s.lock);
      directories = s.lock_directories;
    }
    directories.push_back(path.substr(0, std::max<size_t>(path.rfind('/'), 1)));
    std::string real;
    if (!Directories(settings_.allow_writable).check_file(path, &real).refused())
      directories.push_back(std::move(real));
    Refusal refusal = read_locks(directories).allows(r);
    if (!refusal.refused()) refusal = check_verified(r);
    if (refusal.refused()) r.refuse(std::move(refusal));
  }
  return with_results(r.info());
}

Status Loader::forget(std::string_view name_or_path) {
  return change([&]() -> Status {
    const PluginRecord* r = find_idle(name_or_path);
    if (r == nullptr)
      return Status(Code::kNotFound,
                    fmt::format("no plugin '{}' was found{}", name_or_path,
                                base::did_you_mean(name_or_path, state().index.names())));
    if (r->in_process())
      return Status(Code::kConflict, fmt::format("plugin '{}' is {}: it must be unloaded first",
                                                 name_or_path, to_string(r->state())));
    Edit edit(*this);
    const std::string path = r->path;
    std::erase_if(edit->index.records(), [&](const PluginRecord& x) { return x.path == path; });
    return {};
  });
}

std::vector<PluginInfo> Loader::list() {
  LoaderState& s = state();
  const std::lock_guard lock(s.lock);
  std::vector<PluginInfo> to;
  for (const PluginRecord& r : s.index.records()) to.push_back(r.info());
  return to;
}

}  // namespace yard::plugin
