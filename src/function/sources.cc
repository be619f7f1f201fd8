// SPDX-License-Identifier: Apache-2.0
#include "function/sources.h"

#include <fmt/format.h>

#include <algorithm>

namespace yard::function {
namespace {

// Where the next one is put: one store makes it part of the list.
template <class Node>
std::atomic<Node*>& end_of(std::atomic<Node*>& first) {
  std::atomic<Node*>* at = &first;
  while (Node* n = at->load(std::memory_order_acquire)) at = &n->next;
  return *at;
}

template <class Node>
void free_list(std::atomic<Node*>& first) {
  for (Node* n = first.load(std::memory_order_acquire); n != nullptr;) {
    Node* const next = n->next.load(std::memory_order_relaxed);
    delete n;
    n = next;
  }
}

}  // namespace

Source::~Source() {
  for (const Text* t = error_.load(std::memory_order_acquire); t != nullptr;) {
    const Text* const before = t->before;
    delete t;
    t = before;
  }
}

std::string Source::error() const {
  const Text* const t = error_.load(std::memory_order_acquire);
  return t != nullptr ? t->text : "";
}

void Source::say(std::string text) {
  const Text* const last = error_.load(std::memory_order_relaxed);
  // One that keeps failing in the same way needs no more memory.
  if (last != nullptr ? last->text == text : text.empty()) return;
  error_.store(new Text{std::move(text), last}, std::memory_order_release);
}

Group::~Group() { free_list(first); }
Sources::~Sources() { free_list(first_); }

Group* Sources::find(std::string_view name) const noexcept {
  for (Group* g = first_.load(std::memory_order_acquire); g != nullptr;
       g = g->next.load(std::memory_order_acquire))
    if (g->name == name) return g;
  return nullptr;
}

Group& Sources::group_locked(std::string_view name) {
  if (Group* g = find(name)) return *g;
  auto* made = new Group(std::string(name));
  end_of(first_).store(made, std::memory_order_release);
  return *made;
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
  for (const Group* g = first_.load(std::memory_order_acquire); g != nullptr;
       g = g->next.load(std::memory_order_acquire))
    for (const Source* s = g->first.load(std::memory_order_acquire); s != nullptr;
         s = s->next.load(std::memory_order_acquire))
      to.push_back({g->name, s->name, s->done.load(std::memory_order_acquire),
                    s->attempts.load(std::memory_order_relaxed), s->error()});
  std::stable_sort(to.begin(), to.end(), [](const FunctionSource& a, const FunctionSource& b) {
    return a.group < b.group;
  });
  return to;
}

std::vector<std::string> Sources::groups() const {
  std::vector<std::string> to;
  for (const Group* g = first_.load(std::memory_order_acquire); g != nullptr;
       g = g->next.load(std::memory_order_acquire))
    if (g->first.load(std::memory_order_acquire) != nullptr) to.push_back(g->name);
  return to;
}

bool Sources::add(std::string_view group, FunctionSetup setup, std::string name) {
  const std::lock_guard lock(writers_.get().lock);
  Group& g = group_locked(group);
  size_t count = 0;
  for (const Source* s = g.first.load(std::memory_order_acquire); s != nullptr;
       s = s->next.load(std::memory_order_acquire))
    ++count;
  if (name.empty()) name = fmt::format("provider {}", count + 1);
  end_of(g.first).store(new Source(std::move(name), std::move(setup)), std::memory_order_release);
  return g.loaded.load(std::memory_order_relaxed);
}

Source* Sources::next(Group& group, const std::vector<const Source*>& asked, bool again, bool all) {
  const std::lock_guard lock(writers_.get().lock);
  bool complete = true;
  for (Source* s = group.first.load(std::memory_order_acquire); s != nullptr;
       s = s->next.load(std::memory_order_acquire)) {
    if (s->done.load(std::memory_order_relaxed)) continue;
    const bool never = s->attempts.load(std::memory_order_relaxed) == 0;
    if (!never && !again) continue;
    if (std::find(asked.begin(), asked.end(), s) == asked.end()) return s;
    complete &= !never;  // what was asked has been taken back meanwhile: see start_over()
  }
  if (all && complete) group.loaded.store(true, std::memory_order_release);
  return nullptr;
}

void Sources::tried(Source& source, const Status& status) {
  const std::lock_guard lock(writers_.get().lock);
  source.say(status.ok() ? std::string() : status.to_string());
  // The count last: one that was asked and neither done nor counted is asked again by a forked child.
  source.done.store(status.ok(), std::memory_order_release);
  source.attempts.fetch_add(1, std::memory_order_release);
}

void Sources::unload(std::string_view group) {
  const std::lock_guard lock(writers_.get().lock);
  if (Group* g = find(group)) g->loaded.store(false, std::memory_order_release);
}

void Sources::start_over() {
  const std::lock_guard lock(writers_.get().lock);
  for (Group* g = first_.load(std::memory_order_acquire); g != nullptr;
       g = g->next.load(std::memory_order_acquire)) {
    g->loaded.store(false, std::memory_order_release);
    for (Source* s = g->first.load(std::memory_order_acquire); s != nullptr;
         s = s->next.load(std::memory_order_acquire)) {
      s->done.store(false, std::memory_order_release);
      s->attempts.store(0, std::memory_order_relaxed);
    }
  }
}

}  // namespace yard::function
