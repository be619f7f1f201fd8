// SPDX-License-Identifier: Apache-2.0
// The steps of a load after the scan: check, open and commit.
#include <filesystem>
#include <thread>

#include "plugin/loader.h"

namespace yard::plugin {

Refusal Loader::check_admitted(const PluginFile& file, bool remember) {
  if (!contains(settings_.unlocked, file.path)) {
    Lock lock(mutex_);
    std::set<std::string> folders = lock_folders_;
    // A link must not lead out of reach of a lock file.
    folders.insert({std::filesystem::path(file.path).parent_path(), file.folder});
    if (remember) lock_folders_ = folders;
    lock.unlock();
    YARD_RETURN_IF_REFUSED(LockFiles::read(settings_, folders).allows(file.manifest, file.sha256));
  }
  if (!settings_.require_verified && !verified_in_rules_.load(std::memory_order_relaxed)) return {};
  std::string why;
  const auto known = results_.find(file.sha256, &why);
  if (known.value_or(false)) return {};
  if (!why.empty()) why = "; " + why;
  return Refusal(Reason::kNotVerified, "`yard verify {}` {} it with digest {}{}", file.path,
                 known ? "failed on" : "has not passed", file.sha256, why);
}

PluginInfo Loader::inspect(const std::string& path, bool would_load) {
  PluginFile file = open_plugin_file(path, settings_, process_);
  file.hash();
  if (would_load && !file.refusal.refused()) file.refusal = check_admitted(file, false);
  PluginInfo info = PluginRecord(file).info();
  info.verified = !file.sha256.empty() && results_.find(file.sha256).value_or(false);
  return info;
}

Refusal Loader::open_library(const PluginFile& file, std::shared_ptr<Library>& to) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (;; std::this_thread::sleep_for(std::chrono::microseconds(20))) {
    const Lock lock(mutex_);
    std::erase_if(libraries_, [](const auto& l) { return l->stage() != LibraryStatus::kOpen; });
    const auto open = std::ranges::find(libraries_, file.id, &LibraryStatus::id);
    if (open == libraries_.end()) break;
    to = (*open)->library.lock();
    if (to != nullptr) return {};  // calls still use it
    // Another thread is closing it. Its stop() must come before the next start().
    if (std::chrono::steady_clock::now() > end)
      return {Reason::kCannotOpen,
              "its earlier load is still being ended: stop() or a destructor has not returned"};
  }
  YARD_RETURN_IF_REFUSED(Library::open(file.file, file.id, file.path, services_.host, to));
  const Lock lock(mutex_);
  libraries_.push_back(to->status());
  return {};
}

Refusal Loader::install(PluginRecord& r, const PluginFile& file,
                        std::optional<registry::RemoveKept> remove) {
  YARD_RETURN_IF_REFUSED(check_admitted(file, true));
  const auto begin = [&](const char* step) {
    if (settings_.watch) settings_.watch(file.path, step);
  };
  begin("opening");
  const auto keep_alive = KeepAlive::make();
  YARD_RETURN_IF_REFUSED(open_library(file, keep_alive->library));
  std::vector<registry::Step> steps;
  if (remove) steps.emplace_back(*std::move(remove));
  begin("query");
  YARD_RETURN_IF_REFUSED(keep_alive->library->describe(file.manifest, keep_alive, steps));
  begin("start");
  YARD_RETURN_IF_REFUSED(keep_alive->library->start());
  Status s = services_.apply(steps);
  if (s.code() == Code::kUnknownOp) {  // it may have kernels for an op of another plugin
    Refusal busy;
    for (const std::string& op : file.manifest.ops)
      if (Refusal other = load_for(registry::PluginOffer::kOp, op); other.refused())
        busy = std::move(other);
    s = services_.apply(steps);
    if (!s.ok() && busy.refused()) return {Reason::kBusy, "{}; {}", s.message(), busy.detail};
  }
  if (!s.ok()) return {s.code() == Code::kConflict ? Reason::kConflict : Reason::kBadDescriptor, s};
  static_cast<FoundFile&>(r) = file;
  r.last_state = PluginState::kLoaded;
  r.keep_alive = keep_alive, r.library = keep_alive->library->status();
  return {};
}

}  // namespace yard::plugin
