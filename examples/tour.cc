// SPDX-License-Identifier: Apache-2.0
// A tour in one program. Kernels compete, policies change the choice, and every choice is
// explained. A kernel fails and another takes over, and a kernel is removed while it is in use.
#include <unistd.h>
#include <yard/yard.h>
#include <yard/plugin.hpp>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "check.h"

namespace {

namespace plugin = yard::plugin;
using plugin::Call, plugin::Tensor;

inline constexpr yard::Op<void(yard::Out, yard::In, yard::In, float)> rms_norm{"rms_norm"};

const char* g_call = "rms_norm(f32[64,1024], f32[1024])@cpu";

// All three kernels share this arithmetic. They differ in their claims.
void norm_rows(Tensor out, Tensor x, Tensor weight, double eps) {
  const int64_t d = x.size(-1), rows = d > 0 ? x.numel() / d : 0;
  const float* w = weight.data<float>();
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = x.data<float>() + r * d;
    float* to = out.data<float>() + r * d;
    float a = 0, b = 0, c = 0, e = 0;  // the processor can compute four sums at once
    int64_t i = 0;
    for (; i + 4 <= d; i += 4) {
      a += from[i] * from[i], b += from[i + 1] * from[i + 1];
      c += from[i + 2] * from[i + 2], e += from[i + 3] * from[i + 3];
    }
    for (; i < d; ++i) a += from[i] * from[i];
    const float scale = 1.0f / std::sqrt((a + b + c + e) / float(d) + float(eps));
    for (i = 0; i < d; ++i) to[i] = from[i] * scale * w[i];
  }
}

void unrolled(Call, Tensor out, Tensor x, Tensor weight, double eps) {
  norm_rows(out, x, weight, eps);
}
void acme(Call, Tensor out, Tensor x, Tensor weight, double eps) { norm_rows(out, x, weight, eps); }
int32_t flaky(Call call, Tensor, Tensor, Tensor, double) {
  return call.fail(YARD_FAULT, "the device hiccuped");
}

// Estimates nanoseconds: the vendor's kernel starts slowly and runs fast.
double unrolled_cost(void*, const int64_t* f, uint32_t) {
  return 0.5 * double(f[0]) * double(f[1]);
}
double acme_cost(void*, const int64_t* f, uint32_t) {
  return 5000 + 0.1 * double(f[0]) * double(f[1]);
}

void add_kernels() {
  static const char* const reads[] = {"rows", "hidden", nullptr};
  const yard_limit_t ours[] = {plugin::dtypes({YARD_F32}), plugin::compact()};
  const yard_limit_t theirs[] = {plugin::dtypes({YARD_F32}), plugin::compact(),
                                 plugin::multiple_of("hidden", 16)};
  using plugin::Backend, plugin::Kernel;
  yard::Changes c;
  // Remove the built-in kernels, so that only the tour's kernels compete.
  for (const yard::KernelInfo& k : yard::Runtime::shared().list().find_kernels("default.simd"))
    if (k.op == "rms_norm") c.remove_kernel(k.op, k.id);
  c.add_backend(Backend("acme").vendor("acme"));
  c.add_kernel(
      Kernel::of<unrolled>("rms_norm", "default.unrolled").limits(ours).cost(unrolled_cost, reads));
  c.add_kernel(Kernel::of<acme>("rms_norm", "vendor.acme")
                   .backend("acme")
                   .kind(YARD_KIND_VENDOR)
                   .limits(theirs)
                   .cost(acme_cost, reads));
  yard::Runtime::shared().apply(std::move(c)).or_throw();
}

bool colour() { return isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr; }

void heading(const char* text) {
  std::printf("\n%s%s%s\n\n", colour() ? "\033[1m" : "", text, colour() ? "\033[0m" : "");
}

// Prints the explanation and returns the selected kernel.
std::string explain(const char* call, const yard::Options& o = {}) {
  const yard::Explanation e = yard::explain(call, o).value();
  std::fputs(e.to_text(colour()).c_str(), stdout);
  return e.selected;
}

void choose() {
  heading(
      "Three kernels compete. The reference comes last; the others say what they expect to take.");
  CHECK(explain(g_call) == "vendor.acme");
  heading("The same op on a small call: what starts slowly loses.");
  CHECK(explain("rms_norm(f32[1,1024], f32[1024])") == "default.unrolled");
  heading("A width that is not a multiple of 16: the vendor's kernel says why it cannot serve.");
  CHECK(explain("rms_norm(f32[64,1000], f32[1000])") == "default.unrolled");
  heading("bf16: both say no, and the reference takes any call.");
  CHECK(explain("rms_norm(bf16[64,1024], bf16[1024])") == "reference.cpp");
}

void change_policy() {
  yard::Runtime& runtime = yard::Runtime::shared();
  heading("Policy: no kernels of acme. The answer says what would have been.");
  yard::Policy policy;
  policy.deny_vendors = {"acme"};
  runtime.set_policy(policy).or_throw();
  CHECK(explain(g_call) == "default.unrolled");
  heading("Policy: this op may use the vendor's kernel or the reference, in that order.");
  policy = {};
  policy.per_op["rms_norm"] = {"vendor:acme", "reference"};
  runtime.set_policy(policy).or_throw();
  CHECK(explain(g_call) == "vendor.acme");
  runtime.set_policy({}).or_throw();
  heading("One call forces the reference kernel; other calls are not affected.");
  yard::Options force;
  force.force = "reference.cpp";
  CHECK(explain(g_call, force) == "reference.cpp");
}

void fail_and_remove() {
  yard::Runtime& runtime = yard::Runtime::shared();
  std::vector<float> x(64 * 1024, 3.0f), w(1024, 0.5f), out(64 * 1024);
  const yard::TensorView tx = yard::view(x, {64, 1024}), tout = yard::view(out, {64, 1024});
  const yard::TensorView tweight = yard::view(w, {1024});
  yard::ResultRecord record;
  yard::Options options;
  options.result = &record;
  const auto run = [&] {
    yard::Status s = rms_norm.with(options)(tout, tx, tweight, 1e-6f);
    std::printf("  ran %s, %d kernel(s) tried, %s\n", record.kernel, record.attempts,
                s.ok() ? "ok" : s.to_string().c_str());
    return s;
  };

  heading(
      "The vendor ships an update that fails. The next kernel takes over, the caller sees a "
      "result.");
  yard::Changes update;
  update.replace_kernel(plugin::Kernel::of<flaky>("rms_norm", "vendor.acme")
                            .backend("acme")
                            .kind(YARD_KIND_VENDOR)
                            .priority(200));
  runtime.apply(std::move(update)).or_throw();
  CHECK(run().ok() && record.attempts == 2 && near(out[0], 0.5));
  heading("With `strict` the first choice or its error.");
  options.policy.emplace().strict = true;
  CHECK(run().code() == yard::Code::kKernelFailed);
  options.policy.reset();

  heading("The kernel is removed while the program runs. The ticket reports when no call uses it.");
  yard::Changes removal;
  removal.remove_backend("acme");
  yard::Ticket ticket = runtime.apply(std::move(removal)).value();
  ticket.wait().or_throw();
  CHECK(run().ok() && record.attempts == 1 && std::string(record.kernel) == "default.unrolled");
}

}  // namespace

int main() {
  add_kernels();
  choose();
  change_policy();
  fail_and_remove();
}
