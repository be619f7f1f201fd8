// SPDX-License-Identifier: Apache-2.0
#include "plugin/probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yard/version.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "base/text.h"
#include "plugin/manifest.h"
#include "plugin/search.h"

namespace yard::plugin {
namespace {

using Clock = std::chrono::steady_clock;

// A copy, since the child may go on writing; empty if the child has truncated the page.
ProbePage read_page(const base::File& file) noexcept {
  ProbePage page{};
  return file.read_at(&page, sizeof page, 0) < 0 ? ProbePage{} : page;
}

// How a child ended.
struct End {
  bool timed_out = false, unknown = false;
  int status = 0;  // of waitpid
};

End wait_for(pid_t child, double seconds) {
  End end;
  const auto give_up = Clock::now() + std::chrono::duration<double>(seconds);
  auto pause = std::chrono::microseconds(200);
  for (;;) {
    siginfo_t info{};
    const int got = ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT);
    if (got == 0 && info.si_pid == child) break;
    if (got != 0 && errno != EINTR) {
      end.unknown = true;  // the program reaps all children, or ignores SIGCHLD
      return end;
    }
    if (Clock::now() >= give_up) {
      end.timed_out = true;
      break;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(10000));
  }
  // The whole process group. Its id is not reused until the child is reaped.
  ::kill(-child, SIGKILL);
  while (::waitpid(child, &end.status, 0) < 0 && errno == EINTR) {
  }
  return end;
}

// The last line of stderr: libraries print there why they abort.
std::string last_line(int fd) {
  struct stat info;
  char tail[1024];
  if (::fstat(fd, &info) != 0) return {};
  const off_t from = std::max<off_t>(0, info.st_size - static_cast<off_t>(sizeof tail));
  const ssize_t n = ::pread(fd, tail, sizeof tail, from);
  if (n <= 0) return {};
  std::string_view text(tail, static_cast<size_t>(n));
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.remove_suffix(1);
  const size_t line = text.rfind('\n');
  return std::string(line == text.npos ? text : text.substr(line + 1));
}

class Spawn {
 public:
  Spawn() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    ::sigemptyset(&none), ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~Spawn() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;

  // Sources must not be among the targets.
  void pass(int from, int as) { ::posix_spawn_file_actions_adddup2(&actions_, from, as); }
  int start(const std::string& program, const std::vector<std::string>& words, pid_t* child) {
    std::vector<char*> argv;
    for (const std::string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
    argv.push_back(nullptr);
    return ::posix_spawn(child, program.c_str(), &actions_, &attributes_, argv.data(), environ);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// A duplicate above the descriptors that the child uses.
base::File moved_up(int fd) { return base::File(::fcntl(fd, F_DUPFD_CLOEXEC, 16)); }

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name != nullptr ? "SIG" + std::string(name) : fmt::format("signal {}", number);
}

PluginReason reason_of(const ProbePage& page) {
  const bool known = page.reason > 0 && page.reason < reasons().size();
  return known ? static_cast<PluginReason>(page.reason) : PluginReason::kProbeFailed;
}

// Fills in the report.
void judge(const End& end, const ProbePage& page, const std::string& output, double limit,
           ProbeReport& to) {
  const std::string version = ProbePage::get(page.version), step = ProbePage::get(page.step);
  const bool good_end =
      end.unknown || (!end.timed_out && WIFEXITED(end.status) && WEXITSTATUS(end.status) == 0);
  const std::string words =
      output.empty() ? "" : fmt::format("; its last output: {}", base::excerpt(output, 160));
  to.kernels = page.kernels, to.runs = page.runs;
  to.unavailable = ProbePage::get(page.unavailable);
  if (version.empty()) {
    to.reason = PluginReason::kNotProbed;
    to.detail = fmt::format("the probe program exited before the probe started{}", words);
  } else if (version != YARD_VERSION) {
    to.reason = PluginReason::kNotProbed;
    to.detail = fmt::format("the probe program is of version {}, this library of {}", version,
                            YARD_VERSION);
  } else if (good_end && page.outcome == ProbePage::kPassed) {
    to.reason = PluginReason::kNone;
  } else if (good_end && page.outcome == ProbePage::kRefused) {
    to.reason = reason_of(page), to.detail = ProbePage::get(page.detail);
  } else if (good_end && page.outcome == ProbePage::kDamage) {
    to.reason = PluginReason::kProbeFailed;
    to.detail = fmt::format("{} {}", ProbePage::get(page.detail), step);
  } else {
    to.reason = PluginReason::kProbeFailed;
    if (end.timed_out)
      to.detail = fmt::format("was still running after {:g} s, {}", limit, step);
    else if (end.unknown)
      to.detail = fmt::format("ended its process {}", step);
    else if (WIFSIGNALED(end.status))
      to.detail = fmt::format("died of {} {}{}", signal_name(WTERMSIG(end.status)), step, words);
    else
      to.detail = fmt::format("ended its process with exit code {} {}{}", WEXITSTATUS(end.status),
                              step, words);
  }
}

// Why the file must not be run; empty if it may.
std::string why_not_run(const std::string& path) {
  Directories directories(false);
  if (Refusal r = directories.check_file(path); r.refused()) return r.detail;
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return std::strerror(errno);
  if (!S_ISREG(info.st_mode) || ::access(path.c_str(), X_OK) != 0) return "it is not executable";
  const std::string who = who_else_can_write(info, path);
  return who.empty() ? who : fmt::format("it can be written by {}", who);
}

}  // namespace

std::string find_probe_program(const PluginSettings& settings, std::string& why) {
  if (!settings.probe_program.empty()) {
    const std::string& path = settings.probe_program;
    why = path.starts_with('/') ? why_not_run(path) : "its path does not begin with '/'";
    if (why.empty()) return path;
    why = fmt::format("the probe program {} cannot be used: {}", path, why);
    return {};
  }
  std::vector<std::string> places;
  if (const std::string here = directory_of_this_library(); !here.empty())
    places = {here + "/" YARD_PROBE_FROM_LIBRARY, here + "/../libexec/yard/yard-probe"};
  places.emplace_back(YARD_PROBE_PROGRAM);
  std::string all;
  for (const std::string& place : places) {
    all += (all.empty() ? "" : ", ") + place;
    struct stat info;
    if (::stat(place.c_str(), &info) != 0) continue;
    const std::string problem = why_not_run(place);
    if (problem.empty()) return place;
    why = fmt::format("the probe program {} cannot be used: {}", place, problem);
  }
  if (why.empty()) why = fmt::format("the probe program is in none of these places: {}", all);
  return {};
}

void probe_in_child(const ProbeRequest& request, ProbeReport& report) {
  const PluginSettings& s = request.settings;
  const auto not_probed = [&](std::string why) {
    report.reason = PluginReason::kNotProbed, report.detail = std::move(why);
  };
  std::string why;
  const std::string program = find_probe_program(s, why);
  if (program.empty()) return not_probed(std::move(why));
  if (!(s.probe_seconds > 0) || s.probe_memory == 0)
    return not_probed("probe_seconds and probe_memory must be more than 0");
  const base::File page(::memfd_create("yard-probe", MFD_CLOEXEC));
  const base::File null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const base::File output(::memfd_create("yard-probe-stderr", MFD_CLOEXEC));
  if (!page || !null || !output || ::ftruncate(page.fd(), sizeof(ProbePage)) != 0)
    return not_probed(std::strerror(errno));
  const base::File inherited[] = {moved_up(null.fd()), moved_up(output.fd()), moved_up(page.fd()),
                                  moved_up(request.file.fd())};
  for (const base::File& f : inherited)
    if (!f) return not_probed(std::strerror(errno));
  Spawn spawn;
  spawn.pass(inherited[0].fd(), 0), spawn.pass(inherited[0].fd(), 1),
      spawn.pass(inherited[1].fd(), 2);
  spawn.pass(inherited[2].fd(), kPageFd), spawn.pass(inherited[3].fd(), kFileFd);
  std::vector<std::string> arguments = {program, YARD_VERSION, std::to_string(s.probe_memory)};
  // The child distinguishes paths, which begin with '/', from features.
  arguments.insert(arguments.end(), request.features.begin(), request.features.end());
  arguments.insert(arguments.end(), request.others.begin(), request.others.end());
  pid_t child = 0;
  const auto before = Clock::now();
  if (const int error = spawn.start(program, arguments, &child); error != 0)
    return not_probed(
        fmt::format("the probe program {} cannot be started: {}", program, std::strerror(error)));
  const End end = wait_for(child, s.probe_seconds);
  report.seconds = std::chrono::duration<double>(Clock::now() - before).count();
  judge(end, read_page(page), last_line(output.fd()), s.probe_seconds, report);
}

}  // namespace yard::plugin
