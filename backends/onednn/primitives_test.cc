// SPDX-License-Identifier: Apache-2.0
// Tests that the cache of primitives reuses them, stays small, and lends each to one thread.
#include "primitives.h"

#include <gtest/gtest.h>

#include <thread>

#include "process.h"

namespace yard::onednn {
namespace {

Key softmax_of(int64_t rows, int64_t width) {
  Key key;
  key.rows = rows, key.width = width;
  return key;
}

TEST(OnednnPrimitives, AreUsedAgain) {
  PrimitiveCache cache(4);
  auto p = cache.take(softmax_of(2, 8));
  const Primitive* first = p.get();
  cache.give_back(std::move(p));
  EXPECT_EQ(cache.take(softmax_of(2, 8)).get(), first);
  EXPECT_EQ(cache.made(), 1u);
}

TEST(OnednnPrimitives, DifferInEveryPartOfTheirKey) {
  PrimitiveCache cache(16);
  Key norm;
  norm.kind = Kind::kLayerNorm, norm.rows = 2, norm.width = 8, norm.eps = 1e-5f;
  std::vector<Key> keys(7, norm);
  keys[1].eps = 1e-6f, keys[2].scale = true, keys[3].shift = true, keys[4].rows = 3;
  keys[5].width = 9, keys[6].kind = Kind::kSoftmax;
  for (const Key& k : keys) cache.give_back(cache.take(k));
  EXPECT_EQ(cache.made(), keys.size());
  for (const Key& k : keys) cache.give_back(cache.take(k));
  EXPECT_EQ(cache.made(), keys.size());
}

TEST(OnednnPrimitives, StayBounded) {
  PrimitiveCache cache(3);
  for (int64_t rows = 1; rows <= 50; ++rows) cache.give_back(cache.take(softmax_of(rows, 8)));
  EXPECT_EQ(cache.idle(), 3u);
  // The last three primitives are in the cache, and the first is gone.
  for (int64_t rows : {48, 49, 50}) cache.give_back(cache.take(softmax_of(rows, 8)));
  EXPECT_EQ(cache.made(), 50u);
  cache.give_back(cache.take(softmax_of(1, 8)));
  EXPECT_EQ(cache.made(), 51u);
}

TEST(OnednnPrimitives, TwoAtOnceAreTwo) {
  PrimitiveCache cache(4);
  auto a = cache.take(softmax_of(2, 8)), b = cache.take(softmax_of(2, 8));
  EXPECT_NE(a.get(), b.get());
  EXPECT_EQ(cache.made(), 2u);
}

TEST(OnednnPrimitives, ManyThreadsOneCache) {
  PrimitiveCache cache(8);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&cache, t] {
      const yard_host_t* no_host = nullptr;
      const ThreadCount count(no_host, 64);
      for (int i = 0; i < 200; ++i) {
        std::vector<float> x(4 * 16, float(t)), out(x.size());
        Key key = softmax_of(1 + (i + t) % 4, 16);
        key.threads = count.value();
        auto p = cache.take(key);
        std::vector<char> scratchpad(p->scratchpad_bytes());
        p->execute({out.data(), x.data()}, scratchpad.data());
        ASSERT_FLOAT_EQ(out[0], 1.0f / 16);
        cache.give_back(std::move(p));
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_LE(cache.idle(), 8u);
}

}  // namespace
}  // namespace yard::onednn
