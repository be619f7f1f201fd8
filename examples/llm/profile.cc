// SPDX-License-Identifier: Apache-2.0
#include "profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

namespace llm {

Profile::Entry& Profile::entry(const char* op, const char* kernel) {
  for (Entry& e : entries_)
    if (std::string_view(e.op) == op && e.kernel == kernel) return e;
  return entries_.emplace_back(Entry{op, kernel});
}

void Profile::note(const char* op, int64_t bytes) {
  Entry& e = entry(op, record_.kernel);
  ++e.calls, e.ns += record_.run_ns, e.bytes += bytes;
}

double Profile::ms() const noexcept {
  double sum = 0;
  for (const Entry& e : entries_) sum += e.ms();
  return sum;
}

void Profile::add(const Profile& other, double times) {
  const auto scaled = [&](int64_t n) { return std::llround(static_cast<double>(n) * times); };
  for (const Entry& from : other.entries_) {
    Entry& e = entry(from.op, from.kernel.c_str());
    e.calls += scaled(from.calls), e.ns += scaled(from.ns), e.bytes += scaled(from.bytes);
  }
}

std::string Profile::to_text(const char* title, double total_ms, double copy_rate) const {
  std::vector<Entry> sorted = entries_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Entry& a, const Entry& b) { return a.ns > b.ns; });
  // The clocks are read at different places, so kernels can seem to take longer than everything.
  if (total_ms > 0) total_ms = std::max(total_ms, ms());
  std::string text;
  const auto to = std::back_inserter(text);
  fmt::format_to(to, "{:18} {:24} {:>8} {:>9}", title, "kernel", "calls", "ms");
  fmt::format_to(to, "{} {:>6}{}\n", total_ms > 0 ? "   share" : "", "GB/s",
                 copy_rate > 0 ? "  of copy" : "");
  for (const Entry& e : sorted) {
    const double rate = static_cast<double>(e.bytes) / 1e6 / std::max(e.ms(), 1e-6);
    fmt::format_to(to, "{:18} {:24} {:8} {:9.2f}", e.op, e.kernel, e.calls, e.ms());
    if (total_ms > 0) fmt::format_to(to, " {:6.1f}%", 100 * e.ms() / total_ms);
    fmt::format_to(to, " {:6.1f}", rate);
    if (copy_rate > 0) fmt::format_to(to, " {:7.0f}%", 100 * rate / copy_rate);
    text += '\n';
  }
  if (total_ms > 0)
    fmt::format_to(to, "{:18} {:24} {:8} {:9.2f} {:6.1f}%\n", "outside of kernels", "", "",
                   total_ms - ms(), 100 * (1 - ms() / total_ms));
  return text;
}

}  // namespace llm
