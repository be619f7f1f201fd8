// SPDX-License-Identifier: Apache-2.0
// Live control of a process: its runtimes, its server, and which command a request means.
#include "inspect/commands.h"

#include <fmt/format.h>
#include <unistd.h>
#include <yard/version.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/lists.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/results.h"
#include "base/tasks.h"
#include "base/text.h"
#include "inspect/socket.h"
#include "plugin/scan.h"

namespace yard::inspect {
namespace {

constexpr size_t kMostChanges = 256;

// A change that a client made.
struct Change {
  uint64_t runtime;
  std::string text;       // "change 3: deny {...}"
  base::JsonObject json;  // all but whether it is undone
  Undo undo;
  bool undone = false;

  std::string to_json() const { return base::JsonObject(json).add("undone", undone).text(); }
};

void serve();

// A forked child starts a server of its own at its next call.
struct Process {
  base::Mutex lock{base::Rank::kRuntimes};
  base::Condition changed;
  std::vector<LiveControl*> runtimes;  // the shared one first, then in the order of their numbers
  std::thread::id runner;              // the thread that runs a command
  bool busy = false;                   // the server is being started or stopped, without the lock
  std::unique_ptr<Server> server;
  // Used by the server's thread only, oldest first.
  std::unique_ptr<std::vector<Change>> changes = std::make_unique<std::vector<Change>>();
  uint64_t last_change = 0;

  void sort() {
    std::ranges::sort(runtimes, {}, [](const LiveControl* r) {
      return std::pair(!r->subject().shared, r->subject().id);
    });
  }
  base::InChild in_child{[this] {
    runner = {}, busy = false, last_change = 0;
    // The parent's thread may have been using these.
    (void)server.release();
    (void)changes.release();
    changes = std::make_unique<std::vector<Change>>();
    if (!runtimes.empty()) base::at_next_call(serve);
  }};
};

Process& process() {
  static constinit std::once_flag once;
  static constinit Process* made = nullptr;  // not destroyed: runtimes may end after statics
  std::call_once(once, [] { made = new Process; });
  return *made;
}

// Starts the server if there is none and a runtime wants one.
void serve() {
  Process& p = process();
  std::unique_lock lock(p.lock);
  if (p.busy || p.server != nullptr || p.runtimes.empty() || plugin::privileged()) return;
  p.busy = true;
  lock.unlock();
  auto server = base::or_out_of_memory(
      [] { return Server::start(directories(::geteuid())[0], handle_request); });
  lock.lock();
  if (server.ok()) p.server = *std::move(server);
  p.busy = false;
  p.changed.notify_all();
  lock.unlock();
  if (!server.ok())
    base::log(LogLevel::kInfo, "inspect",
              fmt::format("no live control: {}", server.status().message()));
}

// A command that is being run. No runtime ends while one lives.
struct Running {
  std::vector<const LiveControl*> runtimes;

  Running() {
    const std::lock_guard lock(process().lock);
    process().runner = std::this_thread::get_id();
    runtimes.assign(process().runtimes.begin(), process().runtimes.end());
  }
  ~Running() {
    const std::lock_guard lock(process().lock);
    process().runner = {};
    process().changed.notify_all();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  // Returns null if there is no such runtime.
  const Subject* find(uint64_t id) const {
    for (const LiveControl* r : runtimes)
      if (r->subject().id == id) return &r->subject();
    return nullptr;
  }
};

std::string program_of(pid_t process) {
  std::error_code unknown;
  return std::filesystem::read_symlink(fmt::format("/proc/{}/exe", process), unknown).string();
}

// When this process was started, in seconds since 1970. Returns 0 if the system does not tell.
double started() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  // Fields are counted after the name, which is in parentheses. This one is in ticks since the system was booted.
  constexpr size_t kStart = 20;
  const auto fields = base::split(std::string_view(text).substr(text.rfind(')') + 1), ' ');
  const auto ticks = fields.size() > kStart ? base::number<double>(fields[kStart]) : std::nullopt;
  struct timespec up;
  if (!ticks || ::clock_gettime(CLOCK_BOOTTIME, &up) != 0) return 0;
  const double age = static_cast<double>(up.tv_sec) + static_cast<double>(up.tv_nsec) * 1e-9 -
                     *ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return seconds_since_1970(std::chrono::system_clock::now()) - age;
}

Result<std::string> hello(const Running& now, const Peer&) {
  std::vector<std::string> runtimes;
  for (const LiveControl* r : now.runtimes) {
    const Subject& s = r->subject();
    base::JsonObject o;
    o.add("id", s.id).add("generation", s.core.snapshot()->generation).add("shared", s.shared);
    runtimes.push_back(o.text());
  }
  base::JsonObject to;
  to.add("pid", ::getpid()).add("program", program_of(::getpid()));
  to.add("version", YARD_VERSION).add("started", started());
  to.add_json("runtimes", base::json_list(runtimes));
  return to.add("user", ::geteuid()).text();
}

std::string text_of(const Peer& who) {
  const std::string program = program_of(who.process);
  return fmt::format("user {}, process {}{}", who.user, who.process,
                     program.empty() ? "" : fmt::format(" ({})", base::printable(program, 200)));
}

void log_change(std::string text) { base::log_event(LogLevel::kWarn, "inspect", std::move(text)); }

Result<std::string> change(const Subject& s, const Command& command, const Request& request,
                           const Peer& who) {
  Process& p = process();
  const std::string args = to_text(request.args), by = text_of(who);
  const std::string what = fmt::format("{} {}", request.command, base::printable(args, 500));
  auto changed = command.change(s, request.args);
  if (!changed.ok()) {
    log_change(fmt::format("{} by {} was refused: {}", what, by, changed.status().message()));
    return std::move(changed).status();
  }
  const uint64_t id = ++p.last_change;
  log_change(fmt::format("Change {}: {} by {}", id, what, by));
  base::JsonObject peer, json;
  peer.add("uid", who.user).add("pid", who.process).add_or_null("program", program_of(who.process));
  json.add("id", id).add("at", seconds_since_1970(std::chrono::system_clock::now()));
  json.add_json("who", peer.text()).add("command", request.command).add_json("args", args);
  json.add("runtime", s.id).add("undoable", changed->undo != nullptr);
  if (p.changes->size() >= kMostChanges) p.changes->erase(p.changes->begin());
  p.changes->push_back(
      {s.id, fmt::format("change {}: {}", id, what), json, std::move(changed->undo)});
  if (changed->bare) return std::move(changed->result);
  return base::JsonObject().add("change", id).add_json("effect", changed->result).text();
}

Result<std::string> undo(const Running& now, const Peer& who) {
  std::vector<Change>& all = *process().changes;
  for (auto c = all.rbegin(); c != all.rend(); ++c) {
    const Subject* const runtime = now.find(c->runtime);
    if (c->undone || c->undo == nullptr || runtime == nullptr) continue;
    const std::string by = text_of(who);
    if (Status status = c->undo(*runtime); !status.ok()) {
      log_change(fmt::format("undo of {} by {} was refused: {}", c->text, by, status.message()));
      return status.note(fmt::format("while taking back {}", c->text));
    }
    log_change(fmt::format("Undone by {}: {}", by, c->text));
    c->undone = true;
    return c->to_json();
  }
  return Status(Code::kNotFound, "there is no change to undo");
}

Result<std::string> list_changes(const Running&, const Peer&) {
  std::vector<std::string> all;
  for (const Change& c : *process().changes) all.push_back(c.to_json());
  return base::JsonObject().add_json("changes", base::json_list(all)).text();
}

// Commands that are not about one runtime. They take no arguments.
constexpr std::pair<const char*, Result<std::string> (*)(const Running&, const Peer&)>
    kOfProcess[] = {{"hello", hello}, {"changes", list_changes}, {"undo", undo}};

bool fits(const Json& value, Parameter::Kind kind) {
  using enum Parameter::Kind;
  if (kind == kNumber) return whole_number(value).has_value();
  if (kind == kObject) return value.is_object();
  if (!value.is_string()) return false;
  const std::string& text = value.get_ref<const std::string&>();
  if (kind == kPath) return text.starts_with('/') && text.find('\0') == text.npos;
  return kind == kText || !text.empty();
}

Status check_args(const Request& request, std::span<const Parameter> parameters) {
  std::vector<std::string> known;
  for (const Parameter& p : parameters)
    if (p.name != nullptr) known.emplace_back(p.name);
  for (const auto& [key, value] : request.args.items())
    if (!base::contains(known, key))
      return invalid(fmt::format("argument of {}", request.command),
                     known.empty() ? "none" : base::one_of(known),
                     base::excerpt(key) + base::did_you_mean(key, known));
  using Kind = Parameter::Kind;
  for (const Parameter& p : parameters.first(known.size())) {
    const Json* const value = find(request.args, p.name);
    const bool needed = p.kind == Kind::kNeededText || p.kind == Kind::kPath;
    if (value == nullptr ? !needed : fits(*value, p.kind)) continue;
    return invalid(p.name,
                   p.kind == Kind::kNumber   ? "a whole number"
                   : p.kind == Kind::kObject ? "an object"
                   : p.kind == Kind::kPath   ? "a path that begins with /"
                                             : "a string",
                   value);
  }
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

// Without a number the first runtime is meant.
Result<const Subject*> find_runtime(const Running& now, std::optional<int64_t> id) {
  if (now.runtimes.empty()) return Status(Code::kNotFound, "the process has no runtime");
  if (!id) return &now.runtimes[0]->subject();
  if (const Subject* const s = now.find(static_cast<uint64_t>(*id))) return s;
  std::vector<std::string> known;
  for (const LiveControl* r : now.runtimes) known.push_back(std::to_string(r->subject().id));
  return Status(Code::kNotFound,
                fmt::format("invalid runtime: expected {}, got {}", base::one_of(known), *id));
}

}  // namespace

Result<std::string> handle_request(const Request& request, const Peer& who) {
  const Running now;
  for (const auto& [name, run] : kOfProcess) {
    if (request.command != name) continue;
    YARD_RETURN_IF_ERROR(check_args(request, {}));
    return run(now, who);
  }
  YARD_ASSIGN_OR_RETURN(const Command* const command, find_command(request.command));
  YARD_RETURN_IF_ERROR(check_args(request, command->parameters));
  YARD_ASSIGN_OR_RETURN(const Subject* const s, find_runtime(now, request.runtime));
  return command->query != nullptr ? command->query(*s, request.args)
                                   : change(*s, *command, request, who);
}

std::string last_change() {
  const std::vector<Change>& all = *process().changes;
  return all.empty() ? "null" : all.back().to_json();
}

double seconds_since_1970(std::chrono::system_clock::time_point t) noexcept {
  return std::chrono::duration<double>(t.time_since_epoch()).count();
}

LiveControl::LiveControl(Subject subject, bool allowed) : subject_(subject) {
  static constinit std::atomic<uint64_t> next_id{0};
  subject_.id = next_id.fetch_add(1, std::memory_order_relaxed);
  allow(allowed);
}

void LiveControl::is_shared() {
  Process& p = process();
  const std::lock_guard lock(p.lock);
  subject_.shared = true;
  p.sort();
}

void LiveControl::allow(bool on) {
  Process& p = process();
  std::unique_lock lock(p.lock);
  if (base::contains(p.runtimes, this) == on) return;
  if (on) {
    p.runtimes.push_back(this);
    p.sort();
    lock.unlock();
    return base::at_next_call(serve);
  }
  std::erase(p.runtimes, this);
  p.changed.wait(lock, [&] {
    return !p.busy && (p.runner == std::thread::id() || p.runner == std::this_thread::get_id());
  });
  if (!p.runtimes.empty() || p.server == nullptr) return;
  p.busy = true;
  auto server = std::move(p.server);
  lock.unlock();
  server = nullptr;    // waits for its thread, unless this is it
  p.changes->clear();  // what could undo them is gone
  lock.lock();
  p.busy = false;
  p.changed.notify_all();
  if (!p.runtimes.empty()) base::at_next_call(serve);  // a runtime was made meanwhile
}

}  // namespace yard::inspect
