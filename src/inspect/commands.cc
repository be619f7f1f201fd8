// SPDX-License-Identifier: Apache-2.0
// Live control of a process: its runtimes, its server, and which command a request means.
#include "inspect/commands.h"

#include <fmt/format.h>
#include <unistd.h>
#include <yard/version.h>

#include <algorithm>
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
};

void serve();

// Live control of this process. A forked child starts a server of its own at its next call.
struct Process {
  base::Mutex lock{base::Rank::kRuntimes};
  base::Condition changed;
  std::vector<LiveControl*>
      runtimes;  // the shared one first, then in the order in which they were made
  const LiveControl* running = nullptr;  // the runtime that a command runs on
  std::thread::id runner;                // the thread of that command
  bool busy = false;                     // the server is being started or stopped, without the lock
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
    running = nullptr, busy = false, last_change = 0;
    // The parent's thread may have been using these.
    (void)server.release();
    (void)changes.release();
    changes = std::make_unique<std::vector<Change>>();
    if (!runtimes.empty()) base::at_next_call(serve);
  }};
};

Process& process() {
  static constinit std::once_flag once;
  static constinit Process* made =
      nullptr;  // never destroyed, since runtimes may end after statics
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

std::vector<uint64_t> runtime_ids() {
  Process& p = process();
  const std::lock_guard lock(p.lock);
  std::vector<uint64_t> to;
  for (const LiveControl* r : p.runtimes) to.push_back(r->subject().id);
  return to;
}

// Runs f(subject) while the runtime cannot end. Without an id the first runtime is meant.
template <class F>
Result<std::string> on_runtime(std::optional<int64_t> id, const F& f) {
  Process& p = process();
  struct Done {
    Process& p;
    ~Done() {
      const std::lock_guard lock(p.lock);
      p.running = nullptr;
      p.changed.notify_all();
    }
  };
  const LiveControl* found = nullptr;
  std::vector<std::string> known;
  {
    const std::lock_guard lock(p.lock);
    for (const LiveControl* r : p.runtimes) {
      if (found == nullptr && (!id || static_cast<int64_t>(r->subject().id) == *id)) found = r;
      known.push_back(std::to_string(r->subject().id));
    }
    p.running = found, p.runner = std::this_thread::get_id();
  }
  if (known.empty()) return Status(Code::kNotFound, "the process has no runtime");
  if (found == nullptr)
    return Status(Code::kNotFound,
                  fmt::format("invalid runtime: expected {}, got {}", base::one_of(known), *id));
  const Done done{p};
  return f(found->subject());
}

std::string program_of(pid_t process) {
  std::error_code unknown;
  return std::filesystem::read_symlink(fmt::format("/proc/{}/exe", process), unknown).string();
}

// When this process was started, in seconds since 1970. Returns 0 if the system does not tell.
double started() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  // Fields are counted after the name, which is in parentheses.
  const auto fields = base::split(std::string_view(text).substr(text.rfind(')') + 1), ' ');
  constexpr size_t kStart = 20;
  const auto ticks = fields.size() > kStart ? base::number<uint64_t>(fields[kStart]) : std::nullopt;
  struct timespec booted, now;
  if (!ticks || ::clock_gettime(CLOCK_BOOTTIME, &booted) != 0 ||
      ::clock_gettime(CLOCK_REALTIME, &now) != 0)
    return 0;
  const auto seconds = [](const struct timespec& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  return seconds(now) - seconds(booted) +
         static_cast<double>(*ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

Result<std::string> hello(const Peer&) {
  std::vector<std::string> runtimes;
  for (const uint64_t id : runtime_ids()) {
    const auto one = on_runtime(static_cast<int64_t>(id), [](const Subject& s) {
      base::JsonObject o;
      o.add("id", s.id).add("generation", s.core.snapshot()->generation).add("shared", s.shared);
      return o.text();
    });
    if (one.ok()) runtimes.push_back(*one);  // it may have ended
  }
  base::JsonObject to;
  to.add("pid", ::getpid()).add("program", program_of(::getpid()));
  to.add("version", YARD_VERSION).add("started", started());
  to.add_json("runtimes", base::json_list(runtimes));
  return to.add("user", ::geteuid()).text();
}

std::string to_json(const Change& c) {
  return base::JsonObject(c.json).add("undone", c.undone).text();
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
  auto changed = command.change(s, CommandArgs(request.args));
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

Result<std::string> undo(const Peer& who) {
  const std::vector<uint64_t> runtimes = runtime_ids();
  std::vector<Change>& all = *process().changes;
  const auto c = std::find_if(all.rbegin(), all.rend(), [&](const Change& x) {
    return !x.undone && x.undo != nullptr && base::contains(runtimes, x.runtime);
  });
  if (c == all.rend()) return Status(Code::kNotFound, "there is no change to undo");
  const auto take_back = [&](const Subject& s) -> Result<std::string> {
    const std::string by = text_of(who);
    if (Status status = c->undo(s); !status.ok()) {
      log_change(fmt::format("undo of {} by {} was refused: {}", c->text, by, status.message()));
      return status.note(fmt::format("while taking back {}", c->text));
    }
    log_change(fmt::format("Undone by {}: {}", by, c->text));
    c->undone = true;
    return to_json(*c);
  };
  return on_runtime(static_cast<int64_t>(c->runtime), take_back);
}

Result<std::string> list_changes(const Peer&) {
  std::vector<std::string> all;
  for (const Change& c : *process().changes) all.push_back(to_json(c));
  return base::JsonObject().add_json("changes", base::json_list(all)).text();
}

// Commands that are not about one runtime. They take no arguments.
constexpr std::pair<const char*, Result<std::string> (*)(const Peer&)> kOfProcess[] = {
    {"hello", hello}, {"changes", list_changes}, {"undo", undo}};

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
    if (value == nullptr && !needed) continue;
    const std::string text =
        value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
    if (p.kind == Kind::kNumber && !whole_number(*value))
      return invalid(p.name, "a whole number", value);
    if (p.kind == Kind::kObject && !value->is_object()) return invalid(p.name, "an object", value);
    if (p.kind == Kind::kText && !value->is_string()) return invalid(p.name, "a string", value);
    if (needed && text.empty()) return invalid(p.name, "a string", value);
    if (p.kind == Kind::kPath && (text[0] != '/' || text.find('\0') != text.npos))
      return invalid(p.name, "a path that begins with /", value);
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

}  // namespace

std::string CommandArgs::text(std::string_view name) const {
  const Json* const value = find(args_, name);
  return value != nullptr ? value->get<std::string>() : std::string();
}

std::optional<int64_t> CommandArgs::number(std::string_view name) const {
  const Json* const value = find(args_, name);
  return value != nullptr ? whole_number(*value) : std::nullopt;
}

Result<std::string> handle_request(const Request& request, const Peer& who) {
  for (const auto& [name, run] : kOfProcess) {
    if (request.command != name) continue;
    YARD_RETURN_IF_ERROR(check_args(request, {}));
    return run(who);
  }
  YARD_ASSIGN_OR_RETURN(const auto command, find_command(request.command));
  YARD_RETURN_IF_ERROR(check_args(request, command->parameters));
  return on_runtime(request.runtime, [&](const Subject& s) {
    return command->query != nullptr ? command->query(s, CommandArgs(request.args))
                                     : change(s, *command, request, who);
  });
}

std::string last_change() {
  const std::vector<Change>& all = *process().changes;
  return all.empty() ? "null" : to_json(all.back());
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
  if (allowed_.exchange(on, std::memory_order_acq_rel) == on) return;
  if (on)
    join();
  else
    leave();
}

void LiveControl::join() {
  Process& p = process();
  {
    const std::lock_guard lock(p.lock);
    p.runtimes.push_back(this);
    p.sort();
  }
  base::at_next_call(serve);
}

void LiveControl::leave() {
  Process& p = process();
  std::unique_lock lock(p.lock);
  std::erase(p.runtimes, this);
  p.changed.wait(lock, [&] {
    return !p.busy && (p.running != this || p.runner == std::this_thread::get_id());
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
