// SPDX-License-Identifier: Apache-2.0
// Without memory a C function returns YARD_TRANSIENT or NULL, and its message says "out_of_memory".
#include <yard/c.h>

#include <cstring>

#include "out_of_memory.h"

namespace yard::testing {
namespace {

class OutOfMemoryInC : public OutOfMemory {
 protected:
  OutOfMemoryInC() {
    static const bool made = [] {
      Changes c;
      c.add_backend(backend_of("test")).add_op(op_of(kCopy));
      c.add_kernel(kernel_of("copy", "first", 1, 10));
      return Runtime::shared().apply(std::move(c)).ok();
    }();
    EXPECT_TRUE(made);
    op_ = yard_find_op("copy", nullptr, 0);
    args_[0] = value_of(out_.view), args_[1] = value_of(x_.view);
    args_[2] = Value(int64_t{0}).c();
  }
  static void forget_plans() { Runtime::shared().set_policy({}).or_throw(); }

  Status status_of(int32_t code) {
    if (code == YARD_OK) return {};
    const bool no_memory = std::strncmp(error_, "out_of_memory: ", 15) == 0;
    EXPECT_EQ(code == YARD_TRANSIENT, no_memory) << error_;
    return no_memory ? Status::out_of_memory() : Status(Code::kInternal, error_);
  }
  Status status_of(const void* made) {
    return status_of(made != nullptr ? YARD_OK : YARD_TRANSIENT);
  }

  yard_op_ref_t* op_ = nullptr;
  yard_value_t args_[3];
  char error_[256] = "";
};

TEST_F(OutOfMemoryInC, CallsAreRefused) {
  const auto fail_call = [&](const std::function<Status()>& call) {
    fail(call, forget_plans, next_of_many);
  };
  fail_call([&] { return status_of(yard_call(op_, args_, 3, error_, sizeof error_)); });
  const char* const denied[] = {"second", nullptr};
  yard_options_t options{};
  options.size = sizeof options, options.deny = denied;
  yard_result_t result{};
  fail_call([&] {
    return status_of(yard_call_with(op_, args_, 3, &options, &result, error_, sizeof error_));
  });
  const yard_named_value_t named[] = {{"out", args_[0]}, {"x", args_[1]}};
  fail_call([&] {
    return status_of(yard_call_named("copy", named, 2, &options, &result, error_, sizeof error_));
  });
  fail_call([&] {
    yard_handle_t* const handle = yard_bind(op_, args_, 3, error_, sizeof error_);
    const Status got = status_of(handle);
    yard_free_handle(handle);
    return got;
  });
  yard_handle_t* const handle = yard_bind(op_, args_, 3, nullptr, 0);
  fail_call([&] { return status_of(yard_call_handle(handle, args_, 3, error_, sizeof error_)); });
  yard_free_handle(handle);
}

TEST_F(OutOfMemoryInC, QuestionsAndInstancesAreRefused) {
  const char* const call = "copy(f32[4], by=0)";
  char text[16384];
  fail([&] {
    return status_of(yard_resolve(call, nullptr, text, sizeof text, error_, sizeof error_));
  });
  fail([&] {
    return status_of(
        yard_explain(call, nullptr, text, sizeof text, nullptr, error_, sizeof error_));
  });
  fail([&] {
    yard_instance_t* const made = yard_make_instance("copy", nullptr, 0, error_, sizeof error_);
    const Status got = status_of(made);
    yard_free_instance(made);
    return got;
  });
}

TEST_F(OutOfMemoryInC, ChangesAreRefused) {
  const char* const policy = "version: \"1.0\"\npolicy: {strict: true}\n";
  const char* const rules = "version: \"1.0\"\nkernel_locks: {copy: first}\n";
  fail([&] { return status_of(yard_set_policy(policy, nullptr, error_, sizeof error_)); },
       forget_plans, next_of_many);
  fail([&] { return status_of(yard_load_rules(rules, nullptr, error_, sizeof error_)); },
       [] { Runtime::shared().rules().set({}).or_throw(); }, next_of_many);
  fail([&] {
    yard_scope_t* const scope = yard_enter_scope(policy, nullptr, error_, sizeof error_);
    const Status got = status_of(scope);
    EXPECT_TRUE(scope == nullptr || yard_leave_scope(scope, nullptr, 0) == YARD_OK);
    return got;
  });
  const yard_kernel_t kernel = kernel_of("copy", "third", 3);
  const yard_kernel_t* const kernels[] = {&kernel};
  yard_plugin_t plugin{};
  plugin.size = sizeof plugin, plugin.abi = YARD_ABI_VERSION;
  plugin.name = "more", plugin.version = "1.0", plugin.kernels = kernels, plugin.kernel_count = 1;
  const auto remove = [] {
    Changes c;
    c.remove_kernel("copy", "third");
    Runtime::shared().apply(std::move(c)).status().ignore();
  };
  fail([&] { return status_of(yard_register(&plugin, error_, sizeof error_)); }, remove,
       next_of_many);
  remove(), forget_plans();
  Runtime::shared().rules().set({}).or_throw();
}

}  // namespace
}  // namespace yard::testing
