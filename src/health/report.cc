// SPDX-License-Identifier: Apache-2.0
// Kinds of calls, and reports about breakers and failures.
#include <fmt/format.h>

#include "health/board.h"

namespace yard {
namespace health {
namespace {

void add(HealthCounts& to, const HealthCounts& from) {
  to.successes += from.successes;
  for (size_t i = 0; i < to.failures.by_class.size(); ++i)
    to.failures.by_class[i] += from.failures.by_class[i];
  if (from.last_error_at && (!to.last_error_at || *from.last_error_at >= *to.last_error_at))
    to.last_error = from.last_error, to.last_error_at = from.last_error_at;
}

constexpr size_t kPacked = 10;
constexpr unsigned kBits = 6;
constexpr uint64_t kHashed = uint64_t{1} << 63;

uint64_t mix(uint64_t seed, uint64_t value) {
  return (seed ^ value) * 0x9e3779b97f4a7c15u + (seed >> 29);
}

}  // namespace

uint64_t CallKind::hash() const noexcept {
  uint64_t h = mix(static_cast<uint64_t>(device.type), static_cast<uint32_t>(device.index));
  h = mix(h, dtypes);
  for (const uint8_t b : sizes.get()) h = mix(h, b + uint64_t{1});
  return h;
}

uint64_t pack_dtypes(std::span<const DType> dtypes) noexcept {
  uint64_t word = 0;
  if (dtypes.size() <= kPacked) {
    // Add one, so that an invalid dtype at the end still counts as a tensor.
    for (size_t i = 0; i < dtypes.size(); ++i)
      word |= (static_cast<uint64_t>(dtypes[i]) + 1) << (i * kBits);
    return word;
  }
  for (const DType t : dtypes) word = mix(word, static_cast<uint64_t>(t) + 1);
  return word | kHashed;
}

std::string to_string(const CallKind& kind) {
  if (kind == CallKind()) return "all calls";  // calls of functions have no other kind
  std::string dtypes, sizes;
  if ((kind.dtypes & kHashed) != 0)
    dtypes = fmt::format("dtypes {:016x}, ", kind.dtypes);
  else
    for (uint64_t rest = kind.dtypes; rest != 0; rest >>= kBits)
      dtypes += fmt::format("{}{}", yard::to_string(static_cast<DType>((rest & 63) - 1)),
                            rest >> kBits != 0 ? " " : ", ");
  for (const uint8_t b : kind.sizes.get()) {
    const auto [low, high] = Buckets::range(b);
    sizes += low == high ? fmt::format(" {}", low) : fmt::format(" {}-{}", low, high);
  }
  if (!sizes.empty()) sizes = "sizes" + sizes + ", ";
  return dtypes + sizes + yard::to_string(kind.device);
}

const BreakerStatus* HealthSnapshot::OfOp::find(const Key& key) const noexcept {
  for (const BreakerStatus& b : kernels)
    if (b.key.kernel == key.kernel) return &b;
  for (const BreakerStatus& b : keys)
    if (b.key.kernel == key.kernel && b.key.kind == key.kind) return &b;
  return nullptr;
}

void Record::add_failed(const CallKind& of_kind, const FailedOn& on, Time now) {
  constexpr auto kOld = std::chrono::minutes(1);
  if (on.text == nullptr) return;
  const uint64_t kind = of_kind.hash();
  for (Failed& f : failed)
    if (f.kind == kind && f.sizes == on.sizes) {
      ++f.count, f.last = now;
      return;
    }
  if (failed.size() < kFailedCalls) return failed.push_back({{on.text(), 1, now}, kind, on.sizes});
  // Making the text costs more than the rest of a report, so keep recent calls.
  Failed& oldest = *std::ranges::min_element(failed, {}, &Failed::last);
  if (now - oldest.last >= kOld) oldest = {{on.text(), 1, now}, kind, on.sizes};
}

std::string Record::failed_text(const CallKind* kind) const {
  std::string text;
  for (const Failed& f : failed)
    if (kind == nullptr || f.kind == kind->hash()) text += (text.empty() ? "" : ", ") + f.call;
  return text;
}

HealthReport BoardState::report(std::span<const Successes> successes, Time now) const {
  std::map<std::pair<std::string, std::string>, KernelHealth> kernels;
  for (const auto& [id, r] : records_) {
    KernelHealth& k = kernels[id] = r;
    k.failed_calls.assign(r.failed.begin(), r.failed.end());
    std::ranges::stable_sort(k.failed_calls, std::greater(), &KernelHealth::FailedCall::last);
    for_each(const_cast<Record&>(r), [&](const Entry& e) {
      const health::Breaker& b = e.breaker;
      if (b.closed()) return;
      k.open.push_back({e.kind != nullptr ? to_string(*e.kind) : "", b.state,
                        b.until != kManual ? std::optional(b.until) : std::nullopt,
                        b.repeats_at(settings_, now), b.manual, b.manual ? b.why : ""});
    });
    std::ranges::sort(k.open, {}, &KernelHealth::Breaker::key);
  }
  for (const Successes& n : successes) {
    KernelHealth& k = kernels[{n.op, n.kernel}];
    k.op = n.op, k.kernel = n.kernel, k.backend = n.backend;
    k.successes += n.count;
  }
  HealthReport report;
  std::map<std::string, BackendHealth> backends;
  for (const auto& [name, counts] : external_) add(backends[name], counts);
  for (auto& [id, k] : kernels) {
    BackendHealth& b = backends[k.backend];
    add(b, k);
    b.open_kernels += k.open.empty() ? 0 : 1;
    report.kernels.push_back(std::move(k));
  }
  for (auto& [name, b] : backends) {
    b.backend = name;
    report.backends.push_back(std::move(b));
  }
  report.devices_lost = lost_, report.breakers = totals_;
  return report;
}

}  // namespace health

namespace {

std::string rounded_seconds(std::chrono::nanoseconds d) {
  const double s = std::max(0.0, std::chrono::duration<double>(d).count());
  return s < 10 ? fmt::format("{:.1f}s", s) : fmt::format("{:.0f}s", s);
}

std::string text_of(const HealthCounts& c, std::chrono::steady_clock::time_point now) {
  std::string text = fmt::format("{} ok, {} failed ({:.1f} %)", c.successes, c.failures.counted(),
                                 100 * c.failure_rate());
  if (c.last_error_at)
    text += fmt::format(", last {} ago: {}", rounded_seconds(now - *c.last_error_at), c.last_error);
  return text + '\n';
}

}  // namespace

double HealthCounts::failure_rate() const noexcept {
  const auto bad = static_cast<double>(failures.counted());
  return bad == 0 ? 0 : bad / (bad + static_cast<double>(successes));
}

std::string to_string(const HealthReport& report, std::chrono::steady_clock::time_point now) {
  std::string text;
  for (const Device d : report.devices_lost) text += fmt::format("device {}: lost\n", to_string(d));
  for (const BackendHealth& b : report.backends)
    text += fmt::format("backend {}: {}", b.backend, text_of(b, now));
  for (const KernelHealth& k : report.kernels) {
    text += fmt::format("{} {}: {}", k.op, k.kernel, text_of(k, now));
    for (const KernelHealth::Breaker& b : k.open) {
      text += fmt::format("  {}: {}", b.key.empty() ? "all calls" : b.key, to_string(b.state));
      if (b.manual) text += fmt::format(" ({})", health::with_reason("manual override", b.reason));
      if (b.until && b.state == BreakerState::kOpen)
        text += fmt::format(", probes in {}", rounded_seconds(*b.until - now));
      text += '\n';
    }
    for (const KernelHealth::FailedCall& f : k.failed_calls)
      text += fmt::format("  failed: {}, {} time{}, last {} ago\n", f.call, f.count,
                          f.count == 1 ? "" : "s", rounded_seconds(now - f.last));
  }
  return text;
}

}  // namespace yard
