// SPDX-License-Identifier: Apache-2.0
#include "tune/canary.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "base/log.h"
#include "base/text.h"
#include "tune/elements.h"

namespace yard {

std::string to_string(const CanaryMismatch& m) {
  if (m.against.empty())
    return fmt::format("{} is {}, and all inputs are finite", m.worst,
                       tune::format_element(m.found));
  std::string text = fmt::format("{} is {} where {} has {}", m.worst, tune::format_element(m.found),
                                 m.against, tune::format_element(m.expected));
  if (std::isfinite(m.error)) text += fmt::format(" ({:.3g} times the tolerance)", m.error);
  return text;
}

}  // namespace yard

namespace yard::tune {
namespace {

// How long no dump is tried in a folder that was full.
constexpr auto kFullFor = std::chrono::seconds(1);

}  // namespace
// Pending dumps are written by the parent.
void CanaryState::Shared::inherit(Shared& parents) {
  counters = parents.counters, why_skipped = parents.why_skipped;
  mismatches = parents.mismatches, problems = parents.problems;
  last_number = parents.last_number;
}

CanaryState::~CanaryState() {
  while (write_one()) {
  }
}

std::shared_ptr<CanaryCounters> CanaryState::counters(const std::string& op,
                                                      const std::string& kernel,
                                                      CanaryCheck check) {
  Shared& s = shared_.get();
  const std::lock_guard lock(s.lock);
  auto& found = s.counters[{op, kernel, check}];
  if (found == nullptr) found = std::make_shared<CanaryCounters>(op, kernel, check);
  return found;
}

void CanaryState::skip(CanaryCounters& c, std::string_view why, bool permanent) noexcept try {
  if (c.skipped.fetch_add(1, std::memory_order_relaxed) == 0) {
    Shared& s = shared_.get();
    const std::lock_guard lock(s.lock);
    s.why_skipped.emplace(&c, why);
  }
  if (permanent && !c.problem_reported.load(std::memory_order_relaxed) &&
      !c.problem_reported.exchange(true))
    problem(c.op, fmt::format("calls of kernel '{}' are not checked: {}", c.kernel, why));
} catch (const std::exception&) {
  // Out of memory for the text; the call is counted.
}

bool CanaryState::takes_dump(const std::string& folder) {
  Shared& s = shared_.get();
  const std::lock_guard lock(s.lock);
  const auto at = s.full.find(folder);
  if (at == s.full.end()) return true;
  if (std::chrono::steady_clock::now() < at->second) return false;
  s.full.erase(at);
  return true;
}

void CanaryState::record(CanaryMismatch m, std::unique_ptr<DumpRequest> request) {
  bool queued = false;
  {
    Shared& s = shared_.get();
    const std::lock_guard lock(s.lock);
    if (request != nullptr) request->dump.mismatch = m;
    if (request != nullptr && s.waiting.size() < kMostWaiting) {
      s.waiting.push_back({s.last_number + 1, std::move(request)});
      queued = true;
    }
    s.mismatches.push_back({++s.last_number, std::move(m)});
    if (s.mismatches.size() > kMostMismatches) s.mismatches.pop_front();
  }
  if (queued) {
    if (const Status posted = thread_.post([this] { write_one(); }); !posted.ok()) write_one();
  } else if (request != nullptr) {
    base::log(LogLevel::kWarn, "tune",
              fmt::format("dump of a call of '{}' dropped: {} are waiting to be written",
                          request->dump.mismatch.op, kMostWaiting));
  }
}

// Runs on a thread of its own, too, which nothing may leave as an exception.
bool CanaryState::write_one() noexcept try {
  Shared& s = shared_.get();
  Waiting next;
  {
    const std::lock_guard lock(s.lock);
    if (s.waiting.empty()) return false;
    next = std::move(s.waiting.front());
    s.waiting.pop_front();
  }
  const DumpRequest& request = *next.request;
  const auto path = add_dump(request.folder, request.most, request.dump);
  if (!path.ok()) {
    problem(request.dump.mismatch.op,
            fmt::format("inputs could not be dumped: {}", path.status().message()));
    return true;
  }
  if (path->empty())
    base::log(LogLevel::kWarn, "tune",
              fmt::format("{}: has the first {} dumps of an incident; later ones are not written",
                          request.folder, request.most));
  const std::lock_guard lock(s.lock);
  if (path->empty()) s.full[request.folder] = std::chrono::steady_clock::now() + kFullFor;
  for (Numbered& n : s.mismatches)
    if (n.number == next.number) n.mismatch.dump = *path;
  return true;
} catch (const std::exception& e) {
  base::log(LogLevel::kError, "tune", fmt::format("dump not written: {}", base::exception_text(e)));
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

void CanaryState::clear_problems(const std::string& op) {
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
  std::vector<std::shared_ptr<CanaryCounters>> counters;
  {
    Shared& s = shared_.get();
    const std::lock_guard lock(s.lock);
    for (const auto& [names, t] : s.counters) {
      const auto why = s.why_skipped.find(t.get());
      counters.push_back(t);
      to.kernels.push_back({t->op, t->kernel, t->check, 0, 0, t->mismatches.load(),
                            t->skipped.load(), why != s.why_skipped.end() ? why->second : ""});
    }
    for (const Numbered& n : s.mismatches) to.mismatches.push_back(n.mismatch);
  }
  for (size_t i = 0; i < counters.size(); ++i) {
    to.kernels[i].calls = counters[i]->calls.total();
    to.kernels[i].checked = counters[i]->checked.total();
  }
  return to;
}

}  // namespace yard::tune
