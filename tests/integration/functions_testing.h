// SPDX-License-Identifier: Apache-2.0
// The fixture for tests of dispatched functions: backends to add, and a runtime that is clean
// afterwards.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <yard/function.h>
#include <yard/log.h>
#include <yard/yard.h>
#include <yard/plugin.hpp>

#include <string>
#include <utility>
#include <vector>

namespace yard::testing {

inline yard_backend_t backend(const char* name) { return plugin::Backend(name).d; }

// Uses the shared runtime, and resets it before and after each test.
class FunctionTest : public ::testing::Test {
 protected:
  void SetUp() override { clean(); }
  void TearDown() override { clean(); }
  static void clean() {
    ASSERT_TRUE(runtime().rules().load("").ok());
    ASSERT_TRUE(runtime().reset().ok());
    set_log_sink({});
    set_log_level(LogLevel::kWarn);
  }
  static Runtime& runtime() { return Runtime::shared(); }

  template <class S, class F, class V = detail::NoVerifier>
  static void add(const Function<S>& f, const char* name, F run, V verify = {},
                  const ImplementationOptions& o = {}) {
    add(f, backend(name), std::move(run), std::move(verify), o);
  }
  template <class S, class F, class V = detail::NoVerifier>
  static void add(const Function<S>& f, const yard_backend_t& b, F run, V verify = {},
                  const ImplementationOptions& o = {}) {
    Changes c;
    c.add_backend(b);
    implement(c, f, b.name, std::move(run), std::move(verify), o);
    const Status s = runtime().apply(std::move(c)).status();
    ASSERT_TRUE(s.ok()) << s.to_string();
  }

  // Adds a provider of the function's group that adds a backend with one implementation.
  template <class S, class F>
  static void bring(const Function<S>& f, const char* name, F run,
                    const ImplementationOptions& o = {}) {
    add_provider(f.group(), [&f, name, run, o](Changes& c) {
      c.add_backend(backend(name));
      implement(c, f, name, run, {}, o);
      return Status();
    });
  }
  static Ticket remove(const char* name) {
    return runtime().apply(std::move(Changes().remove_backend(name))).value();
  }

  // Starts to collect log messages that contain `text`.
  static std::vector<std::string>& messages_with(std::string text) {
    static std::vector<std::string> log;
    log.clear();
    set_log_level(LogLevel::kInfo);
    set_log_sink([text = std::move(text)](const LogMessage& m) {
      if (m.text.find(text) != m.text.npos) log.emplace_back(m.text);
    });
    return log;
  }
  static FunctionInfo info(const char* function) {
    return runtime().functions().find(function).value();
  }
  static FunctionProvider provider(const char* function, const std::string& name) {
    for (const FunctionProvider& p : info(function).providers)
      if (p.backend == name) return p;
    ADD_FAILURE() << name << " does not provide " << function;
    return {};
  }
};

inline Policy switched(const char* backend, bool on) {
  Policy p;
  p.backends[backend] = on;
  return p;
}
inline Policy reference_only(bool on) {
  Policy p;
  p.reference_only = on;
  return p;
}

inline Config rules(const char* yaml) {
  ConfigReading r = parse_config(std::string("version: \"1.0\"\n") + yaml, "rules.yaml");
  for (const ConfigProblem& p : r.problems) ADD_FAILURE() << to_string(p);
  return std::move(r.config);
}

}  // namespace yard::testing
