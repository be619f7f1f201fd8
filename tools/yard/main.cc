// SPDX-License-Identifier: Apache-2.0
// The command `yard`: runs a subcommand, or reports an error in the command line.
#include <fmt/format.h>
#include <yard/version.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <optional>

#include "arguments.h"
#include "commands.h"
#include "completion/completion.h"
#include "help.h"
#include "output.h"
#include "terminal.h"

namespace yard::tool {
namespace {

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* o : app.get_options()) {
    for (const std::string& n : o->get_lnames()) names.push_back("--" + n);
    for (const std::string& n : o->get_snames()) names.push_back("-" + n);
  }
  return names;
}

// A word in place of a command that is not a command of `app`.
struct Unknown {
  CLI::App* app;
  std::string word;
};
std::optional<Unknown> unknown_command(CLI::App& app, int argc, char** argv) {
  CLI::App* at = &app;
  for (int i = 1; i < argc; ++i) {
    if (commands_below(*at).empty() || argv[i][0] == '-') return std::nullopt;
    CLI::App* const next = command_named(*at, argv[i]);
    if (next == nullptr) return Unknown{at, argv[i]};
    at = next;
  }
  return std::nullopt;
}

int hint(const CLI::App& app, std::string message) {
  Status status(Code::kInvalidArgument, std::move(message));
  status.note(fmt::format("see {} --help", full_name(app)));
  return fail(kUsage, status);
}

int no_option(const CLI::App& app, const std::string& word) {
  return hint(app, fmt::format("{} has no option '{}'{}", full_name(app), word,
                               did_you_mean(word.substr(0, word.find('=')), option_names(app))));
}

int surplus(const CLI::App& app) {
  const std::string word = app.remaining(true).at(0);
  if (word.size() > 1 && word[0] == '-') return no_option(app, word);
  const bool takes_call = app.get_option_no_throw("CALLSPEC") != nullptr;
  return hint(app, fmt::format("{} does not take '{}'{}", full_name(app), word,
                               takes_call ? "; a call is one argument: put it in quotes" : ""));
}

std::string similar_command(CLI::App& app, const std::string& word) {
  if (app.get_option_no_throw("--" + word) != nullptr)
    return fmt::format("; did you mean '--{}'?", word);
  return did_you_mean(word, command_names(app));
}

CLI::App& chosen(CLI::App& app) {
  const auto subs = app.get_subcommands();
  return subs.empty() ? app : chosen(*subs[0]);
}

int print_help(CLI::App& app) {
  print_out("{}", help_text(app));
  return kOk;
}

// Returns the number of words after the program's name that lead to the command.
int depth(const CLI::App& app) {
  return app.get_parent() == nullptr ? 0 : depth(*app.get_parent()) + 1;
}

int parse_and_run(int argc, char** argv) {
  Action action;
  CLI::App app("Picks, runs and explains the best kernel for every operator call.", "yard");
  app.set_version_flag("-V,--version", YARD_VERSION, "Show the version");
  app.set_help_flag("-h,--help", "Show this help");
  app.require_subcommand(1);
  for (AddCommand* add : {add_list, add_explain, add_run, add_verify, add_config, add_bake,
                          add_plugin, add_metrics, add_report, add_functions})
    add(app, action);
  CLI::App* bench = app.add_subcommand("bench", "Measurements");
  bench->require_subcommand(1);
  add_bench_dispatch(*bench, action);
  add_bench_kernels(*bench, action);
  for (AddCommand* add : {add_ps, add_top, add_status, add_policy, add_deny, add_allow, add_breaker,
                          add_undo, add_changes, add_events, add_log, add_verbose, add_trace,
                          add_record, add_doctor, add_completion, add_help})
    add(app, action);

  add_help_texts(app);
  // Only the scripts of `yard completion` use this word, so it is not listed as a command.
  if (argc > 1 && std::string_view(argv[1]) == "complete")
    return print_completions(app, {argv + 2, argv + argc});
  if (argc < 2) return print_help(app);
  set_json_output(std::any_of(argv + 1, argv + argc,
                              [](const char* word) { return std::string_view(word) == "--json"; }));
  if (const auto unknown = unknown_command(app, argc, argv))
    return hint(*unknown->app, fmt::format("there is no command '{}'{}", unknown->word,
                                           similar_command(*unknown->app, unknown->word)));
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return print_help(chosen(app));
  } catch (const CLI::CallForVersion&) {
    print_out("{}\n", YARD_VERSION);
    return kOk;
  } catch (const CLI::ExtrasError&) {
    return surplus(chosen(app));
  } catch (const CLI::ParseError& e) {
    CLI::App& command = chosen(app);
    // The command line names a group of commands, but no command of the group.
    const int words = depth(command) + 1;
    if (!command_names(command).empty())
      return argc == words ? print_help(command) : no_option(command, argv[words]);
    return hint(command, message_of(e, command));
  }
  return action();
}

}  // namespace
}  // namespace yard::tool

int main(int argc, char** argv) {
  using namespace yard::tool;
  start_output();
  return finish_output(run_action([&] { return parse_and_run(argc, argv); }));
}
