// SPDX-License-Identifier: Apache-2.0
// Tests `linear` by this machine's products of pairs, and by plain ones, against sums in double.
#include "linear_pairs.h"

#include <cmath>
#include <cstring>

#include "scalars.h"
#include "testing_reference.h"

namespace yard::simd {
namespace {

using testing::Contents;
using testing::Strides;
using testing::TestTensor;

float element(const char* at) { return widen(read<BF16>(at)); }

// The order matters, because hardware rounds sums to f32 after each pair.
void add_plainly(const PairSums& s) {
  EXPECT_EQ(s.columns % kPairColumns, 0u);
  for (size_t r = 0; r < s.rows; ++r)
    for (size_t c = 0; c < s.columns; ++c) {
      float& to = s.to[r * s.stride + c];
      for (size_t t = 0; t < s.count; ++t) {
        const char* const a =
            s.a.data + static_cast<int64_t>(r) * s.a.row + static_cast<int64_t>(t) * s.a.column;
        const char* const b = reinterpret_cast<const char*>(s.b + t * s.stride + c);
        to += element(a) * element(b) + element(a + 2) * element(b + 2);
      }
    }
}

void turn_plainly(const char* from, int64_t from_row, char* to, int64_t to_row) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j)
      std::memcpy(to + i * to_row + j * 4, from + j * from_row + i * 4, 4);
}

// One has panels as narrow as tiles need, the other as wide as vectors need.
constexpr PairProducts kPlainProducts[] = {
    {"plain, narrow", nullptr, add_plainly, turn_plainly, 32},
    {"plain, wide", nullptr, add_plainly, turn_plainly, 64}};

std::vector<const PairProducts*> products() {
  std::vector<const PairProducts*> to = {&kPlainProducts[0], &kPlainProducts[1]};
  for (const PairProducts* const* p = all_pair_products(); *p != nullptr; ++p) to.push_back(*p);
  return to;
}

void run(const PairProducts& by, const TestTensor& out, const TestTensor& x,
         const TestTensor& weight, const TestTensor* bias = nullptr,
         const yard_host_t* host = nullptr) {
  const Tensor o(out.c()), in(x.c()), w(weight.c()), none(nullptr);
  const Tensor b(bias != nullptr ? bias->c() : nullptr);
  const auto bytes = static_cast<size_t>(linear_pairs_workspace(o, in, w, none, b));
  struct alignas(64) Line {
    char bytes[64];
  };
  std::vector<Line> workspace(bytes / 64 + 1);
  std::memset(static_cast<void*>(workspace.data()), 0xff, bytes);  // NaN
  yard_call_t call{};
  call.size = sizeof call, call.host = host;
  call.workspace = workspace.data(), call.workspace_size = bytes;
  ASSERT_EQ(linear_pairs_by(by, Call(&call), o, in, w, b), YARD_OK);
}

struct LinearSizes {
  int64_t rows, n, k;
};

// `gap` elements lie between the rows of x, and between the rows of weight.
void compare(const PairProducts& by, LinearSizes s, int64_t gap = 0, bool with_bias = true,
             const yard_host_t* host = nullptr) {
  SCOPED_TRACE(::testing::Message()
               << by.name << ": " << s.rows << " x " << s.n << " x " << s.k << ", gap " << gap);
  TestTensor x(YARD_BF16, {s.rows, s.k}, Strides{s.k + gap, 1}),
      w(YARD_BF16, {s.n, s.k}, Strides{s.k + gap, 1}), out(YARD_BF16, {s.rows, s.n}),
      bias(YARD_BF16, {s.n});
  fill(x, Contents::kNormal, 1), fill(w, Contents::kNormal, 2), fill(bias, Contents::kNormal, 3);
  run(by, out, x, w, with_bias ? &bias : nullptr, host);
  const std::vector<double> a = x.values(), b = w.values();
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t n = 0; n < s.n; ++n) {
      double expected = with_bias ? bias.at(static_cast<size_t>(n)) : 0;
      for (int64_t i = 0; i < s.k; ++i)
        expected += a[static_cast<size_t>(r * s.k + i)] * b[static_cast<size_t>(n * s.k + i)];
      ASSERT_NEAR(out.at(static_cast<size_t>(r * s.n + n)), expected,
                  0.004 * std::abs(expected) + 1e-5 * std::sqrt(static_cast<double>(s.k)) + 1e-30)
          << r << ", " << n;
    }
  EXPECT_TRUE(out.gaps_intact());
}

TEST(PairLinear, AgreesWithTheDefinition) {
  for (const PairProducts* const p : products()) {
    for (const int64_t k : {1, 2, 7, 31, 32, 33, 64, 255, 256, 257, 600}) compare(*p, {3, 5, k});
    for (const int64_t rows : {1, 15, 16, 17, 32, 33, 63, 64, 65, 80, 127, 129, 200})
      compare(*p, {rows, 33, 40});
    for (const int64_t n : {1, 31, 32, 64, 95, 129, 160}) compare(*p, {18, n, 70});
    compare(*p, {130, 160, 520});
    // More than one block of rows and of weights, and rows of x that no cache of a core keeps.
    compare(*p, {260, 300, 70});
    compare(*p, {200, 150, 1800});
  }
}

TEST(PairLinear, TakesGapsBetweenRowsAndNoBias) {
  for (const PairProducts* const p : products())
    for (const LinearSizes s : {LinearSizes{20, 40, 64}, LinearSizes{70, 33, 300}}) {
      compare(*p, s, 3);
      compare(*p, s, 32, false);
    }
}

TEST(PairLinear, AcceptsEmptySizes) {
  for (const PairProducts* const p : products())
    for (const LinearSizes s :
         {LinearSizes{0, 3, 64}, LinearSizes{2, 0, 64}, LinearSizes{20, 40, 0}})
      compare(*p, s);
}

TEST(PairLinear, TakesAnyStridesOfRows) {
  constexpr int64_t kN = 40, kK = 72;
  for (const PairProducts* const p : products())
    for (const Strides& strides :
         {Strides{800, 80, 1}, Strides{80, 300, 1}, Strides{-800, 80, 1}, Strides{0, 80, 1}}) {
      TestTensor w(YARD_BF16, {kN, kK}, Strides{-kK - 1, 1});
      TestTensor x(YARD_BF16, {3, 7, kK}, strides), compact(YARD_BF16, {3, 7, kK});
      fill(w, Contents::kNormal, 1), fill(x, Contents::kNormal, 2);
      compact.set(x.values());
      TestTensor found(YARD_BF16, {3, 7, kN}, Strides{50, 200, 1}), plain(YARD_BF16, {3, 7, kN});
      run(*p, found, x, w);
      run(*p, plain, compact, w);
      EXPECT_EQ(found.values(), plain.values());
      EXPECT_TRUE(found.gaps_intact());
    }
}

// A row's results depend neither on the pieces of a loop nor on the rows beside it.
TEST(PairLinear, GivesTheSameBitsInPiecesAndForAnyNumberOfRows) {
  constexpr int64_t kN = 200, kK = 700, kRows = 150;
  for (const PairProducts* const p : products()) {
    TestTensor x(YARD_BF16, {kRows, kK}), w(YARD_BF16, {kN, kK}), whole(YARD_BF16, {kRows, kN}),
        pieces(YARD_BF16, {kRows, kN}), one(YARD_BF16, {1, kK}), result(YARD_BF16, {1, kN});
    fill(x, Contents::kNormal, 1), fill(w, Contents::kNormal, 2);
    run(*p, whole, x, w);
    run(*p, pieces, x, w, nullptr, testing::splitting_host());
    EXPECT_TRUE(whole.bytes() == pieces.bytes());
    const std::vector<double> values = x.values(), all = whole.values();
    for (const ptrdiff_t row : {0, 37, 149}) {
      one.set({values.begin() + row * kK, values.begin() + (row + 1) * kK});
      run(*p, result, one, w);
      EXPECT_EQ(result.values(),
                std::vector<double>(all.begin() + row * kN, all.begin() + (row + 1) * kN));
    }
  }
}

// The more threads there are, the smaller are the blocks.
TEST(PairLinear, GivesTheSameBitsForAnyNumberOfThreads) {
  constexpr int64_t kN = 330, kK = 300, kRows = 270;
  static int32_t threads;
  yard_host_t host = *testing::splitting_host();
  host.concurrency = [](void*) { return threads; };
  for (const PairProducts* const p : products()) {
    TestTensor x(YARD_BF16, {kRows, kK}), w(YARD_BF16, {kN, kK}), one(YARD_BF16, {kRows, kN}),
        many(YARD_BF16, {kRows, kN});
    fill(x, Contents::kNormal, 1), fill(w, Contents::kNormal, 2);
    run(*p, one, x, w);
    for (const int32_t n : {2, 3, 7, 16, 100}) {
      threads = n;
      run(*p, many, x, w, nullptr, &host);
      EXPECT_TRUE(one.bytes() == many.bytes()) << p->name << ", " << n << " threads";
    }
  }
}

// Special values affect only their rows and columns, also at the ends of all dimensions.
TEST(PairLinear, KeepsSpecialValuesWhereTheyAre) {
  constexpr int64_t kN = 35, kK = 45, kRows = 18;
  for (const PairProducts* const p : products())
    for (const double special : {std::nan(""), HUGE_VAL}) {
      TestTensor x(YARD_BF16, {kRows, kK}), w(YARD_BF16, {kN, kK}), out(YARD_BF16, {kRows, kN});
      std::vector<double> a(kRows * kK, 1), b(kN * kK, 2);
      a[17 * kK + 44] = special, b[34 * kK + 44] = -special;
      x.set(a), w.set(b);
      run(*p, out, x, w);
      for (int64_t r = 0; r < kRows; ++r)
        for (int64_t n = 0; n < kN; ++n) {
          const double found = out.at(static_cast<size_t>(r * kN + n));
          if (r != 17 && n != 34) {
            EXPECT_EQ(found, 2.0 * kK);
          } else if (std::isnan(special)) {
            EXPECT_TRUE(std::isnan(found));
          } else {
            EXPECT_EQ(found, r == 17 && n != 34 ? special : -special);
          }
        }
    }
}

}  // namespace
}  // namespace yard::simd
