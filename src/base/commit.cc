// SPDX-License-Identifier: Apache-2.0
#include "base/commit.h"

#include <yard/function.h>

#include "base/file.h"
#include "base/reclaimer.h"
#include "base/text.h"

namespace yard::detail {

Commit::Commit(Commit* outer, CommitKind kind)
    : outer_(outer),
      collective_(kind == CommitKind::kCollective || (outer != nullptr && outer->collective_)) {}

Commit::Choice* Commit::find(std::string_view point) noexcept {
  const auto it = by_point_.find(point);
  return it != by_point_.end() ? it->second : nullptr;
}

Commit::Choice& Commit::put(std::string_view point, std::string_view id) {
  Choice* c = find(point);
  if (c == nullptr) {
    c = &choices_.emplace_back(Choice{std::string(point), {}, 0});
    by_point_.emplace(c->point, c);
  }
  c->id = id;
  c->uses = 0;
  return *c;
}

const std::string* Commit::chosen(std::string_view point) {
  Choice* here = find(point);
  if (here == nullptr || here->id.empty()) {
    const std::string* const around = outer_ != nullptr ? outer_->chosen(point) : nullptr;
    if (around == nullptr) return nullptr;
    here = &put(point, *around);
  } else if (outer_ != nullptr && outer_->chosen(point) == nullptr) {  // it is used there, too
    outer_->note(point, here->id);
    outer_->chosen(point);
  }
  ++here->uses;
  return &here->id;
}

// As chosen(), and counts as no use.
const std::string* Commit::look(std::string_view point) noexcept {
  for (Commit* c = this; c != nullptr; c = c->outer_)
    if (const Choice* choice = c->find(point); choice != nullptr && !choice->id.empty())
      return &choice->id;
  return nullptr;
}

void Commit::seed(std::string_view point, std::string_view id) {
  const std::string* const stands = look(point);
  put(point, stands != nullptr ? *stands : id);
}

void Commit::note(std::string_view point, std::string_view id) {
  for (Commit* c = this; c != nullptr; c = c->outer_) c->put(point, id);
}

bool Commit::undo(std::string_view point) {
  for (Commit* c = this; c != nullptr; c = c->outer_) {
    const Choice* choice = c->find(point);
    if (c->collective_ || (choice != nullptr && choice->uses > 0)) return false;
  }
  for (Commit* c = this; c != nullptr; c = c->outer_)
    if (Choice* choice = c->find(point)) choice->id.clear();
  return true;
}

std::vector<CommitDecision> Commit::decisions() const {
  std::vector<CommitDecision> to;
  for (const Choice& c : choices_)
    if (!c.id.empty()) to.push_back({c.point, c.id});
  return to;
}

}  // namespace yard::detail

namespace yard {

CommitGroup::CommitGroup(const std::vector<CommitDecision>& decisions, CommitKind kind)
    : thread_(&base::this_thread()),
      commit_(std::make_unique<detail::Commit>(thread_->commit, kind)) {
  for (const CommitDecision& d : decisions) {
    if (d.point.empty() || d.chosen.empty())
      Status(Code::kInvalidArgument, "a decision needs a choice point and what was chosen")
          .or_throw();
    commit_->seed(d.point, d.chosen);
  }
  thread_->commit = commit_.get();
  thread_->scope |= detail::ThreadHead::kCommitted;
}

CommitGroup::~CommitGroup() {
  thread_->commit = commit_->outer();
  if (thread_->commit == nullptr) thread_->scope &= ~detail::ThreadHead::kCommitted;
}

CommitKind CommitGroup::kind() const noexcept {
  return commit_->collective() ? CommitKind::kCollective : CommitKind::kPlain;
}

std::vector<CommitDecision> CommitGroup::decisions() const { return commit_->decisions(); }

std::string CommitGroup::digest() const {
  std::string text;
  for (const CommitDecision& d : commit_->decisions())
    text += base::quote(d.point) + "=" + base::quote(d.chosen) + "\n";
  return base::sha256(text).value();
}

}  // namespace yard
