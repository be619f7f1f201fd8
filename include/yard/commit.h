// SPDX-License-Identifier: Apache-2.0
// Commit groups: calls that choose together. What was chosen once inside a group stays chosen in it.
//
//   yard::CommitGroup forward;
//   y = attention(q, k, v);                                // chooses
//   ...
//   yard::CommitGroup backward(forward.decisions());       // perhaps later, perhaps on another thread
//   y = attention(q, k, v);                                // the same again, or an error: never another
//   g = attention_grad(dy);                                // the same backend, where both are functions with one key
//
//   yard::CommitGroup step(yard::CommitKind::kCollective); // every rank runs the same kernels, or none
//   all_reduce_like(x);
//   compare_with_other_ranks(step.digest());
//
// A choice point is an op with the dtypes and shapes of its inputs and the flags of the call, whatever its
// scalars; or a dispatched function, or the key that several functions share. Its first call inside a group
// chooses as calls do; later ones take what it chose, whatever health says of it since. What was chosen and cannot
// be had any more is an error. A kernel that fails is replaced only if its call was the one that chose, nobody else
// has used the choice since, and the group is no collective one. When all fail that call has chosen nothing.
#pragma once

#include <yard/status.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace yard {

namespace detail {
class Commit;
struct ThreadHead;
}  // namespace detail

enum class CommitKind {
  kPlain,       // no fallback once something is chosen
  kCollective,  // no fallback at all: a call goes to the first that accepts it, or fails
};

struct CommitDecision {
  std::string point;   // "rms_norm(f32[4,8], f32[8])@cpu", "kda/chunk_attention", or a shared key
  std::string chosen;  // a kernel's id, or a backend's name; "original": the function's own body

  bool operator==(const CommitDecision&) const = default;
};

// The calls of this thread are in the group as long as this lives. Groups nest: a choice made or used inside an inner
// group holds in the outer ones, too, and what an outer one has chosen is not chosen again. One inside a
// collective group is collective. Other threads see nothing of it: give them decisions(). Ends on the thread
// that made it, the last one first. Allocates; so does the first call of a choice point.
class [[nodiscard]] CommitGroup {
 public:
  explicit CommitGroup(CommitKind kind = CommitKind::kPlain) : CommitGroup({}, kind) {}
  // Begins with what was chosen elsewhere. Where an outer group has chosen otherwise, that stands.
  YARD_API explicit CommitGroup(const std::vector<CommitDecision>& decisions,
                                CommitKind kind = CommitKind::kPlain);
  YARD_API ~CommitGroup();
  CommitGroup(const CommitGroup&) = delete;
  CommitGroup& operator=(const CommitGroup&) = delete;
  static void* operator new(size_t) = delete;  // a block's, or part of something that is
  static void* operator new[](size_t) = delete;

  YARD_API CommitKind kind() const noexcept;
  // What was chosen or used inside it, in the order of the first use.
  YARD_API std::vector<CommitDecision> decisions() const;
  // 64 hexadecimal digits over decisions(): equal exactly when they are, to compare with other processes.
  YARD_API std::string digest() const;

 private:
  detail::ThreadHead* thread_;
  std::unique_ptr<detail::Commit> commit_;
};

}  // namespace yard
