// SPDX-License-Identifier: Apache-2.0
// What the program `yard-probe` does: opens a library, queries and starts it, runs its kernels on a few calls, stops and
// closes it. It writes its current step to a page that it shares with its parent (plugin/probe.h), so that the parent
// can report the step of a crash.
#include <execinfo.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <yard/plugins.h>
#include <yard/runtime.h>
#include <yard/version.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <semaphore>
#include <system_error>
#include <thread>

#include "base/file.h"
#include "base/lists.h"
#include "base/text.h"
#include "dispatch/core.h"
#include "plugin/loader.h"
#include "plugin/probe.h"
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

[[noreturn]] int finish(ProbePage& page, ProbePage::Outcome outcome, std::string_view detail = {}) {
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
  const auto all = tune::ops_under_test(*snapshot->state, {runtime.core().host, snapshot->forked},
                                        of_plugin, keep);
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

// ---- Threads that go on after the library is closed ----

struct MappedCode {
  uintptr_t begin, end;
  bool operator==(const MappedCode&) const = default;
};

// Of all libraries.
std::vector<MappedCode> mapped_code() {
  std::vector<MappedCode> to;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* list) {
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& part = info->dlpi_phdr[i];
          if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
          const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
          static_cast<std::vector<MappedCode>*>(list)->push_back({begin, begin + part.p_memsz});
        }
        return 0;
      },
      &to);
  return to;
}

// The frames of the thread that was asked last.
struct ThreadFrames {
  void* at[64];
  int count;
  std::atomic<bool> known;
};
ThreadFrames g_frames;

void note_frames(int) {
  g_frames.count = ::backtrace(g_frames.at, std::size(g_frames.at));
  g_frames.known.store(true, std::memory_order_release);
}

// Then it would never answer.
bool blocks_the_signal(int thread) {
  const base::File file(
      ::open(fmt::format("/proc/self/task/{}/status", thread).c_str(), O_RDONLY | O_CLOEXEC));
  char text[4096] = {};
  if (!file || file.read_at(text, sizeof text - 1, 0) < 0) return true;  // it has ended
  constexpr std::string_view kBlocked = "SigBlk:";
  const char* at = std::strstr(text, kBlocked.data());
  if (at == nullptr) return true;
  return (std::strtoull(at + kBlocked.size(), nullptr, 16) >> (SIGUSR2 - 1) & 1) != 0;
}

bool returns_to(int thread, const std::vector<MappedCode>& gone) {
  g_frames.known.store(false, std::memory_order_relaxed);
  if (blocks_the_signal(thread) || ::syscall(SYS_tgkill, ::getpid(), thread, SIGUSR2) != 0)
    return false;
  for (int i = 0; i < 1000 && !g_frames.known.load(std::memory_order_acquire); ++i) ::usleep(1000);
  if (!g_frames.known.load(std::memory_order_acquire)) return false;
  for (int i = 0; i < g_frames.count; ++i)
    for (const MappedCode& c : gone)
      if (const auto at = reinterpret_cast<uintptr_t>(g_frames.at[i]); at >= c.begin && at <= c.end)
        return true;
  return false;
}

// Whether a thread will return to code that is no longer mapped.
bool left_a_thread(std::vector<MappedCode> before) {
  const std::vector<MappedCode> now = mapped_code();
  std::erase_if(before, [&](const MappedCode& c) { return base::contains(now, c); });
  if (before.empty()) return false;
  void* frame;
  ::backtrace(&frame, 1);  // the first use loads a library
  struct sigaction action {};
  action.sa_handler = note_frames, action.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR2, &action, nullptr);
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/task", error), end; !error && it != end;
       it.increment(error))
    if (const int thread = std::atoi(it->path().filename().c_str());
        thread != ::gettid() && returns_to(thread, before))
      return true;
  return false;
}

PluginInfo load_and_run(Runtime& runtime, ProbePage& page) {
  const Status loaded = runtime.plugins().load(the_file());
  PluginInfo info;
  for (const PluginInfo& p : runtime.plugins().list())
    if (p.path == the_file()) info = p;
  if (!loaded.ok()) {
    page.reason = static_cast<uint32_t>(info.reason);
    finish(page, ProbePage::kRefused, info.detail);
  }
  const void* keep = runtime.plugins().loader().keep_of(the_file());
  if (!exercise_kernels(runtime, keep, page))
    finish(page, ProbePage::kDamage, ProbePage::get(page.detail));
  return info;
}

int probe(ProbePage& page, const std::vector<std::string>& words) {
  RuntimeSettings settings;
  for (const std::string& word : words)
    (word.starts_with('/') ? settings.plugins.paths : settings.device_features).push_back(word);
  settings.environment = false;
  settings.inspect = false;  // its thread is none of the plugin
  settings.plugins.installed = false;
  settings.plugins.allow_writable = true;  // checked by the parent, and the size, too
  settings.plugins.max_file_bytes = UINT64_MAX;
  settings.plugins.unlocked = {the_file()};
  settings.plugins.probe = PluginProbe::kNever;
  settings.plugins.watch = [&](std::string_view path, std::string_view step) {
    ProbePage::put(page.step, step_text(path, step));
  };
  Runtime runtime(settings);
  // On a thread that ends when the library is closed, as those of a program may: destructors of thread-specific data run
  // then.
  PluginInfo info;
  std::binary_semaphore ran(0), closed(0);
  std::thread caller;
  try {
    caller = std::thread([&] {
      info = load_and_run(runtime, page);
      ran.release(), closed.acquire();
    });
    ran.acquire();
  } catch (const std::system_error&) {  // no thread can be had
    info = load_and_run(runtime, page);
  }
  ProbePage::put(page.step, "while it was stopped and closed");
  const std::vector<MappedCode> before = mapped_code();
  if (const auto ticket = runtime.plugins().unload(info.name); ticket.ok()) ticket->wait().ignore();
  // Unwinding such a thread may crash as well.
  ProbePage::put(page.step, "in a thread that it left running, after it was closed");
  if (left_a_thread(before)) return finish(page, ProbePage::kDamage, "would crash");
  ProbePage::put(page.step, "when a thread that had called it ended, after it was closed");
  closed.release();
  if (caller.joinable()) caller.join();
  return finish(page, ProbePage::kPassed);
}

}  // namespace
}  // namespace yard::runtime

namespace yard::detail {

int probe_child(int argc, char** argv) {
  using namespace runtime;
  ProbePage* page = argc < 3 ? nullptr : map_page();
  const auto memory = page != nullptr ? base::number<uint64_t>(argv[2]) : std::nullopt;
  if (memory.value_or(0) == 0) {
    std::fputs("yard-probe: it is started by the library; `yard plugin probe FILE` is for people\n",
               stderr);
    return runtime::kUsage;
  }
  ProbePage::put(page->version, YARD_VERSION);
  if (std::string_view(argv[1]) != YARD_VERSION) return runtime::kUsage;
  ProbePage::put(page->step, "before it was opened");
  set_limits(*memory);
  return runtime::probe(*page, {argv + 3, argv + argc});
}

}  // namespace yard::detail
