// SPDX-License-Identifier: Apache-2.0
// kernels_bench [SECONDS [OP [DTYPE]]]: compares the built-in ops, called as users do, with the
// best composition of PyTorch's calls, with other libraries, and with a plain copy of the same
// bytes. SECONDS is the approximate time for each call. Prints JSON.
#include <fmt/format.h>
#include <yard/call_spec.h>
#include <yard/yard.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>

#include "bench/kernel_timing.h"
#include "direct_products.h"
#include "host_access.h"
#include "kernel_cases.h"
#include "terminal.h"
#include "torch_kernels.h"

namespace yard::bench {
namespace {

tool::Timed timed(std::function<void()> body) {
  return [body = std::move(body)](int64_t n) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < n; ++i) body();
    const std::chrono::duration<double, std::nano> all = std::chrono::steady_clock::now() - start;
    return all.count() / static_cast<double>(n);
  };
}

// The JSON of one measured call, and a line for each missed target.
struct Measured {
  std::string json, missed;
};

void compare(const KernelCase& c, const char* with, double speed, double target, Measured& to) {
  to.json += fmt::format(", \"over_{}\": {:.3f}", with, speed);
  if (target == 0) return;
  to.json += fmt::format(", \"{}_target\": {}", with, target);
  if (speed >= target) return;
  to.missed +=
      fmt::format("{}    \"{} {} {}{}: {:.2f} of {}, wanted {}\"", to.missed.empty() ? "" : ",\n",
                  c.op, c.dtype, c.rows, c.packed ? " packed" : "", speed, with, target);
}

void compare_ways(const KernelCase& c, const char* with, const std::vector<Way>& ways,
                  std::span<const double> ns, double our_ns, double target, Measured& to) {
  if (ways.empty()) return;
  const auto best = std::min_element(ns.begin(), ns.end());
  to.json += fmt::format(", \"{0}_ns\": {1:.0f}, \"{0}_way\": \"{2}\"", with, *best,
                         ways[static_cast<size_t>(best - ns.begin())].name);
  compare(c, with, *best / our_ns, target, to);
}

Measured measure(const KernelCase& c, double seconds) {
  const std::string text = call_text(c);
  const std::unique_ptr<CallTensors> data = case_tensors(text);
  const tool::Copy copy(data->traffic());
  const std::function<Status()> ours =
      c.packed ? packed_linear_call(*data) : typed_call(c.op, *data);
  std::vector<tool::Timed> paths = {copy.one_thread(), copy.all_threads(),
                                    timed([&ours] { ours().or_throw(); })};
  const std::vector<Way> torch = torch_ways(c), direct = direct_ways(c);
  for (const Way& w : torch) paths.push_back(timed(w.run));
  for (const Way& w : direct) paths.push_back(timed(w.run));
  const std::vector<double> ns = tool::time_in_turn(paths, seconds);

  const double copy_ns = std::min(ns[0], ns[1]), our_ns = ns[2];
  const std::span<const double> others = std::span(ns).subspan(3);
  Measured to;
  to.json = fmt::format(
      "    {{\"op\": \"{}\", \"dtype\": \"{}\", \"rows\": {}, {}\"kernel\": \"{}\", \"ns\": "
      "{:.0f}, "
      "\"gb_per_s\": {:.2f}, \"copy_ns\": {:.0f}",
      c.op, c.dtype, c.rows, c.packed ? "\"packed\": true, " : "",
      resolve(c.packed ? text + "@cpu+loaded" : text).value().kernel, our_ns,
      static_cast<double>(data->traffic()) / our_ns, copy_ns);
  compare(c, "copy", copy_ns / our_ns, c.copy_target, to);
  compare_ways(c, "torch", torch, others.first(torch.size()), our_ns, c.torch_target, to);
  compare_ways(c, "direct", direct, others.subspan(torch.size()), our_ns, c.direct_target, to);
  to.json += "}";
  return to;
}

int run(double seconds, const std::string& op, const std::string& dtype) {
  std::string results, missed;
  tool::Progress progress;
  for (const KernelCase& c : kernel_cases()) {
    if ((!op.empty() && c.op != op) || (!dtype.empty() && c.dtype != dtype)) continue;
    progress.say(
        fmt::format("measuring {} {} {}{}", c.op, c.dtype, c.rows, c.packed ? " packed" : ""));
    const Measured m = measure(c, seconds);
    results += (results.empty() ? "" : ",\n") + m.json;
    if (!m.missed.empty()) missed += (missed.empty() ? "" : ",\n") + m.missed;
  }
  progress.clear();
  fmt::print(
      "{{\n  \"over_torch\": \"speed over the best composition of PyTorch's calls\",\n"
      "  \"over_copy\": \"speed over a plain copy of the same bytes, half read and half written, "
      "on one thread or all, whichever is faster\",\n"
      "  \"over_direct\": \"speed over the faster of oneDNN and OpenBLAS, called directly\",\n"
      "  \"threads\": {},\n  \"results\": [\n{}\n  ],\n  \"missed_targets\": [\n{}\n  ]\n}}\n",
      tool::host_threads(), results, missed);
  return results.empty() ? 2 : 0;
}

}  // namespace
}  // namespace yard::bench

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1;
  try {
    return yard::bench::run(seconds, argc > 2 ? argv[2] : "", argc > 3 ? argv[3] : "");
  } catch (const std::exception& e) {
    fmt::print(stderr, "kernels_bench: {}\n", e.what());
    return 1;
  }
}
