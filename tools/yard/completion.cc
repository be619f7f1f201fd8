// SPDX-License-Identifier: Apache-2.0
// yard completion: a script for the shell that calls `yard complete`, which walks the tree of commands along the words
// and finds what may come next.
#include "completion.h"

#include <fmt/format.h>
#include <yard/call_spec.h>
#include <yard/inspect.h>
#include <yard/log.h>
#include <yard/runtime.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <set>

#include "arguments.h"
#include "commands.h"
#include "output.h"
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

using Found = std::vector<Completion>;

bool takes_value(const CLI::Option& o) { return o.get_items_expected_max() > 0; }

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

Found words_of(std::initializer_list<const char*> words) {
  Found found;
  for (const char* w : words) found.push_back({w, ""});
  return found;
}

// Each name once, with the first meaning seen.
class Names {
 public:
  void add(const std::string& word, const std::string& meaning) {
    if (!word.empty() && seen_.insert(word).second) found_.push_back({word, meaning});
  }
  Found take() { return std::move(found_); }

 private:
  std::set<std::string> seen_;
  Found found_;
};

Found ops(const char* behind) {
  Names names;
  for (const OpInfo& op : Runtime::shared().list().ops) names.add(op.name + behind, op.summary);
  return names.take();
}

// Of the op that a word like "softmax(f32[2" names, or of all.
Found kernels(const std::string& call) {
  const std::string op = call.substr(0, call.find('('));
  const Listing listing = Runtime::shared().list();
  Names names;
  for (const OpInfo& o : listing.ops)
    if (listing.find_op(op) == nullptr || o.name == op)
      for (const KernelInfo& k : o.kernels) names.add(k.id, k.summary);
  return names.take();
}

Found backends(std::initializer_list<const char*> behind) {
  Names names;
  for (const BackendInfo& b : Runtime::shared().list().backends)
    for (const char* end : behind) names.add(b.name + end, b.summary);
  return names.take();
}

Found vendors() {
  Names names;
  for (const BackendInfo& b : Runtime::shared().list().backends) names.add(b.vendor, b.summary);
  return names.take();
}

Found contents() {
  Names names;
  for (const Contents c : all_contents()) names.add(to_string(c), "");
  return names.take();
}

Found processes() {
  Names names;
  for (const InspectTarget& t : inspect_targets()) names.add(std::to_string(t.pid), t.program);
  return names.take();
}

Found logger_names_of() {
  Names names;
  for (const std::string_view name : loggers()) names.add(std::string(name), "");
  return names.take();
}

// Values of an option, by its name; the type distinguishes a backend's switch from its name.
Found values(const CLI::Option& o, const std::string& call) {
  const std::string name = o.get_lnames().empty() ? o.get_name() : o.get_lnames()[0];
  if (name == "pid" || name == "PID") return processes();
  if (name == "LEVEL") return words_of({"debug", "info", "warn", "error", "off"});
  if (name == "VERBOSITY") return words_of({"0", "1", "2"});
  if (name == "logger") return logger_names_of();
  if (name == "sort") return words_of({"share", "calls", "latency", "health", "op", "kernel"});
  if (name == "force" || name == "lock" || name == "kernel" || name == "allow" || name == "deny" ||
      name == "KERNEL")
    return kernels(call);
  if (name == "op" || name == "OP") return ops("");
  if (name == "CALLSPEC" || name == "call") return ops("(");
  if (name == "backend")
    return o.get_type_name().find('=') != std::string::npos ? backends({"=on", "=off"})
                                                            : backends({""});
  if (name == "deny-vendor" || name == "allow-vendor") return vendors();
  if (name == "prefer") return words_of({"default", "vendor", "reference"});
  if (name == "order") return words_of({"default", "vendor", "reference", "vendor:", "impl:"});
  if (name == "dtype") return words_of({"f32", "f16", "bf16"});
  if (name == "contents") return contents();
  if (name == "SHELL") return words_of({"bash", "zsh", "fish"});
  return {};
}

const CLI::Option* option_named(const CLI::App& app, const std::string& word) {
  for (const CLI::Option* o : app.get_options())
    if (!o->get_positional() && o->check_name(word)) return o;
  return nullptr;
}

Found options_of(const CLI::App& app) {
  Found found;
  for (const CLI::Option* o : app.get_options())
    for (const std::string& n : o->get_lnames())
      found.push_back({"--" + n, first_line(o->get_description())});
  return found;
}

std::vector<const CLI::App*> below(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

const CLI::App* command_named(const CLI::App& app, const std::string& word) {
  for (const CLI::App* c : below(app))
    if (c->get_name() == word) return c;
  return nullptr;
}

Found commands_of(const CLI::App& app) {
  Found found;
  for (const CLI::App* c : below(app))
    found.push_back({c->get_name(), first_line(c->get_description())});
  return found;
}

// Where the words before the last lead.
struct Place {
  const CLI::App* app;
  const CLI::Option* waiting = nullptr;  // the option whose value comes next
  size_t positionals = 0;                // given so far
  std::string call;                      // the first of them
};
Place walk(const CLI::App& root, const std::vector<std::string>& words) {
  Place at{&root, nullptr, 0, ""};
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& w = words[i];
    if (at.waiting != nullptr) {
      if (w != "=") at.waiting = nullptr;  // some shells make a word of the sign
    } else if (w.size() > 1 && w[0] == '-') {
      const CLI::Option* o = option_named(*at.app, w);
      if (o != nullptr && takes_value(*o)) at.waiting = o;
    } else if (const CLI::App* sub = command_named(*at.app, w)) {
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

std::string without_quote(std::string word) {
  if (!word.empty() && (word[0] == '\'' || word[0] == '"')) word.erase(0, 1);
  return word;
}

}  // namespace

void add_completion(CLI::App& app, Action& action) {
  auto shell = std::make_shared<std::string>();
  CLI::App* c = app.add_subcommand("completion", "Print a completion script for a shell");
  c->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(one_of({"bash", "zsh", "fish"}));
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
      write_out(script);
      return kOk;
    };
  });
}

std::vector<Completion> complete(const CLI::App& app, std::vector<std::string> words) {
  if (words.empty()) words.emplace_back();
  if (words.size() > 1 && words[0] == "help" && !words.back().starts_with("-"))
    words.erase(words.begin());  // the name of a command follows
  for (std::string& w : words) w = without_quote(w);
  std::string& last = words.back();
  const Place at = walk(app, words);
  Found found;
  std::string before;  // the part of the word that is kept
  if (last == "=") last.clear();
  if (at.waiting != nullptr) {
    found = values(*at.waiting, at.call);
  } else if (const size_t eq = last.find('='); last.starts_with("--") && eq != std::string::npos) {
    before = last.substr(0, eq + 1);
    const CLI::Option* o = option_named(*at.app, last.substr(0, eq));
    if (o != nullptr && takes_value(*o)) found = values(*o, at.call);
  } else if (last.starts_with("-")) {
    found = options_of(*at.app);
  } else {
    found = commands_of(*at.app);
    if (const CLI::Option* o = positional(*at.app, at.positionals)) found = values(*o, at.call);
  }
  // A list of values: only its last part is completed.
  if (const size_t comma = last.rfind(','); comma != std::string::npos && last.find('(') > comma)
    before = last.substr(0, comma + 1);
  for (Completion& c : found) c.word = before + c.word;
  std::erase_if(found, [&](const Completion& c) { return !c.word.starts_with(last); });
  std::sort(found.begin(), found.end(),
            [](const Completion& a, const Completion& b) { return a.word < b.word; });
  return found;
}

int print_completions(const CLI::App& app, const std::vector<std::string>& words) {
  for (const Completion& c : complete(app, words)) print_out("{}\t{}\n", c.word, c.meaning);
  return kOk;
}

}  // namespace yard::tool
