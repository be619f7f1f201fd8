// SPDX-License-Identifier: Apache-2.0
// The program's providers of lazy groups of functions, and the state of each.
//
// Lists only grow, their nodes live as long as the service, and all that changes in a node is atomic: readers take no
// lock, so a forked child can use everything, whatever another thread of the parent was doing. The lock is for
// writers; the child has its own.
#pragma once

#include <yard/function.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fork.h"

namespace yard::provider {

// A list that is only appended to, by one thread at a time, while others read. A T has a member
// `std::atomic<T*> next`.
template <class T>
class AppendList {
 public:
  AppendList() = default;
  ~AppendList() {
    for (T* t = first_.load(std::memory_order_acquire); t != nullptr;)
      delete std::exchange(t, t->next.load(std::memory_order_relaxed));
  }
  AppendList(const AppendList&) = delete;
  AppendList& operator=(const AppendList&) = delete;

  struct Iterator {
    T* at;
    T& operator*() const noexcept { return *at; }
    Iterator& operator++() noexcept {
      at = at->next.load(std::memory_order_acquire);
      return *this;
    }
    bool operator==(const Iterator&) const = default;
  };
  Iterator begin() const noexcept { return {first_.load(std::memory_order_acquire)}; }
  Iterator end() const noexcept { return {nullptr}; }
  bool empty() const noexcept { return begin() == end(); }

  T& append(std::unique_ptr<T> made) {
    std::atomic<T*>* at = &first_;
    while (T* t = at->load(std::memory_order_acquire)) at = &t->next;
    at->store(made.get(), std::memory_order_release);
    return *made.release();
  }

 private:
  std::atomic<T*> first_{nullptr};
};

struct Source {
  struct Error {
    const std::string text;
    std::atomic<Error*> next{nullptr};
  };
  const std::string name;
  const FunctionSetup setup;
  std::atomic<bool> done{false};
  std::atomic<uint64_t> attempts{0};
  AppendList<Error> errors{};  // of attempts, where the text changed; kept for concurrent readers
  std::atomic<Source*> next{nullptr};

  // Of the last attempt; empty: it succeeded, or there was none.
  std::string error() const;
};

struct Group {
  const std::string name;
  std::atomic<bool> loaded{false};  // all its sources have been asked once
  AppendList<Source> sources{};
  std::atomic<Group*> next{nullptr};
};

class Sources {
 public:
  // Null: it has no provider and was not loaded.
  Group* find(std::string_view name) const noexcept;
  // Made if there is none.
  Group& group(std::string_view name);
  bool loaded(std::string_view name) const noexcept;
  // By group, then in the order of add().
  std::vector<FunctionSource> list() const;
  std::vector<std::string> groups() const;  // that have providers

  // Whether the group is loaded already: then the caller must ask the new source.
  bool add(std::string_view group, FunctionSetup setup, std::string name);
  // A source to ask that is not among `asked`: one that has not been asked yet, with `again` also one that failed.
  // Null: there is none; then, with `all` that it can have, the group is loaded.
  Source* next(Group& group, const std::vector<const Source*>& asked, bool again, bool all);
  void tried(Source& source, const Status& status);
  // The group is loaded again on next use.
  void unload(std::string_view group);
  void reset();

 private:
  struct Writers {
    std::mutex lock;
    void inherit(Writers&) noexcept {}
  };
  Group& group_locked(std::string_view name);

  AppendList<Group> groups_;
  base::OwnedPerProcess<Writers> writers_;
};

}  // namespace yard::provider
