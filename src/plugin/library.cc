// SPDX-License-Identifier: Apache-2.0
#include "plugin/library.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/append_list.h"
#include "base/float_state.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "registry/changes.h"

namespace yard::plugin {
namespace {

thread_local int t_inside = 0;
struct Inside : base::ForeignCode {
  Inside() { ++t_inside; }
  ~Inside() { --t_inside; }
};

// Runs code of the plugin. Describes the exception that it threw; empty if none.
template <class F>
std::string thrown_by(const F& f) {
  const Inside inside;
  const base::FloatState restored;
  try {
    f();
    return {};
  } catch (...) {
    return fmt::format("it threw: {}", base::current_exception_text());
  }
}

// Libraries that are never closed.
constinit base::ForkSafeList<base::DynamicLibrary> g_kept;

std::string shown(const Status& s) {
  std::string text(s.message());
  for (const std::string& n : s.notes()) text += "; " + n;
  return text;
}

}  // namespace

bool Library::inside_plugin() noexcept { return t_inside > 0; }

Refusal Library::open(base::File file, const FileId& id, const std::string& path,
                      const yard_host_t* host, std::shared_ptr<Library>& to) {
  std::string problem;
  const std::string threw = thrown_by([&] {
    auto opened = base::DynamicLibrary::open(std::move(file), {id.device, id.inode}, path);
    if (!opened.ok()) {
      problem = opened.status().message();
      return;
    }
    std::shared_ptr<Library> library(new Library);
    library->library_ = std::make_unique<base::DynamicLibrary>(*std::move(opened));
    to = std::move(library);
  });
  if (!threw.empty()) return {PluginReason::kCannotOpen, threw};
  if (!problem.empty()) return {PluginReason::kCannotOpen, problem};
  to->host_ = host;
  to->query_ =
      reinterpret_cast<yard_plugin_query_t>(to->library_->symbol(YARD_PLUGIN_QUERY_SYMBOL));
  if (to->query_ != nullptr) return {};
  to.reset();
  return {PluginReason::kNoQuery, "it does not export " YARD_PLUGIN_QUERY_SYMBOL};
}

Refusal Library::describe(const Manifest& manifest, const std::shared_ptr<void>& keep,
                          std::vector<registry::Step>& steps) {
  const yard_plugin_t* given = nullptr;
  const std::string threw = thrown_by([&] { given = query_(YARD_ABI_VERSION, host_); });
  if (!threw.empty()) return {PluginReason::kQueryThrew, threw};
  if (given == nullptr)
    return {PluginReason::kQueryDeclined,
            fmt::format("its query returned NULL to a host of ABI {}", YARD_ABI_VERSION)};
  if (reinterpret_cast<uintptr_t>(given) % alignof(yard_plugin_t) != 0)
    return {PluginReason::kBadDescriptor, "its descriptor is not aligned"};
  if (Status s = registry::read_plugin(*given, keep, steps, registry::Origin::From::kPlugin); !s)
    return {PluginReason::kBadDescriptor, shown(s)};
  // The size has been checked; what it does not cover is zero.
  plugin_ = {};
  std::memcpy(&plugin_, given, std::min<size_t>(given->size / 8 * 8, sizeof plugin_));
  quiesce_.clear();
  for (const registry::Step& step : steps)
    if (const auto* b = std::get_if<registry::AddBackend>(&step); b && b->backend->d.quiesce)
      quiesce_.push_back({b->backend->name, b->backend->d.quiesce, b->backend->d.self,
                          std::max<int32_t>(b->backend->d.device_type, 1)});
  return compare(manifest, steps);
}

std::string Library::quiesce() const {
  for (const Quiesce& q : quiesce_) {
    int32_t code = YARD_OK;
    std::string why = thrown_by([&] { code = q.wait(q.self, {q.device_type, -1}); });
    if (why.empty() && code != YARD_OK) why = fmt::format("it returned {}", code);
    if (!why.empty()) return fmt::format("backend '{}' cannot be quiesced: {}", q.backend, why);
  }
  return {};
}

Refusal Library::compare(const Manifest& manifest, const std::vector<registry::Step>& steps) const {
  const auto differs = [](const char* what, const std::string& one, const std::string& other) {
    return Refusal(PluginReason::kManifestDiffers,
                   fmt::format("its manifest has {} '{}', its descriptor '{}'", what, one, other));
  };
  if (manifest.name != plugin_.name) return differs("name", manifest.name, plugin_.name);
  const std::string version = plugin_.version != nullptr ? plugin_.version : "";
  if (manifest.version != version) return differs("version", manifest.version, version);
  for (const registry::Step& step : steps) {
    const std::string* op = nullptr;
    if (const auto* o = std::get_if<registry::AddOp>(&step)) op = &o->op->name;
    if (const auto* k = std::get_if<registry::AddKernel>(&step)) op = &k->kernel->op;
    if (op != nullptr && !contains(manifest.ops, *op))
      return {PluginReason::kManifestDiffers,
              fmt::format("it serves op '{}', which its manifest does not list", *op)};
    const auto* f = std::get_if<registry::AddFunction>(&step);
    if (f != nullptr && !contains(manifest.groups, f->function->group))
      return {PluginReason::kManifestDiffers,
              fmt::format("it serves group '{}', which its manifest does not list",
                          f->function->group)};
  }
  return {};
}

Refusal Library::start() {
  if (started_ || plugin_.start == nullptr) {
    started_ = true;
    return {};
  }
  char error[512] = {};
  int32_t code = YARD_FAULT;
  std::string why = thrown_by([&] { code = plugin_.start(host_, error, sizeof error); });
  if (!why.empty()) return {PluginReason::kStartFailed, why};
  error[sizeof error - 1] = '\0';
  if (code != YARD_OK)
    return {PluginReason::kStartFailed,
            error[0] != '\0' ? std::string(error) : fmt::format("its start returned {}", code)};
  started_ = true;
  return {};
}

std::shared_ptr<KeepAlive> KeepAlive::make() {
  return {new KeepAlive, [](KeepAlive* k) {
            if (k->library != nullptr)
              base::end_on_own_thread([k] { delete k; });
            else
              delete k;
          }};
}

Library::~Library() {
  if (library_ == nullptr) return;
  status_->ending.store(true, std::memory_order_release);
  try {
    stop_and_close();
  } catch (const std::bad_alloc&) {  // it stays as it is
    static_cast<void>(library_.release());
    status_->pinned_by = "out of memory";
    status_->stage.store(LibraryStatus::kPinned, std::memory_order_release);
  }
}

void Library::stop_and_close() {
  if (const std::string busy = started_ ? quiesce() : std::string(); !busy.empty()) {
    // A device may still run its code or write its memory: it is neither stopped nor closed.
    g_kept.add(library_.release());
    status_->pinned_by = busy;
    status_->stage.store(LibraryStatus::kPinned, std::memory_order_release);
    return;
  }
  if (started_ && plugin_.stop != nullptr) {
    const std::string threw = thrown_by([&] { plugin_.stop(); });
    if (!threw.empty())
      base::log(LogLevel::kError, "plugin", fmt::format("stop of a plugin: {}", threw));
  }
  std::string pinned_by;
  const std::string threw = thrown_by([&] { pinned_by = library_->close(); });
  if (!threw.empty()) pinned_by = threw;
  status_->pinned_by = pinned_by;
  status_->stage.store(pinned_by.empty() ? LibraryStatus::kClosed : LibraryStatus::kPinned,
                       std::memory_order_release);
}

}  // namespace yard::plugin
