// SPDX-License-Identifier: Apache-2.0
// The command `yard`: runs a subcommand, or reports what is wrong and what was expected.
#include <fmt/format.h>
#include <yard/version.h>
#include <CLI/CLI.hpp>

#include <exception>
#include <optional>

#include "commands.h"
#include "completion.h"
#include "terminal.h"

namespace yard::tool {
namespace {

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* c : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(c->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* o : app.get_options())
    for (const std::string& n : o->get_lnames()) names.push_back("--" + n);
  return names;
}

// "yard bench dispatch"
std::string full_name(const CLI::App& app) {
  return app.get_parent() != nullptr ? full_name(*app.get_parent()) + " " + app.get_name()
                                     : app.get_name();
}

// A word that should name a command and does not, and the app it was given to.
struct Unknown {
  const CLI::App* app;
  std::string word;
};
std::optional<Unknown> unknown_command(const CLI::App& app, int argc, char** argv) {
  const CLI::App* at = &app;
  for (int i = 1; i < argc; ++i) {
    if (command_names(*at).empty() || argv[i][0] == '-') return std::nullopt;
    const std::vector<std::string> known = command_names(*at);
    if (std::find(known.begin(), known.end(), argv[i]) == known.end()) return Unknown{at, argv[i]};
    at = at->get_subcommand(argv[i]);
  }
  return std::nullopt;
}

int hint(const CLI::App& app, std::string_view message) {
  fail(kUsage, message);
  fmt::print(stderr, "See: {} --help\n", full_name(app));
  return kUsage;
}

int surplus(const CLI::App& app) {
  const std::string word = app.remaining(true).at(0);
  if (word.size() > 1 && word[0] == '-')
    return hint(app, fmt::format("{} has no option '{}'{}", full_name(app), word,
                                 did_you_mean(word.substr(0, word.find('=')), option_names(app))));
  return hint(app, fmt::format("{} does not take '{}'; a call is one argument: put it in quotes",
                               full_name(app), word));
}

const CLI::App& chosen(const CLI::App& app) {
  const auto subs = app.get_subcommands();
  return subs.empty() ? app : chosen(*subs[0]);
}

int parse_and_run(int argc, char** argv) {
  Action action;
  CLI::App app("Picks, runs and explains the best kernel for every operator call.", "yard");
  app.set_version_flag("--version", YARD_VERSION, "The version of the library");
  app.set_help_flag("-h,--help", "This text; see also yard COMMAND --help");
  app.get_formatter()->column_width(30);
  app.require_subcommand(1);
  app.footer(
      "A call is written as text, a CallSpec: op(dtype[shape], ..., name=value)@device\n"
      "\n"
      "Examples:\n"
      "  yard list                                               ops and kernels\n"
      "  yard explain 'rms_norm(f32[8,4096], f32[4096])'         what would run, and why\n"
      "  yard run 'softmax(bf16[64,32000])'                      run it, time it, check it\n"
      "  yard verify --backend simd                              compare with the reference\n"
      "  yard plugin list                                        found and refused plugins\n"
      "  yard config check rules.yaml                            whether a rule file is valid\n"
      "  yard bake --trace calls.txt --yaml baked.yaml           recorded calls as a static map\n"
      "  yard bench dispatch                                     what a call costs\n"
      "  yard bench kernels --op softmax                         how fast its kernels are\n"
      "  yard doctor                                             problems and their fixes\n"
      "  source <(yard completion bash)                          completion by the tab key\n"
      "\n"
      "Every command that prints results takes --json. Exit codes: 0 success, 1 the operation\n"
      "failed (no kernel can run, results differ), 2 invalid input.");
  add_list(app, action);
  add_explain(app, action);
  add_run(app, action);
  add_verify(app, action);
  add_config(app, action);
  add_bake(app, action);
  add_plugin(app, action);
  add_hooks(app, action);
  add_functions(app, action);
  CLI::App* bench = app.add_subcommand("bench", "Measurements");
  bench->require_subcommand(1);
  bench->footer(
      "Examples:\n"
      "  yard bench dispatch                 the overhead of a call\n"
      "  yard bench kernels --op rms_norm    how fast each kernel of an op is");
  add_bench_dispatch(*bench, action);
  add_bench_kernels(*bench, action);
  add_doctor(app, action);
  add_completion(app, action);

  // Used by the scripts of `yard completion` only, so it is not listed as a command.
  if (argc > 1 && std::string_view(argv[1]) == "complete")
    return print_completions(app, {argv + 2, argv + argc});
  if (argc < 2) {
    fmt::print(stderr, "{}", app.help());
    return kUsage;
  }
  if (const auto unknown = unknown_command(app, argc, argv))
    return hint(*unknown->app,
                fmt::format("there is no command '{}'{}", unknown->word,
                            did_you_mean(unknown->word, command_names(*unknown->app))));
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", chosen(app).help());
    return kOk;
  } catch (const CLI::CallForVersion&) {
    fmt::print("{}\n", YARD_VERSION);
    return kOk;
  } catch (const CLI::ExtrasError&) {
    return surplus(chosen(app));
  } catch (const CLI::ParseError& e) {
    return hint(chosen(app), e.what());
  }
  return action();
}

}  // namespace
}  // namespace yard::tool

int main(int argc, char** argv) {
  try {
    return yard::tool::parse_and_run(argc, argv);
  } catch (const std::exception& e) {
    return yard::tool::fail(yard::tool::kFailed, e.what());
  }
}
