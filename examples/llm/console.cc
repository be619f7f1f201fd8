// SPDX-License-Identifier: Apache-2.0
#include "console.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>
#include <yard/inspect.h>

#include <atomic>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "report.h"

namespace llm {
namespace {

// Counts how often ctrl-C was pressed since the last line was entered.
std::atomic<int> g_interrupts{0};
static_assert(std::atomic<int>::is_always_lock_free);
constexpr int kInterrupted = 130;  // the exit code that shells expect

// The first ctrl-C ends the answer, and the second ends the program.
void on_interrupt(int) {
  if (g_interrupts.fetch_add(1) == 0) return;
  [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, "\n", 1);
  ::_exit(kInterrupted);
}

// Sends a live-control request to this process, as `yard` does from outside, and returns the
// result.
nlohmann::json ask(const char* command, nlohmann::json args) {
  auto client = yard::InspectClient::connect(::getpid());
  if (!client.ok()) client.status().or_throw();
  const nlohmann::json request = {
      {"v", yard::kInspectVersion}, {"id", 1}, {"command", command}, {"args", std::move(args)}};
  const auto text = client.value().request(request.dump());
  if (!text.ok()) text.status().or_throw();
  const auto answer = nlohmann::json::parse(text.value());
  if (answer.value("ok", false)) return answer.at("result");
  std::string message = answer.at("error").at("message");
  for (const std::string note : answer.at("error").value("notes", nlohmann::json::array()))
    message += "\n  " + note;
  throw std::runtime_error(message);
}

std::string kernels_text() {
  std::string text = fmt::format("{:<18} {:<28} {:>10}\n", "op", "kernel", "calls");
  for (const yard::OpInfo& op : yard::Runtime::shared().list().ops)
    for (const yard::KernelInfo& k : op.kernels)
      if (k.calls > 0) text += fmt::format("{:<18} {:<28} {:>10}\n", op.name, k.id, k.calls);
  return text;
}

// Explains the last call of the op that had to select a kernel.
std::string why_text(const std::string& op) {
  if (op.empty())
    throw std::runtime_error("/why needs an op; /kernels lists the ops of this model");
  const nlohmann::json plans = ask("plans", {{"op", op}}).at("plans");
  if (plans.empty()) throw std::runtime_error(cat("op '", op, "' was not called"));
  const std::string call = plans.back().at("call");
  const auto why = yard::Runtime::shared().explain(call);
  if (!why.ok()) why.status().or_throw();
  return cat(call, "\n", why.value().to_text());
}

}  // namespace

struct Console::Command {
  const char *name, *argument, *help;
  std::string (*run)(Console&, const std::string& argument);
};

const Console::Command Console::kCommands[] = {
    {"/help", "", "lists commands", [](Console&, const std::string&) { return help(); }},
    {"/kernels", "", "lists the kernels that have run, and how often",
     [](Console&, const std::string&) { return kernels_text(); }},
    {"/why", "OP", "explains which kernel serves the last kind of call of an op",
     [](Console&, const std::string& op) { return why_text(op); }},
    {"/deny", "KERNEL", "uses other kernels from now on; KERNEL may be a pattern",
     [](Console&, const std::string& kernel) {
       ask("deny", {{"kernel", kernel}});
       return cat(kernel, " is denied; /undo allows it again\n");
     }},
    {"/undo", "", "takes the last change back",
     [](Console&, const std::string&) {
       const nlohmann::json undone = ask("undo", nlohmann::json::object());
       const nlohmann::json args = undone.value("args", nlohmann::json::object());
       return cat("undone: ", undone.value("command", ""), " ", args.value("kernel", ""), "\n");
     }},
    {"/stats", "", "shows times of the last answer and how full the context is",
     [](Console& c, const std::string&) {
       const Answer& a = c.last_;
       return fmt::format(
           "prompt {} tokens, {:.1f} a second; answer {} tokens, {:.1f} a second\n"
           "conversation {} turns, {} of {} tokens\n",
           a.prompt.size(), rate(a.prompt.size(), a.prompt_ms), a.ids.size(),
           rate(a.steps, a.decode_ms), c.conversation_.turns(), c.conversation_.tokens(),
           c.conversation_.context());
     }},
    {"/reset", "", "forgets the conversation",
     [](Console& c, const std::string&) {
       c.conversation_.restart();
       return std::string("The conversation begins again.\n");
     }},
    {"/system", "TEXT", "sets the system message and forgets the conversation",
     [](Console& c, const std::string& text) {
       if (c.conversation_.settings().raw)
         throw std::runtime_error("/system needs a chat template, and --raw has none");
       c.conversation_.restart(text);
       return std::string("The conversation begins again with this system message.\n");
     }},
    {"/exit", "", "ends, as ctrl-D does", nullptr},
};

std::string Console::help() {
  std::string text;
  for (const Command& c : kCommands)
    text += fmt::format("  {:<16} {}\n", cat(c.name, *c.argument ? " " : "", c.argument), c.help);
  return text + "Anything else is a message; put a blank before one that begins with '/'.\n";
}

bool Console::obey(const std::string& line) {
  const size_t end = std::min(line.find(' '), line.size());
  const std::string name = line.substr(0, end);
  const size_t from = line.find_first_not_of(' ', end);
  const std::string argument = from == line.npos ? "" : line.substr(from);
  for (const Command& c : kCommands) {
    if (name != c.name) continue;
    if (*c.argument == '\0' && !argument.empty())
      throw std::runtime_error(cat(name, " takes no argument, got '", argument, "'"));
    if (*c.argument != '\0' && argument.empty())
      throw std::runtime_error(cat("expected ", name, " ", c.argument));
    if (c.run == nullptr) return false;
    put(c.run(*this, argument));
    return true;
  }
  throw std::runtime_error(cat("unknown command '", name, "'; /help lists commands"));
}

void Console::answer(const std::string& line) {
  last_ = conversation_.answer(line, put, [] { return g_interrupts.load() > 0; });
  put("\n");
  if (last_.stopped == "interrupted") put("(interrupted; ctrl-C again leaves)\n");
  if (last_.stopped == "context")
    put("(stopped: the context is full; --context makes it larger)\n");
  if (last_.forgotten > 0)
    put(fmt::format("(the context of {} tokens was full: the oldest {} turn{} forgotten)\n",
                    conversation_.context(), last_.forgotten,
                    last_.forgotten == 1 ? " is" : "s are"));
  after_(last_);
}

int Console::run() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;  // without SA_RESTART, so that reading a line is interrupted
  ::sigaction(SIGINT, &action, nullptr);
  put("A message and Enter; /help lists commands, ctrl-D ends.\n");
  for (std::string line;;) {
    const LineReader::Event event = reader_.read("> ", line);
    if (event == LineReader::Event::kEnd) return 0;
    if (event == LineReader::Event::kInterrupt) {
      put("(ctrl-C again leaves)\n");
      continue;
    }
    g_interrupts = 0;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    try {
      if (line.front() != '/')
        answer(line);
      else if (!obey(line))
        return 0;
    } catch (const std::exception& e) {  // a message is too long, or kernels fail
      if (std::ferror(stdout) != 0) throw;
      std::fprintf(stderr, "yard-chat: %s\n", e.what());
    }
  }
}

}  // namespace llm
