// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of oneDNN's kernels: a call by name with a forced kernel, and a comparison
// with the reference kernel under the op's own tolerance.
#pragma once

#include <gtest/gtest.h>
#include <yard/runtime.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace yard::onednn::testing {

// Limits tests over many shapes. Under a sanitizer each element takes long.
#if defined(YARD_UNDER_ASAN)
inline constexpr int64_t kMostElements = 100'000;
#else
inline constexpr int64_t kMostElements = 10'000'000;
#endif

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

inline std::vector<float> normal(size_t count, float scale = 1, float offset = 0,
                                 unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw(offset, scale);
  std::vector<float> v(count);
  for (float& x : v) x = draw(random);
  return v;
}

// A row-wise call on [rows, width]. An empty weight or bias is not passed.
struct Case {
  std::string op;
  int64_t rows, width;
  std::vector<float> x;
  std::vector<float> weight, bias;
  double eps = 1e-5;
  bool in_place = false;

  std::pair<Status, std::vector<float>> run(const std::string& kernel) const {
    std::vector<float> from = x, to(x.size(), -7);
    const TensorView tx(from.data(), DType::f32, {rows, width});
    const TensorView tout(in_place ? from.data() : to.data(), DType::f32, {rows, width});
    std::vector<float> w = weight, b = bias;
    const TensorView tw(w.data(), DType::f32, {width}), tb(b.data(), DType::f32, {width});
    std::vector<Arg> args = {{"out", tout}, {"x", tx}};
    if (op == "layer_norm") args.push_back({"eps", eps});
    if (!w.empty()) args.push_back({"weight", tw});
    if (!b.empty()) args.push_back({"bias", tb});
    Options o;
    o.force = kernel;
    Status s = Runtime::shared().call(op, args, o);
    if (!in_place) {
      EXPECT_TRUE(std::equal(from.begin(), from.end(), x.begin(), [](float p, float q) {
        return p == q || (std::isnan(p) && std::isnan(q));
      })) << "the input was changed";
    }
    return {std::move(s), in_place ? from : to};
  }
};

// Expects that oneDNN gives the reference's results, into separate memory and in place.
inline void expect_as_reference(Case c) {
  const Listing listing = Runtime::shared().list();
  double rtol = 0, atol = 0;
  for (const yard_tolerance_t& t : listing.find_op(c.op)->tolerances)
    if (t.dtype == YARD_F32 && t.input == 0) rtol = t.rtol, atol = t.atol;
  const auto [status, expected] = c.run("reference.cpp");
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (const bool in_place : {false, true}) {
    c.in_place = in_place;
    const auto [code, found] = c.run("vendor.onednn");
    ASSERT_TRUE(code.ok()) << code.to_string();
    for (size_t i = 0; i < expected.size(); ++i) {
      const double e = expected[i], f = found[i];
      if (std::isnan(e) && std::isnan(f)) continue;
      if (e == f) continue;
      ASSERT_LE(std::abs(e - f), atol + rtol * std::abs(e))
          << c.op << " [" << c.rows << ", " << c.width << "] element " << i << ": " << f
          << " where the reference has " << e << (in_place ? ", in place" : "");
    }
  }
}

}  // namespace yard::onednn::testing
