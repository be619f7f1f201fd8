// SPDX-License-Identifier: Apache-2.0
#include "tune/canary_state.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>

#include "base/log.h"
#include "base/reclaimer.h"
#include "tune/canary_dump.h"

namespace yard {

std::string to_string(const CanaryMismatch& m) {
  // NaN has no sign worth telling.
  const auto figures = [](double v) {
    return std::isnan(v) ? std::string("nan") : fmt::format("{:.9g}", v);
  };
  if (m.against.empty())
    return fmt::format("{} is {}, and all inputs are finite", m.worst, figures(m.found));
  std::string text = fmt::format("{} is {} where {} has {}", m.worst, figures(m.found), m.against,
                                 figures(m.expected));
  if (std::isfinite(m.error)) text += fmt::format(" ({:.3g} times the tolerance)", m.error);
  return text;
}

}  // namespace yard

namespace yard::tune {
namespace {

uint64_t stirred(uint64_t v) noexcept {
  v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9u;
  v = (v ^ (v >> 27)) * 0x94d049bb133111ebu;
  return v ^ (v >> 31);
}

// A number of this thread that no other one is likely to have, of this process or another.
uint64_t thread_number() noexcept {
  static std::atomic<uint64_t> threads{0};
  thread_local uint64_t number = 0, forks = 0;
  if (number != 0 && forks == base::forks()) return number;
  forks = base::forks();
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  number = stirred(stirred(static_cast<uint64_t>(now)) + static_cast<uint64_t>(::getpid()) * 8191 +
                   threads.fetch_add(1, std::memory_order_relaxed)) |
           1;
  return number;
}

}  // namespace

bool CanaryTally::is_due(uint64_t one_in) noexcept {
  base::ThreadRecord& thread = base::this_thread();
  base::count(thread, calls.id());
  if (one_in <= 1) return true;
  if (thread.counters == nullptr) return false;
  const auto* chunk = thread.counters[calls.id() / base::kPerChunk].load(std::memory_order_relaxed);
  if (chunk == nullptr) return false;
  const uint64_t due = stirred(thread_number() + calls.id()) % one_in;
  return chunk[calls.id() % base::kPerChunk].load(std::memory_order_relaxed) % one_in == due;
}

// Dumps that wait are the parent's to write.
void CanaryState::Shared::inherit(Shared& parents) {
  tallies = parents.tallies, why_skipped = parents.why_skipped;
  mismatches = parents.mismatches, problems = parents.problems;
  last_number = parents.last_number;
}

CanaryState::~CanaryState() {
  while (write_one()) {
  }
}

std::shared_ptr<CanaryTally> CanaryState::tally(const std::string& op, const std::string& kernel,
                                                CanaryCheck check) {
  Shared& s = shared_.get();
  const std::lock_guard lock(s.lock);
  auto& found = s.tallies[{op, kernel, check}];
  if (found == nullptr) found = std::make_shared<CanaryTally>(op, kernel, check);
  return found;
}

void CanaryState::skip(CanaryTally& tally, std::string_view why, bool is_problem) noexcept try {
  if (tally.skipped.fetch_add(1, std::memory_order_relaxed) == 0) {
    Shared& s = shared_.get();
    const std::lock_guard lock(s.lock);
    s.why_skipped.emplace(&tally, why);
  }
  if (is_problem && !tally.told.load(std::memory_order_relaxed) && !tally.told.exchange(true))
    problem(tally.op, fmt::format("calls of kernel '{}' are not looked at: {}", tally.kernel, why));
} catch (const std::exception&) {
  // It is counted; for words there is no memory.
}

void CanaryState::record(CanaryMismatch m, std::unique_ptr<DumpOrder> order) {
  bool queued = false;
  {
    Shared& s = shared_.get();
    const std::lock_guard lock(s.lock);
    if (order != nullptr) order->dump.mismatch = m;
    if (order != nullptr && s.waiting.size() < kMostWaiting) {
      s.waiting.push_back({s.last_number + 1, std::move(order)});
      queued = true;
    }
    s.mismatches.push_back({++s.last_number, std::move(m)});
    if (s.mismatches.size() > kMostMismatches) s.mismatches.pop_front();
  }
  if (queued) {
    if (const Status posted = thread_.post([this] { write_one(); }); !posted.ok()) write_one();
  } else if (order != nullptr) {
    base::log(LogLevel::kWarn, "tune",
              fmt::format("a dump of a call of '{}' is left out: {} wait to be written",
                          order->dump.mismatch.op, kMostWaiting));
  }
}

// Also on a thread that has nobody to catch anything.
bool CanaryState::write_one() noexcept try {
  Shared& s = shared_.get();
  Waiting next;
  {
    const std::lock_guard lock(s.lock);
    if (s.waiting.empty()) return false;
    next = std::move(s.waiting.front());
    s.waiting.pop_front();
  }
  const DumpOrder& order = *next.order;
  const auto path = add_dump(order.folder, order.most, order.dump);
  if (!path.ok()) {
    problem(order.dump.mismatch.op,
            fmt::format("inputs could not be dumped: {}", path.status().message()));
    return true;
  }
  const std::lock_guard lock(s.lock);
  for (Numbered& n : s.mismatches)
    if (n.number == next.number) n.mismatch.dump = *path;
  return true;
} catch (const std::exception& e) {
  base::log(LogLevel::kError, "tune", fmt::format("a dump is not written: {}", e.what()));
  return true;
}

void CanaryState::problem(const std::string& op, const std::string& text) {
  {
    Shared& s = shared_.get();
    const std::lock_guard lock(s.lock);
    std::set<std::string>& of_op = s.problems[op];
    if (of_op.size() >= kMostProblems || !of_op.insert(text).second) return;
  }
  base::log(LogLevel::kWarn, "tune", fmt::format("canary of op '{}': {}", op, text));
}

void CanaryState::forget_problems(const std::string& op) {
  Shared& s = shared_.get();
  const std::lock_guard lock(s.lock);
  s.problems.erase(op);
}

std::vector<std::string> CanaryState::problems() {
  Shared& s = shared_.get();
  const std::lock_guard lock(s.lock);
  std::vector<std::string> to;
  for (const auto& [op, texts] : s.problems)
    for (const std::string& text : texts) to.push_back(fmt::format("op '{}': {}", op, text));
  return to;
}

CanaryReport CanaryState::report() {
  CanaryReport to;
  std::vector<std::shared_ptr<CanaryTally>> tallies;
  {
    Shared& s = shared_.get();
    const std::lock_guard lock(s.lock);
    for (const auto& [names, t] : s.tallies) {
      const auto why = s.why_skipped.find(t.get());
      tallies.push_back(t);
      to.kernels.push_back({t->op, t->kernel, t->check, 0, 0, t->mismatches.load(),
                            t->skipped.load(), why != s.why_skipped.end() ? why->second : ""});
    }
    for (const Numbered& n : s.mismatches) to.mismatches.push_back(n.mismatch);
  }
  for (size_t i = 0; i < tallies.size(); ++i) {
    to.kernels[i].calls = tallies[i]->calls.total();
    to.kernels[i].checked = tallies[i]->checked.total();
  }
  return to;
}

}  // namespace yard::tune
