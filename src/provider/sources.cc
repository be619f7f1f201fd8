// SPDX-License-Identifier: Apache-2.0
#include "provider/sources.h"

#include <fmt/format.h>

#include <algorithm>

namespace yard::provider {

std::string Source::error() const {
  const Error* last = nullptr;
  for (const Error& e : errors) last = &e;
  return last != nullptr ? last->text : "";
}

Group* Sources::find(std::string_view name) const noexcept {
  for (Group& g : groups_)
    if (g.name == name) return &g;
  return nullptr;
}

Group& Sources::group_locked(std::string_view name) {
  if (Group* g = find(name)) return *g;
  return groups_.append(std::unique_ptr<Group>(new Group{.name = std::string(name)}));
}

Group& Sources::group(std::string_view name) {
  if (Group* g = find(name)) return *g;
  const std::lock_guard lock(writers_.get().lock);
  return group_locked(name);
}

bool Sources::loaded(std::string_view name) const noexcept {
  const Group* g = find(name);
  return g != nullptr && g->loaded.load(std::memory_order_acquire);
}

std::vector<FunctionSource> Sources::list() const {
  std::vector<FunctionSource> to;
  for (const Group& g : groups_)
    for (const Source& s : g.sources)
      to.push_back({g.name, s.name, s.done.load(std::memory_order_acquire),
                    s.attempts.load(std::memory_order_relaxed), s.error()});
  std::stable_sort(to.begin(), to.end(), [](const FunctionSource& a, const FunctionSource& b) {
    return a.group < b.group;
  });
  return to;
}

std::vector<std::string> Sources::groups() const {
  std::vector<std::string> to;
  for (const Group& g : groups_)
    if (!g.sources.empty()) to.push_back(g.name);
  return to;
}

bool Sources::add(std::string_view group, FunctionSetup setup, std::string name) {
  const std::lock_guard lock(writers_.get().lock);
  Group& g = group_locked(group);
  if (name.empty()) {
    size_t count = 0;
    for ([[maybe_unused]] const Source& s : g.sources) ++count;
    name = fmt::format("provider {}", count + 1);
  }
  g.sources.append(
      std::unique_ptr<Source>(new Source{.name = std::move(name), .setup = std::move(setup)}));
  return g.loaded.load(std::memory_order_relaxed);
}

Source* Sources::next(Group& group, const std::vector<const Source*>& asked, bool again, bool all) {
  const std::lock_guard lock(writers_.get().lock);
  bool complete = true;
  for (Source& s : group.sources) {
    if (s.done.load(std::memory_order_relaxed)) continue;
    const bool never = s.attempts.load(std::memory_order_relaxed) == 0;
    if (!never && !again) continue;
    if (std::find(asked.begin(), asked.end(), &s) == asked.end()) return &s;
    complete &= !never;  // reset() since it was asked
  }
  if (all && complete) group.loaded.store(true, std::memory_order_release);
  return nullptr;
}

void Sources::tried(Source& source, const Status& status) {
  const std::lock_guard lock(writers_.get().lock);
  // A source that keeps failing with the same text needs no more memory.
  if (std::string text = status.ok() ? "" : status.to_string(); text != source.error())
    source.errors.append(
        std::unique_ptr<Source::Error>(new Source::Error{.text = std::move(text)}));
  // The count last: a forked child asks a source again that has been asked and not counted.
  source.done.store(status.ok(), std::memory_order_release);
  source.attempts.fetch_add(1, std::memory_order_release);
}

void Sources::unload(std::string_view group) {
  const std::lock_guard lock(writers_.get().lock);
  if (Group* g = find(group)) g->loaded.store(false, std::memory_order_release);
}

void Sources::reset() {
  const std::lock_guard lock(writers_.get().lock);
  for (Group& g : groups_) {
    g.loaded.store(false, std::memory_order_release);
    for (Source& s : g.sources) {
      s.done.store(false, std::memory_order_release);
      s.attempts.store(0, std::memory_order_relaxed);
    }
  }
}

}  // namespace yard::provider
