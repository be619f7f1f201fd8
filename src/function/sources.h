// SPDX-License-Identifier: Apache-2.0
// The providers of lazy groups, and how far each is.
//
// Lists only grow, their nodes live as long as the registry, and what changes of a node is atomic: whoever reads
// takes no lock, so that a forked child has all of it, whatever another thread of the parent was doing. The lock is
// for writers; the child has one of its own.
#pragma once

#include <yard/function.h>

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/owned_per_process.h"

namespace yard::function {

struct Source {
  Source(std::string n, FunctionSetup s) : name(std::move(n)), setup(std::move(s)) {}
  ~Source();
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  const std::string name;
  const FunctionSetup setup;
  std::atomic<bool> done{false};
  std::atomic<uint64_t> attempts{0};
  std::atomic<Source*> next{nullptr};

  // What the last attempt said; empty: it went well, or there was none.
  std::string error() const;

 private:
  friend class Sources;
  struct Text {
    const std::string text;
    const Text* const before;  // kept for whoever reads it still
  };
  std::atomic<const Text*> error_{nullptr};
  void say(std::string text);
};

struct Group {
  explicit Group(std::string n) : name(std::move(n)) {}
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::string name;
  std::atomic<bool> loaded{false};  // all of it has been asked once
  std::atomic<Source*> first{nullptr};
  std::atomic<Group*> next{nullptr};
};

class Sources {
 public:
  Sources() = default;
  ~Sources();
  Sources(const Sources&) = delete;
  Sources& operator=(const Sources&) = delete;

  // Null: nobody has provided or loaded it.
  Group* find(std::string_view name) const noexcept;
  // Made where there is none.
  Group& group(std::string_view name);
  bool loaded(std::string_view name) const noexcept;
  // By group, those of one in the order in which they came.
  std::vector<FunctionSource> list() const;
  std::vector<std::string> groups() const;  // that have providers

  // Whether the group is loaded already: then nobody else will ask it.
  bool add(std::string_view group, FunctionSetup setup, std::string name);
  // One to ask that is not among `asked`: one that never was, with `again` also one that failed. Null: none is left;
  // then, and with `all` that it can have, the group is loaded.
  Source* next(Group& group, const std::vector<const Source*>& asked, bool again, bool all);
  void tried(Source& source, const Status& status);
  // The group is loaded again when it is next needed.
  void unload(std::string_view group);
  void start_over();

 private:
  struct Writers {
    std::mutex lock;
    void inherit(Writers&) noexcept {}
  };
  Group& group_locked(std::string_view name);

  std::atomic<Group*> first_{nullptr};
  base::OwnedPerProcess<Writers> writers_;
};

}  // namespace yard::function
