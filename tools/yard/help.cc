// SPDX-License-Identifier: Apache-2.0
// yard help, and the text of --help.
#include "help.h"

#include <fmt/format.h>
#include <yard/version.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <set>

#include "arguments.h"
#include "commands.h"
#include "output.h"
#include "templates.h"
#include "terminal.h"

namespace yard::tool {
namespace {

constexpr size_t kColumn = 30;  // where descriptions begin

bool is_list(const CLI::Option& o) { return o.get_items_expected_max() > 1; }

// Returns "PATH ..." for an argument and "--rows N" for an option.
std::string label(const CLI::Option& o) {
  if (o.get_positional()) return o.get_name(true, false) + (is_list(o) ? " ..." : "");
  std::string names;
  for (const std::string& n : o.get_snames()) names += fmt::format("-{}, ", n);
  for (const std::string& n : o.get_lnames()) names += fmt::format("--{}, ", n);
  names.resize(names.size() - 2);
  const std::string value = value_name(o);
  return value.empty() ? names : names + " " + value;
}

struct Entry {
  std::string label, text;
};
struct Section {
  std::string title;
  std::vector<Entry> entries;
};

std::vector<Section> sections_of(CLI::App& app) {
  std::vector<Section> to = {{"Commands", {}}, {"Arguments", {}}};
  for (CLI::App* c : commands_below(app))
    to[0].entries.push_back({c->get_name(), c->get_description()});
  for (CLI::Option* o : app.get_options()) {
    const std::string group = o->get_positional() ? "Arguments" : o->get_group();
    auto at = std::ranges::find_if(to, [&](const Section& s) { return s.title == group; });
    if (at == to.end()) at = to.insert(to.end(), {group, {}});
    at->entries.push_back(
        {label(*o),
         o->get_description() + (!o->get_positional() && o->get_required() ? "; required" : "")});
  }
  std::erase_if(to, [](const Section& s) { return s.entries.empty(); });
  // List the options that every command has last.
  for (Section& s : to)
    for (const char* last : {"--json", "-h, --help"})
      std::stable_partition(s.entries.begin(), s.entries.end(),
                            [&](const Entry& e) { return e.label != last; });
  return to;
}

// Escapes the text, so that nothing in it is a request or an escape of roff.
std::string roff(std::string_view text) {
  std::string to;
  bool at_start = true;
  for (const char c : text) {
    if (at_start && (c == '.' || c == '\'')) to += "\\&";
    if (c == '\\')
      to += "\\e";
    else if (c == '-')
      to += "\\-";
    else
      to += c;
    at_start = c == '\n';
  }
  return to;
}

void add_page(CLI::App& app, std::string& to) {
  to += fmt::format(".SS {}\n{}\n.PP\n.B {}\n", roff(full_name(app)), roff(app.get_description()),
                    roff(usage_of(app)));
  for (const Section& s : sections_of(app))
    if (s.title != "Commands")
      for (const Entry& e : s.entries)
        to += fmt::format(".TP\n.B {}\n{}\n", roff(e.label), roff(e.text));
  if (const std::string footer = app.get_footer(); !footer.empty())
    to += fmt::format(".PP\n.nf\n{}\n.fi\n", roff(footer));
  for (CLI::App* c : commands_below(app)) add_page(*c, to);
}

struct HelpQuestion {
  std::vector<std::string> command;
  bool manual = false;
};

int show_help(CLI::App& root, const HelpQuestion& q) {
  if (q.manual) return write_out(manual_page(root)), kOk;
  CLI::App* at = &root;
  for (const std::string& word : q.command) {
    CLI::App* const next = command_named(*at, word);
    if (next == nullptr)
      return fail(kUsage, fmt::format("{} has no command '{}'{}", full_name(*at), word,
                                      did_you_mean(word, command_names(*at))));
    at = next;
  }
  print_out("{}", help_text(*at));
  return kOk;
}

}  // namespace

std::string full_name(const CLI::App& app) {
  return app.get_parent() != nullptr ? full_name(*app.get_parent()) + " " + app.get_name()
                                     : app.get_name();
}

std::vector<CLI::App*> commands_below(CLI::App& app) {
  return app.get_subcommands([](CLI::App*) { return true; });
}

std::vector<std::string> command_names(CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* c : commands_below(app)) names.push_back(c->get_name());
  return names;
}

CLI::App* command_named(CLI::App& app, const std::string& name) {
  for (CLI::App* c : commands_below(app))
    if (c->get_name() == name) return c;
  return nullptr;
}

std::string value_name(const CLI::Option& option) {
  if (option.get_positional() || option.get_items_expected_max() == 0) return {};
  const std::string name = option.get_type_name();
  static const std::set<std::string> kTypes = {"TEXT", "INT", "UINT", "FLOAT", "BOOLEAN", "ENUM"};
  return name.empty() || kTypes.contains(name) ? "VALUE" : name;
}

std::string usage_of(CLI::App& app) {
  std::string to = full_name(app);
  if (!commands_below(app).empty()) return to + " COMMAND";
  for (const CLI::Option* o : app.get_options())
    if (!o->get_positional() && o->get_required()) to += " " + label(*o);
  to += " [OPTIONS]";
  for (const CLI::Option* o : app.get_options())
    if (o->get_positional())
      to += fmt::format(fmt::runtime(o->get_required() ? " {}" : " [{}]"), label(*o));
  return to;
}

void add_help_texts(CLI::App& app) {
  static const std::string all = fill_in("help.txt", {});
  const std::string head = "== " + full_name(app) + "\n";
  if (const size_t at = all.find(head); at != all.npos) {
    const size_t from = at + head.size();
    app.footer(all.substr(from, std::min(all.find("\n== ", from), all.size() - 1) - from));
  }
  for (CLI::App* c : commands_below(app)) add_help_texts(*c);
}

std::string help_text(CLI::App& app) {
  std::string to = fmt::format("{}\n\nUsage: {}\n", app.get_description(), usage_of(app));
  for (const Section& s : sections_of(app)) {
    to += fmt::format("\n{}:\n", s.title);
    for (const Entry& e : s.entries) {
      to += "  " + e.label;
      to += e.label.size() + 4 > kColumn ? "\n" + std::string(kColumn, ' ')
                                         : std::string(kColumn - 2 - e.label.size(), ' ');
      to += e.text + "\n";
    }
  }
  if (const std::string footer = app.get_footer(); !footer.empty()) to += "\n" + footer + "\n";
  return to;
}

std::string manual_page(CLI::App& root) {
  std::string to = fmt::format(
      ".TH YARD 1 \"\" \"Switchyard {}\"\n.SH NAME\nyard \\- {}\n.SH SYNOPSIS\n.B {}\n.SH "
      "DESCRIPTION\n.nf\n{}\n.fi\n.SH COMMANDS\n",
      YARD_VERSION, roff(root.get_description()), roff(usage_of(root)), roff(root.get_footer()));
  for (CLI::App* c : commands_below(root)) add_page(*c, to);
  return to;
}

void add_help(CLI::App& app, Action& action) {
  const auto [c, q] = add_command<HelpQuestion>(
      app, action, "help", "Show the help of a command",
      [&app](const HelpQuestion& asked) { return show_help(app, asked); });
  c->add_option("COMMAND", q->command, "The command: plugin list, for example; none: yard itself");
  c->add_flag("--man", q->manual, "The manual page of all commands, for man");
}

}  // namespace yard::tool
