// SPDX-License-Identifier: Apache-2.0
// Checks the most important promise of the cache: it returns the plan that a fresh selection would
// return.
// Calls are made in random worlds, many of them in scopes. Earlier calls have filled the cache, and
// changes of the registry, environment and policy have invalidated it. Each call is compared with a
// call outside of any scope that bypasses the cache and carries the scopes' settings in its own
// options, and sometimes with the explanation. Kernels record their number and decline half of the
// calls, so that the whole order of a plan shows and not only its first kernel.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <yard/abi.h>

#include <cstdlib>
#include <optional>
#include <thread>

#include "dispatch/call.h"
#include "random_world.h"
#include "test_scale.h"

namespace yard::testing {
namespace {

// Each of RapidCheck's 100 cases runs kWorlds worlds with kCalls calls each.
#if defined(YARD_UNDER_ASAN) || defined(YARD_UNDER_TSAN)
constexpr int kWorlds = 1, kCalls = 200;  // enough to find undefined behaviour
#else
constexpr int kWorlds = 4, kCalls = 720;
static_assert(100 * kWorlds * kCalls >= 200000);
#endif

struct Outcome {
  std::vector<int> ran;
  Code code = Code::kOk;
  bool operator==(const Outcome&) const = default;
};

std::string show(const Outcome& o) {
  std::string text = to_string(o.code);
  for (int k : o.ran) text += " " + std::to_string(k);
  return text;
}

class Asker {
 public:
  explicit Asker(World& world) {
    Status why;
    site_ = world.runtime().core().sites.attach("op", dispatch::kPackedLetters, &why);
    why.or_throw();
  }

  // Calls as users do, without an options argument when there are no options.
  Outcome cached(const RandomCall& c, const Options* o) {
    t_ran_kernels.clear();
    const auto n = static_cast<uint32_t>(c.args.size());
    const Status s = o == nullptr ? Status::adopt(dispatch::call(site_, {c.args.data(), n}))
                                  : dispatch::resolve_call(*site_, {c.args.data(), n}, o);
    return {t_ran_kernels, s.code()};
  }
  Outcome fresh(const RandomCall& c, Options o) {
    o.cache = false;
    return cached(c, &o);
  }
  Result<Explanation> explain(const RandomCall& c, const Options& o) {
    return detail::explain_site(site_, c.args.data(), &o);
  }

 private:
  detail::Site* site_;
};

// A set of scopes that are entered repeatedly, and the scopes that the thread is in.
class RandomScopes {
 public:
  explicit RandomScopes(World& world) {
    Random& r = world.random();
    for (int i = 0; i < 4; ++i) {
      Scope s(r.chance(80) ? world.policy() : Policy());
      if (r.chance(30)) s = s.inference(r.chance(70));
      if (r.chance(30)) s = s.deterministic(r.chance(70));
      if (r.chance(30)) s = s.label("tenant", std::to_string(r.below(3)));
      if (r.chance(15)) s = s.mode(r.of(kWorldModes));
      scopes_.push_back(std::move(s));
    }
  }
  void enter(Random& r) {
    inner_.reset();
    outer_.reset();
    if (!r.chance(50)) return;
    outer_.emplace(r.of(scopes_));
    if (r.chance(50)) inner_.emplace(r.of(scopes_));
  }
  // Returns options that express all scopes, for a call outside of any scope.
  Options leave(const Options& o) {
    Options all = o;
    const Scope now = current_scope();
    if (const detail::ScopeState* state = base::this_thread().scope_state) {
      if (!now.policy().empty())
        all.policy = o.policy ? merge(now.policy(), *o.policy) : now.policy();
      all.inference |= (state->flags & YARD_CALL_INFERENCE) != 0;
      all.deterministic |= (state->flags & YARD_CALL_DETERMINISTIC) != 0;
      all.labels.insert(now.labels().begin(), now.labels().end());
      if (!all.mode && all.mode_name.empty()) all.mode_name = state->content.mode;
    }
    inner_.reset();
    outer_.reset();
    return all;
  }

 private:
  std::vector<Scope> scopes_;
  std::optional<ScopedPolicy> outer_, inner_;
};

uint64_t g_cases = 0, g_hits = 0;

// Returns a description of the first mismatch, or an empty string.
std::string try_world(uint64_t seed, int kernels) {
  World world(seed, kernels);
  Asker asker(world);
  const Options none;
  std::vector<Options> options;
  for (int i = 0; i < 6; ++i) options.push_back(world.options());
  RandomScopes scopes(world);
  for (int i = 0; i < kCalls; ++i) {
    if (world.random().chance(1)) world.change();
    if (world.random().below(400) == 0) world.set_environment(world.policy());
    const RandomCall call = world.call();
    const bool plain = world.random().chance(60);
    const Options& o = plain ? none : world.random().of(options);
    t_answer = world.random().chance(50) ? YARD_DECLINED : YARD_OK;
    if (i % 2 == 0) scopes.enter(world.random());
    const uint64_t before = world.runtime().stats(false).selections;
    const Outcome cached = asker.cached(call, plain ? nullptr : &o);
    const uint64_t after = world.runtime().stats(false).selections;
    std::string explained;
    // Large tensors of a random call may overlap where the schema forbids that.
    if (i % 8 == 0 && cached.code != Code::kNotFound && cached.code != Code::kInvalidArgument)
      explained = asker.explain(call, o).value().selected;
    const Options all = i % 2 == 0 ? scopes.leave(o) : o;
    const Outcome fresh = asker.fresh(call, all);
    ++g_cases;
    // A call that no kernel can serve is not cached.
    if (fresh.code != Code::kNoKernel && after == before) ++g_hits;
    const auto wrong = [&](const std::string& what) {
      const auto text = asker.explain(call, all);
      return "seed " + std::to_string(seed) + ", call " + std::to_string(i) + ": " + what + "\n" +
             world.describe() + "\n" + (text.ok() ? text->to_text() : text.status().to_string());
    };
    if (fresh != cached)
      return wrong("fresh: " + show(fresh) + ", from the cache: " + show(cached));
    // A call that writes no elements runs no kernel, but the explanation names one.
    const bool ran = fresh.code != Code::kOk || !fresh.ran.empty();
    if (i % 8 == 0 && fresh.code != Code::kNotFound && ran &&
        explained != (fresh.ran.empty() ? "" : world.id_of(fresh.ran[0])))
      return wrong("fresh: " + show(fresh) + ", explained: " + explained);
  }
  return "";
}

TEST(CachedEqualsFresh, InRandomWorlds) {
  // YARD_SEED repeats one world.
  if (const char* seed = std::getenv("YARD_SEED")) {
    for (int kernels = 1; kernels <= 8; ++kernels)
      EXPECT_EQ(try_world(std::strtoull(seed, nullptr, 10), kernels), "") << kernels << " kernels";
    return;
  }
  const bool holds = rc::check("the plan from the cache is the plan a fresh selection gives", [] {
    const auto seed = *rc::gen::resize(100, rc::gen::arbitrary<uint32_t>());
    const int kernels = *rc::gen::inRange(1, 9);
    for (uint64_t i = 0; i < static_cast<uint64_t>(scaled(kWorlds)); ++i)
      if (const std::string wrong = try_world((uint64_t{seed} << 8) + i, kernels); !wrong.empty())
        RC_FAIL(wrong);
  });
  EXPECT_TRUE(holds);
  if (!holds) return;
  EXPECT_GE(g_cases, uint64_t{100} * static_cast<uint64_t>(scaled(kWorlds)) * kCalls);
  // A cache that never answers would pass the test, too. About an eighth of these calls are hits.
  EXPECT_GE(g_hits, g_cases / 25);
  RecordProperty("cases", std::to_string(g_cases));
  RecordProperty("hits", std::to_string(g_hits));
}

TEST(CachedEqualsFresh, InSeveralThreadsWithScopesOfTheirOwn) {
  constexpr int kThreads = 3;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    World world(seed, 1 + static_cast<int>(seed % 8));
    std::deque<RandomCall> calls;  // a deque, because calls contain pointers into themselves
    for (int i = 0; i < 40; ++i) calls.push_back(world.call());
    std::vector<std::unique_ptr<RandomScopes>> scopes;
    for (int t = 0; t < kThreads; ++t) scopes.push_back(std::make_unique<RandomScopes>(world));
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        Random random(seed * 100 + static_cast<uint64_t>(t));
        Asker asker(world);
        RandomScopes& mine = *scopes[static_cast<size_t>(t)];
        for (int i = 0; i < kCalls / 2; ++i) {
          const RandomCall& call = random.of(calls);
          t_answer = random.chance(50) ? YARD_DECLINED : YARD_OK;
          mine.enter(random);
          const Outcome cached = asker.cached(call, nullptr);
          const Outcome fresh = asker.fresh(call, mine.leave({}));
          ASSERT_EQ(show(cached), show(fresh)) << "seed " << seed << ", thread " << t;
        }
      });
    for (std::thread& t : threads) t.join();
  }
}

}  // namespace
}  // namespace yard::testing
