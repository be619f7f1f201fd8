// SPDX-License-Identifier: Apache-2.0
// Health reports: as values and as text.
#include <fmt/format.h>
#include <yard/health.h>

#include <algorithm>

#include "health/board.h"

namespace yard {
namespace health {
namespace {

OpenBreaker shown(const BreakerSettings& s, std::string key, const Breaker& breaker, Time now) {
  OpenBreaker b;
  b.key = std::move(key);
  b.state = breaker.state;
  if (breaker.until != kManual) b.until = breaker.until;
  b.repeats = breaker.repeats_at(s, now);
  b.manual = breaker.manual;
  return b;
}

void add(HealthCounts& to, const HealthCounts& from) {
  to.successes += from.successes;
  for (size_t i = 0; i < to.failures.by_class.size(); ++i)
    to.failures.by_class[i] += from.failures.by_class[i];
  if (from.last_error_at && (!to.last_error_at || *from.last_error_at >= *to.last_error_at)) {
    to.last_error = from.last_error;
    to.last_error_at = from.last_error_at;
  }
}

using ByKernel = std::map<std::pair<std::string, std::string>, KernelHealth>;

}  // namespace

void Record::add_failed(const Key& key, const FailedOn& on, Time now) {
  constexpr auto kOld = std::chrono::minutes(1);
  if (on.text == nullptr) return;
  const uint64_t kind = key.kind.hash();
  const auto known = std::find_if(failed.begin(), failed.end(), [&](const Failed& f) {
    return f.kind == kind && f.sizes == on.sizes;
  });
  if (known != failed.end()) {
    ++known->call.count, known->call.last = now;
    return;
  }
  Failed* to = nullptr;
  if (failed.size() < kFailedCalls) {
    to = &failed.emplace_back();
  } else {
    // The text costs more than the rest of a report, so one that failed a moment ago stays.
    to = &*std::min_element(failed.begin(), failed.end(), [](const Failed& a, const Failed& b) {
      return a.call.last < b.call.last;
    });
    if (now - to->call.last < kOld) return;
  }
  *to = {kind, on.sizes, {on.text(), 1, now}};
}

std::string Record::failed_text(std::optional<uint64_t> kind) const {
  std::string text;
  for (const Failed& f : failed)
    if (!kind || f.kind == *kind) text += (text.empty() ? "" : ", ") + f.call.call;
  return text;
}

HealthReport BoardState::report(std::span<const Successes> successes, Time now) const {
  ByKernel kernels;
  const auto kernel = [&](const std::string& op, const std::string& id,
                          const std::string& backend) -> KernelHealth& {
    KernelHealth& k = kernels[{op, id}];
    k.op = op, k.kernel = id, k.backend = backend;
    return k;
  };
  for (const auto& [op, records] : records_)
    for (const auto& r : records) {
      KernelHealth& k = kernel(op, r->kernel, r->backend);
      add(k, r->counts);
      for (const Record::Failed& f : r->failed) k.failed_calls.push_back(f.call);
      std::stable_sort(k.failed_calls.begin(), k.failed_calls.end(),
                       [](const FailedCall& a, const FailedCall& b) { return a.last > b.last; });
    }
  for (const auto& [key, breaker] : breakers_)
    if (!breaker.closed())
      kernels[{key.record->op, key.record->kernel}].open.push_back(
          shown(settings_, key.kind ? to_string(*key.kind) : std::string(), breaker, now));
  for (const Successes& n : successes) kernel(n.op, n.kernel, n.backend).successes += n.count;

  HealthReport report;
  std::map<std::string, BackendHealth> backends;
  for (const auto& [name, counts] : external_) add(backends[name], counts);
  for (auto& [id, k] : kernels) {
    BackendHealth& b = backends[k.backend];
    add(b, k);
    b.open_kernels += k.open.empty() ? 0 : 1;
    std::sort(k.open.begin(), k.open.end(),
              [](const OpenBreaker& x, const OpenBreaker& y) { return x.key < y.key; });
    report.kernels.push_back(std::move(k));
  }
  for (auto& [name, b] : backends) {
    b.backend = name;
    report.backends.push_back(std::move(b));
  }
  report.devices_lost = lost_;
  report.breakers = totals();
  return report;
}

BreakerTotals BoardState::totals() const {
  BreakerTotals all = totals_;
  all.events_dropped = events_.dropped();
  return all;
}

std::vector<BreakerEvent> BoardState::take_events() {
  has_events_.store(false, std::memory_order_release);
  return events_.take();
}

}  // namespace health

namespace {

std::string rounded_seconds(std::chrono::nanoseconds d) {
  const double s = std::chrono::duration<double>(d).count();
  return s < 10 ? fmt::format("{:.1f}s", s) : fmt::format("{:.0f}s", s);
}

void print(std::string& to, const HealthCounts& c, std::chrono::steady_clock::time_point now) {
  to += fmt::format("{} ok, {} failed ({:.1f} %)", c.successes, c.failures.counted(),
                    100 * c.failure_rate());
  if (c.last_error_at)
    to += fmt::format(", last {} ago: {}", rounded_seconds(std::max(now - *c.last_error_at, {})),
                      c.last_error);
  to += '\n';
}

}  // namespace

double HealthCounts::failure_rate() const noexcept {
  const auto bad = static_cast<double>(failures.counted());
  return bad == 0 ? 0 : bad / (bad + static_cast<double>(successes));
}

std::string to_string(const HealthReport& report, std::chrono::steady_clock::time_point now) {
  std::string text;
  for (const Device d : report.devices_lost) text += fmt::format("device {}: lost\n", to_string(d));
  for (const BackendHealth& b : report.backends) {
    text += fmt::format("backend {}: ", b.backend);
    print(text, b, now);
  }
  for (const KernelHealth& k : report.kernels) {
    text += fmt::format("{} {}: ", k.op, k.kernel);
    print(text, k, now);
    for (const OpenBreaker& b : k.open) {
      text += fmt::format("  {}: {}", b.key.empty() ? "all calls" : b.key, to_string(b.state));
      if (b.manual) text += " (manual override)";
      if (b.until && b.state == BreakerState::kOpen)
        text += fmt::format(", probes in {}", rounded_seconds(std::max(*b.until - now, {})));
      text += '\n';
    }
    for (const FailedCall& f : k.failed_calls)
      text += fmt::format("  failed: {}, {} time{}, last {} ago\n", f.call, f.count,
                          f.count == 1 ? "" : "s", rounded_seconds(std::max(now - f.last, {})));
  }
  return text;
}

}  // namespace yard
