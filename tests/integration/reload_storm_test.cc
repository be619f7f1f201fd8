// SPDX-License-Identifier: Apache-2.0
// Writers replace a watched file hundreds of times with good, bad and half-written rules while
// readers call. Every call obeys exactly one valid version, and the last valid write takes effect
// in the end.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <random>

#include "base/testing_files.h"
#include "test_scale.h"
#include "testing.h"

namespace yard::testing {
namespace {

using namespace std::chrono_literals;

constexpr int kVersions = 4;

// The kernels that ran for this thread's call, in order.
thread_local std::vector<intptr_t> t_order;

int32_t decline(yard_call_t* call, const yard_value_t*, uint32_t) {
  t_order.push_back(reinterpret_cast<intptr_t>(call->self));
  return YARD_DECLINED;
}
int32_t serve(yard_call_t* call, const yard_value_t*, uint32_t) {
  t_order.push_back(reinterpret_cast<intptr_t>(call->self));
  return YARD_OK;
}

// Version i sends a call to first.i, which declines, and then to then.i, so that a call obeys
// two sections of the file. The file is JSON, because a part of a JSON file is invalid.
std::string version(int i) {
  const std::string n = std::to_string(i);
  return R"({"version": "1.0", "dispatch_rules": [{"operation": "step", "kernel": "first.)" + n +
         R"("}], "fallback_chains": {"step": ["then.)" + n + R"("]}})" + "\n";
}
// The rule names a kernel that no good version names, but another key is wrong.
const std::string kBad =
    R"({"version": "1.0", "dispatch_rules": [{"operation": "step", "kernel": "never.0"}],)"
    R"( "kernel_denials": ["then.0"]})";

class ReloadStorm : public ::testing::Test {
 protected:
  ReloadStorm() : bare_("step(out!: T[n], x: T[n])"), file_(folder_ / "rules.json") {
    for (int i = 0; i < kVersions; ++i) {
      add("first." + std::to_string(i), i + 1, decline);
      add("then." + std::to_string(i), i + 101, serve);
    }
    add("never.0", 1000, serve);
  }
  void add(const std::string& id, intptr_t self, decltype(yard_kernel_t::run) run) {
    yard_kernel_t k = kernel_of("step", id.c_str(), self);
    k.run = run;
    bare_.add(k).or_throw();
  }
  // Returns the version that a call obeyed, or -1 if it obeyed none or parts of several.
  int obeyed(int64_t n) {
    std::vector<float> data(2 * static_cast<size_t>(n));
    const TensorView to(data.data(), DType::f32, {n}), x(data.data() + n, DType::f32, {n});
    t_order.clear();
    const Status called = bare_.runtime.call("step", {to, x});
    const intptr_t i = t_order.empty() ? -1 : t_order[0] - 1;
    if (called.ok() && t_order.size() == 2 && i >= 0 && i < kVersions && t_order[1] == i + 101)
      return static_cast<int>(i);
    ADD_FAILURE() << called.to_string() << "; ran " << ::testing::PrintToString(t_order);
    return -1;
  }
  // Only one thread writes at a time, because two could produce a third version.
  void write_over(const std::string& text) {
    const std::lock_guard lock(one_writer_);
    base::write_in_place(file_, text);
  }
  void write_something(std::mt19937& random, int writer) {
    const std::string text = version(static_cast<int>(random() % kVersions));
    const std::string beside = file_ + "." + std::to_string(writer);
    switch (random() % 6) {
      case 0: base::write_in_place(beside, kBad); break;
      case 1: base::write_in_place(beside, text.substr(0, random() % text.size())); break;
      case 2: return write_over(text);
      case 3: return write_over(text.substr(0, random() % text.size()));
      default: base::write_in_place(beside, text);
    }
    std::filesystem::rename(beside, file_);
  }

  std::mutex one_writer_;
  base::TempFolder folder_;
  Bare bare_;
  const std::string file_;
};
TEST_F(ReloadStorm, EveryCallObeysOneVersionAndTheLastGoodWriteIsInForce) {
  base::replace(file_, version(0));
  std::atomic<int> reloaded{0}, refused{0};
  const uint64_t id = bare_.runtime.rules().on_change([&](const ConfigEvent& e) {
    ++(e.kind == ConfigEvent::Kind::kRefused ? refused : reloaded);
  });
  bare_.runtime.rules().watch(file_, {20ms, 10ms}).or_throw();
  std::atomic<bool> done{false};
  std::atomic<int64_t> calls{0}, wrong{0};
  std::atomic<uint32_t> seen{0};  // one bit for each version
  std::vector<std::thread> readers;
  for (int r = 0; r < 2; ++r)
    readers.emplace_back([&, r] {
      for (int64_t n = 1; !done; n = n % 64 + 1) {
        const int version = obeyed(n + r);
        if (version < 0)
          ++wrong;
        else
          seen |= 1u << version;
        ++calls;
        if (n == 1) std::this_thread::sleep_for(100us);  // leaves a core to the reloader
      }
    });
  std::vector<std::thread> writers;
  for (int w = 0; w < 2; ++w)
    writers.emplace_back([&, w] {
      std::mt19937 random(static_cast<unsigned>(w) + 1);
      // Write longer and with pauses if hardly any version was read: a file that changes during a
      // read is read again.
      for (int i = 0; i < scaled(200) || (i < 20000 && reloaded + refused < 2); ++i) {
        write_something(random, w);
        // Most pauses are short, and some are long enough for a read.
        std::chrono::milliseconds pause(i % 16 == 15 ? 60 : random() % 4);
        if (i >= scaled(200)) pause = 1s;
        std::this_thread::sleep_for(pause);
      }
    });
  for (auto& w : writers) w.join();
  // The file was read and used while it was being written. One of these reads came before the
  // writers started.
  EXPECT_GE(reloaded + refused, 2);
  EXPECT_GT(calls, 100);
  for (int i = 1; i <= kVersions; ++i) {
    const int last = i % kVersions;
    base::replace(file_, version(last));
    if (i % 2) base::replace(file_, kBad);
    base::replace(file_, version(last));
    EXPECT_TRUE(base::eventually([&] { return obeyed(1) == last; })) << last;
    // All readers see the version, even while the next file is bad.
    const int before = refused;
    base::replace(file_, kBad + std::string(static_cast<size_t>(i), ' '));  // not refused before
    EXPECT_TRUE(base::eventually([&] { return refused > before; })) << last;
    EXPECT_TRUE(base::eventually([&] {
      seen = 0;
      std::this_thread::sleep_for(5ms);
      return seen == 1u << last;
    })) << last;
  }
  base::replace(file_, version(0));
  EXPECT_TRUE(base::eventually(
      [&] { return read_config(file_).sha256 == bare_.runtime.rules().history().back().sha256; }));
  done = true;
  for (auto& r : readers) r.join();
  bare_.runtime.rules().unwatch();
  bare_.runtime.rules().remove_callback(id);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(obeyed(1), 0);
  EXPECT_GE(reloaded, kVersions);
  EXPECT_GE(refused, kVersions);
  EXPECT_EQ(read_config(file_).sha256, bare_.runtime.rules().history().back().sha256);
  std::printf("%lld calls, %d reloads, %d refusals, %llu snapshots\n",
              static_cast<long long>(calls), reloaded.load(), refused.load(),
              static_cast<unsigned long long>(bare_.runtime.stats(false).generation));
}

// The program also changes and rolls back the rules.
TEST(ReloadStormOfThePrograms, ConcurrentChangesAreAtomic) {
  const base::TempFolder folder;
  const std::string file = folder / "rules.yaml";
  base::replace(file, "version: '1.0'\n");
  std::atomic<int> events{0};
  Bare bare;
  bare.add(kernel_of("copy", "default.a", 1, 2)).or_throw();
  bare.add(kernel_of("copy", "default.b", 2, 1)).or_throw();
  Runtime& rt = bare.runtime;
  rt.rules().on_change([&](const ConfigEvent&) { ++events; });
  rt.rules().watch(file, {20ms, 10ms}).or_throw();
  std::atomic<bool> done{false};
  std::thread caller([&] {
    Floats f(4);
    while (!done) EXPECT_TRUE(rt.call("copy", {f.view, f.view}).ok());
  });
  std::vector<std::thread> changers;
  changers.emplace_back([&] {
    for (int i = 0; i < 50; ++i) {
      Config c;
      c.kernel_locks["copy"].id = i % 2 ? "default.a" : "default.b";
      EXPECT_TRUE(rt.rules().set(c).ok());
    }
  });
  changers.emplace_back([&] {
    for (int i = 0; i < 50;) {
      const Status s = rt.rules().roll_back(rt.rules().history().back().number);
      // Other changes have pushed this version out of the history.
      if (s.code() == Code::kNotFound) continue;
      EXPECT_TRUE(s.ok()) << s.to_string();
      ++i;
    }
  });
  changers.emplace_back([&] {
    for (int i = 0; i < 20; ++i) {
      const uint64_t id = rt.rules().add_validator([](const Config&) { return Status(); });
      base::replace(file, "version: '1.0'\nkernel_denies: [default.b]\n#" + std::to_string(i));
      rt.rules().unwatch();
      EXPECT_TRUE(rt.rules().watch(file, {20ms, 10ms}).ok());
      rt.rules().remove_callback(id);
    }
  });
  for (auto& c : changers) c.join();
  done = true;
  caller.join();
  EXPECT_GE(rt.rules().history().back().number, 121u);
  EXPECT_TRUE(base::eventually([&] { return events >= 121; }));
}

}  // namespace
}  // namespace yard::testing
