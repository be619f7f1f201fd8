// SPDX-License-Identifier: Apache-2.0
// Traces and recordings show which calls a program makes (docs/guides/observe.md).
//
//   yard::TraceScope trace;
//   rms_norm(h, x, w, 1e-6f).or_throw();  // runs nothing; x and h need no data
//   std::puts(trace.to_text().c_str());   // %2 = rms_norm(x=%0, weight=%1, eps=1e-6) ...
//
//   runtime.recording().to("calls.txt").or_throw();  // or YARD_RECORD=calls.txt
//
// A TraceScope checks the thread's calls in a block and writes them down instead of running them. A
// Recording counts the calls of a runtime or traces them over time (Perfetto), for some hundred
// nanoseconds per call. Neither sees calls through frozen handles.
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
  struct Arg {  // each tensor of a list is an argument: `xs[0]`, `xs[1]` and so on
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

// Functions (function.h) still run, since nothing else can compute their results.
class [[nodiscard]] TraceScope {
 public:
  YARD_API TraceScope();
  YARD_API ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;
  static void* operator new(size_t) = delete;
  static void* operator new[](size_t) = delete;

  YARD_API std::vector<TraceNode> nodes() const;
  YARD_API std::string to_text() const;
  YARD_API std::string to_json() const;

 private:
  std::unique_ptr<detail::Tracer> tracer_;
  std::shared_ptr<const detail::ScopeState> state_;
  detail::ThreadHead* thread_;
  const detail::ScopeState* outer_;
};

inline constexpr size_t kTraceEvents = 100000, kMostTraceEvents = 10000000;  // of ~100 bytes
inline constexpr size_t kMostRecorded = 65536;  // distinct calls of a recording

class Runtime;

// The recording of one runtime, valid as long as the runtime. Any thread may call any function.
class YARD_API Recording {
 public:
  struct Stats {
    std::string path;      // of the file; empty if nothing is recorded
    uint64_t calls = 0;    // recorded
    uint64_t dropped = 0;  // not recorded, since there were too many distinct ones
    size_t distinct = 0;
    std::string problem;  // why the last attempt to write the file failed; empty if it succeeded
  };

  // Counts calls from now on, and writes lines of a count, a tab and a CallSpec every few seconds
  // and at the end. Ends another recording. A forked child appends `.PID` to the name.
  Status to(const std::string& path);
  Status stop();  // no error if nothing is recorded
  Stats stats() const;

  // Level 1 prints calls and failures on stderr, level 2 also selections and transforms.
  Status set_verbose(int level);
  int verbose() const;

  // One trace at a time. Calls beyond `max_events` are counted as dropped.
  Status start_trace(size_t max_events = kTraceEvents);
  Result<std::string> stop_trace();
  bool is_tracing() const;

 private:
  friend class Runtime;
  explicit Recording(const Runtime& runtime) : runtime_(&runtime) {}
  const Runtime* runtime_;
};

// Replaces a whole file atomically, for example by the result of stop_trace(). Keeps its mode,
// follows symbolic links of root and of this user, and writes into pipes and character devices.
YARD_API Status write_file(const std::string& path, std::string_view text);

}  // namespace yard
