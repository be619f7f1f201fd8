// SPDX-License-Identifier: Apache-2.0
#include "plugin/library.h"

#include <system_error>
#include <thread>

#include "base/float_state.h"
#include "base/log.h"
#include "base/text.h"

namespace yard::plugin {
namespace {

thread_local int t_inside = 0;
struct Inside : base::ForeignCode {
  Inside() { ++t_inside; }
  ~Inside() { --t_inside; }
};

// Runs code of the plugin. Returns the text of its exception, or "". Passes std::bad_alloc on.
template <class F>
std::string thrown_by(const F& f) {
  const Inside inside;
  const base::FloatState restored;
  try {
    f();
    return {};
  } catch (const std::bad_alloc&) {
    throw;
  } catch (...) {
    return fmt::format("it threw: {}", base::current_exception_text());
  }
}

// Like thrown_by(), but on a separate thread, which the code may end.
template <class F>
std::string thrown_elsewhere(const F& f) {
  std::string text = "it ended its thread";
  try {
    std::thread([&] { text = thrown_by(f); }).join();
  } catch (const std::system_error&) {  // there are too many threads
    text = thrown_by(f);
  }
  return text;
}

}  // namespace

bool Library::inside_plugin() noexcept { return t_inside > 0; }

Refusal Library::open(const base::File& file, const FileId& id, const std::string& path,
                      const yard_host_t* host, std::shared_ptr<Library>& to) {
  std::shared_ptr<Library> library(new Library);
  library->status_ = std::make_shared<LibraryStatus>(id, library);  // ~Library() needs this
  Status problem;
  const std::string threw = thrown_by([&] {
    auto opened = base::DynamicLibrary::open(file, path);
    problem = opened.status();
    if (opened.ok()) library->library_.emplace(*std::move(opened));
  });
  if (!threw.empty()) return {Reason::kCannotOpen, threw};
  if (!problem.ok()) return {Reason::kCannotOpen, problem};
  library->host_ = host;
  library->query_ =
      reinterpret_cast<yard_plugin_query_t>(library->library_->symbol(YARD_PLUGIN_QUERY_SYMBOL));
  if (library->query_ == nullptr)
    return {Reason::kNoQuery, "it does not export " YARD_PLUGIN_QUERY_SYMBOL};
  to = std::move(library);
  return {};
}

Refusal Library::describe(const Manifest& manifest, const std::shared_ptr<void>& keep,
                          std::vector<registry::Step>& steps) {
  const yard_plugin_t* given = nullptr;
  const std::string threw = thrown_by([&] { given = query_(YARD_ABI_VERSION, host_); });
  if (!threw.empty()) return {Reason::kQueryThrew, threw};
  if (given == nullptr)
    return {Reason::kQueryDeclined, "its query returned NULL to a host of ABI {}",
            YARD_ABI_VERSION};
  if (reinterpret_cast<uintptr_t>(given) % alignof(yard_plugin_t) != 0)
    return {Reason::kBadDescriptor, "its descriptor is not aligned"};
  if (Status s = registry::read_plugin(*given, keep, steps, registry::Origin::From::kPlugin); !s)
    return {Reason::kBadDescriptor, s};
  // read_plugin() has checked the size. Fields beyond it are zero.
  plugin_ = {};
  std::memcpy(&plugin_, given, std::min<size_t>(given->size / 8 * 8, sizeof plugin_));
  quiesced_.clear();
  for (const registry::Step& step : steps)
    if (const auto* b = std::get_if<registry::AddBackend>(&step); b && b->backend->d.quiesce)
      quiesced_.emplace_back(b->backend->name, b->backend->d);
  return compare(manifest, steps);
}

std::string Library::quiesce() const {
  for (const auto& [name, backend] : quiesced_) {
    int32_t code = YARD_OK;
    const yard_device_t all{std::max<int32_t>(backend.device_type, 1), -1};
    std::string why = thrown_elsewhere([&, &of = backend] { code = of.quiesce(of.self, all); });
    if (why.empty() && code != YARD_OK) why = fmt::format("it returned {}", code);
    if (!why.empty()) return fmt::format("backend '{}' cannot be quiesced: {}", name, why);
  }
  return {};
}

Refusal Library::compare(const Manifest& manifest, const std::vector<registry::Step>& steps) const {
  constexpr const char* kDiffers = "its manifest has {} '{}', its descriptor '{}'";
  const std::string version = plugin_.version != nullptr ? plugin_.version : "";
  if (manifest.name != plugin_.name)
    return {Reason::kManifestDiffers, kDiffers, "name", manifest.name, plugin_.name};
  if (manifest.version != version)
    return {Reason::kManifestDiffers, kDiffers, "version", manifest.version, version};
  for (const registry::Step& step : steps) {
    const std::string *op = nullptr, *group = nullptr;
    if (const auto* o = std::get_if<registry::AddOp>(&step)) op = &o->op->name;
    if (const auto* k = std::get_if<registry::AddKernel>(&step)) op = &k->kernel->op;
    if (const auto* f = std::get_if<registry::AddFunction>(&step)) group = &f->function->group;
    if ((op != nullptr && !contains(manifest.ops, *op)) ||
        (group != nullptr && !contains(manifest.groups, *group)))
      return {Reason::kManifestDiffers, "it serves {} '{}', which its manifest does not list",
              op != nullptr ? "op" : "group", op != nullptr ? *op : *group};
  }
  return {};
}

Refusal Library::start() {
  if (std::exchange(started_, true) || plugin_.start == nullptr) return {};
  char error[512] = {};
  int32_t code = YARD_FAULT;
  std::string why = thrown_by([&] { code = plugin_.start(host_, error, sizeof error); });
  error[sizeof error - 1] = '\0';
  if (why.empty() && code != YARD_OK)
    why = error[0] != '\0' ? error : fmt::format("its start returned {}", code);
  started_ = why.empty();
  return started_ ? Refusal() : Refusal(Reason::kStartFailed, why);
}

std::shared_ptr<KeepAlive> KeepAlive::make() {
  return {new KeepAlive, [](KeepAlive* k) { base::end_on_own_thread([k] { delete k; }); }};
}

Library::~Library() {
  if (!library_) return;
  try {
    status_->set_closed(stop_and_close());
  } catch (const std::bad_alloc&) {
    library_->leave_open();
    status_->set_closed("out of memory");
  }
}

std::string Library::stop_and_close() {
  if (std::string busy = started_ ? quiesce() : std::string(); !busy.empty()) {
    // A device may still run its code or write its memory, so do not stop or close it.
    library_->leave_open();
    return busy;
  }
  if (started_ && plugin_.stop != nullptr) {
    const std::string threw = thrown_elsewhere([&] { plugin_.stop(); });
    if (!threw.empty())
      base::log(LogLevel::kError, "plugin", fmt::format("stop of a plugin: {}", threw));
  }
  std::string pinned_by;
  std::string threw = thrown_by([&] { pinned_by = library_->close(); });
  return threw.empty() ? pinned_by : threw;
}

}  // namespace yard::plugin
