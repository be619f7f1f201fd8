// SPDX-License-Identifier: Apache-2.0
// yard completion: prints a script that makes a shell call `yard complete`. That command follows
// the words through the tree of commands and finds what may come next.
#include "completion/completion.h"

#include <fmt/format.h>
#include <yard/call_spec.h>
#include <yard/inspect.h>
#include <yard/log.h>
#include <yard/runtime.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
#include <memory>

#include "arguments.h"
#include "commands.h"
#include "help.h"
#include "output.h"
#include "templates.h"
#include "terminal.h"

namespace yard::tool {
namespace {

// Returns the options and arguments of all commands that are files; fish needs them in its script.
std::string file_options(CLI::App& app) {
  std::string lines;
  for (const CLI::Option* o : app.get_options()) {
    const bool file = o->get_type_name().starts_with("FILE");
    const std::string name = o->get_name();
    if (o->get_positional() && (file || name == "FILE" || name == "PATH"))
      lines +=
          fmt::format("complete -c yard -n '__fish_seen_subcommand_from {}' -F\n", app.get_name());
    else if (file && !o->get_lnames().empty())
      lines += fmt::format("complete -c yard -n '__fish_seen_subcommand_from {}' -l {} -rF\n",
                           app.get_name(), o->get_lnames()[0]);
  }
  for (CLI::App* c : commands_below(app)) lines += file_options(*c);
  return lines;
}

struct Completion {
  std::string word, meaning;
};
using Found = std::vector<Completion>;

bool takes_value(const CLI::Option* o) { return o != nullptr && o->get_items_expected_max() > 0; }

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Returns the values of an option or argument. `call` is the first argument of the command.
Found values(const CLI::Option& o, const std::string& call) {
  static const std::map<std::string, std::vector<const char*>> kWords = {
      {"LEVEL", {"debug", "info", "warn", "error", "off"}},
      {"VERBOSITY", {"0", "1", "2"}},
      {"sort", {"share", "calls", "latency", "health", "op", "kernel"}},
      {"prefer", {"default", "vendor", "reference"}},
      {"order", {"default", "vendor", "reference", "vendor:", "impl:"}},
      {"dtype", {"f32", "f16", "bf16"}},
      {"SHELL", {"bash", "zsh", "fish"}}};
  const std::string name = o.get_lnames().empty() ? o.get_name() : o.get_lnames()[0];
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, name) != names.end();
  };
  Found to;
  if (const auto words = kWords.find(name); words != kWords.end()) {
    for (const char* w : words->second) to.push_back({w, ""});
  } else if (is({"pid", "PID"})) {
    for (const InspectClient::Target& t : inspect_targets())
      to.push_back({std::to_string(t.pid), t.program});
  } else if (name == "logger") {
    for (const std::string_view l : loggers()) to.push_back({std::string(l), ""});
  } else if (name == "contents") {
    for (const Contents c : all_contents()) to.push_back({to_string(c), ""});
  } else if (is({"op", "OP", "CALLSPEC", "call"})) {
    const char* const behind = is({"op", "OP"}) ? "" : "(";
    for (const OpInfo& op : Runtime::shared().list().ops)
      to.push_back({op.name + behind, op.summary});
  } else if (is({"force", "lock", "kernel", "allow", "deny", "KERNEL"})) {
    // Completes kernels of the op in a word like "softmax(f32[2", or of all ops.
    const std::string op = call.substr(0, call.find('('));
    const Listing listing = Runtime::shared().list();
    for (const OpInfo& known : listing.ops)
      if (listing.find_op(op) == nullptr || known.name == op)
        for (const KernelInfo& k : known.kernels) to.push_back({k.id, k.summary});
  } else if (is({"backend", "deny-vendor", "allow-vendor"})) {
    const bool switches = o.get_type_name().find('=') != std::string::npos;
    for (const BackendInfo& b : Runtime::shared().list().backends)
      for (const char* behind : {switches ? "=on" : "", switches ? "=off" : ""})
        to.push_back({(name == "backend" ? b.name : b.vendor) + behind, b.summary});
  }
  return to;
}

const CLI::Option* option_named(const CLI::App& app, const std::string& word) {
  for (const CLI::Option* o : app.get_options())
    if (!o->get_positional() && o->check_name(word)) return o;
  return nullptr;
}

// The command and the option to which the words before the last one lead.
struct Place {
  CLI::App* app;
  const CLI::Option* waiting = nullptr;  // the option whose value comes next
  size_t positionals = 0;                // arguments so far
  std::string call;                      // the first argument
};
Place walk(CLI::App& root, const std::vector<std::string>& words) {
  Place at{&root, nullptr, 0, ""};
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& w = words[i];
    if (at.waiting != nullptr) {
      if (w != "=") at.waiting = nullptr;  // some shells pass the '=' as a word
    } else if (w.size() > 1 && w[0] == '-') {
      const CLI::Option* o = option_named(*at.app, w);
      if (takes_value(o)) at.waiting = o;
    } else if (CLI::App* sub = command_named(*at.app, w)) {
      at = Place{sub, nullptr, 0, ""};
    } else if (at.positionals++ == 0) {
      at.call = w;
    }
  }
  return at;
}

const CLI::Option* positional(const CLI::App& app, size_t index) {
  for (const CLI::Option* o : app.get_options())
    if (o->get_positional() && index-- == 0) return o;
  return nullptr;
}

}  // namespace

void add_completion(CLI::App& app, Action& action) {
  auto shell = std::make_shared<std::string>();
  CLI::App* c = app.add_subcommand("completion", "Print a completion script for a shell");
  c->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(one_of({"bash", "zsh", "fish"}));
  c->callback([shell, &app, &action] {
    action = [shell, &app] {
      write_out(fill_in("completion." + *shell, {}));
      if (*shell == "fish") write_out(file_options(app));
      return kOk;
    };
  });
}

int print_completions(CLI::App& app, std::vector<std::string> words) {
  if (words.empty()) words.emplace_back();
  if (words.size() > 1 && words[0] == "help" && !words.back().starts_with("-"))
    words.erase(words.begin());  // complete the name of a command
  for (std::string& w : words)
    if (w.starts_with('\'') || w.starts_with('"')) w.erase(0, 1);
  std::string& last = words.back();
  const Place at = walk(app, words);
  Found found;
  std::string before;  // the part of the last word that stays
  if (last == "=") last.clear();
  if (at.waiting != nullptr) {
    found = values(*at.waiting, at.call);
  } else if (const size_t eq = last.find('='); last.starts_with("--") && eq != std::string::npos) {
    before = last.substr(0, eq + 1);
    const CLI::Option* o = option_named(*at.app, last.substr(0, eq));
    if (takes_value(o)) found = values(*o, at.call);
  } else if (last.starts_with("-")) {
    for (const CLI::Option* o : at.app->get_options())
      for (const std::string& n : o->get_lnames())
        found.push_back({"--" + n, first_line(o->get_description())});
  } else if (const CLI::Option* o = positional(*at.app, at.positionals)) {
    found = values(*o, at.call);
  } else {
    for (const CLI::App* c : commands_below(*at.app))
      found.push_back({c->get_name(), first_line(c->get_description())});
  }
  // In a list of values, completes only the last one.
  if (const size_t comma = last.rfind(','); comma != std::string::npos && last.find('(') > comma)
    before = last.substr(0, comma + 1);
  std::map<std::string, std::string> sorted;  // keeps the first meaning of each word
  for (const Completion& c : found)
    if (!c.word.empty() && (before + c.word).starts_with(last))
      sorted.emplace(before + c.word, c.meaning);
  for (const auto& [word, meaning] : sorted) print_out("{}\t{}\n", word, meaning);
  return kOk;
}

}  // namespace yard::tool
