// SPDX-License-Identifier: Apache-2.0
#include "verify/file.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yard/runtime.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <thread>

#include "output.h"
#include "plugin/show.h"
#include "terminal.h"

namespace yard::tool {

namespace {

// Waits for the child. Kills it and returns false if one step takes too long.
bool wait_for(pid_t child, const Ward& ward, double patience, int* status) {
  unsigned long seen = ward.page->steps;
  auto since = std::chrono::steady_clock::now();
  auto pause = std::chrono::milliseconds(1);
  for (;;) {
    if (::waitpid(child, status, WNOHANG) == child) return true;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(50));
    const auto now = std::chrono::steady_clock::now();
    // The handler of a crash may wait for a lock that the crashed code holds.
    if (ward.page->signal != 0) patience = std::min(patience, 2.0);
    if (ward.page->steps != seen) {
      seen = ward.page->steps, since = now;
    } else if (now - since > std::chrono::duration<double>(patience)) {
      ::kill(child, SIGKILL);
      while (::waitpid(child, status, 0) < 0 && errno == EINTR) {
      }
      return false;
    }
  }
}

std::string how_it_ended(bool by_itself, int status, double patience, const Ward::Page& page) {
  const std::string step = page.step.get();
  int signal = page.signal;
  if (signal == 0 && WIFSIGNALED(status)) signal = WTERMSIG(status);
  if (!by_itself && page.signal == 0)
    return fmt::format("was still running after {:g} s, {}", patience, step);
  if (signal != 0) {
    const char* name = ::sigabbrev_np(signal);
    return fmt::format(
        "died of {} {}",
        name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal), step);
  }
  return fmt::format("ended its process with exit code {} {}", WEXITSTATUS(status), step);
}

Ward::Page* g_page = nullptr;

// Records where the child crashed. The repeated signal then ends the child.
void note_crash(int signal) {
  constexpr int kOwn = 2;  // skips this function and the signal frame
  void* found[kOwn + Ward::kMostFrames];
  g_page->signal = signal;
  g_page->steps = g_page->steps + 1;
  const int n = ::backtrace(found, std::size(found));
  for (int i = kOwn; i < n; ++i) {
    Ward::Frame& to = g_page->frames[i - kOwn];
    Dl_info at{};
    if (::dladdr(static_cast<char*>(found[i]) - 1, &at) == 0 || at.dli_fname == nullptr) continue;
    to.offset = static_cast<unsigned long>(static_cast<char*>(found[i]) - 1 -
                                           static_cast<char*>(at.dli_fbase));
    if (at.dli_sname != nullptr) to.symbol.set(at.dli_sname);
    to.file.set(at.dli_fname);
  }
  ::raise(signal);
}

void note_crashes(Ward::Page& page) {
  static char stack[1 << 16];  // the thread's stack may be full
  stack_t other{};
  other.ss_sp = stack, other.ss_size = sizeof stack;
  ::sigaltstack(&other, nullptr);
  g_page = &page;
  void* none[1];
  ::backtrace(none, 1);  // loads its library now, because the handler cannot
  struct sigaction action {};
  action.sa_handler = note_crash, action.sa_flags = SA_ONSTACK | static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS})
    ::sigaction(signal, &action, nullptr);
}

std::string frame_text(const Ward::Frame& f, const std::string& plugin) {
  std::string file = f.file.get(), symbol = f.symbol.get();
  if (file.starts_with("/proc/self/fd/")) file = plugin;  // the child opened this path
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, nullptr), &std::free);
  if (name != nullptr) symbol = name.get();
  return fmt::format("{}+{:#x}{}{}", std::filesystem::path(file).filename().string(), f.offset,
                     symbol.empty() ? "" : " ", symbol);
}

int work_in_child(Ward& ward, const std::string& file, const std::function<int(Ward&)>& work) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setpgid(0, 0);
  note_crashes(*ward.page);
  ward.step("before it was opened", fmt::format("yard verify {}", file));
  const int code = finish_child_output(run_action([&] { return work(ward); }));
  ward.page->finished = true;  // if not set, the plugin ended the process
  return code;
}

}  // namespace

void remember_result(const std::string& file, const Ward& ward) {
  const Runtime runtime(looks_for_nothing());
  const Status s =
      runtime.plugins().remember_verified(ward.page->sha256.get(), ward.page->verified);
  if (!s.ok()) print_err("yard: {}: the result cannot be recorded: {}\n", file, s.message());
}

Status ChildEnd::status(std::string_view subject) const {
  Status s(Code::kInternal, fmt::format("{} {}", subject, how));
  if (!backtrace.empty()) s.note(fmt::format("backtrace:\n    {}", fmt::join(backtrace, "\n    ")));
  return std::move(s.note("reproduce it with: " + again));
}

ChildEnd run_in_child(Ward& ward, const std::string& file, double patience,
                      const std::function<int(Ward&)>& work) {
  flush_output();
  const pid_t child = ::fork();
  if (child < 0) return {kFailed, fmt::format("cannot be run: {}", std::strerror(errno))};
  if (child == 0) ::_exit(work_in_child(ward, file, work));
  int status = 0;
  const bool by_itself = wait_for(child, ward, patience, &status);
  ::kill(-child, SIGKILL);  // kills processes that the plugin started
  if (by_itself && WIFEXITED(status) && ward.page->finished) return {WEXITSTATUS(status), ""};
  ChildEnd end{kFailed, how_it_ended(by_itself, status, patience, *ward.page),
               ward.page->again.get()};
  for (const Ward::Frame& f : ward.page->frames)
    if (f.offset != 0) end.backtrace.push_back(frame_text(f, file));
  return end;
}

Ward::Ward(std::string opened, std::string plugin)
    : path(std::move(opened)), name(std::move(plugin)) {
  void* at =
      ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at != MAP_FAILED) page = static_cast<Page*>(at);
}
Ward::~Ward() {
  if (page != nullptr) ::munmap(page, sizeof(Page));
}
Json Ward::json(const std::string& file) const {
  return {{"file", file},
          {"sha256", text_or_null(page->sha256.get())},
          {"verified", page->verified},
          {"why", text_or_null(page->why.get())}};
}

int verify_file(const std::string& file, bool json, double patience,
                const std::function<int(Ward&)>& work) {
  const std::string path = absolute(file);
  PluginInfo info;
  {
    const Runtime runtime(looks_for_nothing());
    info = runtime.plugins().inspect(path);
  }
  if (info.state == PluginState::kRefused)
    return fail(info.reason == PluginReason::kNotFound ? kUsage : kFailed,
                fmt::format("{} is refused: {}: {}", file, to_string(info.reason), info.detail));
  // The child opens the inspected file by its descriptor. That path has no lock file beside it.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  Ward ward(fmt::format("/proc/self/fd/{}", fd), info.name);
  if (fd < 0 || ward.page == nullptr)
    return fail(kFailed, fmt::format("{}: {}", file, std::strerror(errno)));
  const ChildEnd end = run_in_child(ward, path, patience, work);
  ::close(fd);
  if (!end.how.empty()) {
    ward.page->sha256.set(info.sha256), ward.result(false, true, end.how);
    remember_result(file, ward);
    if (!json) return fail(kFailed, end.status(fmt::format("{} failed: it", file)));
    Json j = ward.json(file);
    j["kernels"] = Json::array();
    j["reproduce"] = end.again, j["backtrace"] = end.backtrace;
    print_json(j);
    return kFailed;
  }
  if (ward.page->verified || ward.page->failed) remember_result(file, ward);
  return end.code;
}

}  // namespace yard::tool
