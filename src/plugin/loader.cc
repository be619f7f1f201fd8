// SPDX-License-Identifier: Apache-2.0
#include "plugin/loader.h"

#include <filesystem>
#include <thread>

#include "base/log.h"
#include "base/results.h"
#include "base/text.h"

namespace yard::plugin {
namespace {

thread_local int t_claims = 0;  // claims of this thread

constexpr const char* kSearch = "*";  // the claim of a search; no plugin has that name

void log_refusal(const std::string& path, const Refusal& refusal) {
  base::log(LogLevel::kWarn, "plugin", to_status(path, refusal).message());
}

}  // namespace

// While it exists, this thread works on the plugins of a name. Begins and ends with the lock held.
class Loader::Claim {
 public:
  Claim(Loader& loader, Lock& lock, std::string plugin)
      : name(std::move(plugin)), loader_(loader), lock_(lock) {
    ++t_claims;
    loader_.claims_.push_back(this);
  }
  ~Claim() {
    --t_claims;
    if (!lock_.owns_lock()) lock_.lock();
    std::erase(loader_.claims_, this);
    loader_.ended_.notify_all();
  }
  Claim& operator=(Claim&&) = delete;

  bool is_mine() const { return thread_ == std::this_thread::get_id(); }
  const std::string name;

 private:
  Loader& loader_;
  Lock& lock_;
  const std::thread::id thread_ = std::this_thread::get_id();
};

Loader::Loader(PluginSettings settings, Services services)
    : settings_(std::move(settings)),
      services_(std::move(services)),
      results_(settings_.state_directory.empty() ? ResultStore::default_folder()
                                                 : settings_.state_directory),
      process_{.host = services_.host},
      places_(settings_.paths),
      in_child_([this] {
        std::erase_if(claims_, [](const Claim* c) { return !c->is_mine(); });
        for (const auto& library : libraries_)
          if (library->is_closing()) library->abandon();
      }) {}

bool Loader::inside() noexcept { return Library::inside_plugin() || t_claims > 0; }

Status Loader::would_deadlock() const {
  if (!inside() && !services_.choosing()) return {};
  return Status(
      Code::kWouldDeadlock,
      "plugins cannot be searched, loaded or unloaded by the code of a plugin that is being "
      "loaded, unloaded or asked what it can take");
}

const Loader::Claim* Loader::find_claim(std::string_view name) const noexcept {
  for (const Claim* claim : claims_)
    if (claim->name == name && !name.empty()) return claim;
  return nullptr;
}

Result<const PluginRecord*> Loader::find_idle(Lock& lock, std::string_view name_or_path) {
  const PluginRecord* found;
  while ((found = index_.find(name_or_path)) != nullptr) {
    if (find_claim(found->manifest.name) == nullptr) return found;
    ended_.wait(lock);
  }
  std::vector<std::string> names;
  for (const PluginRecord& r : index_) names.push_back(r.manifest.name);
  return Status(Code::kNotFound, fmt::format("no plugin called '{}' was found{}", name_or_path,
                                             base::did_you_mean(name_or_path, names)));
}

Result<const PluginRecord*> Loader::find_loaded(Lock& lock, std::string_view name) {
  YARD_ASSIGN_OR_RETURN(const PluginRecord* found, find_idle(lock, name));
  if (found->state() == PluginState::kLoaded) return found;
  return Status(Code::kNotFound, fmt::format("plugin '{}' is not loaded: it is {}", name,
                                             to_string(found->state())));
}

// ---- Scan ----

void Loader::scan(Lock& lock, const std::vector<std::string>& given) {
  const auto places = places_;
  const auto environment = environment_;
  auto lock_folders = lock_folders_;
  lock.unlock();
  Found found = find_plugins(places, environment, settings_);
  std::vector<PluginRecord> scanned;
  for (const std::string& file : found.files)
    scanned.emplace_back(open_plugin_file(file, settings_, process_));
  for (const FoundFile& refused : found.refused) scanned.emplace_back(refused);
  lock_folders.merge(found.folders);
  const LockFiles locks = LockFiles::read(settings_, lock_folders);

  lock.lock();
  lock_folders_.merge(lock_folders);
  PluginIndex next;
  const auto in_use = [&](const PluginRecord& r) {
    return r.in_process() || find_claim(r.manifest.name) != nullptr;
  };
  for (PluginRecord& r : scanned) {
    const PluginRecord* const old = index_.find_path(r.path);
    const bool same_file = old != nullptr && old->id == r.id && !contains(given, r.path);
    const bool stays = old != nullptr && (in_use(*old) || (old->was_unloaded() && same_file));
    next.add_new(stays ? *old : std::move(r));
  }
  // Plugins in the process and plugins requested by path stay known.
  for (const PluginRecord& r : index_)
    if (in_use(r) || r.by_path || r.state() == PluginState::kPinned) next.add_new(r);
  for (PluginRecord& r : next) {
    if (r.state() != PluginState::kFound) continue;
    if (const PluginRecord* other = next.precedent(r))
      r.refuse({Reason::kDuplicateName, "'{}' comes before it, as {}{}", r.manifest.name,
                other->path,
                other->was_unloaded() ? ", which was unloaded; load() of this path takes this one"
                                      : ""});
    else if (Refusal out = locks.allows(r.manifest);
             out.refused() && !contains(settings_.unlocked, r.path))
      r.refuse(std::move(out));
  }
  index_ = std::move(next);
}

Status Loader::discover(const std::vector<std::string>& given) {
  YARD_RETURN_IF_ERROR(would_deadlock());
  std::vector<std::pair<registry::PluginOffer, std::string>> wanted;
  {
    Lock lock(mutex_);
    ended_.wait(lock, [&] { return find_claim(kSearch) == nullptr; });
    const Claim search(*this, lock, kSearch);
    searched_ = true;
    std::erase_if(places_, [&](const std::string& p) { return contains(given, p); });
    places_.insert(places_.begin(), given.begin(), given.end());
    scan(lock, given);
    const PluginIndex records = index_;
    lock.unlock();
    for (const PluginRecord& r : records) {
      if (r.state() == PluginState::kRefused) log_refusal(r.path, r.refusal);
      if (r.state() != PluginState::kFound) continue;
      for (const auto what : {registry::PluginOffer::kOp, registry::PluginOffer::kGroup})
        for (const std::string& name : r.manifest.offers(what))
          if (services_.in_use(what, name)) wanted.emplace_back(what, name);
    }
  }
  for (const auto& [what, name] : wanted) load_for(what, name);

  const Lock lock(mutex_);
  Status problem;
  for (const PluginRecord& r : index_) {
    if (r.state() != PluginState::kRefused || !contains(given, r.path)) continue;
    Status refused = to_status(r.path, r.refusal);
    problem.ok() ? problem = refused : problem.note(std::string(refused.message()));
    // A relative path can never be used, so do not search it again.
    if (r.refusal.reason == Reason::kRelativePath) std::erase(places_, r.path);
  }
  return problem;
}

void Loader::set_environment(FromEnvironment environment) {
  Lock lock(mutex_);
  if (searched_ && environment_ == environment) return;
  environment_ = std::move(environment);
  lock.unlock();
  discover({}).ignore();
}

// ---- Loading ----

Refusal Loader::load_path(const std::string& path, bool requested) {
  PluginFile file = open_plugin_file(path, settings_, process_);
  const std::string& name = file.manifest.name;
  Lock lock(mutex_);
  while (find_claim(name) != nullptr) {
    if (t_claims > 0)
      return {Reason::kBusy,
              "another thread works on plugin '{}', and this thread cannot wait for "
              "it while it loads a plugin itself",
              name};
    ended_.wait(lock);
  }
  PluginRecord r;
  // The state is not kFound, so that no other thread loads the plugin first.
  r.path = path, r.by_path = true, r.last_state = PluginState::kUnloaded;
  if (const PluginRecord* known = index_.find_path(path)) r = *known;
  if (r.state() == PluginState::kLoaded || (!requested && r.state() != PluginState::kFound))
    return {};
  const Claim claim(*this, lock, name);
  r.manifest = file.manifest;
  if (!file.refusal.refused()) {
    index_.store(r);  // calls that need the plugin wait for it
    if (const PluginRecord* other = index_.precedent(r, true))
      file.refusal = {Reason::kDuplicateName,
                      "'{}' is {} already, from {}{}",
                      name,
                      to_string(other->state()),
                      other->path,
                      other->state() == PluginState::kLoaded
                          ? "; Plugins::replace() with this path puts this one in its place"
                          : ""};
  }
  lock.unlock();
  file.hash();
  r.sha256 = file.sha256;
  const Refusal refusal = file.refusal.refused() ? file.refusal : install(r, file, {});
  if (refusal.refused() && refusal.reason != Reason::kBusy) r.refuse(refusal);
  lock.lock();
  index_.store(r);
  lock.unlock();
  if (!refusal.refused()) {
    tell(base::event::kPluginLoaded, r);
    base::log(LogLevel::kInfo, "plugin",
              fmt::format("Plugin '{}' {} loaded from {}", name, r.manifest.version, r.path));
  } else if (refusal.reason != Reason::kBusy) {
    tell(base::event::kPluginRefused, r, to_status(path, refusal).to_string());
  }
  return refusal;
}

void Loader::tell(const base::EventKind& kind, const PluginRecord& of, std::string why) const {
  if (why.empty()) why = fmt::format("{} from {}", of.manifest.version, of.path);
  const std::string& name = of.manifest.name.empty() ? of.path : of.manifest.name;
  base::record({.kind = &kind, .runtime = services_.runtime, .subject = name, .reason = why});
}

Refusal Loader::load_for(registry::PluginOffer what, std::string_view name) {
  std::vector<std::string> paths;
  Lock lock(mutex_);
  for (const PluginRecord& r : index_) {
    const Claim* const claim = find_claim(r.manifest.name);
    if (!r.serves(what, name) || (claim != nullptr && claim->is_mine())) continue;
    // A loaded plugin that is being replaced or unloaded serves calls meanwhile.
    if (r.state() == PluginState::kFound || (r.state() != PluginState::kLoaded && claim != nullptr))
      paths.push_back(r.path);
  }
  lock.unlock();
  Refusal busy;
  for (const std::string& path : paths) {
    Refusal refusal = load_path(path, false);
    if (refusal.reason == Reason::kBusy)
      busy = std::move(refusal);
    else if (refusal.refused())  // the call continues without it
      log_refusal(path, refusal);
  }
  return busy;
}

bool Loader::need(registry::PluginOffer what, std::string_view name) noexcept {
  if (inside()) return false;
  try {
    Lock lock(mutex_);
    ended_.wait(lock, [&] { return find_claim(kSearch) == nullptr; });
    lock.unlock();
    load_for(what, name);
  } catch (const std::exception& e) {
    base::log(LogLevel::kError, "plugin", e.what());  // memory for another text may be exhausted
  }
  return true;
}

Status Loader::load(std::string_view name_or_path) {
  YARD_RETURN_IF_ERROR(would_deadlock());
  std::string path(name_or_path);
  Lock lock(mutex_);
  const auto found = find_idle(lock, name_or_path);
  if (!found.ok() && path.find('/') == path.npos) return found.status();
  if (found.ok()) path = (*found)->path;
  std::error_code none;
  for (const PluginRecord& r : index_)
    if (!found.ok() && r.id.inode != 0 &&  // a record without inode was refused by its path alone
        std::filesystem::equivalent(path, r.path, none))
      path = r.path;
  lock.unlock();
  const Refusal refusal = load_path(path, true);
  return refusal.refused() ? to_status(path, refusal) : Status();
}

// ---- Unloading and replacing ----

Result<std::weak_ptr<const void>> Loader::unload(std::string_view name) {
  YARD_RETURN_IF_ERROR(would_deadlock());
  Lock lock(mutex_);
  YARD_ASSIGN_OR_RETURN(const PluginRecord* found, find_loaded(lock, name));
  PluginRecord record = *found;
  const Claim claim(*this, lock, record.manifest.name);
  lock.unlock();
  std::weak_ptr<const void> life;
  // Held until the change is published, so that no other object can get its address.
  if (const auto keep_alive = record.keep_alive.lock()) {
    life = keep_alive->life;
    if (Status s = services_.apply({registry::RemoveKept{keep_alive.get()}}); !s.ok())
      return std::move(s).note(fmt::format("while unloading plugin '{}'", name));
  }
  lock.lock();
  record.last_state = PluginState::kUnloading;
  index_.store(record);
  lock.unlock();
  tell(base::event::kPluginUnloaded, record);
  return life;
}

Result<std::weak_ptr<const void>> Loader::replace(std::string_view name, std::string_view path,
                                                  KeptOps keep) {
  YARD_RETURN_IF_ERROR(would_deadlock());
  Lock lock(mutex_);
  YARD_ASSIGN_OR_RETURN(const PluginRecord* found, find_loaded(lock, name));
  PluginRecord old = *found, next;
  next.path = path.empty() ? old.path : std::string(path);
  next.by_path = next.path == old.path ? old.by_path : index_.find_path(next.path) == nullptr;
  const Claim claim(*this, lock, old.manifest.name);
  lock.unlock();
  const auto replaced = old.keep_alive.lock();
  std::weak_ptr<const void> life;
  if (replaced != nullptr) life = replaced->life;
  PluginFile file = open_plugin_file(next.path, settings_, process_);
  file.hash();
  Refusal refusal = file.refusal;
  if (!refusal.refused() && file.manifest.name != old.manifest.name)
    refusal = {Reason::kConflict, "its name is '{}'; expected '{}', which it replaces",
               file.manifest.name, old.manifest.name};
  if (!refusal.refused() && file.sha256 == old.sha256)  // it is the code that is loaded
    return std::weak_ptr<const void>();
  std::optional<registry::RemoveKept> remove;
  if (replaced != nullptr) remove = {replaced.get(), true};
  for (const std::string& op : old.manifest.ops)
    if (remove && (keep == KeptOps::kAll ||
                   (keep == KeptOps::kInUse && services_.in_use(registry::PluginOffer::kOp, op))))
      remove->must_serve.push_back(op);
  if (!refusal.refused()) refusal = install(next, file, std::move(remove));
  if (refusal.refused())
    return to_status(next.path, refusal)
        .note(fmt::format("plugin '{}' {} stays loaded, from {}", name, old.manifest.version,
                          old.path));
  lock.lock();
  old.last_state = PluginState::kUnloading;
  // Another search may have dropped the old file, which is gone.
  if (PluginRecord* there = index_.find_path(old.path)) *there = old;
  index_.store(next);
  lock.unlock();
  tell(base::event::kPluginReplaced, next);
  base::log_event(LogLevel::kInfo, "plugin",
                  fmt::format("Plugin '{}' {} from {} takes the place of {} from {}", name,
                              next.manifest.version, next.path, old.manifest.version, old.path));
  return life;
}

Status Loader::forget(std::string_view name_or_path) {
  YARD_RETURN_IF_ERROR(would_deadlock());
  Lock lock(mutex_);
  YARD_ASSIGN_OR_RETURN(const PluginRecord* r, find_idle(lock, name_or_path));
  if (r->in_process())
    return Status(Code::kConflict, fmt::format("plugin '{}' is {}: it must be unloaded first",
                                               name_or_path, to_string(r->state())));
  index_.erase(index_.begin() + (r - index_.data()));
  return {};
}

void Loader::reset() {
  Lock lock(mutex_);
  // Wait for loads that have published but not stored their state, for a while only: they may wait
  // for this thread.
  ended_.wait_for(lock, std::chrono::seconds(1), [&] { return claims_.empty(); });
  for (PluginRecord& r : index_)
    if (r.last_state != PluginState::kRefused) r.last_state = PluginState::kFound;
}

}  // namespace yard::plugin
