// SPDX-License-Identifier: Apache-2.0
// Tracing and recording: which calls a program makes.
//
// A TraceScope checks the calls of a block, infers their shapes and records them, instead of running them:
//
//   yard::TraceScope trace;
//   rms_norm(h, x, w, 1e-6f).or_throw();        // runs nothing; x and h need no data
//   silu_and_mul(y, h).or_throw();
//   std::puts(trace.to_text().c_str());         // %2 = rms_norm(x=%0, weight=%1, eps=1e-6) ...
//
// A call that would be refused is refused with the same message. A kernel with a `trace` function may refuse the call or add
// a note. Tensors are identified by the address of their data: a tensor that is written becomes a new value, which later
// readers of that address read. A trace belongs to the thread that makes it. Frozen handles ignore scopes, and run.
//
// A call of a dispatched function (yard/function.h) is recorded, with the backend that was chosen and why earlier ones
// were not, and is also run, since only the function can compute its result. What it calls is traced. While the master
// switch disables functions they are neither dispatched nor recorded.
//
// A Recording writes what a runtime does: its calls with their counts, as text that the command reads, or over time, in the
// format that Perfetto and Chrome's tracing page open. Each costs some hundred nanoseconds per call, and nothing when it is
// off. Calls through bound handles are included, calls through frozen handles are not.
//
//   runtime.recording().to("calls.txt").or_throw();  // or YARD_RECORD=calls.txt in the environment
//   ...                                              // a warm-up
//   runtime.recording().stop().or_throw();           // yard bake --trace calls.txt --header baked.h
//
//   runtime.recording().start_trace().or_throw();
//   ...
//   std::ofstream("trace.json") << runtime.recording().stop_trace().value();
#pragma once

#include <yard/status.h>

#include <memory>
#include <vector>

namespace yard {

namespace detail {
class Tracer;
struct ScopeState;
struct ThreadHead;
}  // namespace detail

struct TraceNode {
  // Each tensor of a list is an argument: `xs[0]`, `xs[1]` and so on.
  struct Arg {
    static constexpr int64_t kNone = -1;
    std::string name;        // empty for arguments of functions
    std::string text;        // the value of a scalar, the form of a tensor ("f32[8,64]"), or a type
    int64_t reads = kNone;   // number of the value that is read
    int64_t writes = kNone;  // number of the value that is written
  };
  std::string op;      // or a function: "kda/chunk_attention"
  std::string call;    // its CallSpec, which can be explained or run; of a function, a description
  std::string kernel;  // that would have run; of a function, the backend that ran, or "original"
  std::string note;    // from the kernel's trace function; of a function, why others did not run
  std::vector<Arg> args;
};

class [[nodiscard]] TraceScope {
 public:
  YARD_API TraceScope();
  YARD_API ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;
  static void* operator new(size_t) = delete;  // only with automatic storage
  static void* operator new[](size_t) = delete;

  // The calls so far, in order.
  YARD_API std::vector<TraceNode> nodes() const;
  YARD_API std::string to_text() const;
  // {"nodes": [{"op", "call", "kernel", "note", "args": [{"name", "text", "reads", "writes"}]}]}; null where nothing is
  // read or written.
  YARD_API std::string to_json() const;

 private:
  std::unique_ptr<detail::Tracer> tracer_;
  std::shared_ptr<const detail::ScopeState> state_;
  detail::ThreadHead* thread_;
  const detail::ScopeState* outer_;
};

// Of Recording::start_trace(): about 100 bytes each; rounded up to chunks of a thread.
inline constexpr size_t kTraceEvents = 100000, kMostTraceEvents = 10000000;

// The most distinct calls of a recording; further ones are dropped.
inline constexpr size_t kMostRecorded = 65536;

class Runtime;

// What one runtime writes about its calls; valid as long as the runtime. Any thread may call any function.
class YARD_API Recording {
 public:
  struct Stats {
    std::string path;      // of the file; empty if nothing is recorded
    uint64_t calls = 0;    // recorded
    uint64_t dropped = 0;  // not recorded, since there were too many distinct ones
    size_t distinct = 0;
    std::string problem;  // why the last attempt to write the file failed; empty if it succeeded
  };

  // Counts calls from now on and writes them to the file: every few seconds, at the end of the recording and of the process.
  // A line is a count, a tab and a CallSpec, the most frequent first. Ends another recording. A file that cannot be written
  // is an error at once; an existing one is replaced with the first call. A forked child continues in a file of that name
  // with `.PID` appended.
  Status to(const std::string& path);
  Status stop();  // no error if nothing is recorded
  Stats stats() const;

  // Level 1 prints a line on standard error for each call, `yard,exec,rms_norm,default.simd,f32[8,4096] f32[4096],hit,12.4us`,
  // which `yard run` and `yard explain` read, and one for each failure of a kernel; level 2 also for selections and
  // transforms; level 0 none. At the start it is YARD_VERBOSE. Lines are buffered for some milliseconds.
  Status set_verbose(int level);
  int verbose() const;

  // A trace has spans for calls and selections, by thread, and instants for failures of kernels, reloads, rollouts and
  // changes of breakers. Beyond `max_events` further calls are counted as dropped. One trace at a time.
  Status start_trace(size_t max_events = kTraceEvents);
  Result<std::string> stop_trace();
  bool is_tracing() const;

 private:
  friend class Runtime;
  explicit Recording(const Runtime& runtime) : runtime_(&runtime) {}
  const Runtime* runtime_;
};

}  // namespace yard
