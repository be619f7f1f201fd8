// SPDX-License-Identifier: Apache-2.0
// Live control of a process: its runtimes, its server, its commands and the changes that clients made.
#include "inspect/commands.h"

#include <fmt/format.h>
#include <unistd.h>
#include <yard/version.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/lists.h"
#include "base/log.h"
#include "base/results.h"
#include "base/text.h"
#include "plugin/scan.h"

namespace yard::inspect {
namespace {

constexpr size_t kMostChanges = 256;

// A change that a client made.
struct Change {
  uint64_t runtime;
  std::string text;       // "change 3: deny {...}"
  base::JsonObject json;  // without "undone"
  Undo undo;
  bool undone = false;

  std::string to_json() const { return base::JsonObject(json).add("undone", undone).text(); }
};

void serve();

struct Process {
  base::Mutex lock{base::Rank::kRuntimes};
  base::Condition changed;
  std::vector<LiveControl*> runtimes;  // the shared one first
  std::thread::id runner;              // the thread that runs a command
  bool stopping = false;               // the server is being stopped, without the lock
  std::unique_ptr<Server> server;

  // Used by the server's thread only.
  Peer client;  // sent the command that runs
  std::unique_ptr<std::vector<Change>> changes = std::make_unique<std::vector<Change>>();
  uint64_t last_change = 0;

  base::InChild in_child{[this] {
    runner = {};
    stopping = false;
    last_change = 0;
    // The parent's thread may have been using these.
    (void)server.release();
    (void)changes.release();
    changes = std::make_unique<std::vector<Change>>();
    if (!runtimes.empty()) base::at_next_call(serve);
  }};
};

Process& process() { return base::process_wide<Process>(); }

// Starts the server if there is none and a runtime wants one.
void serve() {
  Process& p = process();
  std::unique_lock lock(p.lock);
  if (p.stopping || p.server != nullptr || p.runtimes.empty() || plugin::privileged()) return;
  auto server = base::or_out_of_memory(
      [] { return Server::start(directories(::geteuid())[0], handle_request); });
  if (server.ok()) p.server = *std::move(server);
  lock.unlock();
  if (!server.ok())
    base::log(LogLevel::kInfo, "inspect",
              fmt::format("no live control: {}", server.status().message()));
}

// Lives while a command runs. No runtime ends meanwhile.
struct Running {
  Running() { set(std::this_thread::get_id()); }
  ~Running() { set({}); }

  static void set(std::thread::id runner) {
    const std::lock_guard lock(process().lock);
    process().runner = runner;
    process().changed.notify_all();
  }
};

std::vector<const Subject*> subjects() {
  const std::lock_guard lock(process().lock);
  std::vector<const Subject*> to;
  for (const LiveControl* r : process().runtimes) to.push_back(&r->subject());
  return to;
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

Result<std::string> hello(const Subject&, const Json&) {
  std::vector<std::string> runtimes;
  for (const Subject* s : subjects()) {
    base::JsonObject o;
    o.add("id", s->id).add("generation", s->core.snapshot()->generation).add("shared", s->shared);
    runtimes.push_back(o.text());
  }
  base::JsonObject to;
  to.add("pid", ::getpid()).add("program", program_of(::getpid()));
  to.add("version", YARD_VERSION).add("started", started());
  to.add_json("runtimes", base::json_list(runtimes));
  return to.add("user", ::geteuid()).text();
}

std::string client_text() {
  const Peer& who = process().client;
  const std::string program = program_of(who.process);
  return fmt::format("user {}, process {}{}", who.user, who.process,
                     program.empty() ? "" : fmt::format(" ({})", base::printable(program, 200)));
}

void log_change(std::string text) { base::log_event(LogLevel::kWarn, "inspect", std::move(text)); }

Result<std::string> change(const Subject& s, const Command& command, const Request& request) {
  Process& p = process();
  const std::string args = to_text(request.args), by = client_text();
  const std::string what = fmt::format("{} {}", request.command, base::printable(args, 500));
  auto changed = command.change(s, request.args);
  if (!changed.ok()) {
    log_change(fmt::format("{} by {} was refused: {}", what, by, changed.status().message()));
    return std::move(changed).status();
  }
  const uint64_t id = ++p.last_change;
  log_change(fmt::format("Change {}: {} by {}", id, what, by));
  base::JsonObject peer, json;
  peer.add("uid", p.client.user).add("pid", p.client.process);
  peer.add_or_null("program", program_of(p.client.process));
  json.add("id", id).add("at", seconds_since_1970(std::chrono::system_clock::now()));
  json.add_json("who", peer.text()).add("command", request.command).add_json("args", args);
  json.add("runtime", s.id).add("undoable", changed->undo != nullptr);
  if (p.changes->size() >= kMostChanges) p.changes->erase(p.changes->begin());
  p.changes->push_back(
      {s.id, fmt::format("change {}: {}", id, what), json, std::move(changed->undo)});
  if (changed->bare) return std::move(changed->result);
  return base::JsonObject().add("change", id).add_json("effect", changed->result).text();
}

Result<std::string> undo(const Subject&, const Json&) {
  std::vector<Change>& all = *process().changes;
  const auto runtimes = subjects();
  for (auto c = all.rbegin(); c != all.rend(); ++c) {
    const auto runtime = std::ranges::find(runtimes, c->runtime, &Subject::id);
    if (c->undone || c->undo == nullptr || runtime == runtimes.end()) continue;
    const std::string by = client_text();
    if (Status status = c->undo(**runtime); !status.ok()) {
      log_change(fmt::format("undo of {} by {} was refused: {}", c->text, by, status.message()));
      return status.note(fmt::format("while taking back {}", c->text));
    }
    log_change(fmt::format("Undone by {}: {}", by, c->text));
    c->undone = true;
    return c->to_json();
  }
  return Status(Code::kNotFound, "there is no change to undo");
}

Result<std::string> list_changes(const Subject&, const Json&) {
  std::vector<std::string> all;
  for (const Change& c : *process().changes) all.push_back(c.to_json());
  return base::JsonObject().add_json("changes", base::json_list(all)).text();
}

Result<Command> find_command(const std::string& name) {
  // These are about the process, whatever runtime the request names.
  const std::vector<Command> of_process = {
      {"hello", {}, hello}, {"changes", {}, list_changes}, {"undo", {}, undo}};
  std::vector<std::string> known;
  for (const auto& table : {of_process, query_commands(), change_commands()})
    for (const Command& c : table) {
      if (name == c.name) return c;
      known.emplace_back(c.name);
    }
  return Status(Code::kUnsupported,
                fmt::format("invalid command: expected {}, got {}{}", base::one_of(known),
                            base::excerpt(name), base::did_you_mean(name, known)));
}

// Without a number the first runtime is meant.
Result<const Subject*> find_runtime(std::optional<int64_t> id) {
  std::vector<std::string> known;
  for (const Subject* s : subjects()) {
    if (!id || s->id == static_cast<uint64_t>(*id)) return s;
    known.push_back(std::to_string(s->id));
  }
  if (known.empty()) return Status(Code::kNotFound, "the process has no runtime");
  return Status(Code::kNotFound,
                fmt::format("invalid runtime: expected {}, got {}", base::one_of(known), *id));
}

}  // namespace

Result<std::string> handle_request(const Request& request, const Peer& who) {
  const Running now;
  process().client = who;
  YARD_ASSIGN_OR_RETURN(const Command command, find_command(request.command));
  YARD_RETURN_IF_ERROR(check_members(request.args, command.parameters,
                                     fmt::format("argument of {}", request.command)));
  YARD_ASSIGN_OR_RETURN(const Subject* const s, find_runtime(request.runtime));
  return command.query != nullptr ? command.query(*s, request.args) : change(*s, command, request);
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
  if (std::erase(p.runtimes, this) > 0) p.runtimes.insert(p.runtimes.begin(), this);
}

void LiveControl::allow(bool on) {
  Process& p = process();
  std::unique_lock lock(p.lock);
  if (base::contains(p.runtimes, this) == on) return;
  if (on) {
    // The shared runtime comes first, the others in the order in which they were made.
    const auto later = std::ranges::find_if(p.runtimes, [&](const LiveControl* r) {
      return !r->subject_.shared && r->subject_.id > subject_.id;
    });
    p.runtimes.insert(subject_.shared ? p.runtimes.begin() : later, this);
    lock.unlock();
    return base::at_next_call(serve);
  }
  std::erase(p.runtimes, this);
  p.changed.wait(lock, [&] {
    return !p.stopping && (p.runner == std::thread::id() || p.runner == std::this_thread::get_id());
  });
  if (!p.runtimes.empty() || p.server == nullptr) return;
  p.stopping = true;
  auto server = std::move(p.server);
  lock.unlock();
  server = nullptr;    // waits for its thread, unless this is it
  p.changes->clear();  // what could undo them is gone
  lock.lock();
  p.stopping = false;
  p.changed.notify_all();
  if (!p.runtimes.empty()) base::at_next_call(serve);  // a runtime was made meanwhile
}

}  // namespace yard::inspect
