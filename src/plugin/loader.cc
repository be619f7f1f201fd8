// SPDX-License-Identifier: Apache-2.0
// Loading and unloading.
#include "plugin/loader.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/digest.h"
#include "base/log.h"
#include "base/text.h"

namespace yard::plugin {

thread_local int Loader::Turn::t_turns = 0;

Loader::Loader(PluginSettings settings, Services services)
    : settings_(std::move(settings)),
      services_(std::move(services)),
      results_(settings_.state_directory.empty() ? Results::default_directory()
                                                 : settings_.state_directory),
      state_(new LoaderState) {
  process_.host = services_.host;
  LoaderState& b = *state_.load();
  b.process = base::this_process();
  b.places = settings_.paths;
}

Loader::~Loader() {
  LoaderState* b = state_.load();
  if (b->process == base::this_process())
    delete b;  // else a thread of the parent may have been changing it
}

Loader::LoaderState& Loader::state() {
  LoaderState* b = state_.load(std::memory_order_acquire);
  if (b->process == base::this_process()) return *b;
  // A forked child. The locks may be held by threads that are not here; what one of them was changing
  // cannot be read any more. The old state is left behind.
  auto* fresh = new LoaderState;
  fresh->process = base::this_process();
  if (!b->editing.load(std::memory_order_relaxed)) {
    fresh->catalogue = b->catalogue, fresh->places = b->places;
    fresh->lock_directories = b->lock_directories, fresh->environment = b->environment;
  }
  // A library that a thread of the parent was closing is never closed here: nobody must wait for it.
  for (Record& r : fresh->catalogue.records()) {
    if (r.fate == nullptr || r.fate->stage.load(std::memory_order_acquire) != Fate::kOpen) continue;
    if (!r.library.expired()) continue;
    r.fate = std::make_shared<Fate>();
    r.fate->pinned_by = "it was being closed when this process was forked";
    r.fate->stage.store(Fate::kPinned, std::memory_order_release);
  }
  if (state_.compare_exchange_strong(b, fresh, std::memory_order_acq_rel)) return *fresh;
  delete fresh;
  return *b;
}

Status Loader::would_deadlock() const {
  if (!Library::inside_plugin() && !Turn::mine() && !services_.choosing()) return {};
  return Status(
      Code::kWouldDeadlock,
      "plugins cannot be searched, loaded or unloaded by the code of a plugin that is being "
      "loaded, unloaded or asked what it can take");
}

void Loader::put(LoaderState& state, Record record) {
  Edit edit(*this, state);
  if (Record* old = edit->catalogue.find_path(record.path))
    *old = std::move(record);
  else
    edit->catalogue.records().push_back(std::move(record));
}

bool Loader::inside() noexcept { return Library::inside_plugin() || Turn::mine(); }

bool Loader::need(PluginOffer what, std::string_view name) noexcept {
  if (inside()) return false;
  if (waiting_.load(std::memory_order_acquire) == 0) return true;
  try {
    LoaderState& b = state();
    {
      // Who serves nothing of it is not waited for.
      const std::lock_guard lock(b.data);
      if (!b.searching && !may_serve(b, what, name)) return true;
    }
    const Turn turn(*this, b);
    load_for(b, what, {std::string(name)});
  } catch (const std::exception& e) {
    base::log(LogLevel::kError, "plugin", e.what());
  }
  return true;
}

bool Loader::may_serve(const LoaderState& state, PluginOffer what, std::string_view name) {
  const std::vector<Record>& all = state.catalogue.records();
  return std::any_of(all.begin(), all.end(), [&](const Record& r) {
    if (!r.serves(what, name)) return false;
    return r.state() == PluginState::kFound ||
           std::count(state.underway.begin(), state.underway.end(), r.path) != 0;
  });
}

std::vector<std::string> Loader::refused_for(PluginOffer what, std::string_view name) {
  LoaderState& b = state();
  const std::lock_guard lock(b.data);
  std::vector<std::string> to;
  size_t silent = 0;
  for (const Record& r : b.catalogue.records()) {
    if (r.state() != PluginState::kRefused) continue;
    if (r.serves(what, name))
      to.push_back(fmt::format("plugin '{}', which serves it, is refused: {}: {}: {}",
                               r.manifest.name, r.path, to_string(r.refusal.reason),
                               r.refusal.detail));
    else
      silent += r.manifest.name.empty();
  }
  if (silent > 0)
    to.push_back(
        fmt::format("{} of the plugins looked for {} refused before it was known what they serve; "
                    "`yard plugin list` says why",
                    silent, silent == 1 ? "is" : "are"));
  return to;
}

bool Loader::load_for(LoaderState& state, PluginOffer what, const std::vector<std::string>& names) {
  bool any = false;
  for (const std::string& name : names)
    for (const std::string& path : state.catalogue.paths_for(what, name)) {
      if (std::count(state.underway.begin(), state.underway.end(), path) != 0) continue;
      const Record* r = state.catalogue.find_path(path);
      if (r == nullptr || r->state() != PluginState::kFound) continue;  // came with another one
      const Status s = load_record(state, path);
      any |= s.ok();
      // Nobody asked for it by name: the call goes on without it.
      if (!s.ok()) base::log(LogLevel::kWarn, "plugin", std::string(s.message()));
    }
  return any;
}

Status Loader::load(std::string_view name_or_path) {
  YARD_RETURN_IF_ERROR(would_deadlock());
  LoaderState& b = state();
  const Turn turn(*this, b);
  const bool by_path = name_or_path.find('/') != std::string_view::npos;
  const Record* r = b.catalogue.find(name_or_path);
  if (r == nullptr && !by_path)
    return Status(Code::kNotFound,
                  fmt::format("no plugin called '{}' was found{}", name_or_path,
                              base::did_you_mean(name_or_path, b.catalogue.names())));
  if (r != nullptr && r->state() == PluginState::kLoaded) return {};
  if (r != nullptr) return load_record(b, r->path);
  Record made;
  made.path = name_or_path, made.by_path = true;
  struct stat info;
  if (::stat(made.path.c_str(), &info) == 0)
    for (const Record& other : b.catalogue.records())
      if (other.id.device == info.st_dev && other.id.inode == info.st_ino)
        return other.state() == PluginState::kLoaded ? Status() : load_record(b, other.path);
  const std::string path = made.path;
  // Not to be loaded for somebody else before it is loaded here.
  made.said = PluginState::kUnloaded;
  put(b, std::move(made));
  return load_record(b, path);
}

Status Loader::load_record(LoaderState& state, const std::string& path) {
  Record record = *state.catalogue.find_path(path);
  Edit(*this, state)->underway.push_back(path);
  Refusal refusal = bring_in(state, record);
  Edit(*this, state)->underway.pop_back();
  const Status status = refusal.refused() ? to_status(path, refusal) : Status();
  if (refusal.refused())
    record.refuse(std::move(refusal));
  else
    record.said = PluginState::kLoaded, record.refusal = {};
  if (status.ok() && base::log_enabled("plugin", LogLevel::kInfo))
    base::log(LogLevel::kInfo, "plugin",
              fmt::format("Plugin '{}' {} loaded from {}", record.manifest.name,
                          record.manifest.version, path));
  put(state, std::move(record));
  return status;
}

Refusal Loader::bring_in(LoaderState& state, Record& r) {
  Directories directories(settings_.allow_writable);
  Candidate c = look_at(r.path, directories, settings_.allow_writable, process_);
  r.manifest = c.manifest;
  YARD_RETURN_IF_REFUSED(c.refusal);
  if (const Record* other = state.catalogue.holder(r, true))
    return {PluginReason::kDuplicateName,
            fmt::format("'{}' is {} already, from {}", r.manifest.name, to_string(other->state()),
                        other->path)};
  auto digest = base::sha256(c.file);
  if (!digest.ok()) return {PluginReason::kUnreadable, std::string(digest.status().message())};
  r.sha256 = *digest;
  if (r.by_path) lock_by(state, r.path.substr(0, std::max<size_t>(r.path.rfind('/'), 1)));
  YARD_RETURN_IF_REFUSED(read_locks(state.lock_directories).allows(r));
  YARD_RETURN_IF_REFUSED(vet(state, r, c.file));
  const auto begin = [&](const char* step) {
    if (settings_.watch) settings_.watch(r.path, step);
  };
  begin("opening");
  auto lease = std::make_shared<Lease>();
  YARD_RETURN_IF_REFUSED(open_library(r, c, lease->library));
  std::vector<registry::Step> steps;
  begin("query");
  YARD_RETURN_IF_REFUSED(lease->library->describe(r.manifest, lease, steps));
  begin("start");
  YARD_RETURN_IF_REFUSED(lease->library->start());
  YARD_RETURN_IF_REFUSED(publish(state, r, steps));
  r.id = c.id, r.lease = lease, r.library = lease->library, r.fate = lease->library->fate();
  return {};
}

Refusal Loader::open_library(const Record& r, Candidate& c, std::shared_ptr<Library>& to) const {
  if (r.id == c.id) {
    to = r.library.lock();  // calls still use what an earlier load brought
    if (to != nullptr) return {};
    // Another thread is closing it: its stop must come before the next start.
    while (r.fate != nullptr && r.fate->stage.load(std::memory_order_acquire) == Fate::kOpen)
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return Library::open(std::move(c.file), r.path, services_.host, to);
}

Refusal Loader::publish(LoaderState& state, const Record& r,
                        const std::vector<registry::Step>& steps) {
  Status s = services_.apply(steps);
  // Kernels for an op that another plugin brings.
  if (s.code() == Code::kUnknownOp && load_for(state, PluginOffer::kOp, r.manifest.ops))
    s = services_.apply(steps);
  if (s.ok()) return {};
  std::string text(s.message());
  for (const std::string& n : s.notes()) text += "; " + n;
  return {s.code() == Code::kConflict ? PluginReason::kConflict : PluginReason::kBadDescriptor,
          text};
}

Status Loader::take_out(const Record& record, std::weak_ptr<const void>* life) {
  const void* keep = nullptr;
  if (const auto lease = record.lease.lock()) {
    keep = lease.get();
    if (life != nullptr) *life = lease->life;
  }
  // Nothing new can have that address: leases are made under the lock held here.
  return keep != nullptr ? services_.apply({registry::RemoveKept{keep}}) : Status();
}

Result<std::weak_ptr<const void>> Loader::unload(std::string_view name) {
  YARD_RETURN_IF_ERROR(would_deadlock());
  LoaderState& b = state();
  const Turn turn(*this, b);
  const Record* found = b.catalogue.find(name);
  if (found == nullptr || found->state() != PluginState::kLoaded)
    return Status(Code::kNotFound, found == nullptr
                                       ? fmt::format("no plugin called '{}' was found{}", name,
                                                     base::did_you_mean(name, b.catalogue.names()))
                                       : fmt::format("plugin '{}' is not loaded: it is {}", name,
                                                     to_string(found->state())));
  Record record = *found;
  std::weak_ptr<const void> life;
  if (Status s = take_out(record, &life); !s)
    return std::move(s).note(fmt::format("while unloading plugin '{}'", name));
  record.said = PluginState::kUnloading;
  put(b, std::move(record));
  return life;
}

Status Loader::forget(std::string_view name_or_path) {
  YARD_RETURN_IF_ERROR(would_deadlock());
  LoaderState& b = state();
  const Turn turn(*this, b);
  const Record* r = b.catalogue.find(name_or_path);
  if (r == nullptr)
    return Status(Code::kNotFound,
                  fmt::format("no plugin '{}' was found{}", name_or_path,
                              base::did_you_mean(name_or_path, b.catalogue.names())));
  if (r->in_process())
    return Status(Code::kConflict, fmt::format("plugin '{}' is {}: it must be unloaded first",
                                               name_or_path, to_string(r->state())));
  Edit edit(*this, b);
  const std::string path = r->path;
  std::erase_if(edit->catalogue.records(), [&](const Record& x) { return x.path == path; });
  return {};
}

std::vector<PluginInfo> Loader::list() {
  LoaderState& b = state();
  const std::lock_guard lock(b.data);
  std::vector<PluginInfo> to;
  for (const Record& r : b.catalogue.records()) to.push_back(r.info());
  return to;
}

void Loader::start_over() {
  LoaderState& b = state();
  const Turn turn(*this, b);
  Edit edit(*this, b);
  for (Record& r : edit->catalogue.records())
    if (r.said != PluginState::kRefused) r.said = PluginState::kFound;
}

}  // namespace yard::plugin
