// SPDX-License-Identifier: Apache-2.0
#include "plugin/loader.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "base/log.h"
#include "base/results.h"
#include "base/text.h"

namespace yard::plugin {
namespace {

thread_local int t_claims = 0;  // of this thread

PluginRecord record_of(const PluginFile& c) {
  PluginRecord r;
  r.path = c.path, r.id = c.id, r.manifest = c.manifest, r.sha256 = c.sha256;
  if (c.refusal.refused()) r.refuse(c.refusal);
  return r;
}

}  // namespace

// This thread works on one or two plugins, or searches. It ends without the lock held.
class Loader::Claim {
 public:
  explicit Claim(Loader& loader) : loader_(loader) { ++t_claims; }
  ~Claim() {
    --t_claims;
    const Lock lock(loader_.mutex_);
    std::erase(loader_.claims_, this);
    loader_.ended_.notify_all();
  }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  // With the lock held.
  void take(std::string path, std::string other = {}) {
    paths_[0] = std::move(path), paths_[1] = std::move(other);
    loader_.claims_.push_back(this);
  }
  bool has(std::string_view path) const {
    return !path.empty() && (paths_[0] == path || paths_[1] == path);
  }
  bool is_mine() const { return thread_ == std::this_thread::get_id(); }

  std::string name;  // of the plugin, once it is known

 private:
  Loader& loader_;
  const std::thread::id thread_ = std::this_thread::get_id();
  std::string paths_[2];
};

Loader::Loader(PluginSettings settings, Services services)
    : settings_(std::move(settings)),
      services_(std::move(services)),
      results_(settings_.state_directory.empty() ? ResultStore::default_folder()
                                                 : settings_.state_directory),
      places_(settings_.paths),
      in_child_([this] { forget_other_threads(); }) {
  process_.host = services_.host;
}

void Loader::forget_other_threads() {
  const Lock lock(mutex_);
  std::erase_if(claims_, [](const Claim* c) { return !c->is_mine(); });
  searching_ = searching_ && t_claims > 0;
  // A library that a thread of the parent was closing is never closed here: loads must not wait for it.
  for (auto* records : {&index_.records(), &replaced_})
    for (PluginRecord& r : *records) {
      if (!r.is_closing()) continue;
      r.library_status = std::make_shared<LibraryStatus>();
      r.library_status->pinned_by = "it was being closed when this process was forked";
      r.library_status->stage.store(LibraryStatus::kPinned, std::memory_order_release);
    }
}

bool Loader::inside() noexcept { return Library::inside_plugin() || t_claims > 0; }

Status Loader::would_deadlock() const {
  if (!inside() && !services_.choosing()) return {};
  return Status(
      Code::kWouldDeadlock,
      "plugins cannot be searched, loaded or unloaded by the code of a plugin that is being "
      "loaded, unloaded or asked what it can take");
}

bool Loader::is_claimed(std::string_view path, std::string_view name) const {
  return std::ranges::any_of(
      claims_, [&](const Claim* c) { return c->has(path) || (!name.empty() && c->name == name); });
}

PluginRecord* Loader::find_idle(Lock& lock, std::string_view name_or_path) {
  for (;;) {
    PluginRecord* const r = index_.find(name_or_path);
    if (r == nullptr || !is_claimed(r->path, r->manifest.name)) return r;
    ended_.wait(lock);
  }
}

Status Loader::unknown(std::string_view name_or_path) {
  return Status(Code::kNotFound, fmt::format("no plugin called '{}' was found{}", name_or_path,
                                             base::did_you_mean(name_or_path, index_.names())));
}

Result<PluginRecord*> Loader::find_loaded(Lock& lock, std::string_view name) {
  PluginRecord* const found = find_idle(lock, name);
  if (found == nullptr) return unknown(name);
  if (found->state() == PluginState::kLoaded) return found;
  return Status(Code::kNotFound, fmt::format("plugin '{}' is not loaded: it is {}", name,
                                             to_string(found->state())));
}

void Loader::store(PluginRecord record) {
  const Lock lock(mutex_);
  index_.store(std::move(record));
  note_waiting();
}

// ---- Scan ----

// Plugins that were unloaded stay unloaded, unless their files are `given`.
void Loader::scan(const std::vector<std::string>& given) {
  Lock lock(mutex_);
  const std::vector<std::string> places = places_, known_folders = lock_folders_;
  const FromEnvironment environment = environment_;
  lock.unlock();
  TrustedFolders folders(settings_.allow_writable);
  Found found = find_plugins(places, environment, settings_.installed, folders);
  std::vector<PluginRecord> scanned;
  for (const std::string& file : found.files)
    scanned.push_back(record_of(open_plugin_file(file, folders, settings_, process_)));
  for (const RefusedPath& r : found.refused) {
    scanned.emplace_back().path = r.path;
    scanned.back().refuse(r.refusal);
  }
  for (const std::string& folder : known_folders)
    if (!contains(found.folders, folder)) found.folders.push_back(folder);
  const LockFiles locks = LockFiles::read(settings_, found.folders);

  std::vector<std::string> messages;
  lock.lock();
  lock_folders_ = found.folders;
  PluginIndex next;
  std::set<std::string> paths;
  std::set<std::pair<dev_t, ino_t>> files;
  const auto add = [&](PluginRecord r) {
    if (!paths.insert(r.path).second) return;
    if (r.id.inode != 0 && !files.insert({r.id.device, r.id.inode}).second) return;
    next.records().push_back(std::move(r));
  };
  for (PluginRecord& r : scanned) {
    const PluginRecord* old = index_.find_path(r.path);
    const bool same = old != nullptr && old->id == r.id;
    if (old != nullptr && (old->in_process() || is_claimed(r.path))) {
      add(*old);
    } else if (same && old->state() != PluginState::kRefused) {
      PluginRecord kept = *old;
      if (contains(given, r.path)) kept.last_state = PluginState::kFound;
      add(std::move(kept));
    } else {
      // Calls may still use the library, although the plugin was refused.
      if (same)
        r.keep_alive = old->keep_alive, r.library = old->library,
        r.library_status = old->library_status;
      add(std::move(r));
    }
  }
  // Plugins in the process, and those requested by path, stay known.
  for (const PluginRecord& r : index_.records())
    if (r.in_process() || r.by_path || r.state() == PluginState::kPinned || is_claimed(r.path))
      add(r);
  for (PluginRecord& r : next.records()) {
    if (r.state() != PluginState::kFound) continue;
    r.sha256.clear();
    if (const PluginRecord* other = next.precedent(r))
      r.refuse({PluginReason::kDuplicateName,
                fmt::format("'{}' comes before it, as {}{}", r.manifest.name, other->path,
                            other->state() == PluginState::kFound || other->in_process()
                                ? ""
                                : ", which was unloaded; load() of this path takes this one")});
    else if (Refusal out = locks.allows(r.manifest, {});
             out.refused() && !contains(settings_.unlocked, r.path))
      r.refuse(std::move(out));
  }
  for (const PluginRecord& r : next.records())
    if (r.state() == PluginState::kRefused)
      messages.emplace_back(to_status(r.path, r.refusal).message());
  index_ = std::move(next);
  note_waiting();
  lock.unlock();
  for (std::string& text : messages) base::log(LogLevel::kWarn, "plugin", std::move(text));
}

struct Loader::EndOfSearch {
  Loader& loader;
  ~EndOfSearch() {
    const Lock lock(loader.mutex_);
    loader.searching_ = false;
    loader.ended_.notify_all();
  }
};

Status Loader::discover(const std::vector<std::string>& given) {
  YARD_RETURN_IF_ERROR(would_deadlock());
  {
    Lock lock(mutex_);
    ended_.wait(lock, [&] { return !searching_; });
    searched_ = searching_ = true;
    std::erase_if(places_, [&](const std::string& p) { return contains(given, p); });
    places_.insert(places_.begin(), given.begin(), given.end());
  }
  std::vector<std::pair<PluginOffer, std::string>> wanted;
  {
    const Claim search(*this);  // for inside(): plugins are not loaded by log sinks, for example
    const EndOfSearch end{*this};
    scan(given);
    std::vector<Manifest> found;
    {
      const Lock lock(mutex_);
      for (const PluginRecord& r : index_.records())
        if (r.state() == PluginState::kFound) found.push_back(r.manifest);
    }
    for (const PluginOffer what : {PluginOffer::kOp, PluginOffer::kGroup})
      for (const Manifest& m : found)
        for (const std::string& name : m.offers(what))
          if (services_.in_use(what, name)) wanted.emplace_back(what, name);
  }
  for (const auto& [what, name] : wanted) load_for(what, {name});

  const Lock lock(mutex_);
  Status problem;
  for (const PluginRecord& r : index_.records()) {
    if (r.state() != PluginState::kRefused || !contains(given, r.path)) continue;
    Status found = to_status(r.path, r.refusal);
    if (problem.ok())
      problem = std::move(found);
    else
      problem.note(std::string(found.message()));
    // A relative path can never be used, and is not searched again.
    if (r.refusal.reason == PluginReason::kRelativePath) std::erase(places_, r.path);
  }
  return problem;
}

void Loader::set_environment(FromEnvironment environment) {
  {
    const Lock lock(mutex_);
    if (searched_ && environment_ == environment) return;
    environment_ = std::move(environment);
  }
  discover({}).ignore();
}

// ---- Check ----

PluginFile Loader::check_file(const std::string& path) const {
  TrustedFolders folders(settings_.allow_writable);
  PluginFile c = open_plugin_file(path, folders, settings_, process_);
  c.hash();
  return c;
}

Refusal Loader::check_admitted(const PluginFile& c, std::vector<std::string> lock_folders) const {
  lock_folders.push_back(c.folder);  // a link does not lead out of reach of a lock
  if (!contains(settings_.unlocked, c.path))
    YARD_RETURN_IF_REFUSED(LockFiles::read(settings_, lock_folders).allows(c.manifest, c.sha256));
  if (!settings_.require_verified && !verified_in_rules_.load(std::memory_order_relaxed)) return {};
  std::string why;
  const auto known = results_.find(c.sha256, &why);
  if (known.value_or(false)) return {};
  return {PluginReason::kNotVerified, fmt::format("`yard verify {}` {} it with digest {}{}", c.path,
                                                  known ? "failed on" : "has not passed", c.sha256,
                                                  why.empty() ? "" : fmt::format("; {}", why))};
}

Refusal Loader::check_admitted(const PluginFile& c, bool by_path) {
  std::vector<std::string> folders;
  {
    const Lock lock(mutex_);
    for (const std::string& folder : {by_path ? folder_of(c.path) : "", c.folder})
      if (!folder.empty() && !contains(lock_folders_, folder)) lock_folders_.push_back(folder);
    folders = lock_folders_;
  }
  return check_admitted(c, std::move(folders));
}

PluginInfo Loader::inspect(const std::string& path, bool would_load) {
  PluginFile c = check_file(path);
  if (would_load && !c.refusal.refused()) {
    Lock lock(mutex_);
    std::vector<std::string> folders = lock_folders_;
    lock.unlock();
    folders.push_back(folder_of(path));
    c.refusal = check_admitted(c, std::move(folders));
  }
  PluginInfo info = record_of(c).info();
  info.verified = !c.sha256.empty() && results_.find(c.sha256).value_or(false);
  return info;
}

// ---- Open and commit ----

Refusal Loader::open_library(PluginFile& c, std::shared_ptr<Library>& to) {
  std::vector<PluginRecord> earlier;  // loads of the same file
  {
    const Lock lock(mutex_);
    for (const auto* records : {&index_.records(), &replaced_})
      for (const PluginRecord& r : *records)
        if (r.library_status != nullptr && r.id == c.id) earlier.push_back(r);
  }
  for (const PluginRecord& known : earlier) {
    to = known.library.lock();  // calls still use it
    if (to != nullptr) return {};
    // Another thread is closing it: wait, since stop must come before the next start.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (known.is_closing()) {
      if (std::chrono::steady_clock::now() > end)
        return {PluginReason::kCannotOpen,
                "its earlier load is still being ended: stop() or a destructor has not returned"};
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  return Library::open(std::move(c.file), c.id, c.path, services_.host, to);
}

Refusal Loader::open_and_commit(PluginRecord& r, PluginFile& c, const PluginRecord* replaces) {
  const auto begin = [&](const char* step) {
    if (settings_.watch) settings_.watch(c.path, step);
  };
  begin("opening");
  const auto keep_alive = KeepAlive::make();
  YARD_RETURN_IF_REFUSED(open_library(c, keep_alive->library));
  std::vector<registry::Step> steps;
  if (const auto old = replaces != nullptr ? replaces->keep_alive.lock() : nullptr)
    steps.emplace_back(registry::RemoveKept{old.get(), true});
  begin("query");
  YARD_RETURN_IF_REFUSED(keep_alive->library->describe(c.manifest, keep_alive, steps));
  begin("start");
  YARD_RETURN_IF_REFUSED(keep_alive->library->start());
  Status s = services_.apply(steps);
  if (s.code() == Code::kUnknownOp) {  // it may have kernels for an op of another plugin
    const Loads others = load_for(PluginOffer::kOp, c.manifest.ops);
    if (others.any) s = services_.apply(steps);
    if (!s.ok() && others.busy)
      return {PluginReason::kBusy,
              fmt::format("{}; another thread is loading a plugin that serves it", s.message())};
  }
  if (!s.ok()) {
    std::string text(s.message());
    for (const std::string& n : s.notes()) text += "; " + n;
    return {s.code() == Code::kConflict ? PluginReason::kConflict : PluginReason::kBadDescriptor,
            text};
  }
  r.keep_alive = keep_alive, r.library = keep_alive->library;
  r.library_status = keep_alive->library->status();
  return {};
}

// ---- Loading ----

Refusal Loader::load_path(const std::string& path, bool requested, Loads* loads) {
  Loads ignored;
  if (loads == nullptr) loads = &ignored;
  const bool must_not_wait = t_claims > 0;
  const auto busy = [&](const std::string& what) {
    loads->busy = true;
    return Refusal(PluginReason::kBusy,
                   fmt::format("another thread works on {}, and this thread cannot wait for it "
                               "while it loads a plugin itself",
                               what));
  };
  Claim claim(*this);
  PluginRecord r;
  {
    Lock lock(mutex_);
    while (is_claimed(path)) {
      if (must_not_wait) return busy(path);
      ended_.wait(lock);
    }
    const PluginRecord* known = index_.find_path(path);
    if (known != nullptr && known->state() == PluginState::kLoaded) {
      loads->any = true;
      return {};
    }
    if (!requested && (known == nullptr || known->state() != PluginState::kFound)) return {};
    if (known != nullptr)
      r = *known;
    else  // not kFound, so that no other thread loads it first
      r.path = path, r.by_path = true, r.last_state = PluginState::kUnloaded;
    claim.take(path);
  }
  PluginFile c = check_file(path);
  const auto load = [&]() -> Refusal {
    YARD_RETURN_IF_REFUSED(c.refusal);
    {
      Lock lock(mutex_);
      while (is_claimed({}, c.manifest.name)) {
        if (must_not_wait) return busy(fmt::format("a plugin called '{}'", c.manifest.name));
        ended_.wait(lock);
      }
      claim.name = c.manifest.name;
      index_.store(r);  // calls of what it serves wait for it
      if (const PluginRecord* other = index_.precedent(r, true))
        return {PluginReason::kDuplicateName,
                fmt::format("'{}' is {} already, from {}{}", r.manifest.name,
                            to_string(other->state()), other->path,
                            other->state() == PluginState::kLoaded
                                ? "; Plugins::replace() with this path puts this one in its place"
                                : "")};
    }
    YARD_RETURN_IF_REFUSED(check_admitted(c, r.by_path));
    return open_and_commit(r, c, nullptr);
  };
  r.manifest = c.manifest, r.sha256 = c.sha256;
  Refusal refusal = load();
  if (!refusal.refused()) {
    r.id = c.id, r.last_state = PluginState::kLoaded, r.refusal = {};
    loads->any = true;
  } else if (refusal.reason != PluginReason::kBusy) {
    r.refuse(refusal);
  }
  store(r);
  if (!refusal.refused() && base::log_enabled("plugin", LogLevel::kInfo))
    base::log(
        LogLevel::kInfo, "plugin",
        fmt::format("Plugin '{}' {} loaded from {}", r.manifest.name, r.manifest.version, r.path));
  return refusal;
}

Loader::Loads Loader::load_for(PluginOffer what, const std::vector<std::string>& names) {
  Loads loads;
  for (const std::string& name : names) {
    std::vector<std::string> paths;
    {
      const Lock lock(mutex_);
      for (const PluginRecord& r : index_.records())
        if (may_serve(r, what, name) && std::ranges::none_of(claims_, [&](const Claim* c) {
              return c->is_mine() && c->has(r.path);
            }))
          paths.push_back(r.path);
    }
    for (const std::string& path : paths) {
      const Refusal refusal = load_path(path, false, &loads);
      // It was not requested by name, so the call goes on without it.
      if (refusal.refused() && refusal.reason != PluginReason::kBusy)
        base::log(LogLevel::kWarn, "plugin", std::string(to_status(path, refusal).message()));
    }
  }
  return loads;
}

// A loaded plugin that is being replaced or unloaded serves calls meanwhile.
bool Loader::may_serve(const PluginRecord& r, PluginOffer what, std::string_view name) const {
  const PluginState now = r.state();
  return r.serves(what, name) &&
         (now == PluginState::kFound || (now != PluginState::kLoaded && is_claimed(r.path)));
}

bool Loader::need(PluginOffer what, std::string_view name) noexcept {
  if (inside()) return false;
  if (waiting_.load(std::memory_order_acquire) == 0) return true;
  try {
    {
      Lock lock(mutex_);
      ended_.wait(lock, [&] { return !searching_; });
    }
    return !load_for(what, {std::string(name)}).busy;
  } catch (const std::exception& e) {
    base::log(LogLevel::kError, "plugin", base::exception_text(e));
  }
  return true;
}

std::vector<std::string> Loader::refused_for(PluginOffer what, std::string_view name) {
  const Lock lock(mutex_);
  std::vector<std::string> to;
  size_t unknown = 0;
  for (const PluginRecord& r : index_.records()) {
    if (r.state() != PluginState::kRefused) continue;
    if (r.serves(what, name))
      to.push_back(fmt::format("plugin '{}', which serves it, is refused: {}: {}: {}",
                               r.manifest.name, r.path, to_string(r.refusal.reason),
                               r.refusal.detail));
    else
      unknown += r.manifest.name.empty();
  }
  if (unknown > 0)
    to.push_back(
        fmt::format("{} of the plugins found {} refused before it was known what they serve; "
                    "see `yard plugin list`",
                    unknown, unknown == 1 ? "was" : "were"));
  return to;
}

Status Loader::load(std::string_view name_or_path) {
  YARD_RETURN_IF_ERROR(would_deadlock());
  std::string path(name_or_path);
  {
    Lock lock(mutex_);
    const PluginRecord* r = find_idle(lock, name_or_path);
    struct stat info;
    if (r == nullptr && name_or_path.find('/') == std::string_view::npos)
      return unknown(name_or_path);
    if (r == nullptr && ::stat(path.c_str(), &info) == 0)
      for (const PluginRecord& other : index_.records()) {
        // The file of a plugin that is not loaded may be gone, and its number that of another file now.
        struct stat now;
        if (other.id.device == info.st_dev && other.id.inode == info.st_ino &&
            (other.in_process() || (::stat(other.path.c_str(), &now) == 0 &&
                                    now.st_dev == info.st_dev && now.st_ino == info.st_ino)))
          r = &other;
      }
    if (r != nullptr) path = r->path;
  }
  const Refusal refusal = load_path(path, true);
  return refusal.refused() ? to_status(path, refusal) : Status();
}

// ---- Unloading and replacing ----

Result<std::weak_ptr<const void>> Loader::unload(std::string_view name) {
  YARD_RETURN_IF_ERROR(would_deadlock());
  Claim claim(*this);
  PluginRecord record;
  {
    Lock lock(mutex_);
    YARD_ASSIGN_OR_RETURN(const PluginRecord* found, find_loaded(lock, name));
    record = *found;
    claim.take(record.path), claim.name = record.manifest.name;
  }
  std::weak_ptr<const void> life;
  // Held until the change is published, so that no other object can have its address.
  if (const auto keep_alive = record.keep_alive.lock()) {
    life = keep_alive->life;
    if (Status s = services_.apply({registry::RemoveKept{keep_alive.get()}}); !s.ok())
      return std::move(s).note(fmt::format("while unloading plugin '{}'", name));
  }
  record.last_state = PluginState::kUnloading;
  store(std::move(record));
  return life;
}

Result<std::weak_ptr<const void>> Loader::replace(std::string_view name, std::string_view path) {
  YARD_RETURN_IF_ERROR(would_deadlock());
  Claim claim(*this);
  PluginRecord old, next;
  {
    Lock lock(mutex_);
    for (;;) {
      YARD_ASSIGN_OR_RETURN(const PluginRecord* found, find_loaded(lock, name));
      old = *found;
      next.path = path.empty() ? old.path : std::string(path);
      if (!is_claimed(next.path)) break;
      ended_.wait(lock);
    }
    claim.take(old.path, next.path), claim.name = old.manifest.name;
    next.by_path = next.path == old.path ? old.by_path : index_.find_path(next.path) == nullptr;
  }
  std::weak_ptr<const void> life;
  if (const auto keep_alive = old.keep_alive.lock()) life = keep_alive->life;
  PluginFile c = check_file(next.path);
  const auto load = [&]() -> Refusal {
    YARD_RETURN_IF_REFUSED(c.refusal);
    if (c.manifest.name != old.manifest.name)
      return {PluginReason::kConflict,
              fmt::format("its name is '{}'; expected '{}', which it replaces", c.manifest.name,
                          old.manifest.name)};
    if (c.sha256 == old.sha256) return {};
    YARD_RETURN_IF_REFUSED(check_admitted(c, next.by_path));
    return open_and_commit(next, c, &old);
  };
  if (const Refusal refusal = load(); refusal.refused())
    return to_status(next.path, refusal)
        .note(fmt::format("plugin '{}' {} stays loaded, from {}", old.manifest.name,
                          old.manifest.version, old.path));
  if (c.sha256 == old.sha256) return std::weak_ptr<const void>();  // the same code
  next.manifest = c.manifest, next.sha256 = c.sha256, next.id = c.id;
  next.last_state = PluginState::kLoaded;
  old.last_state = PluginState::kUnloading;
  const std::string text =
      fmt::format("Plugin '{}' {} from {} takes the place of {} from {}", next.manifest.name,
                  next.manifest.version, next.path, old.manifest.version, old.path);
  {
    const Lock lock(mutex_);
    std::erase_if(replaced_, [](const PluginRecord& r) { return !r.in_process(); });
    replaced_.push_back(old);
    // Another search may have dropped a file that is gone.
    if (PluginRecord* there = index_.find_path(old.path)) *there = old;
    index_.store(std::move(next));
    note_waiting();
  }
  base::log_event(LogLevel::kInfo, "plugin", text);
  return life;
}

// ---- The index ----

Status Loader::forget(std::string_view name_or_path) {
  YARD_RETURN_IF_ERROR(would_deadlock());
  Lock lock(mutex_);
  const PluginRecord* r = find_idle(lock, name_or_path);
  if (r == nullptr) return unknown(name_or_path);
  if (r->in_process())
    return Status(Code::kConflict, fmt::format("plugin '{}' is {}: it must be unloaded first",
                                               name_or_path, to_string(r->state())));
  const std::string path = r->path;
  std::erase_if(index_.records(), [&](const PluginRecord& x) { return x.path == path; });
  note_waiting();
  return {};
}

std::vector<PluginInfo> Loader::list() {
  const Lock lock(mutex_);
  std::vector<PluginInfo> to;
  for (const PluginRecord& r : index_.records()) to.push_back(r.info());
  return to;
}

const void* Loader::keep_of(std::string_view name) {
  Lock lock(mutex_);
  const PluginRecord* r = index_.find(name);
  if (r == nullptr || r->state() != PluginState::kLoaded) return nullptr;
  const std::weak_ptr<KeepAlive> keep = r->keep_alive;
  lock.unlock();
  return keep.lock().get();
}

void Loader::reset() {
  Lock lock(mutex_);
  // Waits for loads that have published something and not noted it yet. Not for long: they may wait for this thread.
  ended_.wait_for(lock, std::chrono::seconds(1), [&] { return claims_.empty(); });
  for (PluginRecord& r : index_.records())
    if (r.last_state != PluginState::kRefused) r.last_state = PluginState::kFound;
  note_waiting();
}

}  // namespace yard::plugin
