// SPDX-License-Identifier: Apache-2.0
// yard-chat: answers prompts with a language model that runs on Switchyard's ops.
#include <unistd.h>
#include <yard/yard.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <future>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "model.h"
#include "tokenizer.h"

namespace llm {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct Flags {
  std::string model, prompt, policy = "default", config;
  int64_t tokens = 256, context = 0;
  int32_t threads = 0;
  Sampling sampling;
  bool raw = false, json = false, profile = false;
};

// What stands around the messages of a conversation. Templates are programs; two common forms are recognised.
class Template {
 public:
  explicit Template(const Gguf& file) {
    const std::string_view text = file.text("tokenizer.chat_template", "");
    if (text.find("<|start_header_id|>") != text.npos) {
      next_ = "<|eot_id|>", user_ = "<|start_header_id|>user<|end_header_id|>\n\n";
      answer_ = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n";
      return;
    }
    if (text.find("<|im_start|>") == text.npos)
      file.fail("a chat template with <|im_start|> or <|start_header_id|>, or --raw for none",
                text.empty() ? "none" : "another");
    next_ = "<|im_end|>\n", user_ = "<|im_start|>user\n";
    answer_ = "<|im_end|>\n<|im_start|>assistant\n";
    // It may have a system message of its own: a literal up to the end of the message.
    const size_t from = text.find("<|im_start|>system"), to = text.find("<|im_end|>", from);
    std::string message(to == text.npos ? "" : text.substr(from, to - from));
    for (size_t at; (at = message.find("\\n")) != message.npos;) message.replace(at, 2, "\n");
    if (!message.empty() && message.find_first_of("'\"{}") == message.npos)
      first_ = message + next_;
  }
  std::vector<int32_t> message(const Tokenizer& t, std::string_view prompt, bool is_first) const {
    return t.encode({{is_first ? first_ : next_, true}, {user_, true}, {prompt}, {answer_, true}});
  }

 private:
  std::string first_, next_;   // before the first message and others
  std::string user_, answer_;  // around the user's
};

// One answer, and what it took. The first token counts as the prompt's.
struct Answer {
  std::vector<int32_t> prompt, ids;
  std::string text;
  std::string_view stopped = "end";  // or `tokens`, `context`
  double prompt_ms = 0, decode_ms = 0;
  size_t steps = 0, noted = 0;  // of decoding; those in of_decode
  std::vector<double> outside;  // ms outside of kernels, of some steps
  Profile of_prompt, of_decode;
};

class Chat {
 public:
  explicit Chat(const Flags& flags)
      : flags_(flags),
        model_(Gguf::open(flags.model)),
        tokenizer_(model_.file()),
        session_(model_, flags.context > 0 ? flags.context : std::min(model_.context, kContext)) {
    if (!flags.raw) template_.emplace(model_.file());
    if (tokenizer_.size() > model_.vocabulary)
      model_.file().fail(cat("at most ", model_.vocabulary, " tokens"), tokenizer_.size());
    // The first calls choose kernels and start threads; a token that is thrown away does it before there is a prompt.
    const int32_t any = 0;
    Session(model_, 1).advance({&any, 1}).or_throw();
  }
  // Writes the answer as it comes, unless it is for JSON.
  void answer(std::string_view prompt, Answer& a) {
    const bool is_first = session_.position() == 0, notes = flags_.json || flags_.profile;
    a.prompt = unseen_;
    if (is_first && tokenizer_.begin() >= 0) a.prompt.push_back(tokenizer_.begin());
    const auto ids =
        template_ ? template_->message(tokenizer_, prompt, is_first) : tokenizer_.encode(prompt);
    a.prompt.insert(a.prompt.end(), ids.begin(), ids.end());
    if (a.prompt.empty()) throw std::runtime_error("invalid prompt: expected a token, got none");
    const auto most = static_cast<size_t>(std::min(flags_.tokens, session_.context()));
    a.ids.reserve(most), a.text.reserve(16 * most);  // so that steps allocate nothing
    a.outside.reserve(most);
    Clock::time_point start = Clock::now();
    int32_t id = next(a.prompt, notes ? &a.of_prompt : nullptr);
    a.prompt_ms = ms_since(start);
    unseen_.clear();
    start = Clock::now();
    size_t written = 0;
    double in_kernels = 0;                            // ms, of the last step that was noted
    const size_t note_each = flags_.profile ? 2 : 8;  // noting costs a percent or two
    while (!tokenizer_.is_end(id)) {
      a.ids.push_back(id);
      tokenizer_.append_text(id, a.text);
      if (!flags_.json) written = write(a.text, written);
      if (static_cast<int64_t>(a.ids.size()) == flags_.tokens) a.stopped = "tokens";
      if (is_full()) a.stopped = "context";
      if (a.stopped != "end") {
        unseen_ = {id};
        break;
      }
      const bool is_noted = notes && a.steps % note_each == 0;
      const double before = a.of_decode.ms();
      const Clock::time_point begin = Clock::now();
      id = next({&id, 1}, is_noted ? &a.of_decode : nullptr);
      if (is_noted) in_kernels = a.of_decode.ms() - before, ++a.noted;
      // The step after it runs the same kernels, without what records cost.
      if (a.steps++ % note_each == 1) a.outside.push_back(ms_since(begin) - in_kernels);
    }
    if (!flags_.json && written < a.text.size()) std::fputs("\uFFFD", stdout);
    a.decode_ms = ms_since(start);
  }
  bool is_full() const { return session_.position() == session_.context(); }

 private:
  static constexpr int64_t kContext = 2048;  // unless another is asked for
  int32_t next(std::span<const int32_t> ids, Profile* profile) {
    int32_t id = 0;
    session_.set_profile(profile);
    session_.advance(ids).or_throw();
    session_.sample(flags_.sampling, &id).or_throw();
    return id;
  }
  // Writes the characters that are complete; returns how much of the text has been written.
  static size_t write(std::string_view text, size_t written) {
    const size_t end = std::max(complete_characters(text), written);
    std::fwrite(text.data() + written, 1, end - written, stdout);
    std::fflush(stdout);
    return end;
  }

  Flags flags_;
  Model model_;
  Tokenizer tokenizer_;
  Session session_;
  std::optional<Template> template_;
  std::vector<int32_t> unseen_;  // the end of the last answer, which the session has not had
};

void print_json(const Answer& a, const Profile& all) {
  using Json = nlohmann::ordered_json;
  Json kernels = Json::array();
  for (const auto& e : all.entries())
    kernels.push_back({{"op", e.op}, {"kernel", e.kernel}, {"calls", e.calls}, {"ms", e.ms()}});
  const Json out = {
      {"prompt_tokens", a.prompt}, {"tokens", a.ids},          {"text", a.text},
      {"stopped", a.stopped},      {"prompt_ms", a.prompt_ms}, {"decode_ms", a.decode_ms},
      {"kernels", kernels}};
  std::puts(out.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

// GB a second that so many threads copy, read and written, of memory that is in no cache.
double copy_rate(int32_t threads) {
  const auto copy = [] {
    std::vector<char> from(size_t{64} << 20, 1), to(from.size(), 2);
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < 4; ++i) std::memcpy(to.data(), from.data(), to.size()), from[0] = to[1];
    return 4 * 2 * static_cast<double>(to.size()) / 1e6 / ms_since(start);
  };
  std::vector<std::future<double>> running;
  while (threads-- > 0) running.push_back(std::async(std::launch::async, copy));
  double sum = 0;
  for (auto& rate : running) sum += rate.get();
  return sum;
}

void report(const Flags& flags, Answer& a) {
  const auto steps = static_cast<double>(a.steps);
  Profile decode, all;
  decode.add(a.of_decode, steps / static_cast<double>(std::max<size_t>(a.noted, 1)));
  all.add(a.of_prompt), all.add(decode);
  if (flags.json) print_json(a, all);
  if (!flags.profile) return;
  const double rate = copy_rate(flags.threads);
  std::fprintf(stderr, "\n%s", a.of_prompt.to_text("prompt", a.prompt_ms, rate).c_str());
  if (!a.outside.empty()) {
    const auto median = a.outside.begin() + static_cast<std::ptrdiff_t>(a.outside.size() / 2);
    std::nth_element(a.outside.begin(), median, a.outside.end());
    const double ms = decode.ms() + steps * *median;
    std::fprintf(stderr, "\n%s", decode.to_text("decode", ms, rate).c_str());
  }
  std::fprintf(stderr, "\nprompt %.1f, answer %.1f tokens a second; copying %.1f GB/s\n",
               1e3 * static_cast<double>(a.prompt.size()) / a.prompt_ms, 1e3 * steps / a.decode_ms,
               rate);
}

void converse(Chat& chat, const Flags& flags) {
  std::puts("A message and Enter; /help shows commands, ctrl-D ends.");
  for (std::string line; std::cout << "> " << std::flush, std::getline(std::cin, line);) {
    if (line == "/exit") return;
    if (line == "/help") std::puts("/exit ends; anything else continues the conversation.");
    if (line.empty() || line == "/help") continue;
    try {
      Answer a;
      chat.answer(line, a);
      std::puts("");
      report(flags, a);
    } catch (const std::exception& e) {  // a message that is too long, kernels that fail
      std::fprintf(stderr, "yard-chat: %s\n", e.what());
    }
    if (chat.is_full()) return void(std::puts("The context is full; --context N makes it larger."));
  }
}

int run(int argc, char** argv) {
  Flags f;
  f.model = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() /
            "model/SmolLM2-135M-Instruct.Q4_1.gguf";
  CLI::App app("Answers a prompt with a language model on Switchyard's ops.");
  app.add_option("PROMPT", f.prompt, "What to answer; without it, standard input");
  app.add_option("--model", f.model, "GGUF file of a Llama model; default: that of `make demo`");
  app.add_option("--tokens", f.tokens, "Most tokens of an answer")->check(CLI::Range(1, 1 << 24));
  Sampling& how = f.sampling;
  app.add_option("--temperature", how.temperature, "0: the best token")->check(CLI::Range(0., 1e3));
  app.add_option("--top-p", how.top_p, "Only the best, of this sum")->check(CLI::Range(0., 1.));
  app.add_option("--seed", how.seed, "Of random numbers");
  app.add_option("--context", f.context, "Most tokens in all")->check(CLI::Range(0, 1 << 24));
  app.add_option("--threads", f.threads, "Most threads; 0: all")->check(CLI::Range(0, 1024));
  const CLI::IsMember policies({"default", "simd", "vendor", "reference"});
  app.add_option("--policy", f.policy, "Which kernels")->check(policies);
  app.add_option("--config", f.config, "Rule file");
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
  yard::Runtime& runtime = yard::Runtime::shared();
  if (!f.config.empty()) runtime.rules().load(f.config).or_throw();
  yard::Policy policy;
  if (f.policy == "reference") policy.reference_only = true;
  if (f.policy == "simd") policy.allow_kernels = {"default.simd*", "reference.*"};
  if (f.policy == "vendor") policy.prefer = yard::Kind::kVendor;
  if (f.policy != "default") runtime.set_policy(policy).or_throw();
  Chat chat(f);
  if (app.count("PROMPT") == 0 && ::isatty(STDIN_FILENO)) return converse(chat, f), 0;
  if (app.count("PROMPT") == 0) f.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  Answer a;
  chat.answer(f.prompt, a);
  if (!f.json) std::puts("");
  report(f, a);
  return 0;
}

}  // namespace
}  // namespace llm

int main(int argc, char** argv) try {
  return llm::run(argc, argv);
} catch (const std::exception& e) {
  std::fprintf(stderr, "yard-chat: %s\n", e.what());
  return 1;
}
