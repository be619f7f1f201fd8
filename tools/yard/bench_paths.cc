// SPDX-License-Identifier: Apache-2.0
// An op whose kernels do nothing, and the ways to call it.
#include "bench_paths.h"

#include <yard/plugin.hpp>

namespace yard::tool {
namespace {

constexpr float kEps = 1e-6f;

void noop(plugin::Call, plugin::Tensor, plugin::Tensor, plugin::Tensor, double) noexcept {}

// What the raw call goes to: the kernel's typed entry, reached through a pointer the compiler cannot see
// through.
using Entry = int32_t (*)(yard_call_t*, const yard_tensor_t*, const yard_tensor_t*,
                          const yard_tensor_t*, double);
Entry typed_entry() {
  return reinterpret_cast<Entry>(plugin::Kernel::of<noop>("bench_noop", "default.bench").d.typed);
}

// Eight candidates. Between them they read dtypes and three things of the call's form (rows, hidden,
// the alignment of x), which is what real kernels ask for. The last that can serve the call has the
// highest priority; two cannot.
const yard_plugin_t* noop_plugin() {
  using namespace plugin;
  static const yard_limit_t any = dtypes({YARD_F32, YARD_F16, YARD_BF16}), f32 = dtypes({YARD_F32});
  static const yard_limit_t half = dtypes({YARD_F16, YARD_BF16});
  static const yard_limit_t many = at_least("rows", 1024), wide = multiple_of("hidden", 64);
  static const yard_limit_t lines = aligned(64, "x");
  static const std::vector<yard_limit_t> limits[8] = {{any},       {any, wide},       {f32},
                                                      {f32, wide}, {f32, lines},      {half, wide},
                                                      {f32, many}, {f32, wide, lines}};
  static const char* const ids[8] = {"default.bench_0", "default.bench_1", "default.bench_2",
                                     "default.bench_3", "default.bench_4", "default.bench_5",
                                     "default.bench_6", "default.bench_7"};
  static const Plugin plugin = [] {
    Plugin p("bench", "1");
    p.add(Backend("bench").summary("Kernels that do nothing"));
    p.add(
        plugin::Op("bench_noop(out!: T[*rows, hidden], x: T[*rows, hidden], weight: T[hidden], "
                   "eps: float = 1e-6)"));
    for (int i = 0; i < 8; ++i)
      p.add(Kernel::of<noop>("bench_noop", ids[i])
                .backend("bench")
                .priority(151 + i)
                .limits(limits[i]));
    return p;
  }();
  return plugin.get();
}

}  // namespace

Status BenchCall::prepare() {
  Changes c;
  c.add_plugin(*noop_plugin());
  return Runtime::shared().apply(std::move(c));
}

BenchCall::BenchCall()
    : tx_(view(x_, {8, 64})),
      tout_(view(out_, {8, 64})),
      tweight_(view(weight_, {64})),
      few_x_(view(x_, {4, 64})),
      few_out_(view(out_, {4, 64})) {
  frozen_ = freeze(bench_noop, tout_, tx_, tweight_).value();
  bound_ = bind(bench_noop, tout_, tx_, tweight_).value();
  char error[256] = "";
  packed_ = yard_find_op("bench_noop", error, sizeof error);
  if (packed_ == nullptr) Status(Code::kInternal, error).or_throw();
  const Value cells[4] = {Value(tout_), Value(tx_), Value(tweight_), Value(double{kEps})};
  for (int i = 0; i < 4; ++i) args_[i] = cells[i].c();
  cold_.cache = false;
  // Every way works before any is measured.
  bench_noop(tout_, tx_, tweight_, kEps).or_throw();
  if (yard_call(packed_, args_, 4, error, sizeof error) != YARD_OK)
    Status(Code::kInternal, error).or_throw();
}

Path BenchCall::raw() {
  return {"raw", "a call through a function pointer",
          [this](int64_t n) {
            static volatile Entry entry = typed_entry();
            yard_call_t call{};
            for (int64_t i = 0; i < n; ++i)
              entry(&call, &tout_.c(), &tx_.c(), &tweight_.c(), static_cast<double>(kEps));
          },
          20000};
}

Path BenchCall::dynamic() {
  return {"dynamic", "typed call, plan from the cache",
          [this](int64_t n) {
            for (int64_t i = 0; i < n; ++i) bench_noop(tout_, tx_, tweight_, kEps).ignore();
          },
          5000};
}

std::vector<Path> BenchCall::paths() {
  Path frozen{"static", "frozen handle",
              [this](int64_t n) {
                const auto handle = *frozen_;  // as in a user's loop: nobody else can change it
                for (int64_t i = 0; i < n; ++i) handle(tout_, tx_, tweight_, kEps).ignore();
              },
              20000};
  Path bound{"bound", "bound handle",
             [this](int64_t n) {
               const auto handle = *bound_;
               for (int64_t i = 0; i < n; ++i) handle(tout_, tx_, tweight_, kEps).ignore();
             },
             10000};
  Path packed{"packed", "packed call from C",
              [this](int64_t n) {
                char error[256];
                for (int64_t i = 0; i < n; ++i) yard_call(packed_, args_, 4, error, sizeof error);
              },
              5000};
  Path varied{"varied", "typed call, of another shape each time",
              [this](int64_t n) {
                for (int64_t i = 0; i < n; i += 2) {
                  bench_noop(tout_, tx_, tweight_, kEps).ignore();
                  bench_noop(few_out_, few_x_, tweight_, kEps).ignore();
                }
              },
              5000};
  Path scoped{"scoped", "typed call inside a policy scope",
              [this](int64_t n) {
                const ScopedPolicy in(scope_);
                for (int64_t i = 0; i < n; ++i) bench_noop(tout_, tx_, tweight_, kEps).ignore();
              },
              5000};
  Path scope{"scope", "entering and leaving a policy scope",
             [this](int64_t n) {
               for (int64_t i = 0; i < n; ++i) {
                 const ScopedPolicy in(scope_);
               }
             },
             5000};
  Path cold{"cold", "selection anew, 8 candidates",
            [this](int64_t n) {
              for (int64_t i = 0; i < n; ++i)
                bench_noop.with(cold_)(tout_, tx_, tweight_, kEps).ignore();
            },
            50};
  return {raw(), frozen, bound, dynamic(), varied, scoped, packed, scope, cold};
}

Status add_other_kernels() {
  Changes c;
  for (int o = 0; o < 10; ++o) {
    const std::string op = "bench_other_" + std::to_string(o);
    c.add_op(plugin::Op((op + "(out!: T[n], x: T[n])").c_str()).d);
    for (int k = 0; k < 100; ++k) {
      const std::string id = "default.other_" + std::to_string(k);
      yard_kernel_t kernel{};
      kernel.size = sizeof kernel, kernel.op = op.c_str(), kernel.id = id.c_str();
      kernel.backend = "bench", kernel.kind = YARD_KIND_DEFAULT;
      kernel.run = [](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t { return YARD_OK; };
      c.add_kernel(kernel);
    }
  }
  return Runtime::shared().apply(std::move(c));
}

Status remove_other_kernels() {
  Changes c;
  for (int o = 0; o < 10; ++o) c.remove_op("bench_other_" + std::to_string(o));
  return Runtime::shared().apply(std::move(c));
}

}  // namespace yard::tool
