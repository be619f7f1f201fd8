// SPDX-License-Identifier: Apache-2.0
// Tracing: the calls of a block are checked, shaped and written down instead of run.
//
//   yard::TraceScope trace;
//   rms_norm(h, x, w, 1e-6f).or_throw();        // runs nothing; x and h need no data
//   silu_and_mul(y, h).or_throw();
//   std::puts(trace.to_text().c_str());         // %2 = rms_norm(x=%0, weight=%1, eps=1e-06) ...
//
// A call that would be refused is refused here with the same words, also when no kernel could take it. A
// kernel that has a `trace` function is asked and may refuse or leave a note. Tensors are known by where
// their data is: a tensor that is written becomes a new value, and later readers of that place read it.
//
// A call of a dispatched function (yard/function.h) is written down, with the backend that was chosen and why those
// before it were not, and run: only it can say what it returns. What it calls in turn is traced as well. Under the
// master switch functions are not dispatched, and not written down. Functions that are called where tensors have no
// data must bear that, as those do that only call ops.
//
// A trace belongs to the thread that makes it; scopes entered inside of it stay traced. Frozen handles are
// outside of every scope and run.
#pragma once

#include <yard/status.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace yard {

namespace detail {
class Tracer;
struct ScopeState;
struct ThreadHead;
}  // namespace detail

// One argument of a traced call; each tensor of a list is one, named `xs[0]`, `xs[1]` and so on.
struct TraceArg {
  static constexpr int64_t kNone = -1;
  std::string name;        // empty: an argument of a function
  std::string text;        // a scalar's value, or a tensor's form: "f32[8,64]"; else a type
  int64_t reads = kNone;   // number of the value that is read
  int64_t writes = kNone;  // number of the value that is made
};

struct TraceNode {
  std::string op;      // or a function: "kda/chunk_attention"
  std::string call;    // its CallSpec: enough to explain or to run it; of a function, for people
  std::string kernel;  // that would have run; of a function, the backend that did, or "original"
  std::string
      note;  // what that kernel's trace function left; of a function, why others did not run
  std::vector<TraceArg> args;
};

class [[nodiscard]] TraceScope {
 public:
  YARD_API TraceScope();
  YARD_API ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;
  static void* operator new(size_t) = delete;  // a block's, or part of something that is
  static void* operator new[](size_t) = delete;

  // What was called so far, in order.
  YARD_API std::vector<TraceNode> nodes() const;
  // One line per node.
  YARD_API std::string to_text() const;
  // {"nodes": [{"op", "call", "kernel", "note", "args": [{"name", "text", "reads", "writes"}]}]}; null for
  // what is not read or written.
  YARD_API std::string to_json() const;

 private:
  std::unique_ptr<detail::Tracer> tracer_;
  std::shared_ptr<const detail::ScopeState> state_;
  detail::ThreadHead* thread_;
  const detail::ScopeState* outer_;
};

}  // namespace yard

// ---- Record ----
// Recordings: which calls a program makes, and how often, as text that the command reads.
//
//   runtime.record_to("calls.txt").or_throw();      // or YARD_RECORD=calls.txt in the environment
//   ...                                             // a warm-up
//   runtime.stop_recording().or_throw();
//   // yard bake --trace calls.txt --header baked.h
//
// A line of the file is a count, a tab and a CallSpec, the most frequent first. Calls that run are recorded, through
// bound handles, too; frozen handles are not seen. While nothing is recorded nothing is paid; while something is,
// a call costs some hundred nanoseconds more.

namespace yard {

// Distinct calls that a recording holds. Further ones are counted as dropped.
inline constexpr size_t kMostRecorded = 65536;

struct RecordingStats {
  std::string path;      // of the file; empty: nothing is recorded
  uint64_t calls = 0;    // that are in it
  uint64_t dropped = 0;  // that are not, since there were too many distinct ones
  size_t distinct = 0;
  std::string
      problem;  // why the file could not be written when that was last tried; empty: it could
};

}  // namespace yard
