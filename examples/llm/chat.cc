// SPDX-License-Identifier: Apache-2.0
// yard-chat: answers prompts with a language model that runs on Switchyard's ops.
#include <unistd.h>
#include <yard/yard.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <random>
#include <thread>

#include "console.h"
#include "report.h"

namespace llm {
namespace {

constexpr int kFailed = 1, kWrongOptions = 2;

struct Flags {
  ConversationSettings conversation;
  std::string prompt, file, system, policy = "default", config;
  int64_t seed = -1;
  int32_t threads = 0;
  bool json = false, profile = false;
};

void add_options(CLI::App& app, Flags& f) {
  ConversationSettings& c = f.conversation;
  Sampling& s = c.sampling;
  s = {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f};
  c.model = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() /
            "model/SmolLM2-135M-Instruct.Q4_1.gguf";
  app.option_defaults()->always_capture_default();
  app.set_version_flag("--version", "yard-chat " YARD_VERSION);
  app.add_option("-m,--model", c.model, "GGUF file of a Llama model");
  auto* const given = app.add_option("PROMPT", f.prompt, "What to answer")->default_str("");
  auto* const named = app.add_option("-p,--prompt", f.prompt, "The same")->default_str("");
  auto* const file = app.add_option("-f,--file", f.file, "A file with the prompt");
  named->excludes(given), file->excludes(given)->excludes(named);
  auto* const system = app.add_option("--system", f.system, "System message");
  app.add_option("-n,--tokens", c.tokens, "Most tokens of an answer")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  app.add_option("-c,--context", c.context,
                 "Most tokens of a conversation; 0: 2048, or what the model was trained for")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24));
  app.add_option("--temperature,--temp", s.temperature, "0 always takes the most probable token")
      ->check(CLI::Range(0., 1e3));
  app.add_option("--top-k", s.top_k, "The number of best tokens to choose from; 0 means all")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31));
  app.add_option("--top-p", s.top_p, "Only the best tokens, whose probabilities sum up to this")
      ->check(CLI::Range(0., 1.));
  app.add_option("--min-p", s.min_p, "Only tokens with this share of the best one's probability")
      ->check(CLI::Range(0., 1.));
  app.add_option("--repeat-penalty", s.repeat_penalty, "Above 1: fewer repetitions")
      ->check(CLI::Range(0.01, 100.));
  app.add_option("--repeat-last-n", s.repeat_last, "How many tokens back the penalty looks")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24));
  app.add_option("-s,--seed", f.seed, "Of random numbers; -1 picks one and prints it")
      ->check(CLI::Range(int64_t{-1}, int64_t{UINT32_MAX}));
  app.add_option("-t,--threads", f.threads, "Most threads; 0 means all")
      ->check(CLI::Range(0, 1024));
  const CLI::IsMember policies({"default", "simd", "vendor", "reference"});
  app.add_option("--policy", f.policy, "Which kernels")->check(policies);
  app.add_option("--config", f.config, "Rule file");
  app.add_flag("--raw", c.raw, "No chat template: continue the prompt")->excludes(system);
  app.add_flag("--json", f.json, "Print one object: tokens, text, times, kernels");
  app.add_flag("--profile", f.profile, "Print where the time goes, to standard error");
}

// Reads the whole file without the newline at its end, and closes it.
std::string read_all(std::FILE* in, const std::string& name) {
  std::string text;
  char part[4096];
  for (size_t n; in != nullptr && (n = std::fread(part, 1, sizeof part, in)) > 0;)
    text.append(part, n);
  if (in == nullptr || std::ferror(in) != 0)
    throw std::runtime_error(cat("cannot read the prompt from ", name, ": ", std::strerror(errno)));
  std::fclose(in);
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

// Returns nullopt for a conversation on the terminal.
std::optional<std::string> prompt_of(const Flags& f, const CLI::App& app) {
  if (app.count("PROMPT") + app.count("--prompt") > 0) return f.prompt;
  if (app.count("--file") > 0) return read_all(std::fopen(f.file.c_str(), "re"), f.file);
  if (!f.json && ::isatty(STDIN_FILENO) != 0) return {};
  return read_all(stdin, "standard input");
}

void choose_kernels(const Flags& f) {
  yard::Runtime::limit_threads(f.threads);
  yard::Runtime& runtime = yard::Runtime::shared();
  if (!f.config.empty()) runtime.rules().load(f.config).or_throw();
  yard::Policy policy;
  if (f.policy == "reference") policy.reference_only = true;
  if (f.policy == "simd") policy.allow_kernels = {"default.simd*", "reference.*"};
  if (f.policy == "vendor") policy.prefer = yard::Kind::kVendor;
  if (f.policy != "default") runtime.set_policy(policy).or_throw();
}

// Messages go to stderr, even if the program prints JSON.
void say(const std::string& text) { std::fprintf(stderr, "yard-chat: %s\n", text.c_str()); }

int run(const Flags& f, const CLI::App& app) {
  // The message for a model file that is truncated while it is mapped.
  const std::string truncated =
      cat("the model file ", f.conversation.model, " became shorter while it was in use");
  static const std::string message =
      f.json ? error_json(truncated, kFailed) + "\n" : "\nyard-chat: " + truncated + "\n";
  end_on_truncation(message.c_str(), f.json ? STDOUT_FILENO : STDERR_FILENO);
  choose_kernels(f);
  const std::optional<std::string> prompt = prompt_of(f, app);
  ConversationSettings settings = f.conversation;
  if (app.count("--system") > 0) settings.system = f.system;
  if (f.json || f.profile) settings.note_each = f.profile ? 2 : 8;  // noting costs 1 to 2 %
  settings.sampling.seed =
      f.seed >= 0 ? static_cast<uint32_t>(f.seed) : uint32_t{std::random_device()()};
  LoadingLine line;
  Conversation conversation(settings, [&](double done, double all) { line.show(done, all); });
  line.clear();
  if (conversation.context() > conversation.model().context)
    say(cat("warning: the model was trained for ", conversation.model().context,
            " tokens; beyond them its answers mean little"));
  if (f.seed < 0 && settings.sampling.temperature != 0 && !f.json)
    say(cat("seed ", settings.sampling.seed));
  const int32_t threads =
      f.threads > 0 ? f.threads
                    : static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
  const auto profile = [&](const Answer& a) {
    if (f.profile) std::fputs(profile_text(a, threads).c_str(), stderr);
  };
  if (!prompt) return Console(conversation, profile).run();
  const Answer a =
      conversation.answer(*prompt, f.json ? Conversation::Sink() : Conversation::Sink(put));
  put(f.json ? to_json(a, settings.sampling) + "\n" : "\n");
  profile(a);
  return 0;
}

int fail(bool json, const std::string& message, int exit_code) {
  const std::string object = json ? error_json(message, exit_code) : "";
  if (!json || std::printf("%s\n", object.c_str()) < 0 || std::fflush(stdout) != 0) say(message);
  return exit_code;
}

int parse_and_run(int argc, char** argv) {
  const bool json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
  try {
    Flags f;
    CLI::App app("Answers a prompt with a language model on Switchyard's ops.");
    app.footer(
        "Without a prompt it is read from standard input; on a terminal a conversation begins.");
    add_options(app, f);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
      if (e.get_exit_code() == 0) return app.exit(e);  // for --help and --version
      return fail(json, e.what() + std::string("; --help lists the options"), kWrongOptions);
    }
    return run(f, app);
  } catch (const std::exception& e) {
    return fail(json, e.what(), kFailed);
  }
}

}  // namespace
}  // namespace llm

int main(int argc, char** argv) {
  const int code = llm::parse_and_run(argc, argv);
  std::cout.flush();
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && code == 0)
    return llm::fail(false, "cannot write the output", llm::kFailed);
  return code;
}
