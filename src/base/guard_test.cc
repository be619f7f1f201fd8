// SPDX-License-Identifier: Apache-2.0
// Compares the guard and the reclaimer with a model. Readers and writers make random steps on real
// threads, one at a time. After each step, exactly the objects that nobody uses must be freed.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "base/reclaimer.h"

namespace yard::base {
namespace {

// A thread that does one thing at a time, when told to.
class Puppet {
 public:
  Puppet() : thread_([this] { loop(); }) {}
  ~Puppet() {
    run([this] {
      while (!guards.empty()) guards.pop_back();
      ends_ = true;
    });
    thread_.join();
  }
  void run(const std::function<void()>& f) {
    std::unique_lock lock(mutex_);
    next_ = &f;
    changed_.notify_all();
    changed_.wait(lock, [&] { return next_ == nullptr; });
  }
  std::vector<std::unique_ptr<Guard>> guards;

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    while (!ends_) {
      changed_.wait(lock, [&] { return next_ != nullptr; });
      (*next_)();
      next_ = nullptr;
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* next_ = nullptr;
  bool ends_ = false;
  std::thread thread_;
};

struct Thing {
  Thing* part = nullptr;  // readers reach it only through this object
  bool freed = false;
};

// Runs the reclaimer and the model side by side.
class World {
 public:
  static constexpr size_t kPuppets = 3, kSources = 3;

  World() {
    for (auto& p : puppets_) p = std::make_unique<Puppet>();
    for (auto& s : sources_) s.store(make());
  }
  ~World() {
    for (auto& p : puppets_) p.reset();
    for (auto& held : held_) held.clear();
    for (size_t s = 0; s < kSources; ++s) swap(s, nullptr);
    collect();
    EXPECT_EQ(reclaimer_.pending(), 0u);
  }

  void step(uint32_t number) {
    const size_t who = number / 8 % kPuppets, which = number / 64 % kSources;
    Puppet& p = *puppets_[who];
    auto& held = held_[who];
    switch (number % 8) {
      case 0:
      case 1:
        if (held.size() >= 12) return;  // beyond the slots in the record itself
        p.run([&] { p.guards.push_back(std::make_unique<Guard>(this_thread())); });
        held.push_back(nullptr);
        return;
      case 2:
        if (held.empty()) return;
        p.run([&] { p.guards.pop_back(); });
        held.pop_back();
        return;
      case 3:
        if (held.empty()) return;
        p.run([&] { held.back() = p.guards.back()->protect(sources_[which]); });
        EXPECT_EQ(held.back(), sources_[which].load());
        return;
      case 4:
        if (held.empty() || held.back() == nullptr || held.back()->part == nullptr) return;
        p.run([&] { p.guards.back()->move_to(held.back()->part); });
        held.back() = held.back()->part;
        return;
      case 5: swap(which, make()); return;
      case 6: collect(); return;
      default:
        held.clear();
        puppets_[who] = std::make_unique<Puppet>();
        return;
    }
  }

  // Checks that no held object has been freed.
  void check() const {
    for (const auto& held : held_)
      for (const Thing* o : held) ASSERT_TRUE(o == nullptr || !o->freed);
  }

 private:
  Thing* make() {
    arena_.push_back(std::make_unique<Thing>());
    Thing* part = arena_.back().get();
    arena_.push_back(std::make_unique<Thing>());
    arena_.back()->part = part;
    return arena_.back().get();
  }
  void swap(size_t which, Thing* next) {
    Thing* old = sources_[which].exchange(next);
    const auto free = [](void* o) { static_cast<Thing*>(o)->freed = true; };
    reclaimer_.retire(old, free, {old});
    reclaimer_.retire(old->part, free, {old->part, old});
    waiting_[old] = {old, nullptr};
    waiting_[old->part] = {old->part, old};
  }
  void collect() {
    std::set<const Thing*> used;
    for (const auto& held : held_) used.insert(held.begin(), held.end());
    used.erase(nullptr);
    const size_t left = reclaimer_.collect();
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      const bool in_use = used.count(it->second.first) + used.count(it->second.second) > 0;
      EXPECT_EQ(it->first->freed, !in_use);
      it = in_use ? std::next(it) : waiting_.erase(it);
    }
    EXPECT_EQ(left, waiting_.size());
    EXPECT_EQ(reclaimer_.pending(), waiting_.size());
  }

  Reclaimer reclaimer_;
  std::unique_ptr<Puppet> puppets_[kPuppets];
  std::vector<Thing*> held_[kPuppets];  // by each guard of each puppet
  std::atomic<Thing*> sources_[kSources];
  std::map<Thing*, std::pair<Thing*, Thing*>> waiting_;
  std::vector<std::unique_ptr<Thing>> arena_;
};

class GuardModel : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { set_reader_fences(GetParam()); }
  void TearDown() override { set_reader_fences(false); }
};
INSTANTIATE_TEST_SUITE_P(Variants, GuardModel, ::testing::Bool(), [](const auto& variant) {
  return variant.param ? "fences" : "membarrier";
});

TEST_P(GuardModel, FreesExactlyWhatNobodyUses) {
  EXPECT_TRUE(rc::check("random steps", [] {
    const auto steps = *rc::gen::scale(3.0, rc::gen::arbitrary<std::vector<uint16_t>>());
    World world;
    for (uint16_t s : steps) {
      world.step(s);
      world.check();
      if (::testing::Test::HasFailure()) break;
    }
    RC_ASSERT(!::testing::Test::HasFailure());
  }));
}

TEST_P(GuardModel, LongSequences) {
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    World world;
    uint32_t x = seed * 2654435761u;
    for (int i = 0; i < 4000 && !HasFailure(); ++i) {
      x = x * 1664525u + 1013904223u;
      world.step(x >> 12);
      world.check();
    }
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

// ---- Single behaviours -------------------------------------------------------------------------

void mark(void* o) { static_cast<Thing*>(o)->freed = true; }

TEST(Guard, EmptyGuardsHoldNothingAndNestingIsCounted) {
  EXPECT_FALSE(inside_call());
  {
    Guard outer(this_thread());
    EXPECT_TRUE(inside_call());
    Guard inner(this_thread());
    size_t hazards = 0;
    for_each_hazard([&](const void*) { ++hazards; });
    EXPECT_EQ(hazards, 0u);
  }
  EXPECT_FALSE(inside_call());
}

TEST(Guard, AnObjectStaysWhileEitherOfItsTwoProtectorsIsHeld) {
  Thing whole, object;
  const Thing* const parts[] = {&whole, &object};
  for (const Thing* part : parts) {
    object.freed = false;
    Reclaimer r;
    {
      Guard g(this_thread());
      g.move_to(part);
      r.retire(&object, mark, {&object, &whole});
      EXPECT_EQ(r.collect(), 1u);
      EXPECT_FALSE(object.freed);
      g.move_to(nullptr);
      EXPECT_EQ(r.collect(), 0u);
      EXPECT_TRUE(object.freed);
    }
  }
}

TEST(Guard, NestsAsDeepAsAnyoneCalls) {
  constexpr size_t kDepth = 200;  // beyond the record's 8 slots and several blocks of 32
  std::vector<Thing> objects(kDepth);
  Reclaimer r;
  std::vector<std::unique_ptr<Guard>> guards;
  std::atomic<Thing*> source;
  for (Thing& o : objects) {
    source.store(&o);
    guards.push_back(std::make_unique<Guard>(this_thread()));
    EXPECT_EQ(guards.back()->protect(source), &o);
    r.retire(&o, mark, {&o});
  }
  source.store(nullptr);
  EXPECT_EQ(r.collect(), kDepth);
  for (size_t left = kDepth; left > 0; --left) {
    EXPECT_FALSE(objects[left - 1].freed);
    guards.pop_back();
    EXPECT_EQ(r.collect(), left - 1);
    EXPECT_TRUE(objects[left - 1].freed);
  }
}

TEST(Guard, WhatFreeingRetiresIsLookedAtInTheSameCollection) {
  struct Chain {
    Reclaimer* reclaimer;
    Chain* next;
    bool freed = false;
    static void free(void* p) {
      auto* c = static_cast<Chain*>(p);
      c->freed = true;
      if (c->next != nullptr) c->reclaimer->retire(c->next, free, {c->next});
      EXPECT_EQ(c->reclaimer->pending(), c->next != nullptr ? 1u : 0u);  // called without its lock
    }
  };
  Reclaimer r;
  Chain third{&r, nullptr}, second{&r, &third}, first{&r, &second};
  r.retire(&first, Chain::free, {&first});
  EXPECT_EQ(r.collect(), 0u);
  EXPECT_TRUE(first.freed && second.freed && third.freed);
}

TEST(Guard, ReclaimerOfTheProcessIsOne) {
  EXPECT_EQ(&reclaimer(), &reclaimer());
  EXPECT_EQ(reclaimer().collect(), 0u);
}

}  // namespace
}  // namespace yard::base
