// SPDX-License-Identifier: Apache-2.0
// Lines are put into buffers, so that no call waits for the terminal, and are written by a thread that sleeps while there
// are none.
#include "runtime/verbose.h"

#include <fmt/format.h>
#include <unistd.h>
#include <yard/log.h>
#include <yard/runtime.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <string>

#include "base/background.h"
#include "base/fork.h"
#include "base/out_of_memory.h"
#include "dispatch/core.h"
#include "dispatch/policy_changes.h"
#include "op/call.h"
#include "op/call_key.h"
#include "op/verbose_line.h"

namespace yard::runtime {
namespace {

void write_all(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

// Of the process: lines of all runtimes go the same way.
class LineBuffers {
 public:
  void add(std::string_view line) {
    const auto thread = reinterpret_cast<uintptr_t>(detail::t_thread);
    Shard& s = shards_[(thread * 0x9e3779b97f4a7c15u) >> 60];
    bool first, full;
    {
      const std::lock_guard lock(s.lock);
      first = s.lines.empty();
      s.lines += line;
      full = s.lines.size() >= kFull;
    }
    if (full) return write(s);
    if (first && !due_.exchange(true, std::memory_order_acq_rel)) wake();
  }

  void flush() {
    due_.store(false, std::memory_order_release);
    for (Shard& s : shards_) write(s);
  }

 private:
  static constexpr size_t kFull = 64 << 10;
  static constexpr auto kLinger = std::chrono::milliseconds(10);
  struct alignas(64) Shard {
    std::mutex lock;
    std::string lines;
  };

  // Takes the lines while it may write: those of a thread stay in order.
  void write(Shard& s) {
    const std::lock_guard writing(writing_);
    std::string lines;
    {
      const std::lock_guard lock(s.lock);
      lines.swap(s.lines);
    }
    write_all(lines);
  }
  void wake() {
    const std::lock_guard lock(state_);
    ++woken_;
    if (thread_ == nullptr) {
      auto begun = base::BackgroundThread::start(
          "yard-verbose", [this] { run(); }, [this] { halt(); });
      if (begun.ok()) thread_ = *std::move(begun);
    }
    more_.notify_all();
  }
  void halt() {
    const std::lock_guard lock(state_);
    halted_ = true;
    more_.notify_all();
  }
  void run() {
    for (uint64_t seen = 0;;) {
      std::unique_lock lock(state_);
      more_.wait(lock, [&] { return halted_ || woken_ != seen; });
      seen = woken_;
      more_.wait_for(lock, kLinger, [&] { return halted_; });
      const bool last = halted_;
      lock.unlock();
      flush();
      if (last) return;
    }
  }

  std::array<Shard, 16> shards_;
  std::mutex writing_;
  std::atomic<bool> due_{false};  // some line waits, and the thread knows
  std::mutex state_;
  std::condition_variable more_;
  uint64_t woken_ = 0;                              // under state_
  bool halted_ = false;                             // under state_
  std::shared_ptr<base::BackgroundThread> thread_;  // under state_
};

namespace {

constinit base::PerProcess<LineBuffers> g_lines;

// 812ns, 12.4us, 3.1ms, 12.0s
struct Time {
  explicit Time(std::chrono::nanoseconds t) : ns(std::max<int64_t>(t.count(), 0)) {}
  int64_t ns;
};
void put(fmt::memory_buffer& to, Time t) {
  const auto out = std::back_inserter(to);
  if (t.ns < 1000)
    fmt::format_to(out, "{}ns", t.ns);
  else if (t.ns < 1000000)
    fmt::format_to(out, "{}.{}us", t.ns / 1000, t.ns / 100 % 10);
  else if (t.ns < 1000000000)
    fmt::format_to(out, "{}.{}ms", t.ns / 1000000, t.ns / 100000 % 10);
  else
    fmt::format_to(out, "{}.{}s", t.ns / 1000000000, t.ns / 100000000 % 10);
}

}  // namespace

void flush_verbose_lines() noexcept {
  base::if_memory_allows([] { g_lines.get().flush(); });
}

Verbose::Verbose(int lines)
    : level(lines), texts_(new telemetry::CallTexts), lines_(&g_lines.get()) {}
Verbose::~Verbose() { delete texts_.load(std::memory_order_acquire); }

void Verbose::forked() noexcept {
  texts_.store(new telemetry::CallTexts, std::memory_order_release);
  lines_.store(&g_lines.get(), std::memory_order_release);
}

const std::string& Verbose::arguments(const registry::ObservedCall& call) {
  thread_local std::string key;
  op::make_call_key(call.program, call.args, call.flags, key);
  op::add_to_key(call.index, key);
  op::add_to_key(call.labels, key);
  return texts_.load(std::memory_order_acquire)->find(key, [&] {
    const op::Call captured = op::Call::capture(call.program, call.args, call.flags, call.labels);
    return op::verbose_arguments(captured.to_spec(call.program));
  });
}

void Verbose::seen(const registry::ObservedCall& call) noexcept {
  base::if_memory_allows([&] {
    const std::string& args = arguments(call);
    const std::string& op = call.program.name();
    fmt::memory_buffer to;
    const auto start = [&](std::string_view what, std::string_view kernel) {
      for (const std::string_view part :
           {std::string_view("yard,"), what, std::string_view(","), std::string_view(op),
            std::string_view(","), kernel, std::string_view(","), std::string_view(args),
            std::string_view(",")})
        to.append(part);
    };
    const auto end = [&](std::string_view result, int64_t ns) {
      to.append(result), to.push_back(',');
      put(to, Time(std::chrono::nanoseconds(ns)));
      to.push_back('\n');
    };
    std::string_view kernel = "none";
    if (call.kernel != nullptr) kernel = call.kernel->id;
    if (level > 1 && call.selected) {
      start("select", kernel);
      end(to_string(call.record.mode), call.select_ns);
    }
    for (const registry::ObservedCall::Failure& f : call.failures) {
      std::string message = printable(f.message, 200);
      std::replace(message.begin(), message.end(), ',', ';');
      start("fail", f.kernel.id);
      to.append(std::string_view(to_string(f.error))), to.push_back(',');
      to.append(message), to.push_back('\n');
    }
    const int64_t copied = call.record.pre_ns + call.record.post_ns;
    if (level > 1 && copied > 0) {
      start("transform", kernel);
      to.append(std::string_view("before "));
      put(to, Time(std::chrono::nanoseconds(call.record.pre_ns)));
      to.append(std::string_view(" after "));
      put(to, Time(std::chrono::nanoseconds(call.record.post_ns)));
      end("", copied);
    }
    start("exec", kernel);
    end(call.kernel == nullptr   ? "failed"
        : !call.failures.empty() ? "fallback"
        : call.selected          ? "miss"
                                 : "hit",
        call.took.count());
    lines_.load(std::memory_order_acquire)->add({to.data(), to.size()});
  });
}

}  // namespace yard::runtime

namespace yard {

Status Runtime::set_verbose(int level) {
  if (level < 0 || level > 2)
    return Status(Code::kInvalidArgument,
                  fmt::format("invalid verbose level: expected 0, 1 or 2, got {}", level));
  return base::or_out_of_memory([&]() -> Status {
    const auto now = detail::find_observer<runtime::Verbose>(core());
    if ((now != nullptr ? now->level : 0) == level) return {};
    YARD_RETURN_IF_ERROR(detail::replace_observer(
        core(), now, level > 0 ? std::make_shared<runtime::Verbose>(level) : nullptr));
    if (level == 0) runtime::flush_verbose_lines();
    return {};
  });
}

int Runtime::verbose() const {
  const auto now = detail::find_observer<runtime::Verbose>(core());
  return now != nullptr ? now->level : 0;
}

}  // namespace yard
