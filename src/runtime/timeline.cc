// SPDX-License-Identifier: Apache-2.0
// Events of calls are kept in chunks of one thread each, which it fills without a lock; texts are made once.
#include "runtime/timeline.h"

#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>
#include <yard/runtime.h>

#include <iterator>

#include "base/out_of_memory.h"
#include "base/text.h"
#include "dispatch/core.h"
#include "dispatch/policy_changes.h"
#include "op/call.h"
#include "op/call_key.h"

namespace yard::runtime {
namespace {

constexpr size_t kMostTracedChanges = 10000;

uint64_t next_timeline() noexcept {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

struct Timeline::Event {
  enum class Kind : uint8_t { kKernel, kSelection, kFailure };
  int64_t start_ns, took_ns;  // since the trace began
  const std::string *call, *kernel;
  const std::string* message;  // of a failure
  std::string op() const { return call->substr(0, call->find('(')); }
  Kind kind;
  Mode mode;
  bool selected, fell_back;
  int64_t copied_ns;  // of `took_ns`, for transforms
};

struct Timeline::Chunk {
  static constexpr uint32_t kEvents = 256;
  pid_t thread = ::gettid();
  std::atomic<uint32_t> used{0};
  Event events[kEvents];
};

namespace {

// The chunk that a thread fills; `timeline` says whether it still exists.
struct Mine {
  uint64_t timeline = 0;
  void* chunk = nullptr;
};
thread_local Mine t_mine;

}  // namespace

Timeline::Timeline(const TraceSettings& settings)
    : id_(next_timeline()), most_(settings.max_events) {}
Timeline::~Timeline() = default;

Timeline::Event* Timeline::next() {
  auto* chunk = t_mine.timeline == id_ ? static_cast<Chunk*>(t_mine.chunk) : nullptr;
  if (chunk == nullptr || chunk->used.load(std::memory_order_relaxed) == Chunk::kEvents) {
    const std::lock_guard lock(lock_);
    if ((chunks_.size() + 1) * Chunk::kEvents > most_ + Chunk::kEvents - 1) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return nullptr;
    }
    chunks_.push_back(std::make_unique<Chunk>());
    chunk = chunks_.back().get();
    t_mine = {id_, chunk};
  }
  return &chunk->events[chunk->used.load(std::memory_order_relaxed)];
}

void Timeline::publish() noexcept {
  auto& used = static_cast<Chunk*>(t_mine.chunk)->used;
  used.store(used.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

const std::string& Timeline::text_of(const registry::ObservedCall& call) {
  thread_local std::string key;
  op::make_call_key(call.program, call.args, call.flags, key);
  op::add_to_key(call.index, key);
  op::add_to_key(call.labels, key);
  return texts_.find(key, [&] {
    const op::Call captured = op::Call::capture(call.program, call.args, call.flags, call.labels);
    return op::to_string(captured.to_spec(call.program));
  });
}

void Timeline::seen(const registry::ObservedCall& call) noexcept {
  if (forked_.load(std::memory_order_relaxed)) return;
  base::if_memory_allows([&] {
    const auto name = [&](const std::string& text) -> const std::string& {
      return texts_.find(text, [&] { return text; });
    };
    const int64_t start = (call.start - start_).count();
    Event e{.start_ns = start,
            .took_ns = call.took.count(),
            .call = &text_of(call),
            .kernel = &name(call.kernel != nullptr ? call.kernel->id : std::string()),
            .message = nullptr,
            .kind = Event::Kind::kKernel,
            .mode = call.record.mode,
            .selected = call.selected,
            .fell_back = !call.failures.empty(),
            .copied_ns = call.record.pre_ns + call.record.post_ns};
    const auto put = [&](const Event& event) {
      if (Event* const to = next()) *to = event, publish();
    };
    put(e);
    if (call.selected) {
      Event selection = e;
      selection.kind = Event::Kind::kSelection;
      selection.took_ns = call.select_ns, selection.start_ns = start - call.select_ns;
      put(selection);
    }
    for (const registry::ObservedCall::Failure& f : call.failures) {
      Event failure = e;
      failure.kind = Event::Kind::kFailure;
      failure.kernel = &name(f.kernel.id);
      failure.message = &name(fmt::format("{}: {}", to_string(f.error), f.message));
      put(failure);
    }
  });
}

void Timeline::add(Change change) {
  const std::lock_guard lock(lock_);
  if (changes_.size() < kMostTracedChanges)
    changes_.push_back(std::move(change));
  else
    dropped_.fetch_add(1, std::memory_order_relaxed);
}

void Timeline::changed(const ConfigEvent& event) {
  using Kind = ConfigEvent::Kind;
  const bool rollout = event.kind == Kind::kRollout || event.kind == Kind::kTakenBack;
  add({Clock::now(), rollout ? "rollout" : "reload", to_string(event.kind), to_string(event)});
}

void Timeline::changed(const BreakerEvent& event) {
  add({event.at, "breaker",
       fmt::format("{} {}", event.kernel.empty() ? event.subject : event.kernel,
                   to_string(event.kind)),
       to_string(event)});
}

std::string Timeline::to_json() {
  using base::json_string;
  const std::lock_guard lock(lock_);
  const auto pid = ::getpid();
  std::string to = R"({"displayTimeUnit": "ns", "traceEvents": [)";
  to += fmt::format(
      R"({{"name": "process_name", "ph": "M", "pid": {}, "tid": 0, "args": {{"name": {}}}}})", pid,
      json_string(program_invocation_short_name));
  const auto out = std::back_inserter(to);
  const auto us = [](int64_t ns) { return static_cast<double>(ns) / 1000; };
  uint64_t events = 0;
  for (const auto& chunk : chunks_) {
    const uint32_t used = chunk->used.load(std::memory_order_acquire);
    events += used;
    for (const Event* e = chunk->events; e != chunk->events + used; ++e) {
      switch (e->kind) {
        case Event::Kind::kKernel:
          fmt::format_to(
              out,
              ",\n"
              R"({{"name": {}, "cat": "kernel", "ph": "X", "ts": {:.3f}, "dur": {:.3f}, "pid": {}, "tid": {}, )"
              R"("args": {{"call": {}, "kernel": {}, "mode": "{}", "hit": {}, "fallback": {}, "transforms_us": {:.3f}}}}})",
              json_string(e->op()), us(e->start_ns), us(e->took_ns), pid, chunk->thread,
              json_string(*e->call), json_string(*e->kernel), yard::to_string(e->mode),
              !e->selected, e->fell_back, us(e->copied_ns));
          break;
        case Event::Kind::kSelection:
          fmt::format_to(
              out,
              ",\n"
              R"({{"name": {}, "cat": "selection", "ph": "X", "ts": {:.3f}, "dur": {:.3f}, "pid": {}, "tid": {}, )"
              R"("args": {{"call": {}, "kernel": {}, "mode": "{}"}}}})",
              json_string("select " + e->op()), us(e->start_ns), us(e->took_ns), pid, chunk->thread,
              json_string(*e->call), json_string(*e->kernel), yard::to_string(e->mode));
          break;
        case Event::Kind::kFailure:
          fmt::format_to(
              out,
              ",\n"
              R"({{"name": {}, "cat": "fallback", "ph": "i", "s": "t", "ts": {:.3f}, "pid": {}, "tid": {}, )"
              R"("args": {{"op": {}, "call": {}, "kernel": {}, "error": {}}}}})",
              json_string(*e->kernel + " failed"), us(e->start_ns), pid, chunk->thread,
              json_string(e->op()), json_string(*e->call), json_string(*e->kernel),
              json_string(*e->message));
          break;
      }
    }
  }
  for (const Change& c : changes_)
    fmt::format_to(
        out,
        ",\n"
        R"({{"name": {}, "cat": "{}", "ph": "i", "s": "p", "ts": {:.3f}, "pid": {}, "tid": 0, "args": {{"text": {}}}}})",
        json_string(c.name), c.category, us((c.at - start_).count()), pid, json_string(c.text));
  fmt::format_to(out,
                 "\n], \"otherData\": {{\"events\": {}, \"changes\": {}, \"dropped\": {}, "
                 "\"seconds\": {:.3f}}}}}\n",
                 events, changes_.size(), dropped_.load(std::memory_order_relaxed),
                 std::chrono::duration<double>(Clock::now() - start_).count());
  return to;
}

}  // namespace yard::runtime

namespace yard {

Status Runtime::start_trace(const TraceSettings& settings) {
  if (settings.max_events == 0 || settings.max_events > kMostTraceEvents)
    return Status(Code::kInvalidArgument,
                  fmt::format("invalid max_events: expected 1 to {}, got {}", kMostTraceEvents,
                              settings.max_events));
  return base::or_out_of_memory([&]() -> Status {
    if (is_tracing()) return Status(Code::kConflict, "a trace is running; stop it first");
    auto made = std::make_shared<runtime::Timeline>(settings);
    // Listeners may outlast the trace by one event.
    made->config_listener = on_config([made = std::weak_ptr(made)](const ConfigEvent& e) {
      if (const auto t = made.lock()) t->changed(e);
    });
    made->breaker_listener = health().on_event([made = std::weak_ptr(made)](const BreakerEvent& e) {
      if (const auto t = made.lock()) t->changed(e);
    });
    Status s = detail::replace_observer(core(), nullptr, made);
    if (!s.ok()) {
      remove_config_callback(made->config_listener);
      health().remove_listener(made->breaker_listener);
    }
    return s;
  });
}

Result<std::string> Runtime::stop_trace() {
  const auto timeline = detail::find_observer<runtime::Timeline>(core());
  if (timeline == nullptr) return Status(Code::kNotFound, "no trace is running");
  return base::or_out_of_memory([&]() -> Result<std::string> {
    if (Status ended = detail::replace_observer(core(), timeline, nullptr); !ended.ok())
      return ended;
    remove_config_callback(timeline->config_listener);
    health().remove_listener(timeline->breaker_listener);
    return timeline->to_json();
  });
}

bool Runtime::is_tracing() const {
  return detail::find_observer<runtime::Timeline>(core()) != nullptr;
}

}  // namespace yard
