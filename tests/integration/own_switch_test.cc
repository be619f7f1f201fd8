// SPDX-License-Identifier: Apache-2.0
// The environment variable of a backend switches its kernels.
#include <stdlib.h>

#include "testing.h"

namespace yard::testing::own_switch {
namespace {

constexpr Op<void(Out, In, int64_t)> copy{"copy"};

class OwnSwitch : public ::testing::Test {
 protected:
  void SetUp() override { clean(); }
  void TearDown() override { clean(); }
  static void clean() {
    for (const char* v : {"OS_SWITCH", "YARD_BACKEND_OS_FAST"}) ::unsetenv(v);
  }
  // Makes a runtime with kernel 1 of a backend with a variable and kernel 2 of a backend without
  // one. It may read the environment.
  static std::unique_ptr<Runtime> make(bool environment = true, int32_t enable = YARD_ENABLE_AUTO) {
    auto r = std::make_unique<Runtime>(RuntimeSettings{false, 64, environment});
    Changes c;
    yard_backend_t fast = backend_of("os_fast");
    fast.env = "OS_SWITCH", fast.enable = enable;
    yard_kernel_t k = kernel_of("copy", "default.fast", 1, 500);
    k.backend = "os_fast";
    c.add_backend(fast).add_backend(backend_of("test")).add_op(op_of(kCopy));
    c.add_kernel(k).add_kernel(kernel_of("copy", "default.slow", 2));
    r->apply(std::move(c)).or_throw();
    return r;
  }
  static intptr_t runs(Runtime& r) {
    Floats x(4), y(4);
    t_ran = 0;
    copy.on(r)(y.view, x.view, 0).or_throw();
    return t_ran;
  }
};

TEST_F(OwnSwitch, SwitchesKernelsOffAndOnAgain) {
  auto r = make();
  EXPECT_EQ(runs(*r), 1);
  ::setenv("OS_SWITCH", "off", 1);
  EXPECT_EQ(runs(*r), 1);  // the variable is not read again yet
  r->rules().reload_environment().or_throw();
  EXPECT_EQ(runs(*r), 2);
  ::setenv("OS_SWITCH", "auto", 1);
  r->rules().reload_environment().or_throw();
  EXPECT_EQ(runs(*r), 1);
}

TEST_F(OwnSwitch, IsReadWhenTheBackendIsRegistered) {
  ::setenv("OS_SWITCH", "0", 1);
  EXPECT_EQ(runs(*make()), 2);
  ::setenv("OS_SWITCH", "on", 1);
  EXPECT_EQ(runs(*make(true, YARD_ENABLE_OFF)), 1);
  ::unsetenv("OS_SWITCH");
  EXPECT_EQ(runs(*make(true, YARD_ENABLE_OFF)), 2);
}

TEST_F(OwnSwitch, IsWeakerThanYardsVariableAndTheProgram) {
  ::setenv("OS_SWITCH", "off", 1);
  ::setenv("YARD_BACKEND_OS_FAST", "on", 1);
  auto r = make();
  EXPECT_EQ(runs(*r), 1);
  ::unsetenv("YARD_BACKEND_OS_FAST");
  r->rules().reload_environment().or_throw();
  EXPECT_EQ(runs(*r), 2);
  Policy p;
  p.backends["os_fast"] = true;
  r->set_policy(p).or_throw();
  EXPECT_EQ(runs(*r), 1);
}

TEST_F(OwnSwitch, AnInvalidValueIsAProblemAndChangesNothing) {
  ::setenv("OS_SWITCH", "perhaps", 1);
  auto r = make();
  EXPECT_EQ(runs(*r), 1);
  const auto problems = r->problems();
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].message.find("expected on, off or auto"), std::string::npos);
  // A bad value is refused in the same way for both variables of a backend.
  for (const char* variable : {"OS_SWITCH", "YARD_BACKEND_OS_FAST"}) {
    clean();
    r->rules().reload_environment().or_throw();
    ::setenv(variable, "perhaps", 1);
    const std::string refusal = r->rules().reload_environment().to_string();
    EXPECT_NE(refusal.find(std::string(variable) + "=\"perhaps\": expected on, off or auto"),
              std::string::npos)
        << refusal;
    EXPECT_EQ(runs(*r), 1);
  }
}

TEST_F(OwnSwitch, ARuntimeWithoutTheEnvironmentDoesNotReadIt) {
  ::setenv("OS_SWITCH", "off", 1);
  EXPECT_EQ(runs(*make(false)), 1);
}

}  // namespace
}  // namespace yard::testing::own_switch
