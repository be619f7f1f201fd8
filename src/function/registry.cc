// SPDX-License-Identifier: Apache-2.0
#include "function/registry.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <cstdlib>

#include "base/log.h"
#include "base/reclaimer.h"
#include "base/text.h"
#include "function/check.h"
#include "registry/function_sites.h"
#include "select/select.h"

namespace yard::function {
namespace {

#ifdef NDEBUG
constexpr bool kCheckedFromTheStart = false;
#else
constexpr bool kCheckedFromTheStart = true;
#endif

// Tables of the parent may name what a child of fork cannot use; they are made anew, and the old ones left behind.
void in_child() {
  for (detail::FunctionSite* site : registry::all_function_sites())
    site->table.store(nullptr, std::memory_order_relaxed);
}

std::atomic<Registry*> g_serving{nullptr};

// Groups that this thread is loading: what it calls meanwhile gets what is there.
thread_local std::vector<std::string_view>* t_loading = nullptr;
bool loading_here(std::string_view group) {
  return t_loading != nullptr &&
         std::find(t_loading->begin(), t_loading->end(), group) != t_loading->end();
}
class Loading {
 public:
  explicit Loading(std::string_view group) : outer_(t_loading) {
    if (outer_ != nullptr) groups_ = *outer_;
    groups_.push_back(group);
    t_loading = &groups_;
  }
  ~Loading() { t_loading = outer_; }
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;

 private:
  std::vector<std::string_view>* outer_;
  std::vector<std::string_view> groups_;
};

// Whether this thread is asking probes for a table: what they call is the original's.
thread_local bool t_judging = false;

}  // namespace

Registry::Registry(detail::Core& core, Services services)
    : core_(core), services_(std::move(services)), checked_(kCheckedFromTheStart) {}

void Registry::serve() {
  static const int once = pthread_atfork(nullptr, nullptr, in_child);
  (void)once;
  g_serving.store(this, std::memory_order_release);
  set_registry_generation(
      [] { return g_serving.load(std::memory_order_acquire)->core_.snapshot()->generation; });
  serves_.store(true, std::memory_order_release);
}

void Registry::read_switches(const registry::State& state, Variables& variables) {
  for (const auto& [name, backend] : state.backends) {
    if (backend->env.empty() || variables.count(backend->env) > 0) continue;
    const char* value = std::getenv(backend->env.c_str());
    variables.emplace(backend->env, value != nullptr ? value : "");
  }
}

void Registry::bring_up_to_date(detail::FunctionSite& site, const Variables& variables) {
  if (t_judging) return;
  const bool checked = checked_.load(std::memory_order_relaxed);
  struct Judging {
    Judging() noexcept { t_judging = true; }
    ~Judging() { t_judging = false; }
  } judging;
  for (;;) {
    const auto s = core_.snapshot();
    const Situation now{*s, core_.host, variables};
    const detail::FunctionTable* current = site.table.load(std::memory_order_acquire);
    if (now.off()) {
      if (current != &detail::kFunctionsOff) publish(site, nullptr);
    } else {
      const Table* before = as_table(current);
      auto next = Table::make(now, site, before, checked);
      if (before == nullptr || !before->same_as(*next)) publish(site, std::move(next));
    }
    // A probe may have changed something, and with it this table.
    if (core_.snapshot()->generation == s->generation) return;
  }
}

void Registry::follow() {
  if (!serves_.load(std::memory_order_acquire)) return;
  {
    Switches& switches = switches_.get();
    const std::lock_guard lock(switches.lock);
    read_switches(*core_.snapshot()->state, switches.variables);
    for (detail::FunctionSite* site : registry::all_function_sites()) {
      if (site->table.load(std::memory_order_acquire) == nullptr) continue;
      // What nobody can call holds nothing back.
      if (site->declared.load(std::memory_order_acquire) > 0)
        bring_up_to_date(*site, switches.variables);
      else
        withdraw(*site);
    }
  }
  base::reclaimer().collect();
}

void Registry::start_over() {
  {
    Book& book = book_.get();
    const std::lock_guard lock(book.lock);
    for (auto& [name, group] : book.groups) {
      group.loaded = false;
      for (const auto& s : group.sources) s->info.done = false, s->info.attempts = 0;
    }
  }
  if (!serves_.load(std::memory_order_acquire)) return;
  {
    const std::lock_guard lock(switches_.get().lock);
    for (detail::FunctionSite* site : registry::all_function_sites()) withdraw(*site);
  }
  base::reclaimer().collect();
}

void Registry::environment_changed(std::optional<bool> check) {
  if (check) checked_.store(*check, std::memory_order_relaxed);
  {
    Switches& switches = switches_.get();
    const std::lock_guard lock(switches.lock);
    switches.variables.clear();
  }
  follow();
}

void Registry::attach(detail::FunctionSite& site) {
  if (!serves_.load(std::memory_order_acquire) || t_judging) return;
  // Under the master switch nothing is loaded.
  if (!core_.snapshot()->policy->in_force.reference_only.value_or(false)) {
    if (select::inside_select()) return;  // where nothing may be published: the original, this time
    load_group(site.group, false).ignore();
    bool loaded = loading_here(site.group);
    if (!loaded) {
      Book& book = book_.get();
      const std::lock_guard lock(book.lock);
      loaded = book.groups[site.group].loaded;
    }
    if (!loaded)
      return;  // plugins cannot be opened now: the original, and the next call asks again
  }
  Switches& switches = switches_.get();
  const std::lock_guard lock(switches.lock);
  read_switches(*core_.snapshot()->state, switches.variables);
  if (site.table.load(std::memory_order_acquire) == nullptr)
    bring_up_to_date(site, switches.variables);
}

void Registry::check_verifiers(bool on) {
  checked_.store(on, std::memory_order_relaxed);
  follow();
}

Status Registry::ask_source(Source& source) {
  Status status;
  try {
    Changes changes;
    status = source.setup(changes);
    if (status.ok()) status = services_.apply(std::move(changes));
  } catch (const Error& e) {
    status = e.status();
  } catch (const std::exception& e) {
    status = Status(Code::kKernelFailed, std::string("it threw: ") + e.what());
  } catch (...) {
    if (detail::thread_is_unwinding()) throw;
    status = Status(Code::kKernelFailed, "it threw something that is no std::exception");
  }
  Book& book = book_.get();
  const std::lock_guard lock(book.lock);
  ++source.info.attempts;
  source.info.done = status.ok();
  source.info.error = status.ok() ? "" : status.to_string();
  if (status.ok()) return {};
  base::log(LogLevel::kWarn, "dispatch",
            fmt::format("Provider '{}' of group '{}' failed: {}", source.info.name,
                        source.info.group, source.info.error));
  return std::move(status).note(
      fmt::format("provider '{}' of group '{}'", source.info.name, source.info.group));
}

Status Registry::load_group(std::string_view group, bool again) {
  if (loading_here(group)) return {};
  const auto wanted = [&] {
    std::vector<std::shared_ptr<Source>> to;
    Book& book = book_.get();
    const std::lock_guard lock(book.lock);
    for (const auto& s : book.groups[std::string(group)].sources)
      if (!s->info.done && (again || s->info.attempts == 0)) to.push_back(s);
    return to;
  };
  const auto loaded = [&] {
    Book& book = book_.get();
    const std::lock_guard lock(book.lock);
    return book.groups[std::string(group)].loaded;
  };
  if (!again && loaded()) return {};
  Turn& turn = turn_.get();
  const std::lock_guard lock(turn.lock);
  if (!again && loaded()) return {};
  const Loading here(group);
  const bool opened = services_.need(group);
  Status first;
  for (const auto& source : wanted())
    if (Status s = ask_source(*source); !s.ok() && first.ok()) first = std::move(s);
  if (!opened)
    return Status(Code::kWouldDeadlock,
                  "plugins cannot be loaded by the code of a plugin that is being loaded");
  Book& book = book_.get();
  const std::lock_guard data(book.lock);
  book.groups[std::string(group)].loaded = true;
  return first;
}

void Registry::add_provider(std::string group, FunctionSetup setup, std::string name) {
  auto source = std::make_shared<Source>();
  bool late = false;
  {
    Book& book = book_.get();
    const std::lock_guard lock(book.lock);
    Group& g = book.groups[group];
    if (name.empty()) name = fmt::format("provider {}", g.sources.size() + 1);
    source->info.group = group, source->info.name = std::move(name);
    source->setup = std::move(setup);
    g.sources.push_back(source);
    late = g.loaded;
  }
  if (late) ask_source(*source).ignore();
}

Status Registry::load(std::string_view group) {
  YARD_RETURN_IF_ERROR(load_group(group, true));
  return {};
}

bool Registry::in_use(std::string_view group) {
  Book& book = book_.get();
  const std::lock_guard lock(book.lock);
  const auto it = book.groups.find(group);
  return it != book.groups.end() && it->second.loaded;
}

std::vector<FunctionSource> Registry::sources() {
  std::vector<FunctionSource> to;
  Book& book = book_.get();
  const std::lock_guard lock(book.lock);
  for (const auto& [name, group] : book.groups)
    for (const auto& s : group.sources) to.push_back(s->info);
  return to;
}

}  // namespace yard::function
