// SPDX-License-Identifier: Apache-2.0
#include "verify/file.h"

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
#include <cstring>
#include <thread>

#include "output.h"
#include "plugin/show.h"
#include "terminal.h"

namespace yard::tool {

namespace {

// Waits for the child, or until one step takes too long. False if it had to be killed.
bool wait_for(pid_t child, const Ward& ward, double patience, int* status) {
  unsigned long seen = ward.page->steps;
  auto since = std::chrono::steady_clock::now();
  auto pause = std::chrono::milliseconds(1);
  for (;;) {
    if (::waitpid(child, status, WNOHANG) == child) return true;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(50));
    const auto now = std::chrono::steady_clock::now();
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

std::string how_it_ended(bool by_itself, int status, double patience, const std::string& step) {
  if (!by_itself) return fmt::format("was still running after {:g} s, {}", patience, step);
  if (WIFSIGNALED(status)) {
    const char* name = ::sigabbrev_np(WTERMSIG(status));
    return fmt::format(
        "died of {} {}",
        name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", WTERMSIG(status)),
        step);
  }
  return fmt::format("ended its process with exit code {} {}", WEXITSTATUS(status), step);
}

int work_in_child(Ward& ward, const std::function<int(Ward&)>& work) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setpgid(0, 0);
  ward.step("before it was opened");
  const int code = finish_child_output(run_action([&] { return work(ward); }));
  ward.page->finished = true;  // otherwise the plugin has ended the process
  return code;
}

void remember(const std::string& file, const Ward& ward) {
  const Runtime runtime(looks_for_nothing());
  const Status s =
      runtime.plugins().remember_verified(ward.page->sha256.get(), ward.page->verified);
  if (!s.ok()) print_err("yard: {}: the result cannot be recorded: {}\n", file, s.message());
}

}  // namespace

ChildEnd run_in_child(Ward& ward, double patience, const std::function<int(Ward&)>& work) {
  flush_output();
  const pid_t child = ::fork();
  if (child < 0) return {kFailed, fmt::format("cannot be run: {}", std::strerror(errno))};
  if (child == 0) ::_exit(work_in_child(ward, work));
  int status = 0;
  const bool by_itself = wait_for(child, ward, patience, &status);
  ::kill(-child, SIGKILL);  // processes that the plugin has started
  if (by_itself && WIFEXITED(status) && ward.page->finished) return {WEXITSTATUS(status), ""};
  return {kFailed, how_it_ended(by_itself, status, patience, ward.page->step.get())};
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
  // The child opens the descriptor, which is the inspected file and has no lock file beside it.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  Ward ward(fmt::format("/proc/self/fd/{}", fd), info.name);
  if (fd < 0 || ward.page == nullptr)
    return fail(kFailed, fmt::format("{}: {}", file, std::strerror(errno)));
  const ChildEnd end = run_in_child(ward, patience, work);
  ::close(fd);
  if (!end.how.empty()) {
    ward.page->sha256.set(info.sha256), ward.result(false, true, end.how);
    remember(file, ward);
    if (!json) return fail(kFailed, fmt::format("{} failed: it {}", file, end.how));
    Json j = ward.json(file);
    j["kernels"] = Json::array();
    print_json(j);
    return kFailed;
  }
  if (ward.page->verified || ward.page->failed) remember(file, ward);
  return end.code;
}

}  // namespace yard::tool
