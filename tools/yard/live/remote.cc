// SPDX-License-Identifier: Apache-2.0
#include "live/remote.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>

#include "arguments.h"
#include "terminal.h"

namespace yard::tool {
namespace {

constexpr const char* kSeePs = "yard ps lists the processes that answer";

std::string name_of(const std::string& program) {
  return std::filesystem::path(program).filename().string();
}

// Code::kDeadline gives exit code 1, like all failures of the process.
Status nobody_answers() {
  Status none(Code::kDeadline, "no process of yours answers");
  return none.note(
      "a process answers from its first call on, unless YARD_INSPECT=off or its settings say no");
}

Result<int64_t> only_process() {
  std::vector<InspectClient::Target> found = inspect_targets();
  std::erase_if(found, [](const InspectClient::Target& t) {
    return t.pid == ::getpid() || !t.problem.empty();
  });
  if (found.size() == 1) return found[0].pid;
  if (found.empty()) return nobody_answers();
  Status many(Code::kInvalidArgument,
              fmt::format("{} processes answer: name one, with --pid PID", found.size()));
  for (const InspectClient::Target& t : found)
    many.note(fmt::format("{}  {}", t.pid, name_of(t.program)));
  return many;
}

// Fails if the process does not exist or belongs to another user.
Status check_process(int64_t pid) {
  struct stat owner {};
  if (::stat(fmt::format("/proc/{}", pid).c_str(), &owner) != 0)
    return Status(Code::kNotFound, fmt::format("there is no process {}", pid)).note(kSeePs);
  if (owner.st_uid != ::geteuid() && ::geteuid() != 0)
    return Status(
        Code::kInvalidArgument,
        fmt::format("process {} belongs to another user: only that user and root can ask it", pid));
  return {};
}

Code code_named(const std::string& name) {
  for (int i = static_cast<int>(Code::kInvalidArgument); i <= static_cast<int>(Code::kOutOfMemory);
       ++i)
    if (name == to_string(static_cast<Code>(i))) return static_cast<Code>(i);
  return Code::kInternal;
}

Status error_of(const Json& error) {
  Status to(code_named(text_at(error, "code")), text_at(error, "message"));
  for (const Json& note : list_at(error, "notes"))
    if (note.is_string()) to.note(note.get<std::string>());
  return to;
}

}  // namespace

Result<Remote> Remote::connect(int64_t pid, std::chrono::nanoseconds timeout) {
  if (pid == 0) {
    const auto only = only_process();
    if (!only.ok()) return only.status();
    pid = *only;
  }
  YARD_RETURN_IF_ERROR(check_process(pid));
  auto client = InspectClient::connect(pid, timeout);
  if (!client.ok()) {
    Status why(client.status().code() == Code::kNotFound ? Code::kDeadline : client.status().code(),
               std::string(client.status().message()));
    for (const std::string& note : client.status().notes()) why.note(note);
    return why.note(kSeePs);
  }
  return Remote(pid, std::move(*client));
}

Result<Json> Remote::request(const std::string& command, const Json& args) {
  Json line = {{"v", kInspectVersion}, {"id", ++last_id_}, {"command", command}};
  if (!args.empty()) line["args"] = args;
  const auto text = client_.request(line.dump(-1, ' ', false, Json::error_handler_t::replace));
  if (!text.ok()) return text.status();
  Json answer = parse_json(*text);
  const Json& version = value_at(answer, "v");
  if (!version.is_number_integer())
    return Status(Code::kInternal, fmt::format("invalid answer of process {}: no version", pid_));
  if (version != kInspectVersion)
    return Status(Code::kUnsupported,
                  fmt::format("process {} answers in version {} of the protocol: expected {}; use "
                              "the yard command of its installation",
                              pid_, version.dump(), kInspectVersion));
  if (value_at(answer, "id") != last_id_)
    return Status(Code::kInternal, fmt::format("process {} answered another request", pid_));
  if (!flag_at(answer, "ok")) return error_of(value_at(answer, "error"));
  return std::move(answer["result"]);
}

CLI::Option* add_pid_option(CLI::App& command, int64_t& to, const std::string& help) {
  return command.add_option("--pid", to, help)
      ->type_name("PID")
      ->check(between<int64_t>(1, INT32_MAX));
}

void add_remote_options(CLI::App& command, RemoteQuestion& to) {
  add_pid_option(command, to.pid, "The process; needed if several of yours answer");
}

int ask(const RemoteQuestion& q, const std::string& command, const Json& args,
        const std::function<void(int64_t, const Json&)>& show) {
  auto remote = need(Remote::connect(q.pid));
  const auto result = need(remote.request(command, args));
  if (q.json) {
    Json all = {{"pid", remote.pid()}};
    if (result.is_object())
      all.update(result);
    else if (!result.is_null())
      all["result"] = result;
    print_json(all);
  } else {
    show(remote.pid(), result);
  }
  return kOk;
}

void add_many_options(CLI::App& command, ManyQuestion& to) {
  command.add_option("--pid", to.pids, "The processes; needed if several of yours answer")
      ->type_name("PID")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(between<int64_t>(1, INT32_MAX));
  command.add_flag("--all", to.all, "All processes of yours that answer")->excludes("--pid");
}

int ask_many(const ManyQuestion& q, const std::string& command, const Json& args,
             const std::function<void(int64_t, const Json&)>& show) {
  std::vector<int64_t> pids = q.pids;
  if (q.all)
    for (const InspectClient::Target& t : inspect_targets())
      if (t.problem.empty() && t.pid != ::getpid()) pids.push_back(t.pid);
  if (q.all && pids.empty()) return fail(kFailed, nobody_answers());
  if (pids.size() < 2) return ask({pids.empty() ? 0 : pids[0], q.json}, command, args, show);
  int code = kOk;
  Json list = Json::array();
  for (const int64_t pid : pids) {
    auto remote = Remote::connect(pid);
    const auto result = remote.ok() ? remote->request(command, args) : remote.status();
    if (!result.ok()) {
      Status why = result.status();
      code = std::max(code, exit_code(why));
      list.push_back({{"pid", pid}, {"error", why.message()}, {"notes", why.notes()}});
      if (!q.json) fail(code, why.note(fmt::format("process {}", pid)));
      continue;
    }
    list.push_back({{"pid", pid}});
    list.back().update(*result);
    if (!q.json) show(pid, *result);
  }
  if (q.json) print_json({{"processes", std::move(list)}});
  return code;
}

Json arguments(std::initializer_list<std::pair<const char*, std::string>> given) {
  Json to = Json::object();
  for (const auto& [name, text] : given)
    if (!text.empty()) to[name] = text;
  return to;
}

std::string shown(const Json& value) {
  if (value.is_string())
    return value.get<std::string>().empty() ? "none" : value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "on" : "off";
  if (value.is_null() || (value.is_structured() && value.empty())) return "none";
  if (!value.is_structured()) return value.dump();
  std::string to;
  for (const auto& [key, part] : value.items()) {
    if (!to.empty()) to += ", ";
    if (value.is_object()) to += key + "=";
    to += shown(part);
  }
  return to;
}

std::string since_text(const Json& at) {
  if (!at.is_number()) return at.is_string() ? at.get<std::string>() : "-";
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return age_text(std::chrono::duration<double>(now).count() - at.get<double>());
}

std::string event_text(const Json& event) {
  std::string to = fmt::format("{:<17} {}", text_at(event, "kind"), text_at(event, "subject"));
  if (const uint64_t n = count_at(event, "version"); n > 0) to += fmt::format(", version {}", n);
  if (const uint64_t n = count_at(event, "change"); n > 0) to += fmt::format(", of change {}", n);
  if (const std::string why = text_at(event, "reason"); !why.empty()) to += ": " + why;
  if (const std::string who = text_at(event, "who"); !who.empty()) to += ", by " + who;
  return to;
}

std::string undo_hint(int64_t pid, const Json& result) {
  const uint64_t change = count_at(result, "change");
  return fmt::format("  to take it back: yard undo{} --pid {}\n",
                     change > 0 ? fmt::format(" {}", change) : "", pid);
}

std::string change_text(const Json& change) {
  std::string to = text_at(change, "command");
  const Json& args = value_at(change, "args");
  if (args.is_object())
    for (const auto& [key, value] : args.items())
      if (!value.is_null()) to += fmt::format(" {}={}", key, shown(value));
  return to;
}

std::string change_origin(const Json& change) {
  const Json& who = value_at(change, "who");
  return fmt::format("{} ago by {} (user {}, process {})", since_text(value_at(change, "at")),
                     name_of(text_at(who, "program")), shown(value_at(who, "uid")),
                     shown(value_at(who, "pid")));
}

}  // namespace yard::tool
