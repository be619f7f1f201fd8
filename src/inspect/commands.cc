// SPDX-License-Identifier: Apache-2.0
// Live control of a process: its runtimes, its server, its commands, and undo of the changes that
// clients made.
#include "inspect/commands.h"

#include <fmt/format.h>
#include <unistd.h>
#include <yard/version.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "base/lists.h"
#include "base/log.h"
#include "base/results.h"
#include "base/text.h"
#include "inspect/server.h"
#include "plugin/scan.h"

namespace yard::inspect {
namespace {

struct Change {
  Value args;
  Json who;
  Undo undo;  // null if the change cannot be undone
};

void serve();

struct Process {
  base::Mutex lock{base::Rank::kRuntimes};
  base::Condition changed;
  std::vector<const Subject*> runtimes;
  std::thread::id runner;  // runs a command now
  bool stopping = false;   // allow() is stopping the server and does not hold the lock
  std::unique_ptr<Server> server;

  Peer client;  // the client of the running command; used by the server's thread only

  base::InChild in_child{[this] {
    runner = {};
    stopping = false;
    // Never destroy the parent's server, because the parent's thread may have been using it.
    (void)server.release();
    if (!runtimes.empty()) base::at_next_call(serve);
  }};
};

Process& process() { return base::process_wide<Process>(); }

void serve() {
  Process& p = process();
  std::unique_lock lock(p.lock);
  if (p.stopping || p.server != nullptr || p.runtimes.empty() || plugin::privileged()) return;
  std::string directory, why_not;
  // If memory runs out, the next call tries again (base/tasks.h).
  auto server = [&]() -> Result<std::unique_ptr<Server>> {
    YARD_ASSIGN_OR_RETURN(directory, own_directory(why_not));
    return Server::start(directory, handle_request);
  }();
  if (server.ok()) p.server = *std::move(server);
  lock.unlock();
  if (!server.ok())
    base::log(LogLevel::kInfo, "inspect",
              fmt::format("no live control: {}", server.status().message()));
  else if (!why_not.empty())
    base::log(LogLevel::kWarn, "inspect",
              fmt::format("live control uses {}: {}", directory, why_not));
}

// Exists while a command runs. LiveControl::allow(false) waits for its end.
struct Running {
  Running() { set(std::this_thread::get_id()); }
  ~Running() { set({}); }

  static void set(std::thread::id runner) {
    const std::lock_guard lock(process().lock);
    process().runner = runner;
    process().changed.notify_all();
  }
};

// Returns the shared runtime first, then the others in the order of their creation.
std::vector<const Subject*> subjects() {
  const std::lock_guard lock(process().lock);
  std::vector<const Subject*> to = process().runtimes;
  std::ranges::sort(to, {}, [](const Subject* s) { return std::pair(!s->shared, s->id); });
  return to;
}

Result<Json> hello(const Subject&, const Value&) {
  const Json runtimes = each(subjects(), [](const Subject* s) {
    return object("id", s->id, "generation", s->core.snapshot()->generation, "shared", s->shared);
  });
  return object("pid", ::getpid(), "program", program_of(::getpid()), "version", YARD_VERSION,
                "started", start_time_of(::getpid()), "runtimes", runtimes, "user", ::geteuid());
}

std::string client_text() {
  const Peer& who = process().client;
  const std::string program = program_of(who.process);
  return fmt::format("user {}, process {}{}", who.user, who.process,
                     program.empty() ? "" : fmt::format(" ({})", base::printable(program, 200)));
}

// Records and logs what a client did, or why that was refused. Returns the id of the event.
uint64_t tell(base::Event event, const Status& refused = {}) {
  if (!refused.ok()) {
    event.kind = &base::event::kChangeRefused, event.number = 0;
    event.reason += fmt::format(" was refused: {}", refused.message());
  }
  std::string text = fmt::format("{} {} by {}", event.subject, event.reason, client_text());
  const uint64_t id = base::record(std::move(event));
  base::log_event(LogLevel::kWarn, "inspect", fmt::format("Change {}: {}", id, text));
  return id;
}

Result<Json> change(const Subject& s, const Command& command, const Request& request) {
  const Peer& client = process().client;
  const base::Actor actor(client_text());
  auto changed = command.change(s, request.args);
  base::Event event{.kind = &base::event::kChange,
                    .runtime = s.id,
                    .subject = request.command,
                    .reason = base::printable(request.args.json, 500)};
  if (!changed.ok()) {
    tell(std::move(event), changed.status());
    return std::move(changed).status();
  }
  if (is_set(request.args, "dry_run")) return object("change", Json(), "effect", changed->effect);
  event.detail =
      std::make_shared<const Change>(Change{request.args,
                                            object("uid", client.user, "pid", client.process,
                                                   "program", or_null(program_of(client.process))),
                                            std::move(changed->undo)});
  const uint64_t id = tell(std::move(event));
  if (!changed->result.empty()) return Json{std::move(changed->result)};
  return object("change", id, "effect", changed->effect);
}

// A change that a client has made in this process. Changes in its parent do not count.
struct Made {
  base::Event event;
  const Change& change;  // in the event
  bool undone;

  std::string text() const {
    return fmt::format("change {}: {} {}", event.id, event.subject, event.reason);
  }
  Json json() const {
    return object("id", event.id, "at", seconds_since_1970(event.at), "who", change.who, "command",
                  event.subject, "args", Json{change.args.json}, "runtime", event.runtime,
                  "undoable", change.undo != nullptr, "undone", undone);
  }
};

std::vector<Made> changes_made() {
  const std::vector<base::Event> all = base::events();
  std::set<uint64_t> undone;
  for (const base::Event& e : all)
    if (e.kind == &base::event::kUndo) undone.insert(e.number);
  std::vector<Made> to;
  for (const base::Event& e : all)
    if (e.kind == &base::event::kChange && e.process == ::getpid() && e.detail != nullptr)
      to.push_back({e, *static_cast<const Change*>(e.detail.get()), undone.contains(e.id)});
  return to;
}

// Names the thing that the undo restores. Later changes of that thing must be undone first.
std::string restored_by(const Made& m) {
  const std::string& command = m.event.subject;
  if (command == "deny" || command == "allow") return fmt::format("rule {}", m.event.id);
  if (command == "breaker") return "breaker of " + text(m.change.args, "kernel");
  return command.substr(0, command.find('.'));
}

// If the id is 0, returns the last change that can be undone.
Result<Made> find_change(uint64_t id) {
  const std::vector<Made> all = changes_made();
  std::map<std::string, uint64_t> later;  // changes that have not been undone, by restored_by()
  for (auto m = all.rbegin(); m != all.rend(); ++m) {
    const std::string what = restored_by(*m);
    const bool can_be = !m->undone && m->change.undo != nullptr;
    if (id != 0 ? m->event.id == id : can_be) {
      if (can_be && !later.contains(what)) return *m;
      return Status(
          Code::kConflict,
          m->text() + (m->undone ? " is undone already"
                       : !can_be ? " cannot be undone"
                                 : fmt::format(" was followed by change {}: undo that first",
                                               later[what])));
    }
    if (can_be) later.try_emplace(what, m->event.id);
    if (can_be && what.starts_with("rule")) later.try_emplace("config", m->event.id);
  }
  if (id == 0) return Status(Code::kConflict, "there is no change to undo");
  return base::failure(Code::kNotFound, "there is no change {}; `changes` lists them", id);
}

Result<Json> undo(const Subject&, const Value& args) {
  YARD_ASSIGN_OR_RETURN(Made m, find_change(static_cast<uint64_t>(number(args, "change"))));
  const auto runtimes = subjects();
  const auto runtime = std::ranges::find(runtimes, m.event.runtime, &Subject::id);
  if (runtime == runtimes.end())
    return base::failure(Code::kNotFound, "the runtime of {} does not answer", m.text());
  const base::Actor actor(client_text());
  Status status = m.change.undo(**runtime);
  tell({.kind = &base::event::kUndo,
        .runtime = m.event.runtime,
        .subject = "undo",
        .reason = m.text(),
        .number = m.event.id},
       status);
  if (!status.ok()) return status.note(fmt::format("while taking back {}", m.text()));
  m.undone = true;
  return m.json();
}

Result<Json> list_changes(const Subject&, const Value&) {
  return object("changes", each(changes_made(), [](const Made& m) { return m.json(); }));
}

Result<Json> list_events(const Subject&, const Value& args) {
  const auto events = base::events(static_cast<uint64_t>(number(args, "after")));
  const auto event_json = [](const base::Event& e) { return Json{base::to_json(e)}; };
  return object("events", each(events, event_json));
}

Result<Command> find_command(const std::string& name) {
  // These commands are about the whole process, so they ignore the runtime of the request.
  const std::vector<Command> of_process = {
      {"hello", {}, hello},
      {"changes", {}, list_changes},
      {"events", {{"after", Member::Kind::kNumber}}, list_events},
      {"undo", {{"change", Member::Kind::kNumber, 1}}, undo}};
  std::vector<std::string> known;
  for (const auto& table : {of_process, query_commands(), change_commands(), plugin_commands()})
    for (const Command& c : table) {
      if (name == c.name) return c;
      known.emplace_back(c.name);
    }
  return base::failure(Code::kUnsupported, "invalid command: expected {}, got {}{}",
                       base::one_of(known), base::excerpt(name), base::did_you_mean(name, known));
}

Result<const Subject*> find_runtime(std::optional<int64_t> id) {
  std::vector<std::string> known;
  for (const Subject* s : subjects()) {
    if (!id || s->id == static_cast<uint64_t>(*id)) return s;
    known.push_back(std::to_string(s->id));
  }
  if (known.empty()) return Status(Code::kNotFound, "the process has no runtime");
  return base::failure(Code::kNotFound, "invalid runtime: expected {}, got {}", base::one_of(known),
                       *id);
}

}  // namespace

Result<std::string> handle_request(const Request& request, const Peer& who) {
  const Running now;
  process().client = who;
  YARD_ASSIGN_OR_RETURN(const Command command, find_command(request.command));
  YARD_RETURN_IF_ERROR(check_members(request.args, command.parameters,
                                     fmt::format("argument of {}", request.command)));
  YARD_ASSIGN_OR_RETURN(const Subject* const s, find_runtime(request.runtime));
  YARD_ASSIGN_OR_RETURN(Json result, command.change != nullptr ? change(*s, command, request)
                                                               : command.query(*s, request.args));
  return std::move(result.text);
}

Json last_change() {
  const std::vector<Made> all = changes_made();
  return all.empty() ? Json() : all.back().json();
}

double seconds_since_1970(std::chrono::system_clock::time_point t) noexcept {
  return std::chrono::duration<double>(t.time_since_epoch()).count();
}

LiveControl::LiveControl(Subject subject, bool allowed) : subject_(subject) { allow(allowed); }

void LiveControl::is_shared() {
  const std::lock_guard lock(process().lock);
  subject_.shared = true;
}

void LiveControl::allow(bool on) {
  Process& p = process();
  std::unique_lock lock(p.lock);
  if (base::contains(p.runtimes, &subject_) == on) return;
  if (on) {
    p.runtimes.push_back(&subject_);
    lock.unlock();
    return base::at_next_call(serve);
  }
  std::erase(p.runtimes, &subject_);
  p.changed.wait(lock, [&] {
    return !p.stopping && (p.runner == std::thread::id() || p.runner == std::this_thread::get_id());
  });
  if (!p.runtimes.empty() || p.server == nullptr) return;
  p.stopping = true;
  auto server = std::move(p.server);
  lock.unlock();
  server = nullptr;  // waits for the server's thread unless this thread is it
  lock.lock();
  p.stopping = false;
  p.changed.notify_all();
  if (!p.runtimes.empty()) base::at_next_call(serve);
}

}  // namespace yard::inspect
