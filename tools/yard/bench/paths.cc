// SPDX-License-Identifier: Apache-2.0
#include "bench/paths.h"

#include <yard/plugin.hpp>

namespace yard::tool {
namespace {

constexpr float kEps = 1e-6f;

void noop(plugin::Call, plugin::Tensor, plugin::Tensor, plugin::Tensor, double) noexcept {}
void noop_2(plugin::Call, plugin::Tensor, plugin::Tensor, plugin::Tensor, plugin::Tensor,
            double) noexcept {}

// Returns the target of the raw call: the kernel's typed entry, as a pointer that the compiler
// cannot resolve.
using Entry = int32_t (*)(yard_call_t*, const yard_tensor_t*, const yard_tensor_t*,
                          const yard_tensor_t*, double);
Entry typed_entry() {
  return reinterpret_cast<Entry>(plugin::Kernel::of<noop>("bench_noop", "default.bench").d.typed);
}

// Returns a plugin with eight candidates for each op. Together they read dtypes and three
// properties of the call (rows, hidden and the alignment of x), as real kernels do. Two candidates
// cannot serve the usual call; the last one that can has the highest priority.
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
        plugin::OpDef("bench_noop(out!: T[*rows, hidden], x: T[*rows, hidden], weight: T[hidden], "
                      "eps: float = 1e-6) where out may_alias x"));
    p.add(plugin::OpDef(
        "bench_noop_2(out!: T[*rows, hidden], residual~: T[*rows, hidden], "
        "x: T[*rows, hidden], weight: T[hidden], eps: float = 1e-6) where out may_alias x"));
    for (int i = 0; i < 8; ++i) {
      p.add(Kernel::of<noop>("bench_noop", ids[i])
                .backend("bench")
                .priority(151 + i)
                .limits(limits[i]));
      p.add(Kernel::of<noop_2>("bench_noop_2", ids[i])
                .backend("bench")
                .priority(151 + i)
                .limits(limits[i]));
    }
    return p;
  }();
  return plugin.get();
}

}  // namespace

Status BenchCall::prepare() {
  Changes c;
  c.add_plugin(*noop_plugin());
  return Runtime::shared().apply(std::move(c)).status();
}

BenchCall::BenchCall()
    : usual_{view(out_, {8, kHidden}), view(x_, {8, kHidden}), view(weight_, {kHidden})} {
  const auto& [out, x, weight] = usual_;
  frozen_ = freeze(bench_noop, out, x, weight).value();
  bound_ = bind(bench_noop, out, x, weight).value();
  char error[256] = "";
  packed_ = yard_find_op("bench_noop", error, sizeof error);
  if (packed_ == nullptr) Status(Code::kInternal, error).or_throw();
  const Value cells[4] = {Value(out), Value(x), Value(weight), Value(double{kEps})};
  for (int i = 0; i < 4; ++i) args_[i] = cells[i].c();
  cold_.cache = false;
  with_record_.result = &record_;
  // Make sure that every way works before any is measured.
  bench_noop(out, x, weight, kEps).or_throw();
  bench_noop(out, out, weight, kEps).or_throw();
  bench_noop_2(out, view(out_, {8, kHidden}).with_data(out_ + 8 * kHidden), x, weight, kEps)
      .or_throw();
  call("bench_noop", {out, x, weight, {"eps", kEps}}).or_throw();
  if (yard_call(packed_, args_, 4, error, sizeof error) != YARD_OK)
    Status(Code::kInternal, error).or_throw();
}

Path BenchCall::one_form(const char* key, const char* meaning, const Form& form) {
  return {key, meaning,
          [form](int64_t n) {
            for (int64_t i = 0; i < n; ++i)
              bench_noop(form.out, form.x, form.weight, kEps).ignore();
          },
          5000};
}

Path BenchCall::in_rotation(const char* key, const char* meaning, std::vector<Form> forms) {
  return {key, meaning,
          [forms = std::move(forms)](int64_t n) {
            for (int64_t i = 0; i < n;)
              for (size_t k = 0; k < forms.size() && i < n; ++k, ++i)
                bench_noop(forms[k].out, forms[k].x, forms[k].weight, kEps).ignore();
          },
          4800};
}

Path BenchCall::raw() {
  return {"raw", "a call through a function pointer",
          [this](int64_t n) {
            static volatile Entry entry = typed_entry();
            yard_call_t call{};
            for (int64_t i = 0; i < n; ++i)
              entry(&call, &usual_.out.c(), &usual_.x.c(), &usual_.weight.c(),
                    static_cast<double>(kEps));
          },
          20000};
}

Path BenchCall::dynamic() { return one_form("dynamic", "typed call of the form before", usual_); }

std::vector<Path> BenchCall::paths() {
  const auto rows = [this](int64_t n) {
    return Form{view(out_, {n, kHidden}), view(x_, {n, kHidden}), view(weight_, {kHidden})};
  };
  const TensorView strided_x(x_, DType::f32, {8, kHidden}, {kStride, 1});
  const TensorView strided_out(out_, DType::f32, {8, kHidden}, {kStride, 1});
  const Form in_place{usual_.out, usual_.out, usual_.weight};
  const Form strided{strided_out, strided_x, usual_.weight};
  std::vector<Form> four, sixteen, mixed;
  for (int64_t n = 1; n <= 16; ++n) {
    sixteen.push_back(rows(n));
    if (n <= 4) four.push_back(rows(n));
    Form f = rows((n + 3) / 4);  // four sizes, each in four layouts
    if (n % 4 == 1) f.x = f.out;
    if (n % 4 == 2) f.x = TensorView(x_, DType::f32, {(n + 3) / 4, kHidden}, {kStride, 1});
    if (n % 4 == 3) f.out = TensorView(out_, DType::f32, {(n + 3) / 4, kHidden}, {kStride, 1});
    mixed.push_back(f);
  }
  Path frozen{"static", "frozen handle",
              [this](int64_t n) {
                const auto handle = *frozen_;  // nothing else can change this copy
                for (int64_t i = 0; i < n; ++i)
                  handle(usual_.out, usual_.x, usual_.weight, kEps).ignore();
              },
              20000};
  Path bound{"bound", "bound handle",
             [this](int64_t n) {
               const auto handle = *bound_;
               for (int64_t i = 0; i < n; ++i)
                 handle(usual_.out, usual_.x, usual_.weight, kEps).ignore();
             },
             10000};
  Path two_outputs{"two_outputs", "typed call that writes two of four tensors, in place",
                   [this](int64_t n) {
                     const TensorView residual(x_ + 8 * kHidden, DType::f32, {8, kHidden});
                     for (int64_t i = 0; i < n; ++i)
                       bench_noop_2(usual_.out, residual, usual_.x, usual_.weight, kEps).ignore();
                   },
                   5000};
  Path fresh{"fresh_views", "typed call, its three views rebuilt each time",
             [this](int64_t n) {
               for (int64_t i = 0; i < n; ++i)
                 bench_noop(view(out_, {8, kHidden}), view(x_, {8, kHidden}),
                            view(weight_, {kHidden}), kEps)
                     .ignore();
             },
             5000};
  Path own{"own_tensors", "typed call on a program's own tensor class",
           [this](int64_t n) {
             for (int64_t i = 0; i < n; ++i)
               bench_noop(own_out_, own_x_, own_weight_, kEps).ignore();
           },
           5000};
  Path growing{"growing", "typed call of a form never seen, three views rebuilt",
               [this, rows = int64_t{1}](int64_t n) mutable {
                 for (int64_t i = 0; i < n; ++i) {
                   rows = rows < kLongest ? rows + 1 : 2;
                   bench_noop(TensorView(long_out_.get(), DType::f32, {rows, kHidden}),
                              TensorView(long_x_.get(), DType::f32, {rows, kHidden}),
                              view(weight_, {kHidden}), kEps)
                       .ignore();
                 }
               },
               2000};
  Path scoped{"scoped", "typed call inside a policy scope",
              [this](int64_t n) {
                const ScopedPolicy in(scope_);
                for (int64_t i = 0; i < n; ++i)
                  bench_noop(usual_.out, usual_.x, usual_.weight, kEps).ignore();
              },
              5000};
  Path scope{"scope", "entering and leaving a policy scope",
             [this](int64_t n) {
               for (int64_t i = 0; i < n; ++i) {
                 const ScopedPolicy in(scope_);
               }
             },
             5000};
  Path packed{"packed", "packed call from C",
              [this](int64_t n) {
                char error[256];
                for (int64_t i = 0; i < n; ++i) yard_call(packed_, args_, 4, error, sizeof error);
              },
              5000};
  Path by_name{
      "by_name", "call by name, one argument named",
      [this](int64_t n) {
        for (int64_t i = 0; i < n; ++i)
          call("bench_noop", {usual_.out, usual_.x, usual_.weight, {"eps", kEps}}).ignore();
      },
      2000};
  Path options{
      "options", "typed call that fills in a ResultRecord",
      [this](int64_t n) {
        for (int64_t i = 0; i < n; ++i)
          bench_noop.with(with_record_)(usual_.out, usual_.x, usual_.weight, kEps).ignore();
      },
      1000};
  Path cold{"cold", "selection without the cache, 8 candidates",
            [this](int64_t n) {
              for (int64_t i = 0; i < n; ++i)
                bench_noop.with(cold_)(usual_.out, usual_.x, usual_.weight, kEps).ignore();
            },
            50};
  return {
      raw(),
      frozen,
      bound,
      dynamic(),
      in_rotation("shapes_4", "typed call, 4 alternating shapes", four),
      in_rotation("shapes_16", "typed call, 16 alternating shapes", sixteen),
      in_rotation("mixed_forms", "4 shapes, each compact, in place and strided two ways", mixed),
      one_form("in_place", "typed call whose output is its input", in_place),
      one_form("strided", "typed call on rows with a stride", strided),
      two_outputs,
      fresh,
      own,
      growing,
      scoped,
      scope,
      packed,
      by_name,
      options,
      cold};
}

Status add_other_kernels() {
  Changes c;
  for (int o = 0; o < 10; ++o) {
    const std::string op = "bench_other_" + std::to_string(o);
    c.add_op(plugin::OpDef((op + "(out!: T[n], x: T[n])").c_str()).d);
    for (int k = 0; k < 100; ++k) {
      const std::string id = "default.other_" + std::to_string(k);
      yard_kernel_t kernel{};
      kernel.size = sizeof kernel, kernel.op = op.c_str(), kernel.id = id.c_str();
      kernel.backend = "bench", kernel.kind = YARD_KIND_DEFAULT;
      kernel.run = [](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t { return YARD_OK; };
      c.add_kernel(kernel);
    }
  }
  return Runtime::shared().apply(std::move(c)).status();
}

Status remove_other_kernels() {
  Changes c;
  for (int o = 0; o < 10; ++o) c.remove_op("bench_other_" + std::to_string(o));
  return Runtime::shared().apply(std::move(c)).status();
}

}  // namespace yard::tool
