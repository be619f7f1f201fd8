// SPDX-License-Identifier: Apache-2.0
// Adds a new op, from its schema to its verification. The op computes the mean of indexed rows.
#include <yard/yard.h>
#include <yard/plugin.hpp>

#include <string>
#include <vector>

#include "check.h"

namespace plugin = yard::plugin;

// [schema]
inline constexpr const char* kBagMean =
    "bag.mean(out!: f32[rows, d], ids: I[rows, n], table: f32[vocab, d]) "
    "where I in {i32, i64}, ids in [0, vocab)";
// [/schema]

// [reference]
int32_t mean_reference(plugin::Call call, plugin::Tensor out, plugin::Tensor ids,
                       plugin::Tensor table) {
  const auto id = [&](int64_t r, int64_t k) {
    return ids.dtype() == YARD_I64 ? ids.at<int64_t>(r, k) : int64_t{ids.at<int32_t>(r, k)};
  };
  const int64_t n = ids.size(1);
  for (int64_t r = 0; r < ids.size(0); ++r)
    for (int64_t k = 0; k < n; ++k)
      if (id(r, k) < 0 || id(r, k) >= table.size(0))
        return call.fail(YARD_CALLER, "bag.mean: invalid id: expected 0 <= id < %lld, got %lld",
                         (long long)table.size(0), (long long)id(r, k));
  for (int64_t r = 0; r < out.size(0); ++r)
    for (int64_t i = 0; i < out.size(1); ++i) {
      double sum = 0;
      for (int64_t k = 0; k < n; ++k) sum += table.at<float>(id(r, k), i);
      out.at<float>(r, i) = n == 0 ? 0.0f : float(sum / double(n));
    }
  return YARD_OK;
}
// [/reference]

// [kernel]
void mean_rows(plugin::Call call, plugin::Tensor out, plugin::Tensor ids, plugin::Tensor table) {
  const int64_t n = ids.size(1), d = out.size(1);
  call.parallel_for(out.size(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t* const id = ids.data<int64_t>() + r * n;
      for (int64_t i = 0; i < d; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < n; ++k) sum += table.data<float>()[id[k] * d + i];
        out.data<float>()[r * d + i] = n == 0 ? 0.0f : float(sum / double(n));
      }
    }
  });
}
// [/kernel]

// [call]
inline constexpr yard::Op<void(yard::Out, yard::In, yard::In)> bag_mean{"bag.mean"};
// [/call]

int main() {
  yard::Runtime& runtime = yard::Runtime::shared();
  // [register]
  const yard_tolerance_t tolerances[] = {{YARD_F32, 0, 1e-5, 1e-5}};
  const yard_limit_t limits[] = {plugin::dtypes({YARD_I64}, "ids"), plugin::compact()};
  yard::Changes changes;
  changes
      .add_op(plugin::OpDef(kBagMean)
                  .summary("The mean of the rows that ids select.")
                  .tolerances(tolerances))
      .add_kernel(plugin::Kernel::of<mean_reference>("bag.mean", "reference.bag")
                      .kind(YARD_KIND_REFERENCE)
                      .flags(YARD_KERNEL_DETERMINISTIC | YARD_KERNEL_FAILS_BEFORE_WRITING))
      .add_kernel(plugin::Kernel::of<mean_rows>("bag.mean", "default.bag")
                      .limits(limits)
                      .flags(YARD_KERNEL_DETERMINISTIC));
  runtime.apply(std::move(changes)).or_throw();
  // [/register]

  // [values]
  std::vector<float> table = {1, 2, 3, 4, 5, 6}, out(2 * 2);
  std::vector<int64_t> ids = {0, 2, 1, 1};
  const yard::TensorView to = yard::view(out, {2, 2});
  bag_mean(to, yard::view(ids, {2, 2}), yard::view(table, {3, 2})).or_throw();
  CHECK(out == (std::vector<float>{3, 4, 3, 4}));  // the mean of rows 0 and 2, and row 1
  ids[3] = 3;
  yard::ScopedPolicy exact(yard::Scope().prefer(yard::Kind::kReference));
  const yard::Status wrong = bag_mean(to, yard::view(ids, {2, 2}), yard::view(table, {3, 2}));
  CHECK(wrong.error_class() == yard::ErrorClass::kCaller);
  // [/values]
  CHECK(std::string(wrong.message()).find("expected 0 <= id < 3, got 3") != std::string::npos);

  // [verify]
  yard::VerifyOptions options;
  options.op = "bag.mean";
  options.cases = 100;
  const yard::VerifyReport report = yard::verify(runtime, options).value();
  for (const yard::KernelReport& k : report.kernels)
    std::printf("%s: %zu passed, %zu failed\n", k.id.c_str(), k.passed, k.failed);
  CHECK(report.ok());
  // [/verify]
  CHECK(report.kernels.size() == 2);
  CHECK(report.kernels[0].passed >= 100 && report.kernels[1].passed == 100);

  // [rules]
  const yard::ConfigReading rules = yard::parse_config(
      "version: '1.0'\n"
      "dispatch_rules: [{operation: 'bag.*', kernel: reference.bag}]\n",
      "rules.yaml");
  runtime.rules().set(rules.config).or_throw();
  CHECK(runtime.resolve("bag.mean(i64[4,2], f32[10,8])").value().kernel == "reference.bag");
  // [/rules]
}
