// SPDX-License-Identifier: Apache-2.0
// Tests verbose lines and traces of a runtime.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yard/config.h>
#include <yard/trace.h>
#include <yard/yard.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <sstream>
#include <thread>

#include "base/testing_files.h"
#include "fault.h"
#include "testing.h"

namespace yard::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Tensors {
  std::vector<float> x = std::vector<float>(64, 1), w = std::vector<float>(16, 1),
                     out = std::vector<float>(64);
  Status call(Runtime& r) {
    return r.call("rms_norm", {TensorView(out.data(), DType::f32, {4, 16}),
                               TensorView(x.data(), DType::f32, {4, 16}),
                               TensorView(w.data(), DType::f32, {16})});
  }
};

// Captures standard error while the object lives.
class Captured {
 public:
  Captured() : file_(std::tmpfile()), before_(::dup(STDERR_FILENO)) {
    ::dup2(::fileno(file_), STDERR_FILENO);
  }
  ~Captured() {
    if (before_ >= 0) end();
    std::fclose(file_);
  }
  std::vector<std::string> end() {
    ::dup2(before_, STDERR_FILENO);
    ::close(std::exchange(before_, -1));
    std::rewind(file_);
    std::vector<std::string> lines;
    char line[4096];
    while (std::fgets(line, sizeof line, file_) != nullptr)
      lines.emplace_back(line, std::strlen(line) - 1);
    return lines;
  }

 private:
  std::FILE* const file_;
  int before_;
};

struct Failing {
  fault::FaultBackend backend;
  fault::FaultKernel kernel{{.op = "rms_norm", .id = "vendor.bad", .priority = 1000}};
  Runtime runtime;
  Failing() {
    kernel.set({.code = YARD_TRANSIENT, .message = "bad, very"});
    Changes c;
    c.add_backend(backend.descriptor()).add_kernel(kernel.descriptor());
    runtime.apply(std::move(c)).or_throw();
  }
};

TEST(Verbose, PrintsALineForEachCallThatCanBeExplained) {
  Runtime r;
  Tensors t;
  Captured captured;
  ASSERT_TRUE(r.recording().set_verbose(1).ok());
  EXPECT_EQ(r.recording().verbose(), 1);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(t.call(r).ok());
  ASSERT_TRUE(r.recording().set_verbose(0).ok());
  ASSERT_TRUE(t.call(r).ok());
  const std::vector<std::string> lines = captured.end();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], StartsWith("yard,exec,rms_norm,"));
  EXPECT_THAT(lines[0], HasSubstr(",miss,"));
  EXPECT_THAT(lines[1], HasSubstr(",hit,"));
  EXPECT_THAT(lines[1], HasSubstr("f32[4,16]"));
  const auto explained = r.explain(lines[1]);
  ASSERT_TRUE(explained.ok()) << explained.status().to_string();
  EXPECT_THAT(lines[1], HasSubstr("," + explained->selected + ","));
}

TEST(Verbose, SecondLevelAddsSelections) {
  Runtime r;
  Tensors t;
  Captured captured;
  ASSERT_TRUE(r.recording().set_verbose(2).ok());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(t.call(r).ok());
  ASSERT_TRUE(r.recording().set_verbose(0).ok());
  const std::vector<std::string> lines = captured.end();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], StartsWith("yard,select,rms_norm,"));
  EXPECT_THAT(lines[0], HasSubstr(",dynamic,"));
  EXPECT_THAT(lines[1], StartsWith("yard,exec,rms_norm,"));
  EXPECT_FALSE(r.recording().set_verbose(3).ok());
}

TEST(Verbose, PrintsFailuresAndFallbacks) {
  Failing f;
  Tensors t;
  Captured captured;
  ASSERT_TRUE(f.runtime.recording().set_verbose(1).ok());
  ASSERT_TRUE(t.call(f.runtime).ok());
  ASSERT_TRUE(f.runtime.recording().set_verbose(0).ok());
  const std::vector<std::string> all = captured.end();
  std::vector<std::string> lines;
  for (const std::string& l : all)
    if (l.starts_with("yard,")) lines.push_back(l);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], StartsWith("yard,fail,rms_norm,vendor.bad,"));
  EXPECT_THAT(lines[0], HasSubstr(",transient,bad; very"));
  EXPECT_THAT(lines[1], HasSubstr(",fallback,"));
  EXPECT_TRUE(f.runtime.explain(lines[0]).ok());
}

// Earlier calls of the kernel were hits.
TEST(Verbose, PrintsTheFailureOfAHit) {
  Failing f;
  Tensors t;
  f.kernel.set({});
  Captured captured;
  ASSERT_TRUE(f.runtime.recording().set_verbose(1).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(t.call(f.runtime).ok());
  f.kernel.set({.code = YARD_TRANSIENT, .message = "bad, very"});
  ASSERT_TRUE(t.call(f.runtime).ok());
  ASSERT_TRUE(f.runtime.recording().set_verbose(0).ok());
  std::vector<std::string> lines = captured.end();
  std::erase_if(lines, [](const std::string& l) { return !l.starts_with("yard,"); });
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_THAT(lines[2], StartsWith("yard,exec,rms_norm,vendor.bad,"));
  EXPECT_THAT(lines[2], HasSubstr(",hit,"));
  EXPECT_THAT(lines[3], StartsWith("yard,fail,rms_norm,vendor.bad,"));
  EXPECT_THAT(lines[4], HasSubstr(",fallback,"));
  uint64_t calls = 0, failures = 0, fallbacks = 0;
  for (const CallStats& c : f.runtime.stats().calls)
    calls += c.calls, failures += c.failures.total(), fallbacks += c.fallbacks;
  EXPECT_EQ(calls, 4u);
  EXPECT_EQ(failures, 1u);
  EXPECT_EQ(fallbacks, 1u);
}

TEST(Verbose, LinesOfManyThreadsAreWhole) {
  Runtime r;
  Captured captured;
  ASSERT_TRUE(r.recording().set_verbose(1).ok());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      Tensors t;
      for (int k = 0; k < 2000; ++k) EXPECT_TRUE(t.call(r).ok());
    });
  for (std::thread& t : threads) t.join();
  ASSERT_TRUE(r.recording().set_verbose(0).ok());
  const std::vector<std::string> lines = captured.end();
  EXPECT_EQ(lines.size(), 8000u);
  for (const std::string& l : lines) ASSERT_THAT(l, StartsWith("yard,exec,rms_norm,"));
}

#if !defined(YARD_UNDER_TSAN)  // TSan does not follow forks
TEST(Verbose, AForkedChildPrintsItsOwnLines) {
  Runtime r;
  Tensors t;
  Captured captured;
  ASSERT_TRUE(r.recording().set_verbose(1).ok());
  ASSERT_TRUE(t.call(r).ok());
  const pid_t child = fork();
  if (child == 0) {
    const bool ok = t.call(r).ok() && t.call(r).ok() && r.recording().set_verbose(0).ok();
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(r.recording().set_verbose(0).ok());
  EXPECT_EQ(captured.end().size(), 3u);
}
#endif

TEST(Verbose, CanBeUsedWithARecording) {
  const base::TempFolder folder;
  const std::string path = folder / "calls.txt";
  Runtime r;
  Tensors t;
  Captured captured;
  ASSERT_TRUE(r.recording().to(path).ok());
  ASSERT_TRUE(r.recording().set_verbose(1).ok());
  ASSERT_TRUE(r.recording().start_trace().ok());
  ASSERT_TRUE(t.call(r).ok());
  ASSERT_TRUE(r.recording().stop().ok());
  ASSERT_TRUE(t.call(r).ok());
  EXPECT_TRUE(r.recording().is_tracing());
  EXPECT_TRUE(r.recording().stop_trace().ok());
  ASSERT_TRUE(r.recording().set_verbose(0).ok());
  EXPECT_EQ(captured.end().size(), 2u);
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), StartsWith("# 1 calls, 1 distinct"));
}

// Returns the events of a category.
std::vector<json> of(const json& trace, const std::string& category) {
  std::vector<json> to;
  for (const json& e : trace.at("traceEvents"))
    if (e.value("cat", "") == category) to.push_back(e);
  return to;
}

TEST(Trace, HasSpansOfCallsAndSelections) {
  Runtime r;
  Tensors t;
  ASSERT_TRUE(r.recording().start_trace().ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(t.call(r).ok());
  std::thread([&] {
    Tensors other;
    ASSERT_TRUE(other.call(r).ok());
  }).join();
  const auto text = r.recording().stop_trace();
  ASSERT_TRUE(text.ok());
  const json trace = json::parse(*text);
  const auto kernels = of(trace, "kernel"), selections = of(trace, "selection");
  ASSERT_EQ(kernels.size(), 4u);
  ASSERT_EQ(selections.size(), 1u);
  EXPECT_EQ(kernels[0].at("name"), "rms_norm");
  EXPECT_FALSE(kernels[0].at("args").at("hit").get<bool>());
  EXPECT_TRUE(kernels[1].at("args").at("hit").get<bool>());
  EXPECT_TRUE(r.explain(kernels[0].at("args").at("call").get<std::string>()).ok());
  EXPECT_NE(kernels[3].at("tid"), kernels[0].at("tid"));
  EXPECT_LE(selections[0].at("ts").get<double>() + selections[0].at("dur").get<double>(),
            kernels[0].at("ts").get<double>() + 0.002);
  EXPECT_FALSE(r.recording().stop_trace().ok());
}

TEST(Trace, SpansNest) {
  Failing f;
  Tensors inner;
  f.kernel.set({.callback = [&](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t {
    std::vector<float> x(8, 1), out(8);
    const Status s = f.runtime.call("softmax", {TensorView(out.data(), DType::f32, {1, 8}),
                                                TensorView(x.data(), DType::f32, {1, 8})});
    return s.ok() ? YARD_OK : YARD_FAULT;
  }});
  Tensors t;
  ASSERT_TRUE(f.runtime.recording().start_trace().ok());
  ASSERT_TRUE(t.call(f.runtime).ok());
  const json trace = json::parse(f.runtime.recording().stop_trace().value());
  std::vector<std::pair<double, double>> spans;
  for (const json& e : of(trace, "kernel"))
    spans.emplace_back(e.at("ts").get<double>(),
                       e.at("ts").get<double>() + e.at("dur").get<double>());
  ASSERT_EQ(spans.size(), 2u);  // the inner one ends first
  EXPECT_GE(spans[0].first + 0.001, spans[1].first);
  EXPECT_LE(spans[0].second, spans[1].second + 0.001);
}

TEST(Trace, HasFailuresReloadsAndBreakers) {
  Failing f;
  Tensors t;
  ASSERT_TRUE(f.runtime.recording().start_trace().ok());
  ASSERT_TRUE(t.call(f.runtime).ok());
  ASSERT_TRUE(f.runtime.rules().set(Config()).ok());
  ASSERT_TRUE(f.runtime.health().open("rms_norm", "vendor.bad", "by \"hand\"").ok());
  // Listeners run on threads of the runtime, so their events may come later.
  json trace;
  for (int i = 0; i < 500; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    trace = json::parse(f.runtime.recording().stop_trace().value());
    if (!of(trace, "reload").empty() && !of(trace, "breaker").empty()) break;
    ASSERT_TRUE(f.runtime.recording().start_trace().ok());
    ASSERT_TRUE(f.runtime.rules().set(Config()).ok());
    ASSERT_TRUE(f.runtime.health().close("rms_norm", "vendor.bad").ok());
    ASSERT_TRUE(t.call(f.runtime).ok());
    ASSERT_TRUE(f.runtime.health().open("rms_norm", "vendor.bad", "by \"hand\"").ok());
  }
  EXPECT_FALSE(of(trace, "reload").empty());
  EXPECT_FALSE(of(trace, "breaker").empty());
  ASSERT_FALSE(of(trace, "fallback").empty());
  EXPECT_THAT(of(trace, "fallback")[0].at("args").at("error").get<std::string>(),
              HasSubstr("transient: bad, very"));
}

TEST(Trace, IsBounded) {
  Runtime r;
  ASSERT_TRUE(r.recording().start_trace(1000).ok());
  EXPECT_FALSE(r.recording().start_trace().ok());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      Tensors t;
      for (int k = 0; k < 3000; ++k) EXPECT_TRUE(t.call(r).ok());
    });
  for (std::thread& t : threads) t.join();
  const json trace = json::parse(r.recording().stop_trace().value());
  const auto events = trace.at("otherData").at("events").get<uint64_t>();
  EXPECT_LE(events, 1024u);
  EXPECT_GE(events, 1000u);
  EXPECT_GE(events + trace.at("otherData").at("dropped").get<uint64_t>(), 12000u);
  EXPECT_FALSE(r.recording().start_trace(0).ok());
}

#if !defined(YARD_UNDER_TSAN)  // TSan does not follow forks
TEST(Trace, AForkedChildAddsNothing) {
  Runtime r;
  Tensors t;
  ASSERT_TRUE(r.recording().start_trace().ok());
  ASSERT_TRUE(t.call(r).ok());
  const pid_t child = fork();
  if (child == 0) {
    bool ok = t.call(r).ok();
    const auto trace = r.recording().stop_trace();
    ok &= trace.ok() && t.call(r).ok();
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(of(json::parse(r.recording().stop_trace().value()), "kernel").size(), 1u);
}
#endif

}  // namespace
}  // namespace yard::testing
