// SPDX-License-Identifier: Apache-2.0
#include "plugin/loader.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "base/file.h"
#include "base/text.h"

namespace yard::plugin {

thread_local Loader::LoadingLock* Loader::LoadingLock::t_held = nullptr;

Loader::Loader(PluginSettings settings, Services services)
    : settings_(std::move(settings)),
      services_(std::move(services)),
      results_(settings_.state_directory.empty() ? ResultStore::default_directory()
                                                 : settings_.state_directory) {
  process_.host = services_.host;
  state().places = settings_.paths;
}

void Loader::LoaderState::inherit(LoaderState& parents) {
  index = parents.index, replaced = parents.replaced, places = parents.places;
  lock_directories = parents.lock_directories, environment = parents.environment;
  // A library that a thread of the parent was closing is never closed here: loads must not wait for it.
  for (auto* records : {&index.records(), &replaced})
    for (PluginRecord& r : *records) {
      if (!r.is_closing()) continue;
      r.library_status = std::make_shared<LibraryStatus>();
      r.library_status->pinned_by = "it was being closed when this process was forked";
      r.library_status->stage.store(LibraryStatus::kPinned, std::memory_order_release);
    }
}

Status Loader::would_deadlock() const {
  if (!Library::inside_plugin() && !LoadingLock::held_by_this_thread() && !services_.choosing())
    return {};
  return Status(
      Code::kWouldDeadlock,
      "plugins cannot be searched, loaded or unloaded by the code of a plugin that is being "
      "loaded, unloaded or asked what it can take");
}

void Loader::store(PluginRecord record) {
  Edit edit(*this);
  if (PluginRecord* old = edit->index.find_path(record.path))
    *old = std::move(record);
  else
    edit->index.records().push_back(std::move(record));
}

bool Loader::inside() noexcept {
  return Library::inside_plugin() || LoadingLock::held_by_this_thread();
}

// ---- What is under way with which plugin, and who waits for it ----

Loader::Claim::Claim(Loader& loader, const std::string& path) : loader_(loader), path_(path) {
  Edit(loader)->underway.push_back({path, std::this_thread::get_id()});
}

Loader::Claim::~Claim() {
  Edit edit(loader_);
  // In a child that plugin code has forked there is none.
  edit->underway.remove_if(
      [&](const Underway& u) { return u.path == path_ && u.thread == std::this_thread::get_id(); });
  edit->ended.notify_all();
}

const Loader::Underway* Loader::underway(const LoaderState& state, std::string_view path) {
  for (const Underway& u : state.underway)
    if (u.path == path) return &u;
  return nullptr;
}

bool Loader::waited_for(const std::string& path) {
  const auto me = std::this_thread::get_id();
  const auto latest_of = [&](std::thread::id thread) {
    Underway* found = nullptr;
    for (Underway& u : state().underway)
      if (u.thread == thread) found = &u;
    return found;
  };
  const auto is_free = [&] { return underway(state(), path) == nullptr; };
  if (is_free()) return false;
  // Two threads that load plugins for each other's ops must not wait for each other.
  for (const Underway* u = underway(state(), path); u != nullptr;) {
    if (u->thread == me) return false;
    const Underway* const waiting = latest_of(u->thread);
    u = waiting->waits_for.empty() ? nullptr : underway(state(), waiting->waits_for);
  }
  Underway* const mine = latest_of(me);
  if (mine != nullptr) mine->waits_for = path;
  { const Released to_log(*this); }  // this may take long
  state().ended.wait(LoadingLock::t_held->lock_, is_free);
  if (mine != nullptr) mine->waits_for.clear();
  return true;
}

bool Loader::waited_for_namesake(const PluginRecord& of) {
  LoaderState& s = state();
  for (const Underway& u : s.underway)
    if (const PluginRecord* r = s.index.find_path(u.path);
        r != nullptr && r->path != of.path && r->manifest.name == of.manifest.name)
      if (waited_for(std::string(u.path))) return true;
  return false;
}

const PluginRecord* Loader::find_idle(std::string_view name_or_path) {
  for (;;) {
    const PluginRecord* const r = state().index.find(name_or_path);
    if (r == nullptr || !waited_for(std::string(r->path))) return r;
  }
}

// ---- Loading ----

bool Loader::need(PluginOffer what, std::string_view name) noexcept {
  if (inside()) return false;
  if (waiting_.load(std::memory_order_acquire) == 0) return true;
  try {
    {
      // Do not wait for loads that do not serve it.
      LoaderState& s = state();
      const std::lock_guard lock(s.lock);
      const auto& all = s.index.records();
      if (!s.searching && std::none_of(all.begin(), all.end(), [&](const PluginRecord& r) {
            return may_serve(s, r, what, name);
          }))
        return true;
    }
    const base::MayWait not_in_a_call(false);
    exclusive([&] { return load_for(what, {std::string(name)}); });
  } catch (const std::exception& e) {
    base::log(LogLevel::kError, "plugin", base::exception_text(e));
  }
  return true;
}

// A loaded plugin that is being replaced or unloaded serves calls meanwhile.
bool Loader::may_serve(const LoaderState& state, const PluginRecord& r, PluginOffer what,
                       std::string_view name) {
  const PluginState now = r.state();
  return r.serves(what, name) &&
         (now == PluginState::kFound ||
          (now != PluginState::kLoaded && underway(state, r.path) != nullptr));
}

std::vector<std::string> Loader::refused_for(PluginOffer what, std::string_view name) {
  LoaderState& s = state();
  const std::lock_guard lock(s.lock);
  std::vector<std::string> to;
  size_t unknown = 0;
  for (const PluginRecord& r : s.index.records()) {
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

bool Loader::load_for(PluginOffer what, const std::vector<std::string>& names) {
  bool any = false;
  for (const std::string& name : names) {
    std::vector<std::string> paths;
    for (const PluginRecord& r : state().index.records())
      if (may_serve(state(), r, what, name)) paths.push_back(r.path);
    for (const std::string& path : paths) {
      const bool waited = waited_for(path);
      const PluginRecord* r = state().index.find_path(path);
      any |= waited && r != nullptr && r->state() == PluginState::kLoaded;
      if (r == nullptr || r->state() != PluginState::kFound || underway(state(), path) != nullptr)
        continue;
      const Status s = load_record(path);
      any |= s.ok();
      // It was not requested by name, so the call goes on without it.
      if (!s.ok()) LoadingLock::log(LogLevel::kWarn, std::string(s.message()));
    }
  }
  return any;
}

Status Loader::load(std::string_view name_or_path) {
  return change([&] { return load_held(name_or_path); });
}

Status Loader::load_held(std::string_view name_or_path) {
  const bool by_path = name_or_path.find('/') != std::string_view::npos;
  const PluginRecord* r = find_idle(name_or_path);
  if (r == nullptr && !by_path)
    return Status(Code::kNotFound,
                  fmt::format("no plugin called '{}' was found{}", name_or_path,
                              base::did_you_mean(name_or_path, state().index.names())));
  if (r != nullptr) return r->state() == PluginState::kLoaded ? Status() : load_record(r->path);
  PluginRecord made;
  made.path = name_or_path, made.by_path = true;
  struct stat info;
  if (::stat(made.path.c_str(), &info) == 0)
    for (const PluginRecord& other : state().index.records()) {
      if (other.id.device != info.st_dev || other.id.inode != info.st_ino) continue;
      // The file of a plugin that is not loaded may be gone, and its number that of another file now.
      struct stat now;
      if (!other.in_process() && (::stat(other.path.c_str(), &now) != 0 ||
                                  now.st_dev != info.st_dev || now.st_ino != info.st_ino))
        continue;
      if (waited_for(std::string(other.path))) return load_held(name_or_path);
      return other.state() == PluginState::kLoaded ? Status() : load_record(other.path);
    }
  const std::string path = made.path;
  // Not kFound, so that no other call loads it before this one does.
  made.last_state = PluginState::kUnloaded;
  store(std::move(made));
  return load_record(path);
}

namespace {

std::string loaded_text(const PluginRecord& r) {
  return fmt::format("Plugin '{}' {} loaded from {}", r.manifest.name, r.manifest.version, r.path);
}

}  // namespace

Status Loader::load_record(std::string path) {
  PluginRecord record = *state().index.find_path(path);
  const Claim claim(*this, path);
  Refusal refusal = load_transaction(record);
  if (refusal.refused()) {
    Status status = to_status(path, refusal);
    record.refuse(std::move(refusal));
    store(std::move(record));
    return status;
  }
  // What it brings is in force.
  record.last_state = PluginState::kLoaded, record.refusal = {};
  store(std::move(record));
  if (base::log_enabled("plugin", LogLevel::kInfo))
    base::if_memory_allows(
        [&] { LoadingLock::log(LogLevel::kInfo, loaded_text(*state().index.find_path(path))); });
  return {};
}

Refusal Loader::load_transaction(PluginRecord& r, const PluginRecord* replaces) {
  Directories directories(settings_.allow_writable);
  PluginFile c = open_plugin_file(r.path, directories, settings_, process_);
  r.manifest = c.manifest;
  YARD_RETURN_IF_REFUSED(c.refusal);
  if (replaces != nullptr && r.manifest.name != replaces->manifest.name)
    return {PluginReason::kConflict,
            fmt::format("its name is '{}'; expected '{}', which it replaces", r.manifest.name,
                        replaces->manifest.name)};
  if (replaces == nullptr) {
    store(r);  // others see from now on what it serves
    while (waited_for_namesake(r)) {
    }
  }
  if (const PluginRecord* other = state().index.precedent(r, true);
      other != nullptr && replaces == nullptr)
    return {PluginReason::kDuplicateName,
            fmt::format("'{}' is {} already, from {}{}", r.manifest.name, to_string(other->state()),
                        other->path,
                        other->state() == PluginState::kLoaded
                            ? "; Plugins::replace() with this path puts this one in its place"
                            : "")};
  auto digest = c.digest();
  if (!digest.ok()) return {PluginReason::kUnreadable, std::string(digest.status().message())};
  r.sha256 = *digest;
  if (replaces != nullptr && r.sha256 == replaces->sha256) return {};
  if (r.by_path) add_lock_directory(r.path.substr(0, std::max<size_t>(r.path.rfind('/'), 1)));
  // A link does not lead out of reach of a lock.
  if (!c.directory.empty()) add_lock_directory(c.directory);
  YARD_RETURN_IF_REFUSED(locked_out(read_locks(state().lock_directories), r));
  const std::vector<PluginRecord> earlier = loads_of(c.id);
  // From here on code of the plugin runs, also that which ends it after a refusal.
  std::optional<Released> others_go_on(std::in_place, *this);
  YARD_RETURN_IF_REFUSED(check_verified(r));
  const auto begin = [&](const char* step) {
    if (settings_.watch) settings_.watch(r.path, step);
  };
  begin("opening");
  const auto keep_alive = KeepAlive::make(r.path);
  YARD_RETURN_IF_REFUSED(open_library(earlier, r, c, keep_alive->library));
  std::vector<registry::Step> steps;
  if (const auto old = replaces != nullptr ? replaces->keep_alive.lock() : nullptr)
    steps.emplace_back(registry::RemoveKept{old.get(), true});
  begin("query");
  YARD_RETURN_IF_REFUSED(keep_alive->library->describe(r.manifest, keep_alive, steps));
  begin("start");
  YARD_RETURN_IF_REFUSED(keep_alive->library->start());
  Status s = services_.apply(steps);
  if (s.code() == Code::kUnknownOp) {  // it may have kernels for an op of another plugin
    others_go_on.reset();
    const bool any = load_for(PluginOffer::kOp, r.manifest.ops);
    others_go_on.emplace(*this);
    if (any) s = services_.apply(steps);
  }
  if (!s.ok()) {
    std::string text(s.message());
    for (const std::string& n : s.notes()) text += "; " + n;
    return {s.code() == Code::kConflict ? PluginReason::kConflict : PluginReason::kBadDescriptor,
            text};
  }
  r.id = c.id, r.keep_alive = keep_alive, r.library = keep_alive->library;
  r.library_status = keep_alive->library->status();
  return {};
}

std::vector<PluginRecord> Loader::loads_of(const FileId& id) {
  std::vector<PluginRecord> to;
  LoaderState& s = state();
  for (const auto* records : {&s.index.records(), &s.replaced})
    for (const PluginRecord& r : *records)
      if (r.library_status != nullptr && r.id == id) to.push_back(r);
  return to;
}

Refusal Loader::open_library(const std::vector<PluginRecord>& earlier, const PluginRecord& r,
                             PluginFile& c, std::shared_ptr<Library>& to) const {
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
  return Library::open(std::move(c.file), c.id, r.path, services_.host, to);
}

Status Loader::unpublish(const PluginRecord& record, std::weak_ptr<const void>* life) {
  const Released others_go_on(*this);
  // Held until the change is published, so that no other object can have its address.
  const auto keep_alive = record.keep_alive.lock();
  if (keep_alive == nullptr) return {};
  if (life != nullptr) *life = keep_alive->life;
  return services_.apply({registry::RemoveKept{keep_alive.get()}});
}

Result<const PluginRecord*> Loader::loaded(std::string_view name) {
  const PluginRecord* found = find_idle(name);
  if (found != nullptr && found->state() == PluginState::kLoaded) return found;
  return Status(Code::kNotFound, found == nullptr
                                     ? fmt::format("no plugin called '{}' was found{}", name,
                                                   base::did_you_mean(name, state().index.names()))
                                     : fmt::format("plugin '{}' is not loaded: it is {}", name,
                                                   to_string(found->state())));
}

Result<std::weak_ptr<const void>> Loader::unload(std::string_view name) {
  return change([&]() -> Result<std::weak_ptr<const void>> {
    YARD_ASSIGN_OR_RETURN(auto found, loaded(name));
    PluginRecord record = *found;
    const Claim claim(*this, record.path);
    std::weak_ptr<const void> life;
    if (Status out = unpublish(record, &life); !out)
      return std::move(out).note(fmt::format("while unloading plugin '{}'", name));
    record.last_state = PluginState::kUnloading;
    store(std::move(record));
    return life;
  });
}

Result<std::weak_ptr<const void>> Loader::replace(std::string_view name, std::string_view path) {
  return change([&] { return replace_held(name, path); });
}

Result<std::weak_ptr<const void>> Loader::replace_held(std::string_view name,
                                                       std::string_view path) {
  PluginRecord old, next;
  do {
    YARD_ASSIGN_OR_RETURN(auto found, loaded(name));
    old = *found;
    next.path = path.empty() ? old.path : std::string(path);
  } while (waited_for(next.path));
  const Claim claim(*this, old.path), claim_next(*this, next.path);
  std::weak_ptr<const void> life;
  if (const auto keep_alive = old.keep_alive.lock()) life = keep_alive->life;
  next.by_path =
      next.path == old.path ? old.by_path : state().index.find_path(next.path) == nullptr;
  {
    Edit edit(*this);  // nothing is allocated once the new version is in force
    std::erase_if(edit->replaced, [](const PluginRecord& r) { return !r.in_process(); });
    edit->replaced.reserve(edit->replaced.size() + 1);
    edit->index.records().reserve(edit->index.records().size() + 1);
  }
  PluginRecord gone = old;
  gone.last_state = PluginState::kUnloading;
  if (const Refusal refusal = load_transaction(next, &old); refusal.refused())
    return to_status(next.path, refusal)
        .note(fmt::format("plugin '{}' {} stays loaded, from {}", old.manifest.name,
                          old.manifest.version, old.path));
  if (next.sha256 == old.sha256) return std::weak_ptr<const void>();  // the same code
  base::if_memory_allows([&] {
    if (base::log_enabled("plugin", LogLevel::kInfo))
      LoadingLock::log(
          LogLevel::kInfo,
          fmt::format("Plugin '{}' {} from {} takes the place of {} from {}", next.manifest.name,
                      next.manifest.version, next.path, old.manifest.version, old.path),
          true);
  });
  next.last_state = PluginState::kLoaded;
  const bool moved = next.path != old.path;
  store(std::move(next));
  old.last_state = PluginState::kUnloading;
  Edit edit(*this);
  edit->replaced.push_back(std::move(gone));
  // Another search may have dropped a file that is gone.
  if (PluginRecord* there = moved ? edit->index.find_path(old.path) : nullptr)
    *there = std::move(old);
  return life;
}

void Loader::reset() {
  exclusive([&] {
    // Loads that have published something and not noted it yet. Not for long: they may wait for this thread.
    state().ended.wait_for(LoadingLock::t_held->lock_, std::chrono::seconds(1),
                           [&] { return state().underway.empty(); });
    Edit edit(*this);
    for (PluginRecord& r : edit->index.records())
      if (r.last_state != PluginState::kRefused) r.last_state = PluginState::kFound;
    return true;
  });
}

Refusal Loader::check_verified(const PluginRecord& r) const {
  if (!settings_.require_verified && !verified_in_rules_.load(std::memory_order_relaxed)) return {};
  std::string why;
  const auto known = results_.find(r.sha256, &why);
  if (known.value_or(false)) return {};
  return {PluginReason::kNotVerified, fmt::format("`yard verify {}` {} it with digest {}{}", r.path,
                                                  known ? "failed on" : "has not passed", r.sha256,
                                                  why.empty() ? "" : fmt::format("; {}", why))};
}

Status Loader::save_verified(std::string_view sha256, bool passed) {
  return results_.save(sha256, passed);
}

PluginInfo Loader::with_results(PluginInfo info) const {
  if (info.sha256.empty()) return info;
  info.verified = results_.find(info.sha256).value_or(false);
  return info;
}

const void* Loader::keep_of(std::string_view name) {
  LoaderState& s = state();
  const std::lock_guard lock(s.lock);
  const PluginRecord* r = s.index.find(name);
  if (r == nullptr || r->state() != PluginState::kLoaded) return nullptr;
  return r->keep_alive.lock().get();
}

}  // namespace yard::plugin
