// SPDX-License-Identifier: Apache-2.0
// Some threads register, replace and remove kernels and change the policy, while others call in
// every possible way. Every call must run a kernel that some snapshot between its start and its end
// allowed, nothing may touch released objects, and memory must stay bounded although one kernel
// never returns.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yard/abi.h>

#include <random>
#include <thread>

#include "fault.h"
#include "ledger.h"
#include "test_scale.h"
#include "testing.h"

namespace yard::testing {
namespace {

#if defined(YARD_UNDER_TSAN) || defined(YARD_UNDER_ASAN)
constexpr bool kMayFork = false;  // sanitizers do not survive a fork while other threads allocate
#else
constexpr bool kMayFork = true;
#endif

constexpr int kWriters = 2, kCallers = 4;
constexpr const char* kOps[] = {"live0", "live1", "chosen"};

// Two seconds for every change, and a minute by `make check-full`.
std::chrono::seconds duration() {
  constexpr int kShort = 2;
  const int seconds = scaled(kShort);
  return std::chrono::seconds(seconds == kShort ? kShort : 3 * seconds);
}

yard_kernel_t versioned(const char* op, const char* id, const std::shared_ptr<Version>& v) {
  yard_kernel_t k = kernel_of(op, id, 0);
  k.self = v.get(), k.run = Version::run;
  return k;
}

struct Pair {
  int64_t out = 0, x = 0;
  TensorView out_view{&out, DType::i64, {1}}, x_view{&x, DType::i64, {1}};
};

class Stress : public ::testing::Test {
 protected:
  Stress() : runtime_(Runtime::shared()) {
    Changes c;
    c.add_backend(backend_of("test"));
    for (const char* op : {"live0", "live1", "chosen", "nested", "changing", "blocked", "scratch"})
      c.add_op(op_of((std::string(op) + "(out!: i64[n], x: i64[n])").c_str()));
    // The policy thread switches between these two.
    for (int64_t i : {0, 1}) {
      auto v = std::make_shared<Version>(i);
      c.add_kernel(versioned("chosen", i == 0 ? "a" : "b", v), v);
    }
    c.add_kernel(nested_.descriptor())
        .add_kernel(changing_.descriptor())
        .add_kernel(blocked_.descriptor());
    runtime_.apply(std::move(c)).or_throw();
    ledgers_[2].begin(0), ledgers_[2].end();
    for (int w = 0; w < kWriters; ++w) ledgers_[w].begin(kNone), ledgers_[w].end();
    nested_.set({.callback = [](yard_call_t* call, const yard_value_t* args, uint32_t) -> int32_t {
      const int32_t code = call->host->call_op(call->host->self, call, "live0", args, 2);
      return code == YARD_OK || code == YARD_DECLINED ? YARD_OK : code;
    }});
    changing_.set({.callback = [this](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t {
      return change_inside();
    }});
    blocked_.set({.blocks = true});
  }

  // Runs inside a kernel: registers and removes kernels, and sometimes forks.
  int32_t change_inside() {
    const std::string id = "k" + std::to_string(next_id_++ % 64);
    auto v = std::make_shared<Version>(0);
    Changes add;
    add.add_kernel(versioned("scratch", id.c_str(), v), v);
    const Status added = runtime_.apply(std::move(add)).status();
    if (added.ok()) {
      Changes remove;
      remove.remove_kernel("scratch", id);
      if (!runtime_.apply(std::move(remove)).ok()) return YARD_FATAL;
    } else if (added.code() != Code::kConflict) {
      return YARD_FATAL;
    }
    if (kMayFork && next_id_ % 256 == 0) return fork_inside();
    return YARD_OK;
  }
  int32_t fork_inside() {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      Pair p;
      for (const char* op : kOps) {
        const Status s = runtime_.call(op, {p.out_view, p.x_view});
        if (!s.ok() && s.code() != Code::kNoKernel) _exit(1);
      }
      _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) ++failures_;
    ++forks_;
    return YARD_OK;
  }

  // Replaces, removes and adds the only kernel of the writer's op.
  void write(int w) {
    std::mt19937 random(static_cast<unsigned>(w));
    bool there = false;
    for (int64_t version = 1; !stop_; ++version) {
      auto v = std::make_shared<Version>(version);
      Changes c;
      const bool remove = there && random() % 5 == 0;
      if (remove)
        c.remove_kernel(kOps[w], "k");
      else if (there)
        c.replace_kernel(versioned(kOps[w], "k", v), v);
      else
        c.add_kernel(versioned(kOps[w], "k", v), v);
      v.reset();
      ledgers_[w].begin(remove ? kNone : version);
      if (random() % 16 == 0) {
        const auto ticket = runtime_.apply(std::move(c));
        failures_ += !ticket.ok() || !ticket->wait(std::chrono::seconds(60)).ok();
      } else {
        failures_ += !runtime_.apply(std::move(c)).ok();
      }
      ledgers_[w].end();
      there = !remove;
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
    }
  }

  void choose() {
    for (int64_t i = 1; !stop_; ++i) {
      Policy p;
      p.per_op["chosen"] = {i % 2 == 0 ? "impl:a" : "impl:b"};
      ledgers_[2].begin(i % 2);
      failures_ += !runtime_.set_policy(p).ok();
      ledgers_[2].end();
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
  }

  // Calls op number `o` in one of eight ways, and returns what ran.
  int64_t call(int o, unsigned way, Pair& p, const OpOn<void(Out, In)>& typed,
               const Bound<Out, In>& bound) {
    Options options;
    p.out = kNone;
    Status s;
    switch (way % 8) {
      case 0: s = runtime_.call(kOps[o], {p.out_view, p.x_view}); break;
      case 1: s = bound(); break;
      case 2: s = bound(p.out_view, p.x_view); break;
      case 3:
        options.deny = {"z" + std::to_string(way % 1000)};
        s = typed.with(options)(p.out_view, p.x_view);
        break;
      case 4:
        options.cache = false;
        s = typed.with(options)(p.out_view, p.x_view);
        break;
      default: s = typed(p.out_view, p.x_view); break;
    }
    if (s.ok()) return p.out;
    if (s.code() != Code::kNoKernel) ++failures_;
    return kNone;
  }

  void call_all(unsigned seed) {
    std::mt19937 random(seed);
    Pair p;
    static const Op<void(Out, In)> ops[] = {Op<void(Out, In)>{"live0"}, Op<void(Out, In)>{"live1"},
                                            Op<void(Out, In)>{"chosen"}};
    static const Op<void(Out, In)> nested{"nested"}, changing{"changing"};
    std::vector<OpOn<void(Out, In)>> typed;
    std::vector<std::optional<Bound<Out, In>>> bound(3);
    for (const auto& op : ops) typed.push_back(op.on(runtime_));
    uint64_t count = 0;
    while (!stop_) {
      const int o = static_cast<int>(random() % 3);
      if (!bound[static_cast<size_t>(o)] || random() % 4096 == 0) {
        auto b = bind(ops[o], p.out_view, p.x_view);
        if (!b.ok()) {
          failures_ += b.status().code() != Code::kNoKernel;
          continue;
        }
        bound[static_cast<size_t>(o)].emplace(*std::move(b));
      }
      const uint64_t from = ledgers_[o].before_call();
      const int64_t ran =
          call(o, random(), p, typed[static_cast<size_t>(o)], *bound[static_cast<size_t>(o)]);
      mismatches_ += !ledgers_[o].allows(from, ran);
      ++count;
      if (random() % 64 == 0) failures_ += !nested(p.out_view, p.x_view).ok();
      if (random() % 512 == 0) failures_ += !changing(p.out_view, p.x_view).ok();
      if (random() % 2048 == 0) (void)runtime_.list();
      if (random() % 2048 == 0) (void)runtime_.resolve("live0(i64[1])").ok();
    }
    calls_ += count;
  }

  Runtime& runtime_;
  Ledger ledgers_[3];
  fault::FaultKernel nested_{{.op = "nested", .id = "k", .outputs = {}, .backend = "test"}};
  fault::FaultKernel changing_{{.op = "changing", .id = "k", .outputs = {}, .backend = "test"}};
  fault::FaultKernel blocked_{{.op = "blocked", .id = "k", .outputs = {}, .backend = "test"}};
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> calls_{0}, mismatches_{0}, failures_{0}, forks_{0}, next_id_{1};
};

TEST_F(Stress, EveryCallRunsWhatWasAllowed) {
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    Pair p;
    failures_ += !runtime_.call("blocked", {p.out_view, p.x_view}).ok();
  });
  ASSERT_TRUE(blocked_.wait_for_waiters(1, std::chrono::milliseconds(60000)));
  for (int w = 0; w < kWriters; ++w) threads.emplace_back([&, w] { write(w); });
  threads.emplace_back([&] { choose(); });
  for (unsigned i = 0; i < kCallers; ++i) threads.emplace_back([&, i] { call_all(i); });
  size_t most_retired = 0, most_plans = 0;
  int64_t most_living = 0;
  const auto end = std::chrono::steady_clock::now() + duration();
  while (std::chrono::steady_clock::now() < end) {
    const RuntimeStats s = runtime_.stats(false);
    most_retired = std::max(most_retired, s.retired);
    most_plans = std::max(most_plans, s.plans);
    most_living = std::max(most_living, Version::g_living.load());
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  stop_ = true;
  for (size_t i = 1; i < threads.size(); ++i) threads[i].join();
  EXPECT_EQ(blocked_.waiters(), 1);  // the kernel is still blocked
  blocked_.release();
  threads[0].join();
  EXPECT_EQ(mismatches_, 0u);
  EXPECT_EQ(failures_, 0u);
  EXPECT_EQ(Version::g_dead_touched, 0u);
  EXPECT_LE(most_retired, 3000u);
  EXPECT_LE(most_plans, 64u);
  EXPECT_LE(most_living, 2000);
  const uint64_t changes = ledgers_[0].changes() + ledgers_[1].changes() + ledgers_[2].changes();
  std::printf(
      "%llu calls, %llu changes, %llu forks; at most %zu things retired, %lld versions alive\n",
      static_cast<unsigned long long>(calls_.load()), static_cast<unsigned long long>(changes),
      static_cast<unsigned long long>(forks_.load()), most_retired,
      static_cast<long long>(most_living));
  EXPECT_GT(calls_, 1000u);

  Changes c;
  for (const char* op : {"live0", "live1", "chosen", "nested", "changing", "blocked", "scratch"})
    c.remove_op(op);
  EXPECT_TRUE(runtime_.apply(std::move(c)).value().wait(std::chrono::seconds(60)).ok());
  EXPECT_EQ(Version::g_living, 0);
}

}  // namespace
}  // namespace yard::testing
