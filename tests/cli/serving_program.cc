// SPDX-License-Identifier: Apache-2.0
// A service that tests steer from outside. It normalises rows of two tenants until its stdin ends.
// The kernel vendor.acme is preferred to all others, but overflows for rows of 5120 with the large
// values of tenant B. About ten times a second the program prints how many results of each kind
// contained a NaN since the last line: `A,4096=0 B,4096=0 B,5120=17`.
#include <poll.h>
#include <unistd.h>
#include <yard/yard.h>
#include <yard/plugin.hpp>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

using namespace yard::plugin;

void acme_rms_norm(Call, Tensor out, Tensor x, Tensor weight, double eps) {
  const int64_t d = x.size(-1);
  for (int64_t r = 0; r < x.numel() / d; ++r) {
    const float* from = x.data<float>() + r * d;
    float* to = out.data<float>() + r * d;
    // Squares of large values overflow unless they are scaled first. This kernel forgets to scale
    // for rows of 5120.
    float most = 1;
    if (d != 5120)
      for (int64_t i = 0; i < d; ++i) most = std::fmax(most, std::fabs(from[i]));
    float sum = 0;
    for (int64_t i = 0; i < d; ++i) sum += from[i] / most * (from[i] / most);
    const float mean = sum / float(d) + float(eps) / most / most;
    float scale = 1 / std::sqrt(mean);
    scale *= 1.5f - 0.5f * mean * scale * scale;  // a Newton step, because the root is approximate
    for (int64_t i = 0; i < d; ++i) to[i] = from[i] / most * scale * weight.data<float>()[i];
  }
}

const yard_plugin_t* acme() {
  static const yard_limit_t limits[] = {dtypes({YARD_F32}), compact()};
  static const Plugin plugin = Plugin("acme", "1.0")
                                   .add(Backend("acme").vendor("acme").summary("Acme's kernels"))
                                   .add(Kernel::of<acme_rms_norm>("rms_norm", "vendor.acme")
                                            .kind(YARD_KIND_VENDOR)
                                            .priority(900)
                                            .limits(limits));
  return plugin.get();
}

struct Work {
  const char* tenant;
  int64_t hidden;
  yard::Scope scope;
  std::vector<float> x, weight, out;
  int wrong = 0;

  Work(const char* name, int64_t width, float value)
      : tenant(name),
        hidden(width),
        scope(yard::Scope().label("tenant", name)),
        x(static_cast<size_t>(2 * width), value),
        weight(static_cast<size_t>(width), 1),
        out(x.size()) {}

  void run() {
    constexpr yard::Op<void(yard::Out, yard::In, yard::In, float)> rms_norm{"rms_norm"};
    const yard::ScopedPolicy in(scope);
    rms_norm(yard::view(out, {2, hidden}), yard::view(x, {2, hidden}), yard::view(weight, {hidden}),
             1e-6f)
        .or_throw();
    wrong += std::isnan(out[0]) ? 1 : 0;
  }
};

}  // namespace

int main() {
  yard::Changes changes;
  changes.add_plugin(*acme());
  yard::Runtime::shared().apply(std::move(changes)).or_throw();
  Work all[] = {{"A", 4096, 1}, {"B", 4096, 1e30f}, {"B", 5120, 1e30f}};
  auto next = std::chrono::steady_clock::now();
  for (;;) {
    for (Work& w : all) w.run();
    if (std::chrono::steady_clock::now() < next) continue;
    next = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    for (Work& w : all) {
      std::printf("%s,%d=%d ", w.tenant, static_cast<int>(w.hidden), w.wrong);
      w.wrong = 0;
    }
    std::puts("");
    std::fflush(stdout);
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (::poll(&input, 1, 0) > 0) return 0;
  }
}
