// SPDX-License-Identifier: Apache-2.0
// Verbose runtimes: a thread writes a line on standard error for each call (op/call_spec.h).
#include <fmt/format.h>
#include <yard/log.h>
#include <yard/runtime.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/results.h"
#include "base/tasks.h"
#include "dispatch/core.h"
#include "dispatch/policy_changes.h"
#include "op/call_spec.h"
#include "runtime/observed_text.h"

namespace yard::runtime {
namespace {

// The lines of all runtimes of the process. Neither a call nor the thread waits for standard error:
// lines that it does not take yet are kept up to a limit, and further lines are dropped and
// counted. A forked child drops the lines of its parent.
class LineBuffer {
 public:
  void add(std::string_view lines) {
    std::unique_lock lock(lock_);
    if (lines_.size() + lines.size() > kMost) return base::count_dropped_lines(lines);
    lines_ += lines;
    const bool full = lines_.size() >= kFull && !stuck_;
    const bool schedules = !std::exchange(scheduled_, true);
    lock.unlock();
    if (full) flush();
    if (schedules) schedule();
  }

  // Returns whether all lines have been written.
  bool flush() {
    const std::lock_guard writing(writing_);  // keeps the lines in order
    std::string lines;
    {
      const std::lock_guard lock(lock_);
      lines.swap(lines_);
    }
    lines.erase(0, base::write_some_lines(lines));
    const bool all = lines.empty();
    // An empty line makes this report how many lines were dropped.
    if (all) base::or_out_of_memory([] { base::write_or_drop_lines(""); }).ignore();
    const std::lock_guard lock(lock_);
    stuck_ = !all;
    if (stuck_ && base::or_out_of_memory([&] { lines += lines_; }).ok()) lines_.swap(lines);
    return all;
  }

 private:
  static constexpr size_t kFull = 64 << 10, kMost = 1 << 20;
  static constexpr auto kLinger = std::chrono::milliseconds(10);

  static auto next_time() { return std::chrono::steady_clock::now() + kLinger; }
  void schedule() {
    const Status posted = base::or_out_of_memory([this] {
      return thread_.post_at(next_time(), [this] {
        flush();
        const std::lock_guard lock(lock_);
        scheduled_ = !lines_.empty();
        if (scheduled_) thread_.repeat_at(next_time());
      });
    });
    if (posted.ok()) return;
    const std::lock_guard lock(lock_);
    scheduled_ = false;  // the next line tries again
  }
  // When the process exits, gives a slow reader a second.
  void finish() {
    for (int i = 0; i < 100 && !flush(); ++i) std::this_thread::sleep_for(kLinger);
  }

  base::Mutex writing_{base::Rank::kOutput}, lock_{base::Rank::kOutputShard};
  std::string lines_;
  bool scheduled_ = false;  // the thread will call flush()
  bool stuck_ = false;      // standard error did not take all lines
  base::TaskThread thread_{"yard-verbose", {.at_end = [this] { finish(); }}};
  const base::InChild in_child_{[this] { lines_.clear(), scheduled_ = stuck_ = false; }};
};

// Appends a time such as 812ns, 12.4us, 3.1ms or 12.0s.
void put_time(std::string& to, int64_t ns) {
  constexpr std::pair<int64_t, const char*> kUnits[] = {
      {1'000'000'000, "s"}, {1'000'000, "ms"}, {1000, "us"}};
  for (const auto& [unit, name] : kUnits)
    if (ns >= unit)
      return void(to += fmt::format("{}.{}{}", ns / unit, ns / (unit / 10) % 10, name));
  to += fmt::format("{}ns", std::max<int64_t>(ns, 0));
}

class Verbose final : public registry::CallObserver {
 public:
  explicit Verbose(int lines) : level(lines), lines_(base::process_wide<LineBuffer>()) {}

  void seen(const registry::ObservedCall& call) noexcept override {
    base::or_out_of_memory([&] { lines_.add(lines_of(call)); }).ignore();
  }

  const int level;  // 1 prints calls and failures, 2 also selections and transforms

 private:
  std::string lines_of(const registry::ObservedCall& call) {
    std::string to;
    const auto start = [&](std::string_view what, std::string_view kernel) {
      const ObservedTexts::Text& found = texts_.find(call, kernel, [&](const op::CallSpec& spec) {
        return fmt::format(",{},{},{},", spec.op, kernel, op::verbose_arguments(spec));
      });
      to += "yard,", to += what, to += found.text;
    };
    const auto end = [&](std::string_view result, int64_t ns) {
      to += result, to += ',';
      put_time(to, ns);
      to += '\n';
    };
    const std::string_view kernel =
        call.kernel != nullptr ? std::string_view(call.kernel->id) : "none";
    if (level > 1 && call.selected) {
      start("select", kernel);
      end(to_string(call.mode), call.select_ns);
    }
    for (const registry::ObservedCall::Failure& f : call.failures) {
      std::string message = printable(f.message, 200);
      std::replace(message.begin(), message.end(), ',', ';');
      start("fail", f.kernel.id);
      to += to_string(f.error), to += ',', to += message, to += '\n';
    }
    const int64_t copied = call.pre_ns + call.post_ns;
    if (level > 1 && copied > 0) {
      start("transform", kernel);
      to += "before ";
      put_time(to, call.pre_ns);
      to += " after ";
      put_time(to, call.post_ns);
      end("", copied);
    }
    start("exec", kernel);
    end(call.kernel == nullptr   ? "failed"
        : !call.failures.empty() ? "fallback"
        : call.selected          ? "miss"
                                 : "hit",
        call.end - call.start);
    return to;
  }

  ObservedTexts texts_;
  LineBuffer& lines_;
};

}  // namespace
}  // namespace yard::runtime

namespace yard {

Status Recording::set_verbose(int level) {
  if (level < 0 || level > 2)
    return base::invalid("invalid verbose level: expected 0, 1 or 2, got {}", level);
  return base::or_out_of_memory([&]() -> Status {
    const auto now = dispatch::find_observer<runtime::Verbose>(runtime_->core());
    if ((now != nullptr ? now->level : 0) == level) return {};
    YARD_RETURN_IF_ERROR(runtime_->core().published.replace_observer(
        now, level > 0 ? std::make_shared<runtime::Verbose>(level) : nullptr));
    if (level == 0) base::process_wide<runtime::LineBuffer>().flush();
    return {};
  });
}

int Recording::verbose() const {
  const auto now = dispatch::find_observer<runtime::Verbose>(runtime_->core());
  return now != nullptr ? now->level : 0;
}

}  // namespace yard
