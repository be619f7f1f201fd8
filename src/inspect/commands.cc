// SPDX-License-Identifier: Apache-2.0
// Live control of a process: its runtimes, its server, and which command a request means.
#include "inspect/commands.h"

#include <fmt/format.h>
#include <unistd.h>
#include <yard/version.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <utility>

#include "base/lists.h"
#include "base/log.h"
#include "base/results.h"
#include "base/text.h"
#include "inspect/socket.h"
#include "plugin/scan.h"
#include "rules/callbacks.h"

namespace yard::inspect {

struct LiveControl::Entry {
  Entry(const Subject& s, uint64_t number, bool is_shared)
      : id(number), shared(is_shared), in_use(subject.add(s)) {}

  rules::Callbacks<Subject> subject;  // a command on it is a run
  const uint64_t id;
  const bool shared;
  const uint64_t in_use;  // of the subject, which is removed when the runtime ends
};

namespace {

using Entries = std::vector<std::shared_ptr<LiveControl::Entry>>;

std::atomic<uint64_t> g_next_id{0};

struct Process {
  std::mutex lock;     // of entries
  Entries entries;     // the shared runtime first, then in the order in which they were made
  std::mutex serving;  // held while the server is started or stopped; before `lock`
  std::unique_ptr<Server> server;
  // Of the server's thread.
  std::vector<Change> changes;
  uint64_t last_change = 0;
};
constinit base::PerProcess<Process> g_process;

Entries entries() {
  Process& p = g_process.get();
  const std::lock_guard lock(p.lock);
  return p.entries;
}

std::string program_of(const std::string& process) {
  char path[PATH_MAX];
  const ssize_t n = ::readlink(fmt::format("/proc/{}/exe", process).c_str(), path, sizeof path);
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : std::string();
}

// When this process was started, in seconds since 1970; 0 if the system does not tell.
double started() {
  std::string text(4096, '\0');
  std::FILE* const file = std::fopen("/proc/self/stat", "re");
  if (file == nullptr) return 0;
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  // Fields are counted after the name, which is in parentheses.
  const size_t name = text.rfind(") ");
  if (name == text.npos) return 0;
  const auto fields = base::split(std::string_view(text).substr(name + 2), ' ');
  constexpr size_t kStart = 19;
  struct timespec booted, now;
  if (fields.size() <= kStart || ::clock_gettime(CLOCK_BOOTTIME, &booted) != 0 ||
      ::clock_gettime(CLOCK_REALTIME, &now) != 0)
    return 0;
  const auto seconds = [](const struct timespec& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  const double ticks = static_cast<double>(base::number<uint64_t>(fields[kStart]).value_or(0));
  return seconds(now) - seconds(booted) + ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

// Runs while the runtime cannot end; an error if it has.
template <class F>
auto with(LiveControl::Entry& entry, const F& f) {
  std::optional<decltype(f(std::declval<const Subject&>()))> result;
  entry.subject.for_each([&](const Subject& subject) { result.emplace(f(subject)); });
  if (!result)
    result.emplace(Status(Code::kNotFound, fmt::format("runtime {} has ended", entry.id)));
  return *std::move(result);
}

Result<std::shared_ptr<LiveControl::Entry>> find_entry(std::optional<int64_t> id) {
  const Entries all = entries();
  if (all.empty()) return Status(Code::kNotFound, "the process has no runtime");
  if (!id) return all[0];
  std::vector<std::string> known;
  for (const auto& e : all) {
    if (static_cast<int64_t>(e->id) == *id) return e;
    known.push_back(std::to_string(e->id));
  }
  return Status(Code::kNotFound,
                fmt::format("invalid runtime: expected {}, got {}", base::one_of(known), *id));
}

Result<std::string> hello(const Peer&) {
  std::vector<std::string> runtimes;
  for (const auto& e : entries()) {
    const auto one = with(*e, [&](const Subject& s) -> Result<std::string> {
      base::JsonObject o;
      o.add("id", e->id).add("generation", s.core.snapshot()->generation).add("shared", e->shared);
      return o.text();
    });
    if (one.ok()) runtimes.push_back(*one);
  }
  base::JsonObject to;
  to.add("pid", static_cast<int64_t>(::getpid())).add("program", program_of("self"));
  to.add("version", YARD_VERSION).add("started", started());
  to.add_json("runtimes", base::json_list(runtimes));
  to.add("user", static_cast<int64_t>(::geteuid()));
  return to.text();
}

std::string whom(const Peer& who, const std::string& program) {
  return fmt::format("user {}, process {}{}", who.user, who.process,
                     program.empty() ? "" : fmt::format(" ({})", base::printable(program, 200)));
}

Result<std::string> change(LiveControl::Entry& entry, const Command& command,
                           const Request& request, const Peer& who) {
  Process& p = g_process.get();
  Change made;
  made.who = who, made.program = program_of(std::to_string(who.process));
  made.command = request.command, made.runtime = entry.id;
  made.args = to_text(request.args);
  auto changed =
      with(entry, [&](const Subject& s) { return command.change(s, CommandArgs(request.args)); });
  const std::string what = fmt::format("{} {}", request.command, base::printable(made.args, 500));
  if (!changed.ok()) {
    base::log_event(LogLevel::kWarn, "inspect",
                    fmt::format("{} by {} was refused: {}", what, whom(who, made.program),
                                changed.status().message()));
    return std::move(changed).status();
  }
  made.id = ++p.last_change;
  made.at = std::chrono::system_clock::now();
  made.undo = std::move(changed->undo);
  base::log_event(LogLevel::kWarn, "inspect",
                  fmt::format("Change {}: {} by {}", made.id, what, whom(who, made.program)));
  if (p.changes.size() >= kMostChanges) p.changes.erase(p.changes.begin());
  p.changes.push_back(std::move(made));
  if (changed->bare) return std::move(changed->result);
  return base::JsonObject().add("change", p.last_change).add_json("effect", changed->result).text();
}

Result<std::string> undo(const Peer& who) {
  Process& p = g_process.get();
  for (auto c = p.changes.rbegin(); c != p.changes.rend(); ++c) {
    if (c->undone || c->undo == nullptr) continue;
    const auto entry = find_entry(static_cast<int64_t>(c->runtime));
    if (!entry.ok()) continue;  // its runtime is gone
    const std::string what =
        fmt::format("change {}: {} {}", c->id, c->command, base::printable(c->args, 500));
    const std::string by = whom(who, program_of(std::to_string(who.process)));
    Status status = with(**entry, [&](const Subject& s) { return c->undo(s); });
    if (!status.ok()) {
      base::log_event(LogLevel::kWarn, "inspect",
                      fmt::format("undo of {} by {} was refused: {}", what, by, status.message()));
      return status.note(fmt::format("while taking back {}", what));
    }
    base::log_event(LogLevel::kWarn, "inspect", fmt::format("Undone by {}: {}", by, what));
    c->undone = true;
    return to_json(*c);
  }
  return Status(Code::kNotFound, "there is no change to undo");
}

Result<std::string> list_changes(const Peer&) {
  std::vector<std::string> all;
  for (const Change& c : g_process.get().changes) all.push_back(to_json(c));
  return base::JsonObject().add_json("changes", base::json_list(all)).text();
}

// Commands that are not about one runtime; they take no arguments.
constexpr std::pair<const char*, Result<std::string> (*)(const Peer&)> kOfProcess[] = {
    {"hello", hello}, {"changes", list_changes}, {"undo", undo}};

Status check_args(const Request& request, std::span<const char* const> args) {
  std::vector<std::string> known;
  for (const char* const name : args)
    if (name != nullptr) known.emplace_back(name);
  for (const auto& [key, value] : request.args.items())
    if (!base::contains(known, key))
      return invalid(fmt::format("argument of {}", request.command),
                     known.empty() ? "none" : base::one_of(known),
                     base::excerpt(key) + base::did_you_mean(key, known));
  return {};
}

Result<const Command*> find_command(const std::string& name) {
  std::vector<std::string> known;
  for (const auto& [other, run] : kOfProcess) known.emplace_back(other);
  for (const auto& table : {query_commands(), change_commands()})
    for (const Command& c : table) {
      if (name == c.name) return &c;
      known.emplace_back(c.name);
    }
  return Status(Code::kUnsupported,
                fmt::format("invalid command: expected {}, got {}{}", base::one_of(known),
                            base::excerpt(name), base::did_you_mean(name, known)));
}

}  // namespace

Result<std::string> handle_request(const Request& request, const Peer& who) {
  for (const auto& [name, run] : kOfProcess) {
    if (request.command != name) continue;
    YARD_RETURN_IF_ERROR(check_args(request, {}));
    return run(who);
  }
  YARD_ASSIGN_OR_RETURN(const auto command, find_command(request.command));
  YARD_RETURN_IF_ERROR(check_args(request, command->args));
  YARD_ASSIGN_OR_RETURN(const auto entry, find_entry(request.runtime));
  if (command->change != nullptr) return change(*entry, *command, request, who);
  return with(*entry,
              [&](const Subject& s) { return command->query(s, CommandArgs(request.args)); });
}

LiveControl::LiveControl(Subject subject, bool allowed)
    : subject_(subject),
      id_(g_next_id.fetch_add(1, std::memory_order_relaxed)),
      allowed_(allowed),
      first_use_(
          std::in_place, [this] { join(); }, allowed) {}

void LiveControl::end() {
  first_use_.reset();  // another thread may be about to join()
  leave();
}

void LiveControl::allow(bool on) {
  if (allowed_.exchange(on, std::memory_order_acq_rel) == on) return;
  if (on)
    first_use_->again();
  else
    leave();
}

// At the first call in this process.
void LiveControl::join() {
  if (plugin::privileged()) return;
  Process& p = g_process.get();
  const std::lock_guard serving(p.serving);
  {
    const std::lock_guard lock(p.lock);
    if (!allowed_.load(std::memory_order_acquire)) return;
    const auto is_ours = [&](const auto& e) { return e->id == id_; };
    if (std::any_of(p.entries.begin(), p.entries.end(), is_ours)) return;
    p.entries.push_back(
        std::make_shared<Entry>(subject_, id_, shared_.load(std::memory_order_relaxed)));
    std::sort(p.entries.begin(), p.entries.end(), [](const auto& a, const auto& b) {
      return a->shared != b->shared ? a->shared : a->id < b->id;
    });
  }
  if (p.server != nullptr) return;
  auto server = Server::start(directories(::geteuid())[0], handle_request);
  if (server.ok())
    p.server = *std::move(server);
  else
    base::log(LogLevel::kInfo, "inspect",
              fmt::format("no live control: {}", server.status().message()));
}

void LiveControl::leave() {
  Process& p = g_process.get();
  const auto is_ours = [&](const auto& e) { return e->id == id_; };
  const Entries all = entries();
  const auto mine = std::find_if(all.begin(), all.end(), is_ours);
  if (mine == all.end()) return;
  (*mine)->subject.remove((*mine)->in_use);
  const std::lock_guard serving(p.serving);
  bool last = false;
  {
    const std::lock_guard lock(p.lock);
    std::erase_if(p.entries, is_ours);
    last = p.entries.empty();
  }
  if (!last) return;
  p.server = nullptr;  // no command runs
  p.changes.clear();   // what could undo them is gone
}

std::string to_json(const Change& c) {
  base::JsonObject who;
  who.add("uid", static_cast<int64_t>(c.who.user)).add("pid", static_cast<int64_t>(c.who.process));
  who.add_or_null("program", c.program);
  base::JsonObject to;
  to.add("id", c.id).add("at", seconds_since_1970(c.at)).add_json("who", who.text());
  to.add("command", c.command).add_json("args", c.args).add("runtime", c.runtime);
  to.add("undoable", c.undo != nullptr).add("undone", c.undone);
  return to.text();
}

std::string last_change() {
  const std::vector<Change>& all = g_process.get().changes;
  return all.empty() ? "null" : to_json(all.back());
}

double seconds_since_1970(std::chrono::system_clock::time_point t) noexcept {
  return std::chrono::duration<double>(t.time_since_epoch()).count();
}

}  // namespace yard::inspect
