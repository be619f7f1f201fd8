// SPDX-License-Identifier: Apache-2.0
// What the program `yard-probe` does: opens a library, queries and starts it, runs its kernels on a few calls, stops and
// closes it. It writes its current step to a page that it shares with its parent (plugin/probe.h), so that the parent
// can report the step of a crash.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <yard/detail/probe.h>
#include <yard/runtime.h>
#include <yard/version.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "plugin/loader.h"
#include "plugin/probe.h"
#include "runtime/verify.h"
#include "tune/conformance.h"

namespace yard::runtime {
namespace {

using plugin::ProbePage;

constexpr int kUsage = 2;

std::string the_file() { return fmt::format("/proc/self/fd/{}", plugin::kFileFd); }

ProbePage* map_page() {
  void* at =
      ::mmap(nullptr, sizeof(ProbePage), PROT_READ | PROT_WRITE, MAP_SHARED, plugin::kPageFd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<ProbePage*>(at);
}

bool read_number(const char* text, uint64_t& to) {
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, to);
  return error == std::errc() && stop == end && to > 0;
}

void limit(decltype(RLIMIT_AS) what, uint64_t most) {
  const rlimit r = {most, most};
  ::setrlimit(what, &r);
}

void set_limits(uint64_t memory) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  limit(RLIMIT_CORE, 0);
  // A sanitizer takes terabytes of addresses for its shadow.
  if (std::string_view(YARD_SANITIZER_) == "none") limit(RLIMIT_AS, memory);
  // The plugin must not see files that the parent left open.
  ::syscall(SYS_close_range, plugin::kFileFd + 1, ~0u, 0);
}

std::string step_text(std::string_view path, std::string_view step) {
  if (path != the_file())
    return fmt::format("in step '{}' of {}, which it may build on", step, path);
  if (step == "opening") return "while it was opened";
  return fmt::format("in its {}", step);
}

int finish(ProbePage& page, ProbePage::Outcome outcome, std::string_view detail = {}) {
  ProbePage::put(page.detail, detail);
  page.outcome = outcome;
  // Without exit handlers: those of the library must not change the result.
  ::_exit(0);
}

// The kernels of these ops that cannot be run here, with the result of their backend's probe.
std::string unavailable_kernels(const Runtime& runtime,
                                const std::vector<tune::OpUnderTest>& subjects) {
  const Listing listing = runtime.list();
  std::string to;
  for (const tune::OpUnderTest& subject : subjects)
    for (const KernelInfo& k : listing.find_op(subject.op_record->op->name)->kernels)
      if (!k.available && subject.kernels.contains(k.id))
        to += fmt::format("{}{} of op {}: {}: {}", to.empty() ? "" : "; ", k.id, k.op, k.reason,
                          k.detail);
  return to;
}

// False if a kernel did damage.
bool exercise_kernels(Runtime& runtime, const void* keep, ProbePage& page) {
  VerifyOptions of_plugin;
  of_plugin.plugin = the_file();
  const auto snapshot = runtime.core().snapshot();
  const auto all = subjects(*snapshot, of_plugin, runtime.core().host, keep);
  ProbePage::put(page.step, "in the probe of a backend");
  ProbePage::put(page.unavailable, unavailable_kernels(runtime, all));
  for (const tune::OpUnderTest& subject : all) {
    tune::SmokeTestOptions options;
    options.watch = [&](std::string_view kernel, const VerifyCase& c) {
      ProbePage::put(page.step, fmt::format("in kernel '{}' of op '{}' on {}", kernel,
                                            subject.op_record->op->name, c.call));
    };
    const tune::SmokeTestReport e = tune::run_smoke_test(subject, options);
    page.kernels += e.kernels, page.runs += e.runs;
    if (e.damage.empty()) continue;
    ProbePage::put(page.detail, e.damage);
    return false;
  }
  return true;
}

int probe(ProbePage& page, const std::vector<std::string>& words) {
  RuntimeSettings settings;
  for (const std::string& word : words)
    (word.starts_with('/') ? settings.plugins.paths : settings.device_features).push_back(word);
  settings.environment = false;
  settings.plugins.installed = false;
  settings.plugins.allow_writable = true;  // checked by the parent, and the size, too
  settings.plugins.max_file_bytes = UINT64_MAX;
  settings.plugins.unlocked = {the_file()};
  settings.plugins.probe = PluginProbe::kNever;
  settings.plugins.watch = [&](std::string_view path, std::string_view step) {
    ProbePage::put(page.step, step_text(path, step));
  };
  Runtime runtime(settings);
  const Status loaded = runtime.plugins().load(the_file());
  PluginInfo info;
  for (const PluginInfo& p : runtime.plugins().list())
    if (p.path == the_file()) info = p;
  if (!loaded.ok()) {
    page.reason = static_cast<uint32_t>(info.reason);
    return finish(page, ProbePage::kRefused, info.detail);
  }
  const void* keep = runtime.plugins().loader().keep_of(the_file());
  if (!exercise_kernels(runtime, keep, page))
    return finish(page, ProbePage::kDamage, ProbePage::get(page.detail));
  ProbePage::put(page.step, "while it was stopped and closed");
  if (const auto ticket = runtime.plugins().unload(info.name); ticket.ok()) ticket->wait().ignore();
  return finish(page, ProbePage::kPassed);
}

}  // namespace
}  // namespace yard::runtime

namespace yard::detail {

int probe_child(int argc, char** argv) {
  using namespace runtime;
  uint64_t memory = 0;
  ProbePage* page = argc < 3 ? nullptr : map_page();
  if (page == nullptr || !read_number(argv[2], memory)) {
    std::fputs("yard-probe: it is started by the library; `yard plugin probe FILE` is for people\n",
               stderr);
    return runtime::kUsage;
  }
  ProbePage::put(page->version, YARD_VERSION);
  if (std::string_view(argv[1]) != YARD_VERSION) return runtime::kUsage;
  ProbePage::put(page->step, "before it was opened");
  set_limits(memory);
  return runtime::probe(*page, {argv + 3, argv + argc});
}

}  // namespace yard::detail
