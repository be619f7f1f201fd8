// SPDX-License-Identifier: Apache-2.0
// Tests plan tables: growth, the bound, pinned plans, and freed plans.
#include "dispatch/snapshot.h"

#include <gtest/gtest.h>
#include <yard/call_spec.h>

#include <algorithm>
#include <vector>

#include "registry/testing.h"
#include "select/select.h"

namespace yard::dispatch {
namespace {

using registry::testing::backend_of;
using registry::testing::kernel_of;
using registry::testing::op_of;
using registry::testing::Shelf;

int32_t accept_all(const yard_query_t*, yard_verdict_t*) { return YARD_OK; }

// An entry with one kernel, which reads `n`, so that each size is a class.
class Entries : public ::testing::Test {
 protected:
  Entries() {
    shelf_.put(backend_of("plain"));
    shelf_.put(op_of("op(out!: f32[n], x: f32[n])"));
    shelf_.put(kernel());
    entry_ = make(nullptr);
  }
  ~Entries() override {
    entry_.reset();
    base::reclaimer().collect();
    EXPECT_EQ(base::reclaimer().pending(), 0u);
  }

  static yard_kernel_t kernel() {
    static const char* const reads[] = {"n", nullptr};
    yard_kernel_t d = kernel_of("op", "k", "plain");
    d.verify = accept_all, d.verify_reads = reads;
    return d;
  }
  std::shared_ptr<health::CallTable> calls_ = std::make_shared<health::CallTable>();
  std::shared_ptr<Entry> make(const Entry* before) {
    return Entry::share(std::make_unique<Entry>(
        select::CandidateSet({shelf_.op_record("op"), {}, {}}), 1, version_, calls_, before));
  }
  op::Call call(int64_t n) const {
    const TensorView out(reinterpret_cast<void*>(1ull << 36), DType::f32, {n});
    const TensorView x(reinterpret_cast<void*>(2ull << 36), DType::f32, {n});
    const yard_value_t args[] = {Value(out).c(), Value(x).c()};
    return op::Call::capture(entry_->program(), args);
  }
  Key key(int64_t n) const {
    Key k;
    EXPECT_TRUE(entry_->recipe().fold(call(n).args(), 0, k));
    return k;
  }
  const exec::Plan* insert(int64_t n, size_t limit) {
    return entry_->insert(key(n), entry_->plan(key(n), {{0}}, call(n)), limit);
  }
  size_t found(int64_t from, int64_t to) const {
    size_t count = 0;
    for (int64_t n = from; n < to; ++n) count += entry_->find(key(n)) != nullptr;
    return count;
  }

  Shelf shelf_;
  MemoVersion version_;
  std::shared_ptr<Entry> entry_;
};

TEST_F(Entries, FindsNothingBeforeAndEverythingAfter) {
  EXPECT_EQ(entry_->find(key(1)), nullptr);
  for (int64_t n = 1; n <= 3000; ++n) {
    const exec::Plan* plan = insert(n, 4096);
    ASSERT_EQ(entry_->find(key(n)), plan);
  }
  EXPECT_EQ(found(1, 3001), 3000u);
  EXPECT_EQ(found(3001, 3100), 0u);
  EXPECT_EQ(entry_->plan_count(), 3000u);
}

TEST_F(Entries, AClassHasOnePlan) {
  const exec::Plan* first = insert(7, 16);
  EXPECT_EQ(insert(7, 16), first);
  EXPECT_EQ(entry_->plan_count(), 1u);
}

TEST_F(Entries, StaysWithinItsBoundAndForgetsTheOldest) {
  for (int64_t n = 1; n <= 1000; ++n) {
    insert(n, 64);
    ASSERT_LE(entry_->plan_count(), 64u);
    ASSERT_NE(entry_->find(key(n)), nullptr);
  }
  EXPECT_EQ(found(1, 900), 0u);
  EXPECT_EQ(found(1, 1001), entry_->plan_count());
  EXPECT_GE(found(953, 1001), 48u);
}

TEST_F(Entries, EvictionSparesPlansThatAreUsedAgain) {
  const exec::Plan* hot = insert(1, 64);
  for (int64_t n = 2; n <= 1000; ++n) {
    hot->note_use();
    insert(n, 64);
    ASSERT_EQ(entry_->find(key(1)), hot) << n;
    ASSERT_LE(entry_->plan_count(), 64u);
  }
  for (int64_t n = 1001; n <= 1200; ++n) insert(n, 64);  // each plan has only one second chance
  EXPECT_EQ(entry_->find(key(1)), nullptr);
}

TEST_F(Entries, EvictsTheOldestWhereAllAreUsedAgain) {
  for (int64_t n = 1; n <= 64; ++n) insert(n, 64)->note_use();
  insert(65, 64);
  EXPECT_EQ(found(1, 17), 0u);
  EXPECT_EQ(found(17, 66), 49u);
}

TEST_F(Entries, TheSmallestBoundWorks) {
  for (int64_t n = 1; n <= 100; ++n) {
    insert(n, 1);
    ASSERT_EQ(entry_->plan_count(), 1u);
    ASSERT_NE(entry_->find(key(n)), nullptr);
  }
}

TEST_F(Entries, PinnedPlansStayUntilTheyAreUnpinned) {
  const exec::Plan* pinned = insert(1, 16);
  pinned->pins = 1;
  for (int64_t n = 2; n <= 500; ++n) insert(n, 16);
  EXPECT_EQ(entry_->find(key(1)), pinned);
  EXPECT_LE(entry_->plan_count(), 16u);
  pinned->pins = 0;
  for (int64_t n = 501; n <= 600; ++n) insert(n, 16);
  EXPECT_EQ(entry_->find(key(1)), nullptr);
}

TEST_F(Entries, WhatIsReplacedWaitsForReadersOfTheEntry) {
  base::Guard guard(base::this_thread());
  guard.move_to(entry_.get());
  const exec::Plan* old = insert(1, 4);
  for (int64_t n = 2; n <= 40; ++n) insert(n, 4);
  EXPECT_EQ(entry_->find(key(1)), nullptr);
  EXPECT_GT(base::reclaimer().collect(), 0u);
  EXPECT_EQ(old->attempt_count, 1u);  // the address sanitizer would report a freed plan
  guard.move_to(nullptr);
  EXPECT_EQ(base::reclaimer().collect(), 0u);
}

TEST_F(Entries, KernelsKeepTheirCountersFromEntryToEntry) {
  const auto next = make(entry_.get());
  EXPECT_EQ(&next->stats(0), &entry_->stats(0));
  shelf_.apply({registry::testing::replace(kernel())});
  const auto other = make(entry_.get());
  EXPECT_NE(&other->stats(0), &entry_->stats(0));
}

TEST_F(Entries, APlanHoldsItsKernelsInOrder) {
  shelf_.put(kernel_of("op", "l", "plain"));
  entry_ = make(nullptr);
  const auto plan = entry_->plan(key(1), {{1, 0}}, call(1));
  ASSERT_EQ(plan->attempt_count, 2u);
  EXPECT_EQ(plan->attempts[0].kernel->id, "l");
  EXPECT_EQ(plan->attempts[1].kernel->id, "k");
  EXPECT_EQ(plan->run, plan->attempts[0].kernel->d.run);
  EXPECT_EQ(plan->counter, plan->series->calls.id());
  EXPECT_EQ(plan->series->kernel, "l");
}

TEST_F(Entries, APlanHasRoomForEightKernels) {
  for (int i = 0; i < 12; ++i) {
    const std::string id = "m" + std::to_string(i);
    shelf_.put(kernel_of("op", id.c_str(), "plain"));
  }
  entry_ = make(nullptr);
  select::Order order;
  for (uint16_t i = 0; i < 13; ++i) order.push_back(i);
  EXPECT_EQ(entry_->plan(key(1), order, call(1))->attempt_count, exec::Plan::kMaxAttempts);
}

// ---- Versions of memos ----

// Compares a version as a memo or a bound handle does.
bool is_current(const MemoVersion& v, uint64_t found) { return v.value().load() == found; }

TEST(MemoVersions, EachIsUsedOnce) {
  MemoVersion one, other;
  std::vector<uint64_t> seen;
  for (int i = 0; i < 100; ++i) {
    one.renew(), other.renew();
    seen.push_back(one.read()), seen.push_back(other.read());
    one.invalidate();
    seen.push_back(one.read());
    EXPECT_TRUE(is_current(one, seen.back()));
    EXPECT_FALSE(is_current(one, seen[seen.size() - 3]));
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
  EXPECT_NE(seen.front(), 0u);
  EXPECT_NE(seen.back(), MemoVersion::kNever);
}

TEST(MemoVersions, WhatIsFoundDuringASuspensionIsNeverCurrent) {
  MemoVersion v;
  for (int i = 0; i < 3; ++i) {
    const uint64_t found = v.read();  // suspended at first
    EXPECT_EQ(found, MemoVersion::kNever);
    EXPECT_FALSE(is_current(v, found));
    v.renew();
    EXPECT_FALSE(is_current(v, found));
    const uint64_t valid = v.read();
    EXPECT_TRUE(is_current(v, valid));
    v.suspend();
    EXPECT_FALSE(is_current(v, valid));
    EXPECT_FALSE(is_current(v, found)) << "in a later suspension";
  }
}

TEST(MemoVersions, InvalidatingDoesNotEndASuspension) {
  MemoVersion v;
  v.renew();
  const uint64_t before = v.read();
  v.suspend();
  v.invalidate();
  EXPECT_EQ(v.read(), MemoVersion::kNever);
  v.renew();
  EXPECT_FALSE(is_current(v, before));
  EXPECT_NE(v.read(), MemoVersion::kNever);
}

TEST_F(Entries, PassTheLastCallsThatTheyKnowToTheNextEntryOfTheOp) {
  const auto add = [&](int64_t n) { entry_->known_calls().add(entry_->program(), call(n)); };
  for (int64_t n = 1; n <= 300; ++n) add(n);
  add(100);
  const auto next = make(entry_.get());
  EXPECT_EQ(next->plan_count(), 0u);
  const auto known = next->known_calls().all;
  ASSERT_EQ(known.size(), KnownCalls::kMost);
  EXPECT_EQ(known.front().call->args()[0].u.tensor->shape[0], 45);
  EXPECT_EQ(known.back().call->args()[0].u.tensor->shape[0], 100) << "each once, the latest last";
}

TEST_F(Entries, EvictionMakesMemosStale) {
  version_.renew();
  for (int64_t n = 1; n <= 4; ++n) {
    const uint64_t before = version_.read();
    insert(n, 4);
    EXPECT_EQ(version_.read(), before) << "a plan that is added disturbs none";
  }
  const uint64_t before = version_.read();
  insert(5, 4);
  EXPECT_NE(version_.read(), before);
  version_.suspend();
  for (int64_t n = 6; n <= 20; ++n) insert(n, 4);
  EXPECT_EQ(version_.read(), MemoVersion::kNever);
}

}  // namespace
}  // namespace yard::dispatch
