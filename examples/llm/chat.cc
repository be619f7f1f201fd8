// SPDX-License-Identifier: Apache-2.0
// yard-chat: answers prompts with a language model that runs on Switchyard's ops.
#include <unistd.h>
#include <yard/yard.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "model.h"
#include "tokenizer.h"

namespace llm {
namespace {

struct Flags {
  std::string model, prompt, policy = "default", config;
  int64_t tokens = 256, context = 0;
  int32_t threads = 0;
  Sampling sampling;
  bool raw = false, json = false, profile = false;
};

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

// What stands around the messages of a conversation. Templates are programs; two common forms are recognised.
class Template {
 public:
  explicit Template(const Gguf& file) : text_(file.text("tokenizer.chat_template", "")) {
    if (text_.find("<|im_start|>") != text_.npos)
      system_ = default_system_message();
    else if (text_.find("<|start_header_id|>") != text_.npos)
      is_llama3_ = true;
    else
      file.fail(
          "a chat template with <|im_start|> or <|start_header_id|>; use --raw to prompt without "
          "one",
          text_.empty() ? "none" : "another");
  }
  std::vector<int32_t> message(const Tokenizer& t, std::string_view prompt, bool is_first) const {
    if (is_llama3_)
      return t.encode({{is_first ? "" : "<|eot_id|>", true},
                       {"<|start_header_id|>user<|end_header_id|>\n\n", true},
                       {prompt, false},
                       {"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n", true}});
    return t.encode({{is_first ? system_ : "<|im_end|>\n", true},
                     {"<|im_start|>user\n", true},
                     {prompt, false},
                     {"<|im_end|>\n<|im_start|>assistant\n", true}});
  }

 private:
  // That of ChatML templates which have one: a literal up to the end of the message.
  std::string default_system_message() const {
    const std::string start = "<|im_start|>system", end = "<|im_end|>";
    size_t from = text_.find(start);
    if (from == text_.npos) return "";
    from += start.size();
    const size_t to = text_.find(end, from);
    std::string message(text_.substr(from, to == text_.npos ? 0 : to - from));
    for (size_t at; (at = message.find("\\n")) != message.npos;) message.replace(at, 2, "\n");
    if (message.size() < 2 || message.find_first_of("'\"{}") != message.npos) return "";
    return start + message + end + "\n";
  }
  std::string_view text_;
  std::string system_;
  bool is_llama3_ = false;
};

// One answer, and what it took.
struct Answer {
  std::vector<int32_t> prompt, ids;
  std::string text;
  const char* stopped = "tokens";  // or `end`, `context`
  double prompt_ms = 0, decode_ms = 0;
  Profile of_prompt, of_decode;  // of_decode has seen one of kSampled steps
  int64_t steps = 0, seen = 0;
};
constexpr int64_t kSampled = 4;

class Chat {
 public:
  explicit Chat(const Flags& flags)
      : flags_(flags),
        model_(Gguf::open(flags.model)),
        tokenizer_(model_.file()),
        session_(model_,
                 flags.context > 0 ? flags.context : std::min<int64_t>(model_.context, 2048)) {
    if (!flags.raw) template_.emplace(model_.file());
    if (tokenizer_.size() > model_.vocabulary)
      model_.file().fail(
          "at most " + std::to_string(model_.vocabulary) + " tokens in the vocabulary",
          std::to_string(tokenizer_.size()));
  }
  // Writes the answer as it comes, if `stream`.
  void answer(std::string_view prompt, bool stream, Answer& a) {
    const bool is_first = session_.position() == 0, notes = flags_.json || flags_.profile;
    a.prompt = std::move(unseen_);
    unseen_.clear();
    if (is_first && tokenizer_.begin() >= 0) a.prompt.push_back(tokenizer_.begin());
    const std::vector<int32_t> ids =
        template_ ? template_->message(tokenizer_, prompt, is_first) : tokenizer_.encode(prompt);
    a.prompt.insert(a.prompt.end(), ids.begin(), ids.end());
    if (a.prompt.empty())
      throw std::runtime_error("invalid prompt: expected at least one token, got none");
    a.ids.reserve(static_cast<size_t>(flags_.tokens));
    auto start = std::chrono::steady_clock::now();
    session_.set_profile(notes ? &a.of_prompt : nullptr);
    session_.advance(a.prompt).or_throw();
    int32_t id = 0;
    session_.sample(flags_.sampling, &id).or_throw();
    a.prompt_ms = ms_since(start);
    start = std::chrono::steady_clock::now();
    size_t written = 0;
    while (static_cast<int64_t>(a.ids.size()) < flags_.tokens) {
      if (tokenizer_.is_end(id)) {
        a.stopped = "end";
        break;
      }
      a.ids.push_back(id);
      tokenizer_.append_text(id, a.text);
      if (stream) written = write(a.text, written);
      const bool is_full = session_.position() == session_.context();
      if (is_full) a.stopped = "context";
      if (is_full || static_cast<int64_t>(a.ids.size()) == flags_.tokens) {
        unseen_ = {id};
        break;
      }
      const bool noted = notes && a.steps % kSampled == 0;
      ++a.steps;
      a.seen += noted ? 1 : 0;
      session_.set_profile(noted ? &a.of_decode : nullptr);
      session_.advance({&id, 1}).or_throw();
      session_.sample(flags_.sampling, &id).or_throw();
    }
    a.decode_ms = ms_since(start);
    if (stream && written < a.text.size()) std::fputs("\uFFFD", stdout);
  }
  const Session& session() const { return session_; }

 private:
  // Writes the characters that are complete; returns how much of the text has been written.
  static size_t write(std::string_view text, size_t written) {
    const size_t end = complete_characters(text);
    if (end > written)
      std::fwrite(text.data() + written, 1, end - written, stdout), std::fflush(stdout);
    return std::max(end, written);
  }

  Flags flags_;
  Model model_;
  Tokenizer tokenizer_;
  Session session_;
  std::optional<Template> template_;
  std::vector<int32_t> unseen_;  // at the end of the last answer, by the session
};

void print_json(const Answer& a, const Profile& all) {
  nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
  for (const Profile::Entry& e : all.entries())
    kernels.push_back({{"op", e.op},
                       {"kernel", e.kernel},
                       {"calls", e.calls},
                       {"ms", static_cast<double>(e.ns) / 1e6}});
  const nlohmann::ordered_json out = {
      {"prompt_tokens", a.prompt}, {"tokens", a.ids},          {"text", a.text},
      {"stopped", a.stopped},      {"prompt_ms", a.prompt_ms}, {"decode_ms", a.decode_ms},
      {"kernels", kernels}};
  std::puts(out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

// Bytes a nanosecond that so many threads copy, read and written, of memory that is in no cache.
double copy_rate(int32_t threads) {
  constexpr size_t kBytes = size_t{64} << 20;
  const auto copy = [] {
    std::vector<char> from(kBytes, 1), to(kBytes, 2);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 4; ++i)
      std::memcpy(to.data(), from.data(), kBytes), from[0] = to[kBytes - 1];
    return 8.0 * kBytes / (ms_since(start) * 1e6);
  };
  std::vector<double> rates(static_cast<size_t>(threads));
  std::vector<std::thread> running;
  for (double& rate : rates) running.emplace_back([&] { rate = copy(); });
  for (std::thread& t : running) t.join();
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

void print_profile(const char* name, double ms, const Profile& profile, double rate) {
  std::vector<Profile::Entry> entries = profile.entries();
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.ns > b.ns; });
  std::fprintf(stderr, "\n%-18s %-24s %9s %10s %7s %7s %7s\n", name, "kernel", "calls", "ms",
               "share", "GB/s", "of copy");
  double in_kernels = 0;
  for (const Profile::Entry& e : entries) {
    const double ns = static_cast<double>(std::max<int64_t>(e.ns, 1)),
                 moved = static_cast<double>(e.bytes) / ns;
    in_kernels += ns / 1e6;
    std::fprintf(stderr, "%-18s %-24s %9lld %10.2f %6.1f%% %7.1f %6.0f%%\n", e.op, e.kernel.c_str(),
                 static_cast<long long>(e.calls), ns / 1e6, 100 * ns / 1e6 / ms, moved,
                 100 * moved / rate);
  }
  std::fprintf(stderr, "%-18s %-24s %9s %10.2f %6.1f%%\n", "outside of kernels", "", "",
               ms - in_kernels, 100 * (ms - in_kernels) / ms);
}

void report(const Flags& flags, const Answer& a) {
  const double scale = a.seen > 0 ? static_cast<double>(a.steps) / static_cast<double>(a.seen) : 0;
  Profile decode, all;
  decode.add(a.of_decode, scale);
  all.add(a.of_prompt, 1), all.add(decode, 1);
  if (flags.json) print_json(a, all);
  if (flags.profile) {
    const double rate = copy_rate(flags.threads);
    print_profile("prompt", a.prompt_ms, a.of_prompt, rate);
    if (a.steps > 0) print_profile("decode", a.decode_ms, decode, rate);
    std::fprintf(stderr, "copying: %.1f GB/s, %d threads, read and written\n", rate, flags.threads);
  }
  if (flags.profile || (!flags.json && ::isatty(STDERR_FILENO)))
    std::fprintf(stderr, "prompt: %zu tokens, %.0f tokens/s; answer: %zu tokens, %.1f tokens/s\n",
                 a.prompt.size(), 1e3 * static_cast<double>(a.prompt.size()) / a.prompt_ms,
                 a.ids.size(), 1e3 * static_cast<double>(a.steps) / std::max(a.decode_ms, 1e-3));
}

void converse(Chat& chat, const Flags& flags) {
  std::puts("Type a message and Enter; /help lists commands, ctrl-D ends.");
  for (std::string line;
       std::fputs("> ", stdout), std::fflush(stdout), std::getline(std::cin, line);) {
    if (line == "/exit") return;
    if (line == "/help")
      std::puts("/exit ends; anything else is a message. The conversation is remembered.");
    if (line.empty() || line == "/help") continue;
    Answer a;
    try {
      chat.answer(line, true, a);
      std::puts("");
      report(flags, a);
    } catch (const std::exception& e) {  // a message that is too long, kernels that fail
      std::fprintf(stderr, "yard-chat: %s\n", e.what());
    }
    if (chat.session().position() < chat.session().context()) continue;
    std::puts(
        "The context is full. Start again, with a larger --context for longer conversations.");
    return;
  }
  std::puts("");
}

yard::Policy policy_of(const std::string& name) {
  yard::Policy p;
  if (name == "reference") p.reference_only = true;
  if (name == "simd") p.allow_kernels = {"default.simd*", "reference.*"};
  if (name == "vendor") p.prefer = yard::Kind::kVendor;
  return p;
}

// The file that `make demo` fetches.
std::string default_model() {
  std::error_code none;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", none);
  return (program.parent_path().parent_path() / "model/SmolLM2-135M-Instruct.Q4_1.gguf").string();
}

int run(int argc, char** argv) {
  Flags f;
  f.model = default_model();
  CLI::App app(
      "Answers a prompt with a language model, by Switchyard's ops. Without a prompt it reads one: "
      "from a "
      "terminal, message by message.");
  app.add_option("PROMPT", f.prompt, "What to answer; without it, standard input");
  app.add_option("--model", f.model,
                 "A GGUF file of a Llama model; the default is the one that `make demo` fetches");
  app.add_option("--tokens", f.tokens, "The most tokens of an answer")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--temperature", f.sampling.temperature, "0: always the most probable token")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--top-p", f.sampling.top_p, "Only the most probable tokens with this sum")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--seed", f.sampling.seed, "Of random numbers, with a temperature");
  app.add_option("--context", f.context,
                 "Tokens of a conversation; 0: those of the model, at most 2048")
      ->check(CLI::Range(0, 1 << 24));
  app.add_option("--threads", f.threads, "The most threads; 0: all")->check(CLI::Range(0, 1024));
  app.add_option("--policy", f.policy, "Which kernels")
      ->check(CLI::IsMember({"default", "simd", "vendor", "reference"}));
  app.add_option("--config", f.config, "A rule file");
  app.add_flag("--raw", f.raw, "No chat template: continue the prompt");
  app.add_flag("--json", f.json, "Print one object: tokens, text, times, kernels");
  app.add_flag("--profile", f.profile, "Print where the time goes, to standard error");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  yard::Runtime::limit_threads(f.threads);
  if (f.threads == 0)
    f.threads = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
  if (!f.config.empty()) yard::Runtime::shared().load_config(f.config).or_throw();
  if (f.policy != "default") yard::Runtime::shared().set_policy(policy_of(f.policy)).or_throw();
  Chat chat(f);
  if (app.count("PROMPT") == 0 && ::isatty(STDIN_FILENO)) return converse(chat, f), 0;
  if (app.count("PROMPT") == 0) f.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  Answer a;
  chat.answer(f.prompt, !f.json, a);
  if (!f.json) std::puts("");
  report(f, a);
  return 0;
}

}  // namespace
}  // namespace llm

int main(int argc, char** argv) {
  try {
    return llm::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "yard-chat: %s\n", e.what());
    return 1;
  }
}
