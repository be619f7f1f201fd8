// SPDX-License-Identifier: Apache-2.0
// A trace of what a runtime does over time, for Perfetto (yard/trace.h). Each thread fills its own
// chunks with events, without a lock.
#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>
#include <yard/runtime.h>
#include <yard/trace.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/events.h"
#include "base/json.h"
#include "base/mutex.h"
#include "base/results.h"
#include "base/stopwatch.h"
#include "dispatch/core.h"
#include "dispatch/policy_changes.h"
#include "runtime/observed_text.h"

namespace yard::runtime {
namespace {

struct Event {
  enum class Kind : uint8_t { kKernel, kSelection, kFailure };
  int64_t start = 0, end = 0;         // base::steady_ns()
  const std::string* text = nullptr;  // "KERNEL CALL"
  std::string message = {};           // of a failure
  std::string_view kernel() const { return std::string_view(*text).substr(0, text->find(' ')); }
  std::string_view call() const { return std::string_view(*text).substr(text->find(' ') + 1); }
  std::string_view op() const { return call().substr(0, call().find('(')); }
  Kind kind = Kind::kKernel;
  Mode mode = Mode::kDynamic;
  bool selected = false, fell_back = false;
  int64_t copied_ns = 0;  // for transforms
};

struct Chunk {
  static constexpr uint32_t kEvents = 256;
  pid_t thread = ::gettid();
  std::atomic<uint32_t> used{0};
  Event events[kEvents];
};

// The chunk that this thread fills. The chunk exists only if `timeline` is still the current one.
thread_local constinit struct {
  uint64_t timeline = 0;
  Chunk* chunk = nullptr;
} t_mine;

class Timeline final : public registry::CallObserver {
 public:
  explicit Timeline(size_t max_events) : most_(max_events) {}

  void seen(const registry::ObservedCall& call) noexcept override {
    if (forked_.load(std::memory_order_relaxed)) return;
    base::or_out_of_memory([&] {
      const auto text_with = [&](std::string_view kernel) {
        const ObservedTexts::Text& found = texts_.find(call, kernel, [&](const op::CallSpec& spec) {
          return fmt::format("{} {}", kernel, op::to_string(spec));
        });
        return &found.text;
      };
      Event e{.start = call.start,
              .end = call.end,
              .text = text_with(call.kernel != nullptr ? call.kernel->id : std::string_view()),
              .mode = call.mode,
              .selected = call.selected,
              .fell_back = !call.failures.empty(),
              .copied_ns = call.pre_ns + call.post_ns};
      put(e);
      if (call.selected) {
        Event selection = e;
        selection.kind = Event::Kind::kSelection;
        selection.start = call.start - call.select_ns, selection.end = call.start;
        put(selection);
      }
      e.kind = Event::Kind::kFailure;
      for (const registry::ObservedCall::Failure& f : call.failures) {
        e.text = text_with(f.kernel.id);
        e.message = fmt::format("{}: {}", to_string(f.error), f.message);
        put(e);
      }
    }).ignore();
  }

  std::string to_json(uint64_t runtime) {
    using base::JsonObject;
    const std::vector<base::Event> all = base::events();
    const std::lock_guard lock(lock_);
    const auto pid = ::getpid();
    const auto us = [](int64_t ns) { return static_cast<double>(ns) / 1000; };
    const auto event = [&](std::string_view name, std::string_view category, std::string_view phase,
                           int64_t ns, pid_t thread) {
      JsonObject to;
      to.add("name", name).add("cat", category).add("ph", phase).add("ts", us(ns));
      return to.add("pid", pid).add("tid", thread);
    };
    JsonObject process;
    process.add("name", "process_name").add("ph", "M").add("pid", pid).add("tid", 0);
    process.add_json("args", JsonObject().add("name", program_invocation_short_name).text());
    std::string to = R"({"displayTimeUnit": "ns", "traceEvents": [)" + process.text();
    const auto put_event = [&](JsonObject fields, const JsonObject& args) {
      to += ",\n" + fields.add_json("args", args.text()).text();
    };
    uint64_t events = 0;
    for (const auto& chunk : chunks_) {
      const uint32_t used = chunk->used.load(std::memory_order_acquire);
      events += used;
      for (const Event& e : std::span(chunk->events, used)) {
        const int64_t start = e.start - start_;  // negative if a selection began before the trace
        const double duration = us(e.end - e.start);
        JsonObject args;
        args.add("call", e.call()).add("kernel", e.kernel());
        if (e.kind == Event::Kind::kKernel) {
          args.add("mode", yard::to_string(e.mode)).add("hit", !e.selected);
          args.add("fallback", e.fell_back).add("transforms_us", us(e.copied_ns));
          put_event(event(e.op(), "kernel", "X", start, chunk->thread).add("dur", duration), args);
        } else if (e.kind == Event::Kind::kSelection) {
          const std::string name = fmt::format("select {}", e.op());
          args.add("mode", yard::to_string(e.mode));
          put_event(event(name, "selection", "X", start, chunk->thread).add("dur", duration), args);
        } else {
          const std::string name = fmt::format("{} failed", e.kernel());
          args.add("op", e.op()).add("error", e.message);
          put_event(event(name, "fallback", "i", start, chunk->thread).add("s", "t"), args);
        }
      }
    }
    uint64_t changes = 0;
    for (const base::Event& e : all) {
      if (e.runtime != runtime || e.at < began_) continue;
      ++changes;
      const auto at = std::chrono::nanoseconds(e.at - began_).count();
      JsonObject args;
      args.add("subject", e.subject);
      if (!e.reason.empty()) args.add("reason", e.reason);
      if (!e.who.empty()) args.add("who", e.who);
      put_event(event(e.kind->name, e.kind->group, "i", at, 0).add("s", "p"), args);
    }
    JsonObject other;
    other.add("events", events).add("changes", changes).add("dropped", dropped_.load());
    other.add("seconds", static_cast<double>(base::steady_ns() - start_) * 1e-9);
    return to + "\n], \"otherData\": " + other.text() + "}\n";
  }

 private:
  void put(const Event& event) {
    auto* chunk = t_mine.timeline == id_ ? t_mine.chunk : nullptr;
    if (chunk == nullptr || chunk->used.load(std::memory_order_relaxed) == Chunk::kEvents) {
      chunk = full_.load(std::memory_order_relaxed) ? nullptr : add_chunk();
      if (chunk == nullptr) return void(dropped_.fetch_add(1, std::memory_order_relaxed));
      t_mine.timeline = id_, t_mine.chunk = chunk;
    }
    const uint32_t used = chunk->used.load(std::memory_order_relaxed);
    chunk->events[used] = event;
    chunk->used.store(used + 1, std::memory_order_release);
  }

  // Returns null if there are too many events.
  Chunk* add_chunk() {
    const std::lock_guard lock(lock_);
    if (chunks_.size() * Chunk::kEvents < most_)
      return chunks_.emplace_back(std::make_unique<Chunk>()).get();
    full_.store(true, std::memory_order_relaxed);
    return nullptr;
  }

  const uint64_t id_ = unique_number();
  const int64_t start_ = base::steady_ns();
  const std::chrono::system_clock::time_point began_ = std::chrono::system_clock::now();
  const size_t most_;  // how many events
  std::atomic<uint64_t> dropped_{0};
  std::atomic<bool> full_{false}, forked_{false};
  ObservedTexts texts_;

  base::Mutex lock_{base::Rank::kOutputShard};
  std::vector<std::unique_ptr<Chunk>> chunks_;
  // A forked child records nothing, because the trace belongs to its parent.
  const base::InChild in_child_{[this] { forked_.store(true, std::memory_order_relaxed); }};
};

}  // namespace
}  // namespace yard::runtime

namespace yard {

Status Recording::start_trace(size_t max_events) {
  if (max_events == 0 || max_events > kMostTraceEvents)
    return base::invalid("invalid max_events: expected 1 to {}, got {}", kMostTraceEvents,
                         max_events);
  return base::or_out_of_memory([&]() -> Status {
    if (is_tracing()) return Status(Code::kConflict, "a trace is running; stop it first");
    return runtime_->core().published.replace_observer(
        nullptr, std::make_shared<runtime::Timeline>(max_events));
  });
}

Result<std::string> Recording::stop_trace() {
  const auto timeline = dispatch::find_observer<runtime::Timeline>(runtime_->core());
  if (timeline == nullptr) return Status(Code::kNotFound, "no trace is running");
  return base::or_out_of_memory([&]() -> Result<std::string> {
    YARD_RETURN_IF_ERROR(runtime_->core().published.replace_observer(timeline, nullptr));
    return timeline->to_json(runtime_->core().id);
  });
}

bool Recording::is_tracing() const {
  return dispatch::find_observer<runtime::Timeline>(runtime_->core()) != nullptr;
}

}  // namespace yard
