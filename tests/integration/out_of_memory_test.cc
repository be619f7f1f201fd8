// SPDX-License-Identifier: Apache-2.0
// Changes for which there is no memory: each allocation of each change fails once, alone and with all later ones. The
// change is an error and everything stays as it was, or it succeeds and is in force. Nothing is thrown.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/bound.h>
#include <yard/c.h>
#include <yard/function.h>
#include <yard/policy.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing_allocations.h"
#include "plugin_files.h"
#include "testing.h"

namespace yard::testing {
namespace {

using base::FailingAllocations;

constexpr Op<void(Out, In, int)> copy{"copy"};

struct Attempt {
  Status got;
  bool thrown = false;
  bool failed = false;  // an allocation has
};

// Calls `go` on this thread while an allocation fails.
template <class Go>
Attempt attempt(uint64_t before, FailingAllocations::Which which, const Go& go) {
  Attempt a;
  FailingAllocations failing(before, which);
  try {
    a.got = go();
  } catch (...) {
    a.thrown = true;
  }
  a.failed = failing.end();
  return a;
}

// Calls `go` on what `make` gives, with every allocation failing in turn, until one attempt needs no more. `check` gets the
// status and restores the state.
template <class Make, class Go, class Check>
void fail_each_allocation(const Make& make, const Go& go, const Check& check,
                          bool allocates = true) {
  for (const auto which : {FailingAllocations::kOne, FailingAllocations::kAllLater}) {
    bool failed = true;
    uint64_t refused = 0;
    for (uint64_t n = 0; failed && !::testing::Test::HasFailure(); ++n) {
      ASSERT_LT(n, 100000u);
      SCOPED_TRACE("allocation " + std::to_string(n) +
                   (which == FailingAllocations::kOne ? "" : " and all later ones"));
      auto input = make();
      const auto [got, thrown, one_failed] = attempt(n, which, [&] { return go(input); });
      failed = one_failed;
      ASSERT_FALSE(thrown);
      EXPECT_TRUE(failed || got.ok()) << got.to_string();
      EXPECT_TRUE(got.ok() || !got.message().empty());
      refused += !got.ok();
      check(got);
    }
    EXPECT_TRUE(refused > 0 || !allocates);
  }
}
int nothing() { return 0; }

class OutOfMemory : public ::testing::Test {
 protected:
  OutOfMemory() {
    bare_.add(kernel_of("copy", "first", 1, 10)).or_throw();
    bare_.add(kernel_of("copy", "second", 2, 5)).or_throw();
    EXPECT_EQ(served_by(), 1);
  }
  // Which kernel serves a call; 0: none.
  intptr_t served_by() {
    t_ran = 0;
    for (const int64_t n : {4, 8}) {
      Floats to(n), from(n);
      EXPECT_TRUE(copy.on(bare_.runtime)(to.view, from.view, 0).ok());
    }
    return t_ran;
  }
  Runtime& runtime() { return bare_.runtime; }
  // Whether something comes true within a minute; further changes are made meanwhile.
  bool soon(const std::function<bool()>& is_true) {
    for (int i = 0; i < 60000 && !is_true(); ++i) {
      runtime().set_policy({}).or_throw();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return is_true();
  }

  Bare bare_;
};

TEST_F(OutOfMemory, LeavesThePolicyAsItWas) {
  Policy wanted;
  wanted.deny_kernels = {"first", "a name that is too long to lie inside of its string"};
  fail_each_allocation([&] { return wanted; },
                       [&](Policy& p) { return runtime().set_policy(std::move(p)); },
                       [&](const Status& s) {
                         EXPECT_EQ(runtime().policy(), s.ok() ? wanted : Policy());
                         EXPECT_EQ(served_by(), s.ok() ? 2 : 1);
                         runtime().reset_policy().or_throw();
                       });
}

TEST_F(OutOfMemory, LeavesTheRegistryAsItWas) {
  const auto changes = [] {
    Changes c;
    c.add_backend(backend_of("another_backend_with_a_long_name"));
    c.add_kernel(kernel_of("copy", "third_kernel_with_a_long_name", 3, 20));
    return c;
  };
  fail_each_allocation(
      changes, [&](Changes& c) { return runtime().apply(std::move(c)); },
      [&](const Status& s) {
        EXPECT_EQ(served_by(), s.ok() ? 3 : 1);
        if (!s.ok()) return;
        Changes c;
        c.remove_kernel("copy", "third_kernel_with_a_long_name");
        c.remove_backend("another_backend_with_a_long_name");
        runtime().apply(std::move(c)).or_throw();
      });
}

TEST_F(OutOfMemory, LeavesTheRulesAndTheirHistoryAsTheyWere) {
  Config before, wanted;
  before.settings.max_fallback_attempts = 1;
  wanted.settings.max_fallback_attempts = 2;
  wanted.settings.telemetry.record = Folder().path() + "_recorded_calls";
  runtime().set_config(before).or_throw();
  uint64_t versions = 1;
  // No calls, so that nothing is written to the recording, which takes its time.
  fail_each_allocation(
      [&] { return wanted; }, [&](Config& c) { return runtime().set_config(std::move(c)); },
      [&](const Status& s) {
        EXPECT_EQ(runtime().config().settings.max_fallback_attempts, s.ok() ? 2 : 1);
        versions += s.ok();
        EXPECT_EQ(runtime().config_history().back().number, versions);
        if (!s.ok()) return;
        // What memory was missing for is done soon, by the thread of maintenance or with the next change.
        EXPECT_TRUE(soon([&] { return !runtime().recording().path.empty(); }));
        runtime().set_config(before).or_throw();
        EXPECT_TRUE(soon([&] { return runtime().recording().path.empty(); }));
        ++versions;
      });
}

TEST_F(OutOfMemory, LeavesTheRecordingAsItWas) {
  Folder folder;
  const std::string first = folder.file("the_first_recording"), second = folder.file("the_second");
  runtime().record_to(first).or_throw();
  EXPECT_EQ(served_by(), 1);
  fail_each_allocation(
      nothing, [&](int) { return runtime().record_to(second); },
      [&](const Status& s) {
        EXPECT_EQ(runtime().recording().path, s.ok() ? second : first);
        EXPECT_EQ(served_by(), 1);
        runtime().record_to(first).or_throw();
      });
  fail_each_allocation(
      nothing, [&](int) { return runtime().stop_recording(); },
      [&](const Status& s) {
        EXPECT_EQ(runtime().recording().path, s.ok() ? "" : first);
        runtime().record_to(first).or_throw();
      });
  runtime().stop_recording().or_throw();
  EXPECT_THAT(read_file(first), ::testing::HasSubstr("copy("));
}

// ---- Plugins ----

class OutOfMemoryInPlugins : public OutOfMemory {
 protected:
  // The plugin's version that answers calls; -1: none.
  int64_t answer() { return ask(runtime()); }
  void load() { runtime().plugins().load(path_).or_throw(); }
  void unload() {
    runtime().plugins().unload("answer").value().wait(std::chrono::seconds(60)).or_throw();
  }
  void put(const char* plugin) { folder_.put(plugin, "answer"); }

  Folder folder_;
  const std::string path_ = folder_.put("answer");
};

TEST_F(OutOfMemoryInPlugins, LoadsAllOrNothing) {
  fail_each_allocation(
      nothing, [&](int) { return runtime().plugins().load(path_); },
      [&](const Status& s) {
        EXPECT_EQ(answer(), s.ok() ? 1 : -1);
        if (s.ok()) unload();
      });
}

TEST_F(OutOfMemoryInPlugins, UnloadsAllOrNothing) {
  load();
  Result<Ticket> ticket = Ticket();
  fail_each_allocation(
      nothing,
      [&](int) {
        ticket = runtime().plugins().unload("answer");
        return ticket.status();
      },
      [&](const Status& s) {
        EXPECT_EQ(answer(), s.ok() ? -1 : 1);
        if (!s.ok()) return;
        EXPECT_TRUE(ticket->wait(std::chrono::seconds(60)).ok());
        load();
      });
}

TEST_F(OutOfMemoryInPlugins, ReplacesAllOrNothing) {
  load();
  put("answer_v2");
  fail_each_allocation(
      nothing, [&](int) { return runtime().plugins().replace("answer").status(); },
      [&](const Status& s) {
        EXPECT_EQ(answer(), s.ok() ? 2 : 1);
        if (!s.ok()) return;
        put("answer");
        EXPECT_TRUE(runtime().plugins().replace("answer").ok());
        put("answer_v2");
      });
}

// ---- The C interface ----

int32_t refuse(yard_call_t* call, const yard_value_t*, uint32_t) {
  return call->host->fail(call->host->self, call, YARD_CALLER, "refused, as every call of it");
}

struct COps {
  COps() {
    Changes c;
    c.add_backend(backend_of("test")).add_op(op_of("refused(out!: T[n], x: T[n], by: int = 0)"));
    yard_kernel_t k = kernel_of("refused", "refuses", 1);
    k.run = refuse;
    c.add_kernel(k);
    c.add_op(op_of(kCopy)).add_kernel(kernel_of("copy", "copies", 1));
    Runtime::shared().apply(std::move(c)).or_throw();
  }
};

// What a function of c.h gives where each allocation fails in turn: `f(error, size)` is its code.
template <class F>
void fail_each_in_c(const F& f) {
  static char error[256];
  ASSERT_EQ(f(error, sizeof error), YARD_OK) << error;
  fail_each_allocation([] { return error[0] = '\0', 0; },
                       [&](int) {
                         const int32_t code = f(error, sizeof error);
                         return code == YARD_OK ? Status() : Status::out_of_memory();
                       },
                       [&](const Status& s) { EXPECT_EQ(error[0] == '\0', s.ok()); }, false);
}

TEST(OutOfMemoryInC, NoFunctionThrows) {
  const COps ops;
  Floats to(4), from(4);
  const yard_value_t args[] = {value_of(to.view), value_of(from.view), Value(int64_t{1}).c()};
  const yard_named_value_t named[] = {{"out", args[0]}, {"x", args[1]}};
  yard_op_ref_t* const op = yard_find_op("copy", nullptr, 0);
  ASSERT_NE(op, nullptr);
  yard_options_t options{};
  options.size = sizeof options, options.flags = YARD_OPTION_NO_CACHE;
  yard_instance_t* instance = nullptr;
  char text[4096];
  const auto found = [](const void* p) { return p != nullptr ? YARD_OK : YARD_FATAL; };
  fail_each_in_c([&](char* e, size_t n) { return found(yard_find_op("copy", e, n)); });
  fail_each_in_c(
      [&](char* e, size_t n) { return yard_call_with(op, args, 3, &options, nullptr, e, n); });
  fail_each_in_c(
      [&](char* e, size_t n) { return yard_call_named("copy", named, 2, nullptr, nullptr, e, n); });
  fail_each_in_c([&](char* e, size_t n) {
    return yard_resolve("copy(f32[4])", nullptr, text, sizeof text, e, n);
  });
  fail_each_in_c([&](char* e, size_t n) {
    return yard_explain("copy(f32[4])", nullptr, text, sizeof text, nullptr, e, n);
  });
  fail_each_in_c([&](char* e, size_t n) {
    if (instance != nullptr) yard_free_instance(std::exchange(instance, nullptr));
    return found(instance = yard_make_instance("copy", nullptr, 0, e, n));
  });
  EXPECT_EQ(yard_count_states(instance), 0u);
  yard_free_instance(instance);
}

// Calls of forms that the thread remembers: their kernel fails, or the calls are recorded and so not direct.
TEST(OutOfMemoryInC, AMemoHitDoesNotThrow) {
  const COps ops;
  Folder folder;
  Floats to(4), from(4);
  const yard_value_t args[] = {value_of(to.view), value_of(from.view), Value(int64_t{1}).c()};
  char error[256];
  const auto throws = [&](const char* name, const auto& check) {
    yard_op_ref_t* const op = yard_find_op(name, nullptr, 0);
    for (int i = 0; i < 8; ++i) yard_call(op, args, 3, nullptr, 0);
    for (const auto which : {FailingAllocations::kOne, FailingAllocations::kAllLater}) {
      bool failed = true;
      for (uint64_t n = 0; failed; ++n) {
        int32_t code = -1;
        error[0] = '\0';
        {
          FailingAllocations failing(n, which);
          try {
            code = yard_call(op, args, 3, error, sizeof error);
          } catch (...) {
          }
          failed = failing.end();
        }
        if (!check(code, failed)) return true;
      }
    }
    return false;
  };
  EXPECT_FALSE(throws("refused", [&](int32_t code, bool failed) {
    return code == YARD_CALLER || (failed && code == YARD_TRANSIENT);
  })) << error;
  EXPECT_THAT(error, ::testing::HasSubstr("refused, as every call of it"));
  Runtime::shared().record_to(folder.file("calls")).or_throw();
  EXPECT_FALSE(throws("copy", [&](int32_t code, bool) {
    return code == YARD_OK || code == YARD_TRANSIENT;
  })) << error;
  Runtime::shared().stop_recording().or_throw();
}

// ---- Threads ----

const Function<int(int)> twice{"out_of_memory", "twice", [](int x) { return 2 * x; }};

// Calls its own op more than eight deep: such calls have hazard slots that are allocated.
std::function<Status()> g_nest;
int32_t nests(plugin::Call, plugin::Tensor, plugin::Tensor, int64_t) {
  static thread_local int t_depth = 0;
  if (t_depth == 12) return YARD_OK;
  ++t_depth;
  const Status s = g_nest();
  --t_depth;
  return static_cast<int32_t>(s.error_class());
}

// Registering the thread and all that its first call makes for it.
TEST_F(OutOfMemory, IsAnErrorOfAThreadsFirstCall) {
  const COps ops;
  constexpr Op<void(Out, In, int)> nesting{"nests"};
  Changes c;
  c.add_op(op_of("nests(out!: T[n], x: T[n], by: int = 0)"))
      .add_kernel(plugin::Kernel::of<nests>("nests", "nests").backend("test").d);
  runtime().apply(std::move(c)).or_throw();
  Floats to(4), from(4);
  const auto on = copy.on(runtime());
  const auto bound = bind(on, to.view, from.view).value();
  const auto frozen = freeze(on, to.view, from.view).value();
  const Options options;
  const Scope tenant = Scope().label("tenant", "x");
  const yard_value_t args[] = {value_of(to.view), value_of(from.view), Value(int64_t{1}).c()};
  yard_op_ref_t* const op = yard_find_op("copy", nullptr, 0);
  const auto nest = nesting.on(runtime());
  g_nest = [&] { return nest(to.view, from.view, 0); };
  // Of what has no status: exceptions are its errors.
  const auto thrown = [](const auto& body) {
    try {
      body();
    } catch (const std::bad_alloc&) {
      return Status::out_of_memory();
    }
    return Status();
  };
  const std::pair<const char*, std::function<Status()>> forms[] = {
      {"typed", [&] { return on(to.view, from.view, 0); }},
      {"with options", [&] { return on.with(options)(to.view, from.view, 0); }},
      {"by name",
       [&] {
         return runtime().call("copy", {to.view, from.view});
       }},
      {"by name, with options",
       [&] {
         return runtime().call("copy", {to.view, from.view}, options);
       }},
      {"bound", [&] { return bound(0); }},
      {"frozen", [&] { return frozen(0); }},
      {"nested", g_nest},
      {"from C",
       [&] {
         return yard_call(op, args, 3, nullptr, 0) == YARD_OK ? Status() : Status::out_of_memory();
       }},
      {"scope", [&] { return thrown([&] { const ScopedPolicy in(tenant); }); }},
      {"function", [&] { return thrown([&] { twice(1); }); }},
  };
  for (const auto& [name, call] : forms) EXPECT_TRUE(call().ok()) << name;
  // Their records cannot be used again.
  std::atomic<int> registered{0};
  std::atomic<bool> end{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 32; ++i)
    others.emplace_back([&] {
      on(to.view, from.view, 0).or_throw();
      for (++registered; !end;) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  while (registered < 32) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto on_new_thread = [](const auto& call, FailingAllocations::Which which, uint64_t n) {
    Attempt a;
    std::thread([&] { a = attempt(n, which, call); }).join();
    EXPECT_FALSE(a.thrown) << "allocation " << n;
    EXPECT_TRUE(a.failed || a.got.ok()) << a.got.to_string();
    return a;
  };
  for (const auto which : {FailingAllocations::kOne, FailingAllocations::kAllLater})
    for (const auto& [name, call] : forms)  // which leaves no record behind
      EXPECT_EQ(on_new_thread(call, which, 0).got.code(), Code::kOutOfMemory) << name;
  // All later ones first: a record keeps the slots that were allocated.
  for (const auto which : {FailingAllocations::kAllLater, FailingAllocations::kOne})
    for (const auto& [name, call] : forms) {
      SCOPED_TRACE(name);
      for (uint64_t n = 0; on_new_thread(call, which, n).failed && !HasFailure();) ++n;
    }
  end = true;
  for (std::thread& t : others) t.join();
  g_nest = nullptr;
}

}  // namespace
}  // namespace yard::testing
