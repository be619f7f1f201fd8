// SPDX-License-Identifier: Apache-2.0
// Without memory a change or a call returns out_of_memory, throws nothing, and leaves a working
// state.
#include <yard/bound.h>
#include <yard/policy.h>
#include <yard/verify.h>

#include "out_of_memory.h"
#include "plugin_files.h"

namespace yard::testing {
namespace {

// This must be the first test, because a process makes its shared runtime only once.
TEST_F(OutOfMemory, TheSharedRuntimeIsMadeByALaterCall) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's allocator does not survive a fork";
  const TensorView out(out_.data.data(), DType::f32, {1, 4}), x(x_.data.data(), DType::f32, {1, 4});
  fail_in_child([&] { return yard::call("softmax", {out, x}); }, next_of_many);
  fail_in_child([&] { return Op<void(Out, In)>("softmax")(out, x); }, next_of_many);
  fail_in_child([&] { return yard::resolve("softmax(f32[1,4])").status(); }, next_of_many);
}

TEST_F(OutOfMemory, AChangeOfTheRegistryIsRefused) {
  Changes c;
  fail([&] { return runtime().apply(std::move(c)).status(); },
       [&] {
         c = Changes();
         c.add_kernel(kernel_of("copy", "second", 2, 5)).remove_kernel("copy", "second");
       });
}

TEST_F(OutOfMemory, AChangeOfThePolicyIsRefused) {
  fail([&] {
    Policy p;
    p.strict = true;
    return runtime().set_policy(p);
  });
}

TEST_F(OutOfMemory, ACallOfAnotherShapeIsRefused) {
  Options o;
  o.labels["tenant"] = "blue";
  const auto forget = [&] { runtime().set_policy({}).or_throw(); };  // drops all plans
  fail([&] { return copy.on(runtime()).with(o)(out_.view, x_.view, 0); }, forget);
  fail([&] { return call(); }, forget);
  fail([&] { return call_by_name(); }, forget);
  fail([&] { return bind(copy.on(runtime()), out_.view, x_.view).status(); }, forget);
  fail([&] { return freeze(copy.on(runtime()), out_.view, x_.view).status(); }, forget);
  auto bound = bind(copy.on(runtime()), out_.view, x_.view).value();
  fail([&] { return bound(0); }, forget);
}

TEST_F(OutOfMemory, AFirstCallOfAThreadIsRefused) {
  for (const auto which : kEach) {
    bool failed = true;
    for (uint64_t n = 0; failed; ++n)
      std::thread([&] {
        FailingAllocations failing(n, which);
        const Status got = call();
        failed = failing.end();
        EXPECT_TRUE(got.ok() || (failed && got.code() == Code::kOutOfMemory)) << got.to_string();
        EXPECT_TRUE(call().ok());
      }).join();
  }
}

TEST_F(OutOfMemory, QuestionsAreRefused) {
  fail([&] { return runtime().explain("copy(f32[4], by=0)").status(); });
  fail([&] { return runtime().resolve("copy(f32[5], by=0)").status(); });
  fail([&] { return runtime().explain("copy", {out_.view, x_.view}).status(); });
  fail([&] { return runtime().parse("copy(f32[4], by=0)").status(); });
  fail([&] { return runtime().infer("copy", {x_.view}).status(); });
}

TEST_F(OutOfMemory, AnInstanceIsRefused) {
  yard_kernel_t k = kernel_of("copy", "keeper", 1, 20);
  k.options_schema = "size: int = 1";
  k.create = [](yard_call_t*, const yard_named_value_t*, uint32_t, void**) -> int32_t {
    return YARD_OK;
  };
  k.destroy = [](void*, void*) {};
  bare_.add(k).or_throw();
  fail([&] { return Instance::make(runtime(), "copy", {{"size", 4}}).status(); });
  auto made = Instance::make(runtime(), "copy").value();
  fail([&] { return made.load({{"weight", x_.view}}); });
}

// A report without memory throws std::bad_alloc and leaves no lock held.
TEST_F(OutOfMemory, ReportsCanBeMadeLater) {
  Config config;
  config.canary = {{.op = "copy", .check = CanaryRule::Check::kFinite}};
  runtime().rules().set(config).or_throw();
  runtime().health().open("copy", "first", "test").or_throw();
  runtime().health().record_failure("test", ErrorClass::kFault, "a failure");
  call().or_throw();
  const auto can_throw = [&](const std::function<void()>& report) {
    fail([&] { return base::or_out_of_memory([&] { report(); }); });
  };
  can_throw([&] { runtime().health().report(); });
  can_throw([&] { runtime().health().canaries(); });
  can_throw([&] { runtime().stats(); });
  can_throw([&] { runtime().list(); });
}

TEST_F(OutOfMemory, ACallThatACanaryChecksGivesNoOtherError) {
  yard_kernel_t right = kernel_of("copy", "right", 2, 1);
  right.kind = YARD_KIND_REFERENCE;
  bare_.add(right).or_throw();
  Config config;
  config.canary = {{.op = "copy"}};
  runtime().rules().set(config).or_throw();
  call().or_throw();
  for (const auto which : kEach) {
    bool failed = true;
    for (uint64_t n = 0; failed; ++n) {
      SCOPED_TRACE(n);
      FailingAllocations failing(n, which);
      const Status got = call();
      failed = failing.end();
      EXPECT_TRUE(got.ok() || (failed && got.code() == Code::kOutOfMemory)) << got.to_string();
      ASSERT_TRUE(call().ok());
    }
  }
  EXPECT_GT(runtime().health().canaries().kernels.at(0).checked, 0u);
}

TEST_F(OutOfMemory, ObserversAreRefused) {
  Recording recording = runtime().recording();
  const std::string path = folder_ / "calls.txt";
  fail([&] { return recording.to(path); }, [&] { recording.stop().ignore(); });
  fail([&] { return recording.stop(); }, [&] { recording.to(path).or_throw(), call().or_throw(); });
  recording.stop().or_throw();
  fail([&] { return recording.start_trace(100); },
       [&] { recording.stop_trace().status().ignore(); });
  fail([&] { return recording.stop_trace().status(); },
       [&] { recording.start_trace(100).ignore(), call().or_throw(); });
}

TEST_F(OutOfMemory, AChangeOfTheRulesIsRefused) {
  Rules rules = runtime().rules();
  const std::string path = folder_ / "rules.yaml";
  base::write_in_place(path, "version: \"1.0\"\nkernel_locks: {copy: first}\n");
  const auto reset = [&] { rules.set({}).or_throw(); };
  fail([&] { return rules.load(path); }, reset);
  Config config;
  fail([&] { return rules.set(std::move(config)); },
       [&] {
         reset();
         config = Config();
         config.kernel_denies = {{"second", true, {}}};
       });
}

TEST_F(OutOfMemory, LoadingAPluginIsRefused) {
  Folder folder;
  const std::string path = folder.put("answer");
  Plugins plugins = runtime().plugins();
  const auto load = [&] {
    Status s = plugins.load(path);
    // The dynamic linker reports its own errors.
    const bool by_linker = s.message().find("cannot_open") != s.message().npos;
    return by_linker ? Status::out_of_memory() : std::move(s);
  };
  fail(load, [&] { plugins.unload("answer").status().ignore(); });
}

TEST_F(OutOfMemory, ARuntimeBeginsAndEnds) {
  for (const auto which : kEach) {
    bool failed = true;
    for (uint64_t n = 0; failed; ++n) {
      SCOPED_TRACE(n);
      FailingAllocations failing(n, which);
      try {
        Runtime made(Bare::settings(16));
      } catch (const std::bad_alloc&) {
      }
      failed = failing.end();
    }
    failed = true;
    for (uint64_t n = 0; failed; ++n) {
      SCOPED_TRACE(n);
      auto ends = std::make_unique<Bare>();
      ends->add(kernel_of("copy", "first", 1)).or_throw();
      copy.on(ends->runtime)(out_.view, x_.view, 0).or_throw();
      ends->runtime.recording().to(folder_ / "end.txt").or_throw();
      copy.on(ends->runtime)(out_.view, x_.view, 0).or_throw();
      FailingAllocations failing(n, which);
      ends = nullptr;
      failed = failing.end();
    }
  }
  EXPECT_TRUE(call().ok());
}

TEST_F(OutOfMemory, ACallOfAForkedChildIsRefused) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's allocator does not survive a fork";
  fail_in_child([&] { return call(); });
  fail_in_child([&] { return call_by_name(); });
}

TEST_F(OutOfMemory, ChangesOfAForkedChildAreRefused) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's allocator does not survive a fork";
  fail_in_child([&] { return runtime().recording().set_verbose(2); });
  fail_in_child([&] { return runtime().set_policy({}); });
  runtime().recording().to(folder_ / "calls.txt").or_throw();
  call().or_throw();
  fail_in_child([&] {
    const Status told = base::or_out_of_memory([&] { runtime().recording().stats(); });
    return told.ok() ? call() : told;
  });
}

}  // namespace
}  // namespace yard::testing
