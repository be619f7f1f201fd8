// SPDX-License-Identifier: Apache-2.0
// Looking for plugins: places, what is in them, and what of that could be loaded.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "base/digest.h"
#include "base/log.h"
#include "base/text.h"
#include "plugin/installed.h"
#include "plugin/loader.h"

namespace yard::plugin {
namespace {

bool exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

// Also a link that leads nowhere: whoever made it meant something by it.
bool has_entry(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

// The file of a plugin that is called by its name only.
std::string file_of(const std::string& name, const std::vector<std::string>& directories) {
  for (const std::string& d : directories)
    for (const std::string& file : {d + "/" + name + ".so", d + "/lib" + name + ".so"})
      if (exists(file)) return file;
  return {};
}

// An entry that is no file with a manifest.
Record refused_entry(const RefusedPath& entry) {
  Record r;
  r.path = entry.path;
  r.refuse(entry.refusal);
  return r;
}

}  // namespace

Refusal Loader::Locks::allows(const Record& r) const {
  if (problem.refused()) return problem;
  if (!present) return {};
  return file.allows(r.manifest.name, r.manifest.version, r.sha256);
}

Loader::Locks Loader::read_locks(const std::vector<std::string>& directories) const {
  Locks locks;
  std::set<std::string> paths;
  if (!settings_.lock_file.empty())
    paths.insert(settings_.lock_file);
  else
    for (const std::string& d : directories)
      if (has_entry(d + "/" + kLockFileName)) paths.insert(d + "/" + kLockFileName);
  for (const std::string& path : paths) {
    locks.present = true;
    struct stat info;
    const std::string who = settings_.allow_writable || ::stat(path.c_str(), &info) != 0
                                ? std::string()
                                : who_else_can_write(info);
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

void Loader::lock_by(LoaderState& state, const std::string& directory) {
  Edit edit(*this, state);
  if (std::count(edit->lock_directories.begin(), edit->lock_directories.end(), directory) == 0)
    edit->lock_directories.push_back(directory);
}

std::vector<std::string> Loader::entries(const LoaderState& state,
                                         std::vector<RefusedPath>& refused) const {
  std::vector<std::string> to = state.places;
  std::vector<std::string> directories = absolute_entries(state.environment.path, ':', refused);
  if (settings_.installed && exists(installed_directory()))
    directories.push_back(installed_directory());
  if (!base::trim(state.environment.plugins).empty())
    for (std::string_view entry : base::split(state.environment.plugins, ',')) {
      const bool is_name = base::is_bare_word(entry);
      const std::string file =
          is_name ? file_of(std::string(entry), directories) : std::string(entry);
      if (is_name && file.empty())
        refused.push_back(
            {std::string(entry),
             {PluginReason::kNotFound,
              fmt::format("YARD_PLUGINS names it, and neither {0}.so nor lib{0}.so is "
                          "in a plugin directory",
                          entry)}});
      else
        to.push_back(file);
    }
  to.insert(to.end(), directories.begin(), directories.end());
  return to;
}

Record Loader::record_of(const std::string& path, bool given, LoaderState& state,
                         Directories& directories) const {
  const Record* old = state.catalogue.find_path(path);
  if (old != nullptr) {
    struct stat info;
    const bool same = ::stat(path.c_str(), &info) == 0 &&
                      old->id == FileId{info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec,
                                        info.st_mtim.tv_nsec};
    if (old->in_process()) return *old;
    if (same && old->state() != PluginState::kRefused) {
      Record r = *old;
      if (given) r.said = PluginState::kFound;
      return r;
    }
  }
  Candidate c = look_at(path, directories, settings_.allow_writable, process_);
  Record r;
  r.path = path, r.id = c.id, r.manifest = std::move(c.manifest);
  // Calls may still use what was taken out when it was refused.
  if (old != nullptr && old->id == c.id)
    r.lease = old->lease, r.library = old->library, r.fate = old->fate;
  if (c.refusal.refused()) r.refuse(std::move(c.refusal));
  return r;
}

void Loader::look_again(LoaderState& state, const std::vector<std::string>& given) {
  std::vector<RefusedPath> refused;
  Directories directories(settings_.allow_writable);
  Found found = search(entries(state, refused), directories);
  for (RefusedPath& r : refused) found.refused.push_back(std::move(r));

  Catalogue next;
  std::vector<Record>& records = next.records();
  std::set<std::string> paths;
  std::set<std::pair<dev_t, ino_t>> files;
  const auto add = [&](Record r) {
    if (!paths.insert(r.path).second) return;
    if (r.id.inode != 0 && !files.insert({r.id.device, r.id.inode}).second) return;
    records.push_back(std::move(r));
  };
  for (const std::string& file : found.files)
    add(record_of(file, std::count(given.begin(), given.end(), file) != 0, state, directories));
  for (const RefusedPath& r : found.refused) add(refused_entry(r));
  // What is in the process, or was asked for by its path, stays known.
  for (const Record& r : state.catalogue.records())
    if (r.in_process() || r.by_path || r.state() == PluginState::kPinned) add(r);

  Locks locks;
  for (const std::string& d : found.directories) lock_by(state, d);
  locks = read_locks(state.lock_directories);
  for (Record& r : records) {
    if (r.state() != PluginState::kFound) continue;
    const Record* other = next.holder(r);
    r.sha256.clear();
    if (other != nullptr)
      r.refuse({PluginReason::kDuplicateName,
                fmt::format("'{}' comes before it, as {}{}", r.manifest.name, other->path,
                            other->state() == PluginState::kFound || other->in_process()
                                ? ""
                                : ", which was unloaded; load() of this path takes this one")});
    else if (Refusal locked = locks.allows(r); locked.refused())
      r.refuse(std::move(locked));
  }
  for (const Record& r : records)
    if (r.state() == PluginState::kRefused)
      base::log(LogLevel::kWarn, "plugin", std::string(to_status(r.path, r.refusal).message()));
  Edit edit(*this, state);
  edit->catalogue = std::move(next);
}

Status Loader::discover(const std::vector<std::string>& given) {
  YARD_RETURN_IF_ERROR(would_deadlock());
  LoaderState& b = state();
  const Turn turn(*this, b);
  {
    Edit edit(*this, b);
    edit->searched = edit->searching = true;
    std::vector<std::string> places = given;
    for (const std::string& p : edit->places)
      if (std::count(given.begin(), given.end(), p) == 0) places.push_back(p);
    edit->places = std::move(places);
  }
  look_again(b, given);
  std::vector<std::string> wanted, wanted_hooks, wanted_groups;
  for (const Record& r : b.catalogue.records()) {
    if (r.state() != PluginState::kFound) continue;
    for (const std::string& op : r.manifest.ops)
      if (services_.in_use(op)) wanted.push_back(op);
    for (const std::string& hook : r.manifest.hooks)
      if (services_.hook_in_use(hook)) wanted_hooks.push_back(hook);
    for (const std::string& group : r.manifest.groups)
      if (services_.group_in_use && services_.group_in_use(group)) wanted_groups.push_back(group);
  }
  Edit(*this, b)->searching = false;
  load_for(b, PluginOffer::kOp, wanted);
  load_for(b, PluginOffer::kHook, wanted_hooks);
  load_for(b, PluginOffer::kGroup, wanted_groups);
  Status problem;
  for (const std::string& path : given) {
    const Record* r = b.catalogue.find_path(path);
    if (r == nullptr || r->state() != PluginState::kRefused) continue;
    Status s = to_status(path, r->refusal);
    if (problem.ok())
      problem = std::move(s);
    else
      problem.note(std::string(s.message()));
  }
  // What cannot be used is not looked for again and again.
  Edit edit(*this, b);
  std::erase_if(edit->places, [&](const std::string& p) {
    const Record* r = edit->catalogue.find_path(p);
    return r != nullptr && r->refusal.reason == PluginReason::kRelativePath;
  });
  return problem;
}

void Loader::set_environment(FromEnvironment environment) {
  LoaderState& b = state();
  {
    const Turn turn(*this, b);
    if (b.searched && b.environment == environment) return;
    Edit edit(*this, b);
    edit->environment = std::move(environment);
  }
  discover({}).ignore();
}

Record Loader::inspected(const std::string& path) const {
  Directories directories(settings_.allow_writable);
  Candidate c = look_at(path, directories, settings_.allow_writable, process_);
  Record r;
  r.path = path, r.manifest = std::move(c.manifest);
  if (c.file)
    if (auto digest = base::sha256(c.file); digest.ok()) r.sha256 = *digest;
  if (c.refusal.refused()) r.refuse(std::move(c.refusal));
  return r;
}

PluginInfo Loader::inspect(const std::string& path) { return with_results(inspected(path).info()); }

PluginInfo Loader::would_load(const std::string& path) {
  Record r = inspected(path);
  if (r.state() != PluginState::kRefused) {
    std::vector<std::string> directories;
    PluginProbe mode;
    {
      LoaderState& b = state();
      const std::lock_guard lock(b.data);
      directories = b.lock_directories, mode = probe_mode(b);
    }
    directories.push_back(path.substr(0, std::max<size_t>(path.rfind('/'), 1)));
    Refusal refusal = read_locks(directories).allows(r);
    if (!refusal.refused()) refusal = known_against(mode, r);
    if (refusal.refused()) r.refuse(std::move(refusal));
  }
  return with_results(r.info());
}

}  // namespace yard::plugin
