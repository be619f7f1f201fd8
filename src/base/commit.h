// SPDX-License-Identifier: Apache-2.0
// What the commit groups of a thread have chosen (yard/function.h). Not for direct use.
//
//   detail::Commit* group = detail::current_commit();            // null outside of any: one load
//   if (group != nullptr)
//     if (const std::string* id = group->chosen(point)) ...      // take it, or fail
//     else group->note(point, id_that_was_chosen);               // before it runs
#pragma once

#include <yard/detail/guard.h>
#include <yard/function.h>

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

namespace yard::detail {

// One group. Used by its thread alone.
class Commit {
 public:
  YARD_API Commit(Commit* outer, CommitKind kind);
  Commit(const Commit&) = delete;
  Commit& operator=(const Commit&) = delete;

  // The choice of the point, here or in an outer group; null: none yet. Counts as a use. Valid as long as the group.
  YARD_API const std::string* chosen(std::string_view point);
  // Starts with a choice that was made elsewhere, unless an outer group has one. Recorded in outer groups when used.
  YARD_API void seed(std::string_view point, std::string_view id);
  // Records a choice in this group and the outer ones. Before the chosen one runs, so that calls it makes follow.
  YARD_API void note(std::string_view point, std::string_view id);
  // Undoes note() after the chosen one failed. False: not possible, because another call has used the choice or the
  // group is collective.
  YARD_API bool undo(std::string_view point);

  // Whether it or an outer group is collective.
  bool collective() const noexcept { return collective_; }
  Commit* outer() const noexcept { return outer_; }
  YARD_API std::vector<CommitDecision> decisions() const;

 private:
  struct Choice {
    std::string point, id;  // no id: undone
    uint64_t uses = 0;      // after the one that made it
  };
  Choice* find(std::string_view point) noexcept;
  const std::string* look(std::string_view point) noexcept;
  Choice& put(std::string_view point, std::string_view id);

  Commit* const outer_;
  const bool collective_;
  std::deque<Choice> choices_;  // in the order they were made; none moves
  std::unordered_map<std::string_view, Choice*> by_point_;
};

// The innermost group this thread is in; null: none.
inline Commit* current_commit() noexcept {
  const ThreadHead* const thread = t_thread;
  return thread != nullptr ? thread->commit : nullptr;
}

}  // namespace yard::detail
