// SPDX-License-Identifier: Apache-2.0
// Tests recordings: which calls they contain, files that cannot be written, and fork.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yard/bound.h>
#include <yard/policy.h>
#include <yard/trace.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "base/testing_files.h"
#include "testing.h"

namespace yard::testing::record {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

namespace fs = std::filesystem;

constexpr const char* kSchema = "noted(out!: T[n], x: T[n], by: int = 0) where out may_alias x";
const Op<void(Out, In, int)> noted{"noted"};

std::map<std::string, int> read(const std::string& path) {
  std::map<std::string, int> calls;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    const size_t tab = line.find('\t');
    calls[line.substr(tab + 1)] = std::stoi(line.substr(0, tab));
  }
  return calls;
}
std::string text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The alignment of these tensors never varies, because it is part of a CallSpec.
struct Aligned {
  explicit Aligned(int64_t n) : view(memory, DType::f32, {n}) {}
  alignas(64) float memory[256] = {};
  TensorView view;
};

class Record : public ::testing::Test {
 protected:
  Record() : bare_(kSchema) {
    yard_kernel_t kernel = kernel_of("noted", "default.a", 1);
    kernel.flags = YARD_KERNEL_DETERMINISTIC;
    bare_.add(kernel).or_throw();
    path_ = folder_ / "calls.txt";
  }
  Runtime& runtime() { return bare_.runtime; }
  void call(int64_t n, int by = 0, const Options* o = nullptr) {
    const auto op = noted.on(runtime());
    if (o != nullptr)
      op.with (*o)(out_of(n), x_of(n), by).or_throw();
    else
      op(out_of(n), x_of(n), by).or_throw();
  }
  TensorView out_of(int64_t n) { return TensorView(out_.memory, DType::f32, {n}); }
  TensorView x_of(int64_t n) { return TensorView(x_.memory, DType::f32, {n}); }

  base::TempFolder folder_;
  std::string path_;
  Bare bare_;
  Aligned out_{1}, x_{1};
};

TEST_F(Record, AFloatIsWrittenWithTheShortestTextThatGivesIt) {
  const Op<void(Out, In, In, float)> norm{"rms_norm"};
  Runtime whole;
  Aligned weight(64);
  whole.recording().to(path_).or_throw();
  norm.on(whole)(out_of(64), x_of(64), weight.view, 1e-6f).or_throw();
  norm.on(whole)(out_of(64), x_of(64), weight.view, 0.1f).or_throw();
  whole.recording().stop().or_throw();
  EXPECT_THAT(read(path_),
              UnorderedElementsAre(Pair("rms_norm(f32[64], f32[64], eps=1e-6)@cpu", 1),
                                   Pair("rms_norm(f32[64], f32[64], eps=0.1)@cpu", 1)));
}

TEST_F(Record, CountsDistinctCalls) {
  call(4);
  runtime().recording().to(path_).or_throw();
  for (int i = 0; i < 5; ++i) call(4);
  for (int i = 0; i < 3; ++i) call(8, 1);
  call(8, 2);
  EXPECT_EQ(runtime().recording().stats().calls, 9u);
  EXPECT_EQ(runtime().recording().stats().distinct, 3u);
  EXPECT_EQ(runtime().recording().stats().path, path_);
  runtime().recording().stop().or_throw();
  call(4);
  EXPECT_THAT(read(path_), UnorderedElementsAre(Pair("noted(f32[4], by=0)@cpu", 5),
                                                Pair("noted(f32[8], by=1)@cpu", 3),
                                                Pair("noted(f32[8], by=2)@cpu", 1)));
  EXPECT_THAT(text(path_), HasSubstr("# 9 calls, 3 distinct"));
  // The most frequent call comes first.
  EXPECT_LT(text(path_).find("5\tnoted"), text(path_).find("3\tnoted"));
  EXPECT_EQ(runtime().recording().stats().path, "");
}

TEST_F(Record, ContainsEveryKindOfCallExceptFrozenHandles) {
  runtime().recording().to(path_).or_throw();
  call(4);                                                                       // typed
  call(4);                                                                       // through a memo
  runtime().call("noted", {out_of(4), x_of(4), {"by", int64_t{0}}}).or_throw();  // by name
  Options o;
  o.cache = false;
  call(4, 0, &o);
  {
    TraceScope trace;  // runs no kernel
    runtime().call("noted", {out_of(4), x_of(4), {"by", int64_t{0}}}).or_throw();
  }
  runtime().recording().stop().or_throw();
  EXPECT_THAT(read(path_), ElementsAre(Pair("noted(f32[4], by=0)@cpu", 4)));
}

TEST_F(Record, CountsCallsInTheRolloutOnce) {
  runtime().rules().set({}).or_throw();
  Config c;
  c.kernel_denies = {{"default.b", true, {}}};
  c.rollout.emplace();
  c.rollout->percent = 100, c.rollout->hold_s = 3600;
  runtime().rules().set(c).or_throw();
  runtime().recording().to(path_).or_throw();
  const Options labelled = [] {
    Options o;
    o.labels = {{"tenant", "beta"}};
    return o;
  }();
  for (int i = 0; i < 5; ++i) call(4);
  for (int i = 0; i < 2; ++i) call(4, 0, &labelled);
  EXPECT_EQ(runtime().recording().stats().calls, 7u);
}

TEST_F(Record, ContainsBoundHandlesWheneverTheyWereBound) {
  Runtime& shared = Runtime::shared();
  Changes c;
  c.add_backend(backend_of("test")).add_op(op_of(kSchema));
  c.add_kernel(kernel_of("noted", "default.a", 1));
  shared.apply(std::move(c)).or_throw();
  auto bound = bind(noted, out_of(16), x_of(16)).value();
  bound(0).or_throw();
  shared.recording().to(path_).or_throw();
  for (int i = 0; i < 3; ++i) bound(0).or_throw();
  auto frozen = freeze(noted, out_of(16), x_of(16)).value();
  frozen(out_of(16), x_of(16), 0).or_throw();
  shared.recording().stop().or_throw();
  bound(0).or_throw();
  EXPECT_THAT(read(path_), ElementsAre(Pair("noted(f32[16], by=0)@cpu", 3)));
}

TEST_F(Record, ContainsWhatAChoiceMayDependOn) {
  runtime().rules().set_labels({{"model", "m1"}}).or_throw();
  runtime().recording().to(path_).or_throw();
  call(4);
  {
    const ScopedPolicy in(Scope().label("tenant", "blue").inference());
    call(4);
    Options o;
    o.labels["phase"] = "decode";
    o.deterministic = true;
    call(4, 0, &o);
  }
  noted.on(runtime())(out_of(4), out_of(4), 0).or_throw();  // in place
  runtime().recording().stop().or_throw();
  EXPECT_THAT(read(path_), UnorderedElementsAre(
                               Pair("noted(f32[4], by=0)@cpu{model=m1}", 1),
                               Pair("noted(f32[4], by=0)@cpu+inference{model=m1, tenant=blue}", 1),
                               Pair("noted(f32[4], by=0)@cpu+deterministic+inference{model=m1, "
                                    "phase=decode, tenant=blue}",
                                    1),
                               Pair("noted(f32[4], by=0, out=&x)@cpu{model=m1}", 1)));
  // Every call in the recording can be explained later.
  for (const auto& [spec, count] : read(path_))
    EXPECT_EQ(runtime().resolve(spec).value().kernel, "default.a") << spec;
}

TEST_F(Record, AddsUpWhatSeveralThreadsCall) {
  runtime().recording().to(path_).or_throw();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      Aligned out(8), x(8);
      for (int i = 0; i < 500; ++i) noted.on(runtime())(out.view, x.view, i % 5).or_throw();
    });
  for (std::thread& t : threads) t.join();
  runtime().recording().stop().or_throw();
  const auto calls = read(path_);
  EXPECT_EQ(calls.size(), 5u);
  for (const auto& [spec, count] : calls) EXPECT_EQ(count, 400) << spec;
}

TEST_F(Record, IsWrittenPeriodically) {
  runtime().recording().to(path_).or_throw();
  EXPECT_FALSE(fs::exists(path_));  // the file is not touched before the first call
  call(4);
  EXPECT_TRUE(base::eventually([&] { return fs::exists(path_); }));
  EXPECT_THAT(read(path_), ElementsAre(Pair("noted(f32[4], by=0)@cpu", 1)));
}

TEST_F(Record, SwitchesFilesWithoutLosingTheFirst) {
  const std::string other = folder_ / "other.txt";
  runtime().recording().to(path_).or_throw();
  call(4);
  runtime().recording().to(other).or_throw();
  EXPECT_THAT(read(path_), ElementsAre(Pair("noted(f32[4], by=0)@cpu", 1)));
  call(8);
  runtime().recording().to(other).or_throw();  // repeating the path has no effect
  runtime().recording().stop().or_throw();
  EXPECT_THAT(read(other), ElementsAre(Pair("noted(f32[8], by=0)@cpu", 1)));
}

TEST_F(Record, ReportsAtOnceAFileThatCannotBeWritten) {
  EXPECT_THAT(runtime().recording().to("").to_string(), HasSubstr("expected a path"));
  const std::string nowhere = folder_ / "no/such/folder/calls.txt";
  const Status s = runtime().recording().to(nowhere);
  EXPECT_THAT(s.to_string(), HasSubstr(nowhere + ": cannot be written: No such file or directory"));
  EXPECT_THAT(runtime().recording().to(folder_ / ".").to_string(), HasSubstr("Is a directory"));
  EXPECT_EQ(runtime().recording().stats().path, "");
  runtime().recording().stop().or_throw();
}

TEST_F(Record, OfTwoRuntimesToOneFileIsShared) {
  Bare second(kSchema);
  second.add(kernel_of("noted", "default.a", 1)).or_throw();
  runtime().recording().to(path_).or_throw();
  second.runtime.recording().to(path_).or_throw();
  call(4);
  noted.on(second.runtime)(out_of(4), x_of(4), 0).or_throw();
  runtime().recording().stop().or_throw();
  EXPECT_THAT(read(path_), ElementsAre(Pair("noted(f32[4], by=0)@cpu", 2)));
  noted.on(second.runtime)(out_of(4), x_of(4), 0).or_throw();
  second.runtime.recording().stop().or_throw();
  EXPECT_THAT(read(path_), ElementsAre(Pair("noted(f32[4], by=0)@cpu", 3)));
}

TEST_F(Record, EndsWithItsRuntime) {
  {
    Bare other(kSchema);
    other.add(kernel_of("noted", "default.a", 1)).or_throw();
    other.runtime.recording().to(path_).or_throw();
    noted.on(other.runtime)(out_of(4), x_of(4), 0).or_throw();
  }
  EXPECT_THAT(read(path_), ElementsAre(Pair("noted(f32[4], by=0)@cpu", 1)));
}

TEST_F(Record, IsStartedByTheEnvironment) {
  ::setenv("YARD_RECORD", path_.c_str(), 1);
  RuntimeSettings settings;
  Runtime r(settings);
  EXPECT_EQ(r.recording().stats().path, path_);
  ::setenv("YARD_RECORD", (folder_ / "none/calls.txt").c_str(), 1);
  const Status s = r.rules().reload_environment();
  EXPECT_THAT(s.to_string(), HasSubstr("YARD_RECORD="));
  EXPECT_THAT(s.to_string(), HasSubstr("cannot be written"));
  EXPECT_EQ(r.recording().stats().path, path_);  // the earlier value stays
  ASSERT_FALSE(r.problems().empty());
  EXPECT_EQ(r.problems()[0].where, "YARD_RECORD");
  ::unsetenv("YARD_RECORD");
  r.rules().reload_environment().or_throw();
  EXPECT_EQ(r.recording().stats().path, "");
}

TEST_F(Record, PutsTheProcessIdIntoThePath) {
  runtime().recording().to(folder_ / "calls.%p.txt").or_throw();
  call(4);
  runtime().recording().stop().or_throw();
  EXPECT_TRUE(fs::exists(folder_ / ("calls." + std::to_string(::getpid()) + ".txt")));
}

TEST_F(Record, ContinuesInAForkedChildUnderAnotherName) {
  runtime().recording().to(path_).or_throw();
  call(4);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(60);
    call(8);
    call(8);
    const bool ok = runtime().recording().stop().ok();
    ::_exit(ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  call(4);
  runtime().recording().stop().or_throw();
  EXPECT_THAT(read(path_), ElementsAre(Pair("noted(f32[4], by=0)@cpu", 2)));
  EXPECT_THAT(read(path_ + "." + std::to_string(child)),
              ElementsAre(Pair("noted(f32[8], by=0)@cpu", 2)));
}

TEST_F(Record, NeverReplacesAFileThatIsNoRecordingAndFollowsNoLink) {
  const std::string precious = folder_ / "precious.txt", link = folder_ / "link.txt";
  base::write_in_place(precious, "1\tprecious\n");
  fs::create_symlink(precious, link);
  Config config;
  for (const std::string& path : {precious, link}) {
    EXPECT_THAT(runtime().recording().to(path).to_string(),
                HasSubstr("expected a recording or a new"));
    config.settings.telemetry.record = path;
    runtime().rules().set(config).or_throw();
    EXPECT_EQ(runtime().recording().stats().path, "");
    runtime().rules().set({}).or_throw();
  }
  // A link that appears while calls are recorded is not followed either.
  runtime().recording().to(path_).or_throw();
  call(4);
  fs::create_symlink(precious, path_);
  EXPECT_THAT(runtime().recording().stop().to_string(), HasSubstr("it is a symbolic link"));
  EXPECT_EQ(text(precious), "1\tprecious\n");
}

TEST_F(Record, ReplacesAnOlderRecordingAndKeepsItsMode) {
  for (int i = 0; i < 2; ++i) {
    runtime().recording().to(path_).or_throw();
    call(4 << i);
    runtime().recording().stop().or_throw();
    if (i == 0) fs::permissions(path_, fs::perms(0640));
  }
  EXPECT_THAT(read(path_), ElementsAre(Pair("noted(f32[8], by=0)@cpu", 1)));
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms(0640));
}

// A recording that a rule file started ends when the file no longer asks for it, however its path
// is written.
TEST_F(Record, IsChangedAndEndedByTheFile) {
  const std::string own = folder_ / ("file." + std::to_string(::getpid()) + ".txt");
  Config says;
  for (const char* name : {"file.%p.txt", "plain.txt"}) {
    says.settings.telemetry.record = folder_ / name;
    runtime().rules().set(says).or_throw();
    call(4);
    EXPECT_NE(runtime().recording().stats().path, "") << name;
    runtime().rules().set({}).or_throw();
    EXPECT_EQ(runtime().recording().stats().path, "") << name;
  }
  EXPECT_THAT(read(own), ElementsAre(Pair("noted(f32[4], by=0)@cpu", 1)));
  says.settings.telemetry.record = folder_ / "file.%p.txt";
  runtime().rules().set(says).or_throw();
  EXPECT_EQ(runtime().recording().stats().path, own);
  says.settings.telemetry.record = path_;
  runtime().rules().set(says).or_throw();
  EXPECT_EQ(runtime().recording().stats().path, path_);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(60);
    const bool before = runtime().recording().stats().path != "";
    const bool ok = runtime().rules().set({}).ok() && runtime().recording().stats().path == "";
    ::_exit(before && ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  // A rule file does not end a recording that the program started.
  runtime().recording().to(folder_ / "mine.txt").or_throw();
  runtime().rules().set({}).or_throw();
  EXPECT_EQ(runtime().recording().stats().path, folder_ / "mine.txt");
}

// The process ends by exit() without stopping the recording, so its thread writes the rest.
TEST_F(Record, IsWrittenWhenTheProcessEnds) {
#if defined(YARD_UNDER_ASAN)
  GTEST_SKIP() << "what a forked child leaves behind on purpose would count as leaks at its exit";
#endif
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(60);
    static Bare* const kept = new Bare(kSchema);  // never destroyed, like Runtime::shared()
    kept->add(kernel_of("noted", "default.a", 1)).or_throw();
    kept->runtime.recording().to(folder_ / "end.%p.txt").or_throw();
    for (int i = 0; i < 7; ++i) noted.on(kept->runtime)(out_of(4), x_of(4), 0).or_throw();
    std::exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(read(folder_ / ("end." + std::to_string(child) + ".txt")),
              ElementsAre(Pair("noted(f32[4], by=0)@cpu", 7)));
}

}  // namespace
}  // namespace yard::testing::record
