// SPDX-License-Identifier: Apache-2.0
// Known defects of a library in which backends replace functions: a test for each.
#include <yard/function.h>

#include <cfenv>
#include <stdexcept>

#include "functions_testing.h"

namespace yard::testing {
namespace {

class PeersFunctions : public FunctionTest {};

const Function<int(int)> f{"p_group", "f", [](int x) { return x; }};

TEST_F(PeersFunctions, AVerifierThatThrowsIsReportedAsBrokenNotAsARejection) {
  std::vector<std::string> log;
  set_log_sink([&](const LogMessage& m) { log.emplace_back(m.text); });
  bool broken = true;
  add(
      f, "p_first", [](int) { return 1; },
      [&](int) -> Verdict {
        if (broken) throw std::out_of_range("no entry 7");
        return Accept();
      });
  EXPECT_EQ(f(5), 5);
  EXPECT_EQ(log, std::vector<std::string>{"The verifier of backend 'p_first' for function "
                                          "'p_group/f' is broken: it threw: no entry 7"});
  const FunctionExplanation e = f.explain(5);
  EXPECT_EQ(e.candidates[0].verdict, "broken");
  EXPECT_EQ(e.candidates[0].detail, "it threw: no entry 7");
  broken = false;  // not for ever
  EXPECT_EQ(f(5), 1);
}

TEST_F(PeersFunctions, AVerifierWithAStaleSignatureIsRefusedAtCompileTime) {
  using S = int(int, float);
  const auto right = [](int, float) -> Verdict { return Accept(); };
  const auto stale = [](int) -> Verdict { return Accept(); };
  const auto with_double = [](int, double) -> Verdict { return Accept(); };
  const auto vague = [](int, float) { return true; };
  EXPECT_TRUE((detail::VerifierOf<decltype(right), S>::kFits));
  EXPECT_TRUE((detail::VerifierOf<decltype(right), S>::kGivesVerdict));
  EXPECT_FALSE((detail::VerifierOf<decltype(stale), S>::kFits));
  EXPECT_FALSE((detail::VerifierOf<decltype(with_double), S>::kFits));
  EXPECT_FALSE((detail::VerifierOf<decltype(vague), S>::kGivesVerdict));
  EXPECT_TRUE((detail::kImplements<int (*)(int, float), S>));
  EXPECT_FALSE((detail::kImplements<int (*)(int, double), S>));
  EXPECT_FALSE((detail::kImplements<long (*)(int, float), S>));
}

TEST_F(PeersFunctions, NotOnlyTheFirstReasonIsLogged) {
  std::vector<std::string> log;
  set_log_level(LogLevel::kInfo);
  set_log_sink([&](const LogMessage& m) {
    if (m.text.find("p_second") != m.text.npos && m.text.find("refuses") != m.text.npos)
      log.emplace_back(m.text);
  });
  add(
      f, "p_second", [](int) { return 1; },
      [](int x) -> Verdict {
        if (x < 0) return Reject("{0} is negative", x);
        return Reject("{0} is not", x);
      });
  f(-1), f(1), f(-2), f(2);
  EXPECT_EQ(log.size(), 2u);
}

TEST_F(PeersFunctions, FalseAndNothingDoNotEnable) {
  for (const char* off : {"false", "off", "0", "no", "FALSE"}) {
    ::setenv("P_SWITCH", off, 1);
    Changes c;
    c.add_backend(plugin::Backend("p_switched").env("P_SWITCH").d);
    implement(c, f, "p_switched", [](int) { return 1; });
    runtime().apply(std::move(c)).or_throw();
    runtime().rules().reload_environment().ignore();
    EXPECT_EQ(f(5), 5) << off;
    runtime().apply(std::move(Changes().remove_backend("p_switched"))).or_throw();
  }
  // The empty text says nothing: the default holds, whatever it is.
  ::setenv("P_SWITCH", "", 1);
  Changes c;
  c.add_backend(plugin::Backend("p_switched").env("P_SWITCH").enable(YARD_ENABLE_OFF).d);
  implement(c, f, "p_switched", [](int) { return 1; });
  runtime().apply(std::move(c)).or_throw();
  runtime().rules().reload_environment().ignore();
  EXPECT_EQ(f(5), 5);
  ::unsetenv("P_SWITCH");
}

TEST_F(PeersFunctions, AProviderThatFailsDoesNotLoseTheOthers) {
  static const Function<int(int)> g{"p_lazy", "g", [](int x) { return x; }};
  add_provider("p_lazy", [](Changes&) -> Status { throw std::runtime_error("cannot import"); });
  add_provider("p_lazy", [](Changes& c) {
    c.add_backend(backend("p_good"));
    implement(c, g, "p_good", [](int) { return 1; });
    return Status();
  });
  EXPECT_EQ(g(5), 1);
}

TEST_F(PeersFunctions, ASecondProviderDoesNotEmptyTheFirst) {
  static const Function<int(int)> g{"p_twice", "g", [](int x) { return x; }};
  for (const char* name : {"p_one", "p_two"})
    add_provider("p_twice", [name](Changes& c) {
      c.add_backend(backend(name));
      implement(c, g, name, [](int) { return 1; });
      return Status();
    });
  EXPECT_EQ(g(5), 1);
  EXPECT_EQ(info("p_twice/g").providers.size(), 2u);
}

TEST_F(PeersFunctions, ThereIsAFallbackWhenAKernelFails) {
  add(f, "p_fails", [](int) -> int { throw std::runtime_error("out of memory"); }, {},
      {.priority = 3, .fails_before_writing = true});
  add(f, "p_next", [](int) { return 2; });
  EXPECT_EQ(f(5), 2);
}

TEST_F(PeersFunctions, SlowerIsAPriorityAndNoRefusal) {
  add(f, "p_slow", [](int) { return 1; }, {}, {.priority = -5});
  EXPECT_EQ(f(5), 1);  // able, so it is asked before the original
  add(f, "p_fast", [](int) { return 2; }, {}, {.priority = 5});
  EXPECT_EQ(f(5), 2);
  EXPECT_EQ(f.explain(5).candidates[1].verdict, "able");
}

TEST_F(PeersFunctions, TheBackendThatRanIsReported) {
  add(f, "p_ran", [](int) { return 1; });
  f(5);
  EXPECT_STREQ(f.last_selected(), "p_ran");
  EXPECT_EQ(provider("p_group/f", "p_ran").calls, 1u);
}

}  // namespace
}  // namespace yard::testing
