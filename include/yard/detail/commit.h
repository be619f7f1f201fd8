// SPDX-License-Identifier: Apache-2.0
// What a thread's commit groups have chosen (commit.h), for whoever chooses. Not for direct use.
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

  // What is chosen for the point, here or in an outer group; null: nothing yet. Counts as a use. The text
  // stays where it is as long as the group.
  YARD_API const std::string* chosen(std::string_view point);
  // Begins with a choice that was made elsewhere, unless an outer group has one. Outer groups learn of it when it is
  // used.
  YARD_API void seed(std::string_view point, std::string_view id);
  // The point has chosen, for this group and the outer ones. To be said before the chosen one runs, so that
  // calls it makes follow.
  YARD_API void note(std::string_view point, std::string_view id);
  // What note() said is void, since the chosen one failed. False if that cannot be: the choice was used
  // meanwhile, or the group is a collective one.
  YARD_API bool take_back(std::string_view point);

  // Whether it, or one around it, is declared to be one.
  bool collective() const noexcept { return collective_; }
  Commit* outer() const noexcept { return outer_; }
  YARD_API std::vector<CommitDecision> decisions() const;

 private:
  struct Choice {
    std::string point, id;  // no id: taken back
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
