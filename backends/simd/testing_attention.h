// SPDX-License-Identifier: Apache-2.0
// Calls attention over sequences, and computes expected results by sums in double.
#pragma once

#include <functional>

#include "attention.h"
#include "testing_reference.h"

namespace yard::simd::testing {

inline constexpr double kNothing = -HUGE_VAL;

// Returns the result of one query over the keys [first, last) from their elements.
using Element = std::function<double(int64_t, int64_t)>;
inline std::vector<double> attend(const std::vector<double>& query, int64_t first, int64_t last,
                                  const Element& key, const Element& value,
                                  const std::function<double(int64_t)>& added, double sink) {
  const auto dim = static_cast<int64_t>(query.size());
  std::vector<double> scores, out(query.size());
  double top = sink;
  for (int64_t j = first; j < last; ++j) {
    double s = 0;
    for (int64_t d = 0; d < dim; ++d) s += query[static_cast<size_t>(d)] * key(j, d);
    scores.push_back(s + added(j));
    top = std::max(top, scores.back());
  }
  const auto weight = [&](double s) { return s == kNothing ? 0.0 : std::exp(s - top); };
  double sum = weight(sink);
  for (int64_t j = first; j < last; ++j) {
    const double w = weight(scores[static_cast<size_t>(j - first)]);
    sum += w;
    for (int64_t d = 0; w != 0 && d < dim; ++d) out[static_cast<size_t>(d)] += w * value(j, d);
  }
  for (double& v : out) v = sum == 0 ? 0 : v / sum;
  return out;
}

inline void expect_close(uint32_t dtype, double found, double expected) {
  if (found == expected) return;  // also infinities
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(found)) << found;
    return;
  }
  const double room = dtype == YARD_F32 ? 2e-5 : dtype == YARD_F16 ? 2e-3 : 1.6e-2;
  EXPECT_NEAR(found, expected, room * (1 + std::abs(expected)));
}

struct Sizes {
  int64_t batch = 1, seq = 1, kv_seq = 1, heads = 1, kv_heads = 1, dim = 8;
};

enum class Kind { kFull, kCausal, kWindow, kCross };

// If padded, rows have gaps, and heads come before positions in memory.
struct Sequences {
  Sequences(uint32_t type, Sizes sizes, bool padded = false)
      : s(sizes),
        dtype(type),
        out(type, {s.batch, s.seq, s.heads, s.dim}, strides(padded, s.seq, s.heads)),
        query(type, {s.batch, s.seq, s.heads, s.dim}, strides(padded, s.seq, s.heads)),
        key(type, {s.batch, s.kv_seq, s.kv_heads, s.dim}, strides(padded, s.kv_seq, s.kv_heads)),
        value(type, {s.batch, s.kv_seq, s.kv_heads, s.dim}, strides(padded, s.kv_seq, s.kv_heads)) {
    fill(query, Contents::kNormal, 1), fill(key, Contents::kNormal, 2);
    fill(value, Contents::kNormal, 3);
  }
  Strides strides(bool padded, int64_t positions, int64_t count) const {
    if (!padded) return {};
    const int64_t row = s.dim + 3;
    return {row * positions * count, row, row * positions, 1};
  }

  int32_t run(Kind kind, const yard_host_t* host = nullptr) const {
    return pairs ? run_as<true>(kind, host) : run_as<false>(kind, host);
  }
  template <bool kPairs>
  int32_t run_as(Kind kind, const yard_host_t* host) const {
    yard_call_t c{};
    c.size = sizeof c, c.host = host;
    const auto tensor = [](const TestTensor* t) { return Tensor(t != nullptr ? t->c() : nullptr); };
    const Tensor o(out.c()), q(query.c()), k(key.c()), v(value.c()), m = tensor(mask);
    const int64_t bytes = attention_workspace(o, q, k, v, m, scale);
    std::vector<char> workspace(kPairs ? static_cast<size_t>(bytes) : 0, '\xff');  // NaN
    c.workspace = workspace.data(), c.workspace_size = workspace.size();
    switch (kind) {
      case Kind::kFull: return attention_full<kPairs>(Call(&c), o, q, k, v, m, scale);
      case Kind::kCausal: return attention_causal<kPairs>(Call(&c), o, q, k, v, m, scale);
      case Kind::kWindow:
        return attention_sliding_window<kPairs>(Call(&c), o, q, k, v, m, tensor(sinks), window,
                                                scale);
      case Kind::kCross:
        return attention_cross<kPairs>(Call(&c), o, q, k, v, tensor(lengths), m, scale);
    }
    return YARD_FAULT;
  }

  void check(Kind kind) const {
    SCOPED_TRACE(::testing::Message()
                 << "kind " << static_cast<int>(kind) << ", dtype " << dtype << ", seq " << s.seq
                 << ", kv_seq " << s.kv_seq << ", dim " << s.dim);
    ASSERT_EQ(run(kind), YARD_OK);
    const double factor = scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(s.dim));
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t i = 0; i < s.seq; ++i)
        for (int64_t h = 0; h < s.heads; ++h) {
          const int64_t g = h / (s.heads / s.kv_heads);
          int64_t last = s.kv_seq, first = 0;
          if (kind == Kind::kCross && lengths != nullptr)
            last = static_cast<int64_t>(lengths->at(static_cast<size_t>(b)));
          if (kind == Kind::kCausal || kind == Kind::kWindow) last = s.kv_seq - s.seq + i + 1;
          if (kind == Kind::kWindow) first = std::max<int64_t>(0, last - window);
          const auto row = static_cast<size_t>(((b * s.seq + i) * s.heads + h) * s.dim);
          std::vector<double> q;
          for (size_t d = 0; d < static_cast<size_t>(s.dim); ++d)
            q.push_back(query.at(row + d) * factor);
          const auto of = [&](const TestTensor& t) {
            return [&t, this, b, g](int64_t j, int64_t d) {
              return t.at(static_cast<size_t>(((b * s.kv_seq + j) * s.kv_heads + g) * s.dim + d));
            };
          };
          const auto added = [&](int64_t j) {
            return mask == nullptr ? 0
                                   : mask->at(static_cast<size_t>(
                                         ((b * s.heads + h) * s.seq + i) * s.kv_seq + j));
          };
          const double sink = kind == Kind::kWindow && sinks != nullptr
                                  ? sinks->at(static_cast<size_t>(h))
                                  : kNothing;
          const std::vector<double> expected =
              attend(q, first, last, of(key), of(value), added, sink);
          for (size_t d = 0; d < expected.size(); ++d)
            expect_close(dtype, out.at(row + d), expected[d]);
        }
    EXPECT_TRUE(out.gaps_intact());
  }

  Sizes s;
  uint32_t dtype;
  TestTensor out, query, key, value;
  const TestTensor *mask = nullptr, *sinks = nullptr, *lengths = nullptr;
  int64_t window = 0;
  double scale = 0;
  bool pairs = false;
};

inline constexpr Kind kKinds[] = {Kind::kFull, Kind::kCausal, Kind::kWindow, Kind::kCross};

}  // namespace yard::simd::testing
