// SPDX-License-Identifier: Apache-2.0
// Tests how programs register kernels and pass their own tensor types.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/c.h>
#include <yard/yard.h>

#include <array>
#include <span>
#include <string>
#include <vector>
#include <yard/plugin.hpp>

namespace mine {

struct Matrix {
  int64_t rows, columns;
  std::vector<float> data;
};
yard::TensorView yard_view(const Matrix& m) {
  return yard::TensorView(m.data.data(), yard::DType::f32, {m.rows, m.columns});
}

struct WithView {
  yard::TensorView view;
};
const yard::TensorView& yard_view(const WithView& m) { return m.view; }

}  // namespace mine

namespace yard {
namespace {

using ::testing::HasSubstr;

inline constexpr Op<void(Out, In, OptIn, double)> blend{"blend"};
inline constexpr const char* kBlend =
    "blend(out!: T[rows, d], x: T[rows, d], y?: T[rows, d], by: float = 1.0)";

void run_blend(plugin::Call call, plugin::Tensor out, plugin::Tensor x, plugin::Tensor y,
               double by) {
  std::span<float> sums = call.workspace<float>();
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t i = 0; i < x.size(-1); ++i)
      sums[static_cast<size_t>(i)] =
          x.at<float>(r, i) + (y ? static_cast<float>(by) * y.at<float>(r, i) : 0.0f);
    for (int64_t i = 0; i < x.size(-1); ++i)
      out.row<float>(r)[i * out.stride(-1)] = sums[static_cast<size_t>(i)];
  }
}
int64_t blend_bytes(plugin::Tensor, plugin::Tensor x, plugin::Tensor, double) {
  return x.size(-1) * static_cast<int64_t>(sizeof(float));
}

class Registering : public ::testing::Test {
 protected:
  Registering() {
    Changes c;
    c.add_op(plugin::OpDef(kBlend))
        .add_kernel(plugin::Kernel::of<run_blend>(blend, "default.blend").workspace<blend_bytes>());
    runtime_.apply(std::move(c)).or_throw();
  }
  Runtime runtime_;
};

TEST_F(Registering, AKernelWithoutABackendBelongsToTheOneItsIdBeginsWith) {
  const Resolution r = runtime_.resolve("blend(f32[2,3])").value();
  EXPECT_EQ(r.kernel, "default.blend");
  EXPECT_EQ(r.backend, "default");
  // Registering the same kernel again is fine, and so is another kernel of that backend.
  Changes again;
  again.add_kernel(plugin::Kernel::of<run_blend>("blend", "default.blend").workspace<blend_bytes>())
      .add_kernel(plugin::Kernel::of<run_blend>("blend", "default.more").priority(200));
  EXPECT_TRUE(runtime_.apply(std::move(again)).ok());
  EXPECT_EQ(runtime_.resolve("blend(f32[2,3])").value().kernel, "default.more");
  Changes removal;
  removal.remove_backend("default");
  EXPECT_TRUE(runtime_.apply(std::move(removal)).ok());
  EXPECT_TRUE(runtime_.list().find_kernels("default.blend").empty());
}

TEST_F(Registering, AVendorsKernelNeedsADeclaredBackend) {
  Changes c;
  c.add_kernel(plugin::Kernel::of<run_blend>("blend", "vendor.acme").kind(YARD_KIND_VENDOR));
  EXPECT_THAT(runtime_.apply(std::move(c)).status().to_string(), HasSubstr("needs a vendor"));
}

void wrong_result(plugin::Call, plugin::Tensor, plugin::Tensor) {}

TEST_F(Registering, TheReferenceOfABuiltInOpCannotBeAddedOrReplaced) {
  const auto kernel = [](const char* op, const char* id) {
    return plugin::Kernel::of<wrong_result>(op, id).kind(YARD_KIND_REFERENCE);
  };
  Changes added, replaced, own;
  added.add_kernel(kernel("silu_and_mul", "mine.wrong"));
  const Status why = runtime_.apply(std::move(added)).status();
  EXPECT_EQ(why.code(), Code::kConflict);
  EXPECT_THAT(why.to_string(),
              HasSubstr("kernel 'mine.wrong' of the program has kind reference, and "
                        "op 'silu_and_mul' is defined by a built-in backend"));
  replaced.replace_kernel(kernel("silu_and_mul", "reference.cpp"));
  EXPECT_EQ(runtime_.apply(std::move(replaced)).status().code(), Code::kConflict);
  own.add_op(plugin::OpDef("mine(out!: T[n], x: T[n])")).add_kernel(kernel("mine", "mine.cpp"));
  EXPECT_TRUE(runtime_.apply(std::move(own)).ok());

  // The C interface registers with the shared runtime.
  const plugin::Plugin descriptor = plugin::Plugin("mine", "1")
                                        .add(plugin::Backend("mine"))
                                        .add(kernel("silu_and_mul", "mine.wrong"));
  char error[512];
  EXPECT_NE(yard_register(descriptor.get(), error, sizeof error), YARD_OK);
  EXPECT_THAT(error, HasSubstr("has kind reference"));

  Policy reference;
  reference.reference_only = true;
  runtime_.set_policy(reference).or_throw();
  EXPECT_EQ(runtime_.resolve("silu_and_mul(f32[2,4])").value().kernel, "reference.cpp");
}

TEST_F(Registering, TensorsOfTheProgramArePassedAsTheyAre) {
  mine::Matrix out{2, 2, std::vector<float>(4)};
  const mine::Matrix x{2, 2, {1, 2, 3, 4}}, y{2, 2, {10, 20, 30, 40}};
  const auto on = blend.on(runtime_);
  ASSERT_TRUE(on(out, x, y, 2).ok());
  EXPECT_EQ(out.data, (std::vector<float>{21, 42, 63, 84}));
  ASSERT_TRUE(on(out, x, std::nullopt, 2.0).ok());
  EXPECT_EQ(out.data, x.data);
  // Own tensors can be mixed with views and used in handles.
  ASSERT_TRUE(on(out, yard::view(y.data, {2, 2}), x, 0.5).ok());
  EXPECT_EQ(out.data, (std::vector<float>{10.5, 21, 31.5, 42}));
  auto bound = bind(on, out, x, y).value();
  EXPECT_EQ(bound.kernel(), "default.blend");
  ASSERT_TRUE(bound(out, x, y, 1.0).ok());
  EXPECT_EQ(out.data, (std::vector<float>{11, 22, 33, 44}));
  auto frozen = freeze(on, out, x, y).value();
  ASSERT_TRUE(frozen(out, y, x, 1.0).ok());
  EXPECT_EQ(out.data, (std::vector<float>{11, 22, 33, 44}));
  // Own tensors are checked like views.
  const mine::Matrix other{1, 2, {1, 2}};
  EXPECT_EQ(on(out, other, y, 1.0).code(), Code::kInvalidArgument);
}

TEST_F(Registering, TensorsOfTheProgramMayKeepTheirViews) {
  std::vector<float> memory[3] = {{1, 2}, {10, 20}, {0, 0}};
  mine::WithView x{view(memory[0], {1, 2})}, y{view(memory[1], {1, 2})},
      out{view(memory[2], {1, 2})};
  static_assert(std::is_same_v<decltype(detail::as_argument(x)), const TensorView&>);
  const auto on = blend.on(runtime_);
  const auto bound = bind(on, out, x, y).value();
  ASSERT_TRUE(on(out, x, y, 1).ok());
  EXPECT_EQ(memory[2], (std::vector<float>{11, 22}));
  x.view = view(memory[1], {1, 2});
  ASSERT_TRUE(on(out, x, y, 1).ok());
  EXPECT_EQ(memory[2], (std::vector<float>{20, 40}));
  memory[2] = {0, 0};
  ASSERT_TRUE(bound(out, y, y, 1.0).ok());
  EXPECT_EQ(memory[2], (std::vector<float>{20, 40}));
  x.view = view(memory[1], {2, 1});
  EXPECT_EQ(on(out, x, y, 1).code(), Code::kInvalidArgument);
}

TEST(Views, TakeAnyRangeOfSizesAndConstantData) {
  const float data[6] = {0, 1, 2, 3, 4, 5};
  const std::vector<int64_t> shape = {2, 3};
  const std::array<int64_t, 2> strides = {3, 1};
  const int64_t plain[] = {2, 3};
  const float* const first = data;
  const TensorView all[] = {TensorView(data, DType::f32, {2, 3}),
                            TensorView(data, DType::f32, shape),
                            TensorView(data, DType::f32, std::span<const int64_t>(shape), strides),
                            TensorView(data, DType::f32, plain, {3, 1}),
                            view(data, {2, 3}),
                            view(first, {2, 3}),
                            view(const_cast<float*>(first), shape, strides),
                            view(&data[0], {2, 3})};
  for (const TensorView& v : all) {
    EXPECT_EQ(v.data(), data);
    EXPECT_EQ(v.numel(), 6);
    EXPECT_EQ(v.dtype(), DType::f32);
    EXPECT_EQ(v.strides()[0], 3);
    EXPECT_EQ(v.form().head, all[0].form().head);
    EXPECT_EQ(v.form().dims, all[0].form().dims);
  }
  EXPECT_FALSE(view(data, {2, 4}).valid());
  EXPECT_TRUE(TensorView(nullptr, DType::f32, shape).valid());
}

TEST(KernelTensors, IndexAnyStrides) {
  float data[24];
  for (int i = 0; i < 24; ++i) data[i] = static_cast<float>(i);
  const TensorView v(data, DType::f32, {2, 3, 4}, {1, 2, 6});
  const plugin::Tensor t(&v.c());
  EXPECT_EQ(t.rows(), 6);
  EXPECT_EQ(t.at<float>(1, 2, 3), 1 + 4 + 18);
  for (int64_t r = 0; r < 6; ++r) EXPECT_EQ(t.row<float>(r), &t.at<float>(r / 3, r % 3, 0)) << r;
  const TensorView scalar(data, DType::f32, Sizes());
  EXPECT_EQ(plugin::Tensor(&scalar.c()).rows(), 1);
}

}  // namespace
}  // namespace yard
