// SPDX-License-Identifier: Apache-2.0
#include "dispatch/memo.h"

#include <gtest/gtest.h>

#include <random>

namespace yard::dispatch {
namespace {

// The form that is made from the fields of a tensor must equal the form of its view.
TEST(CallForm, OfAnyTensorIsThatOfItsView) {
  std::mt19937 random(11);
  const auto of = [&](std::initializer_list<int64_t> c) {
    return *(c.begin() + random() % c.size());
  };
  const detail::Site site{nullptr, 7, {0}, {1}, {1}, {1}, false, "op", "*"};
  base::ThreadRecord& thread = base::this_thread();
  size_t exact = 0, read = 0;
  for (int i = 0; i < 200000; ++i) {
    std::vector<int64_t> shape(random() % 6), strides;
    for (int64_t& n : shape) n = of({0, 1, 2, 3, 64, 4096, 1 << 20, int64_t{1} << 37, -1});
    if (random() % 2 == 0)
      for (size_t d = 0; d < shape.size(); ++d)
        strides.push_back(of({0, 1, 2, 64, 4096, 1 << 20, 1 << 24, -1}));
    const Device device{static_cast<int32_t>(of({0, 1, 2, 31, 32, -1})),
                        static_cast<int32_t>(of({0, 1, 255, 256, -1}))};
    const TensorView v(reinterpret_cast<void*>(of({64, 4096})), static_cast<DType>(random() % 25),
                       std::span<const int64_t>(shape), std::span<const int64_t>(strides), device);
    yard_tensor_t raw = v.c();
    if (strides.empty()) raw.strides = nullptr;
    if (random() % 2 == 0) raw.data = static_cast<char*>(raw.data) - 32, raw.byte_offset = 32;
    const yard_value_t cells[] = {{YARD_TAG_TENSOR, 0, {.tensor = &raw}},
                                  {YARD_TAG_TENSOR, 0, {.tensor = &v.c()}}};
    CallForm of_raw, of_view;
    ASSERT_TRUE(of_view.read(thread, site, {cells + 1, 1, Cells::kAllViews}));
    ASSERT_TRUE(of_raw.read(thread, site, {cells, 1}));
    ++read;
    ASSERT_EQ(of_raw.tensor[0].form.head, of_view.tensor[0].form.head);
    ASSERT_EQ(of_raw.tensor[0].form.dims, of_view.tensor[0].form.dims);
    ASSERT_EQ(of_raw.tensor[0].address, of_view.tensor[0].address);
    ASSERT_EQ(of_raw.hash, of_view.hash);
    exact += v.form().is_exact();
  }
  EXPECT_GT(exact, 1000u);
  EXPECT_GT(read - exact, 1000u);
}

// A scalar tensor may have pointers to empty arrays.
TEST(CallForm, NoSizesAreReadOfATensorOfRankZero) {
  const detail::Site site{nullptr, 7, {0}, {1}, {1}, {1}, false, "op", "*"};
  float data = 0;
  yard_tensor_t t = TensorView(&data, DType::f32, {}).c();
  t.shape = t.strides = reinterpret_cast<int64_t*>(8);  // an unreadable address
  const yard_value_t cell{YARD_TAG_TENSOR, 0, {.tensor = &t}};
  CallForm form;
  // The second time, the thread remembers the type.
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(form.read(base::this_thread(), site, {&cell, 1}));
  EXPECT_EQ(form.tensor[0].form.head, TensorView(&data, DType::f32, {}).form().head);
}

TEST(CallForm, CallsWithOtherThanTheOpsParametersHaveNone) {
  const detail::Site site{nullptr, 7, {0}, {2}, {1}, {1}, false, "op", "*"};
  float data[4] = {};
  const TensorView v(data, DType::f32, {4});
  yard_value_t cells[2] = {{YARD_TAG_TENSOR, 0, {.tensor = &v.c()}}, {YARD_TAG_INT, 0, {.i = 3}}};
  const auto has_form = [&](uint32_t count) {
    return CallForm().read(base::this_thread(), site, {cells, count});
  };
  EXPECT_TRUE(has_form(2));
  EXPECT_FALSE(has_form(1));
  for (const uint32_t tag : {uint32_t{YARD_TAG_LIST}, 99u, 0x80000001u}) {
    cells[1].tag = tag;
    EXPECT_FALSE(has_form(2)) << tag;
  }
}

}  // namespace
}  // namespace yard::dispatch
