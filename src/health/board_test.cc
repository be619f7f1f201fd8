// SPDX-License-Identifier: Apache-2.0
// Tests openings, time, snapshots, events and bounds of a board.
#include "health/board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "health/testing.h"

namespace yard::health {
namespace {

using namespace std::chrono_literals;
using namespace testing;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST(Board, ConsecutiveFaultsOpenUntilTheCooldownIsOver) {
  Board board;
  const Key key = key_of();
  for (int i = 0; i < 4; ++i) {
    const BoardUpdate told = board->fault(key, ErrorClass::kFault, "it broke", t0);
    EXPECT_EQ(told.changed, i == 0) << "the first one publishes that it counts";
    EXPECT_FALSE(told.opened);
  }
  EXPECT_TRUE(all_closed(board));
  EXPECT_TRUE(board->fault(key, ErrorClass::kFault, "it broke", t0).opened);
  const auto snapshot = board->snapshot();
  const BreakerStatus* h = breaker_of(*snapshot, key);
  ASSERT_NE(h, nullptr);
  EXPECT_EQ(h->state, kOpen);
  EXPECT_EQ(h->until, t0 + 30s);
  EXPECT_EQ(h->probes, nullptr);
  EXPECT_EQ(h->key, key);
  EXPECT_EQ(board->next_change(), t0 + 30s);
}

// The board reads successes from counters when a call fails.
TEST(Board, ASuccessEndsConsecutiveFaults) {
  BreakerSettings s;
  s.failure_percent = 0;
  Board board(s);
  const Key key = key_of();
  for (uint64_t i = 0; i < 100; ++i)
    for (int k = 0; k < 4; ++k) fail_after(board, key, i, t0);
  EXPECT_TRUE(all_closed(board));
  EXPECT_TRUE(fail_after(board, key, 99, t0).opened);
}

TEST(Board, CallsOfFunctionsAreNotDividedIntoKinds) {
  Board board;
  const Key key{"group/f", "acme", "acme", {}};
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(fail(board, key, t0));
  EXPECT_EQ(board->snapshot()->of_op("group/f"), nullptr);
  EXPECT_TRUE(fail(board, key, t0));
  EXPECT_EQ(state_of(board, key), kOpen);
}

TEST(Board, KindsThatFailAreCountedUntilTheyAreForgotten) {
  Board board;
  const Key key = key_of(), large = key_of("default.simd", 1000);
  using Counting = HealthSnapshot::OfOp::Counting;
  fail(board, key, t0), fail(board, large, t0 + 1s);
  EXPECT_THAT(board->snapshot()->of_op("rms_norm")->counting,
              UnorderedElementsAre(Counting{"default.simd", key.kind},
                                   Counting{"default.simd", large.kind}));
  EXPECT_EQ(board->next_change(), t0 + 10min + 1ns);
  EXPECT_FALSE(board->advance(t0 + 10min));
  EXPECT_TRUE(board->advance(t0 + 10min + 1ns));
  EXPECT_THAT(board->snapshot()->of_op("rms_norm")->counting,
              UnorderedElementsAre(Counting{"default.simd", large.kind}));
  EXPECT_TRUE(board->advance(t0 + 10min + 2s));
  EXPECT_EQ(board->snapshot()->of_op("rms_norm"), nullptr);
  EXPECT_EQ(board->next_change(), std::nullopt);
}

// Every other call of a key fails, so failures never come in a row.
TEST(Board, APercentageOfFailuresOpensToo) {
  Board board;
  const Key key = key_of();
  uint64_t calls = 0;
  for (; calls < 1000 && state_of(board, key) == kClosed; ++calls)
    if (calls % 2 == 0) fail_after(board, key, calls / 2, t0 + calls * 1ms);
  EXPECT_EQ(calls, 101u) << "100 calls are the least";
  const auto events = board->take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].text, "51 of 101 calls failed, the last: it broke");
}

TEST(Board, FewerFailuresThanThePercentageEndTheCount) {
  Board board;
  const Key key = key_of();
  for (uint64_t i = 0; i < 1000; ++i) fail_after(board, key, i * 2, t0);
  EXPECT_EQ(state_of(board, key), kClosed);
  // If calls are slow, no window has enough of them.
  const Key slow = key_of("default.simd", 1000);
  for (uint64_t i = 0; i < 500; i += 2) fail_after(board, slow, i / 2, t0 + i * 200ms);
  EXPECT_EQ(state_of(board, slow), kClosed);
}

TEST(Board, FailuresOfAReplacedKernelDoNotCount) {
  Board board;
  const Key key = key_of();
  const int kernels[2] = {};
  const auto fails = [&](const int& kernel) {
    return board->fault(key, ErrorClass::kFault, "it broke", t0, {.kernel = &kernel}).opened;
  };
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(fails(kernels[0]));
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(fails(kernels[1]));
  EXPECT_TRUE(fails(kernels[1]));
  // The successes of the new kernel are counted from the start.
  board->close(key, t0, true);
  const auto fails_after = [&](const int& kernel, uint64_t successes) {
    return board
        ->fault(key, ErrorClass::kFault, "it broke", t0,
                {.successes = successes, .kernel = &kernel})
        .opened;
  };
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(fails_after(kernels[0], 1000));
  for (uint64_t i = 0; i < 20; ++i) EXPECT_FALSE(fails_after(kernels[1], i));
}

TEST(Board, OnlyCheckedResultsTellOfResults) {
  Board board;
  const Key key = key_of();
  uint64_t calls = 0;
  const auto wrong = [&] {
    return board
        ->fault(key, ErrorClass::kFault, "wrong", t0, {.wrong = true, .successes = calls += 1000})
        .opened;
  };
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(wrong());
  EXPECT_TRUE(wrong());
  EXPECT_EQ(state_of(board, key), kOpen);
  board->close(key, t0, true);
  // One right result ends the row.
  for (int i = 0; i < 40; ++i) {
    EXPECT_FALSE(wrong());
    for (int k = 0; k < 3; ++k) board->found_right(key, t0);
  }
  EXPECT_EQ(state_of(board, key), kClosed);
}

// Unchecked results do not dilute the percentage either.
TEST(Board, ThePercentageOfWrongResultsIsThatOfCheckedOnes) {
  Board board;
  const Key key = key_of();
  for (uint64_t i = 0; i < 1000 && state_of(board, key) == kClosed; ++i)
    if (i % 2 == 0)
      board->fault(key, ErrorClass::kFault, "wrong", t0, {.wrong = true, .successes = 10 * i});
    else
      board->found_right(key, t0);
  EXPECT_EQ(state_of(board, key), kOpen);
  EXPECT_EQ(board->take_events().at(0).text,
            "51 of 101 checked results were wrong, the last: wrong");
}

TEST(Board, ReportsNameTheCallsThatFailed) {
  Board board;
  const Key key = key_of();
  int texts = 0;
  const auto failed = [&](uint64_t sizes, Time now) {
    board->fault(key, ErrorClass::kFault, "it broke", now,
                 {.sizes = sizes, .text = [&, sizes] {
                    ++texts;
                    return "rms_norm(f32[8," + std::to_string(sizes) + "])@cpu";
                  }});
  };
  failed(5120, t0), failed(5120, t0), failed(6144, t0), failed(5120, t0 + 1s);
  EXPECT_EQ(texts, 2) << "made once for each";
  auto kernel = board->report({}, t0 + 2s).kernels.at(0);
  ASSERT_EQ(kernel.failed_calls.size(), 2u);
  EXPECT_EQ(kernel.failed_calls[0].call, "rms_norm(f32[8,5120])@cpu");
  EXPECT_EQ(kernel.failed_calls[0].count, 3u);
  EXPECT_NE(to_string(board->report({}, t0 + 2s), t0 + 2s)
                .find("  failed: rms_norm(f32[8,5120])@cpu, 3 times, last 1.0s ago\n"),
            std::string::npos);
  failed(5120, t0 + 1s);
  EXPECT_EQ(breaker_of(*board->snapshot(), key)->failed_calls,
            "rms_norm(f32[8,5120])@cpu, rms_norm(f32[8,6144])@cpu");
  EXPECT_NE(board->take_events().at(0).text.find("; failed calls: rms_norm(f32[8,5120])@cpu"),
            std::string::npos);
  // The list is bounded, and a new call replaces only an old one.
  for (uint64_t n = 1; n <= 100; ++n) failed(n, t0 + 2s);
  EXPECT_EQ(texts, static_cast<int>(kFailedCalls));
  failed(7, t0 + 1h);
  kernel = board->report({}, t0 + 1h).kernels.at(0);
  EXPECT_EQ(kernel.failed_calls.size(), kFailedCalls);
  EXPECT_EQ(kernel.failed_calls[0].call, "rms_norm(f32[8,7])@cpu");
  board->close(key, t0 + 1h, true);
  EXPECT_TRUE(board->report({}, t0 + 1h).kernels.at(0).failed_calls.empty());
}

TEST(Board, OnlyFaultsCount) {
  Board board;
  const Key key = key_of();
  for (const ErrorClass c :
       {ErrorClass::kCaller, ErrorClass::kDeclined, ErrorClass::kTransient, ErrorClass::kFatal})
    for (int i = 0; i < 20; ++i) EXPECT_FALSE(board->fault(key, c, "no", t0).changed);
  EXPECT_TRUE(all_closed(board));
  // These failures do not end a row either.
  fail_times(board, key, 4, t0);
  board->fault(key, ErrorClass::kTransient, "busy", t0);
  EXPECT_TRUE(fail(board, key, t0));
}

TEST(Board, KeysAreIndependent) {
  Board board;
  fail_times(board, key_of(), 5, t0);
  for (const Key& other :
       {key_of("reference.cpp"), key_of("default.simd", 64), key_of("default.simd", 8, "silu"),
        key_of("default.simd", 8, "rms_norm", {2, 0})})
    EXPECT_EQ(state_of(board, other), kClosed) << to_string(other);
  EXPECT_EQ(state_of(board, key_of("default.simd", 15)), kOpen) << "the same bucket";
}

TEST(Board, AfterTheCooldownProbesCloseIt) {
  Board board;
  const Key key = key_of();
  fail_times(board, key, 5, t0);
  EXPECT_FALSE(board->advance(t0 + 29s));
  EXPECT_TRUE(board->advance(t0 + 30s));
  EXPECT_EQ(state_of(board, key), kHalfOpen);
  EXPECT_TRUE(try_once(board, key, ErrorClass::kOk, t0 + 31s));
  EXPECT_EQ(state_of(board, key), kHalfOpen);
  EXPECT_TRUE(try_once(board, key, ErrorClass::kOk, t0 + 32s));
  EXPECT_EQ(state_of(board, key), kClosed);
  EXPECT_EQ(board->next_change(), t0 + 32s + 10min + 1ns) << "then it is forgotten";
}

TEST(Board, AFaultInHalfOpenReopensAtOnceAndForLonger) {
  Board board;
  const Key key = key_of();
  fail_times(board, key, 5, t0);
  Time now = t0;
  for (const auto cooldown : {60s, 120s, 240s, 480s, 600s, 600s}) {
    now = *board->next_change();
    ASSERT_TRUE(board->advance(now));
    const auto probes = probes_of(board, key);
    ASSERT_TRUE(probes->try_enter());
    probes->leave(ErrorClass::kFault);
    EXPECT_FALSE(probes->try_enter()) << "before anybody told the board";
    EXPECT_TRUE(fail(board, key, now));
    EXPECT_EQ(state_of(board, key), kOpen);
    EXPECT_EQ(board->next_change(), now + cooldown);
  }
}

TEST(Board, EnoughOpenKeysOpenTheKernel) {
  Board board;
  for (const uint64_t rows : {1, 2, 4}) fail_times(board, key_of("default.simd", rows), 5, t0);
  EXPECT_EQ(state_of(board, key_of("default.simd", 1024)), kClosed);
  fail_times(board, key_of("default.simd", 8), 5, t0);
  const auto snapshot = board->snapshot();
  ASSERT_EQ(snapshot->of_op("rms_norm")->kernels.size(), 1u);
  EXPECT_TRUE(snapshot->of_op("rms_norm")->keys.empty());
  EXPECT_EQ(state_of(board, key_of("default.simd", 1024)), kOpen);
  EXPECT_EQ(state_of(board, key_of("reference.cpp", 8)), kClosed);
  // All calls of the kernel share one set of probe slots.
  board->advance(t0 + 30s);
  EXPECT_EQ(probes_of(board, key_of("default.simd", 1)),
            probes_of(board, key_of("default.simd", 64)));
  EXPECT_TRUE(try_once(board, key_of("default.simd", 64), ErrorClass::kFault, t0 + 30s));
  EXPECT_EQ(board->next_change(), t0 + 90s);
  board->advance(t0 + 90s);
  EXPECT_TRUE(try_once(board, key_of("default.simd", 64), ErrorClass::kOk, t0 + 90s));
  EXPECT_TRUE(try_once(board, key_of("default.simd", 1), ErrorClass::kOk, t0 + 90s));
  EXPECT_TRUE(all_closed(board));
}

TEST(Board, MemoryIsBounded) {
  Board board;
  const auto key = [](size_t i) { return key_of("k" + std::to_string(i)); };
  for (size_t i = 0; i < kMostKeys; ++i) fail_times(board, key(i), 5, t0);
  fail_times(board, key(kMostKeys), 5, t0);
  EXPECT_EQ(state_of(board, key(kMostKeys)), kClosed)
      << "the board is full, and open breakers stay";
  EXPECT_EQ(board->report({}, t0).breakers.untracked, 5u);
  board->close(key(3), t0);
  fail_times(board, key(kMostKeys), 5, t0);
  EXPECT_EQ(state_of(board, key(kMostKeys)), kOpen) << "a closed breaker makes room";
  EXPECT_LE(board->snapshot()->of_op("rms_norm")->keys.size(), kMostKeys);
}

TEST(Board, TheOldestEventsAreDropped) {
  Board board;
  const Key key = key_of();
  EXPECT_FALSE(board.has_events());
  fail_times(board, key, 5, t0);
  EXPECT_TRUE(board.has_events());
  board->advance(t0 + 30s);
  try_once(board, key, ErrorClass::kFault, t0 + 30s);
  std::vector<BreakerEvent> events = board->take_events();
  EXPECT_FALSE(board.has_events());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(to_string(events[0]),
            "rms_norm default.simd (f32 f32, sizes 8-15 4096-8191, cpu): opened for 30s: 5 "
            "failures in a row, the last: it broke");
  EXPECT_EQ(events[1].kind, BreakerEvent::Kind::kHalfOpen);
  EXPECT_THAT(to_string(events[2]), HasSubstr("opened for 60s: a probe failed: the probe"));
  EXPECT_EQ(events[2].op, "rms_norm");
  EXPECT_EQ(events[2].kernel, "default.simd");
  for (int i = 0; i < 500; ++i) {
    board->open(key, {}, t0);
    board->close(key, t0);
  }
  EXPECT_EQ(board->take_events().size(), kBreakerEvents);
  EXPECT_GE(board->report({}, t0).breakers.events_dropped, 700u);
}

TEST(Board, InvalidSettingsAreNotUsed) {
  BreakerSettings wrong;
  wrong.failure_threshold = 0;
  EXPECT_EQ(Board(wrong)->settings(), BreakerSettings());
}

TEST(Key, DescribesTheKindOfCall) {
  Key key = key_of();
  EXPECT_EQ(to_string(key), "rms_norm default.simd (f32 f32, sizes 8-15 4096-8191, cpu)");
  EXPECT_EQ(key.kind, key_of("default.simd", 9).kind);
  EXPECT_NE(key.kind, key_of("default.simd", 16).kind);
  Buckets b;
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{2}, UINT64_MAX}) b.add(size);
  EXPECT_EQ(to_string(CallKind{{}, 0, b}),
            "sizes 0 1 2-3 9223372036854775808-18446744073709551615, cpu");
  for (int i = 0; i < 40; ++i) b.add(3);
  EXPECT_EQ(b.get().size(), Buckets::kMost);
  const std::vector<DType> many(11, DType::f16);
  std::vector<DType> other = many;
  other[10] = DType::f32;
  EXPECT_NE(pack_dtypes(many), pack_dtypes(other));
  EXPECT_THAT(to_string(CallKind{{}, pack_dtypes(many), {}}), HasSubstr("dtypes "));
  const DType two[] = {DType::f32, DType::invalid};
  EXPECT_NE(pack_dtypes(two), pack_dtypes({two, 1}));
}

}  // namespace
}  // namespace yard::health
