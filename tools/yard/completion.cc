// SPDX-License-Identifier: Apache-2.0
// yard completion: a script for the shell that calls `yard complete`.
#include "completion.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "commands.h"
#include "terminal.h"

namespace yard::tool {
namespace {

constexpr const char* kBash =
    R"sh(# Completion of yard for bash. Try it: source <(yard completion bash)
_yard() {
  local word current="${COMP_WORDS[COMP_CWORD]}"
  COMPREPLY=()
  while IFS=$'\t' read -r word _; do
    # Inside quotes nothing needs a backslash; elsewhere a parenthesis does.
    if [[ $current == [\'\"]* ]]; then
      COMPREPLY+=("$word")
    else
      COMPREPLY+=("$(printf '%q' "$word")")
    fi
    case $word in *'(' | *'=' | *':') compopt -o nospace 2>/dev/null ;; esac
  done < <("${COMP_WORDS[0]}" complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  if [[ ${#COMPREPLY[@]} -eq 0 ]]; then compopt -o default 2>/dev/null; fi
}
complete -F _yard yard
)sh";

constexpr const char* kZsh =
    R"sh(#compdef yard
# Completion of yard for zsh. Put it into a file _yard in a folder of $fpath, or try it:
# source <(yard completion zsh)
_yard() {
  local line word meaning
  local -a found
  for line in "${(@f)$("${words[1]}" complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    [[ -z $line ]] && continue
    word=${line%%$'\t'*} meaning=${line#*$'\t'}
    found+=("${word//:/\\:}:$meaning")
  done
  if (( ${#found} )); then
    _describe 'yard' found
  else
    _files
  fi
}
if [[ ${funcstack[1]} == _yard ]]; then _yard "$@"; else compdef _yard yard; fi
)sh";

constexpr const char* kFish =
    R"sh(# Completion of yard for fish. Keep it as ~/.config/fish/completions/yard.fish, or try it:
# yard completion fish | source
function __yard_complete
  set -l before (commandline -opc)
  $before[1] complete $before[2..-1] (commandline -ct) 2>/dev/null
end
complete -c yard -f -a '(__yard_complete)'
)sh";

// Arguments and options that are files, of the whole tree; fish needs them listed.
std::string file_options(const CLI::App& app) {
  std::string lines;
  for (const CLI::Option* o : app.get_options())
    if (o->get_positional() && (o->get_name() == "FILE" || o->get_name() == "PATH" ||
                                o->get_type_name().starts_with("FILE")))
      lines +=
          fmt::format("complete -c yard -n '__fish_seen_subcommand_from {}' -F\n", app.get_name());
    else if (o->get_type_name().starts_with("FILE") && !o->get_lnames().empty())
      lines += fmt::format("complete -c yard -n '__fish_seen_subcommand_from {}' -l {} -rF\n",
                           app.get_name(), o->get_lnames()[0]);
  for (const CLI::App* c : app.get_subcommands([](const CLI::App*) { return true; }))
    lines += file_options(*c);
  return lines;
}

}  // namespace

void add_completion(CLI::App& app, Action& action) {
  auto shell = std::make_shared<std::string>();
  CLI::App* c = app.add_subcommand("completion", "Print a completion script for a shell");
  c->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  c->footer(
      "Completes commands, options, ops, and the kernels of the op that the call names.\n"
      "\n"
      "Examples:\n"
      "  yard completion bash > ~/.local/share/bash-completion/completions/yard\n"
      "  source <(yard completion bash)                     for this shell only\n"
      "  yard completion zsh > ~/.zfunc/_yard               where ~/.zfunc is in $fpath\n"
      "  yard completion fish > ~/.config/fish/completions/yard.fish");
  c->callback([shell, &app, &action] {
    action = [shell, &app] {
      const std::string script = *shell == "bash"  ? kBash
                                 : *shell == "zsh" ? kZsh
                                                   : kFish + file_options(app);
      fmt::print("{}", script);
      return kOk;
    };
  });
}

}  // namespace yard::tool
