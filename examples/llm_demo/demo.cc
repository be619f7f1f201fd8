// SPDX-License-Identifier: Apache-2.0
// Lets a model answer twice: first undisturbed, and then while a plugin fails, rules reload, and
// the plugin is upgraded and unloaded. Checks that the tokens are equal, and measures tokens per
// second under each policy.
// Usage: yard_llm_demo FILE.gguf BROKEN_PLUGIN.so PLUGIN.so
#include <unistd.h>
#include <yard/yard.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "model.h"
#include "tokenizer.h"

namespace {

using Clock = std::chrono::steady_clock;
using Ids = std::vector<int32_t>;
using yard::Runtime;

constexpr size_t kTokens = 64;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Returns the greedy tokens after a prompt. Calls `each` with the number of tokens so far and the
// last one.
Ids answer(const llm::Model& model, const Ids& prompt, size_t count,
           const std::function<void(size_t, int32_t)>& each = {}) {
  llm::Session session(model, static_cast<int64_t>(prompt.size() + count));
  session.advance(prompt).or_throw();
  Ids tokens;
  for (int32_t id = 0; tokens.size() < count; session.advance({&id, 1}).or_throw()) {
    session.sample({}, &id).or_throw();
    tokens.push_back(id);
    if (each) each(tokens.size(), id);
  }
  return tokens;
}

// A rule file that the runtime watches.
class Rules {
 public:
  Rules()
      : path_(std::filesystem::temp_directory_path() /
              ("yard_demo_" + std::to_string(::getpid()) + ".yaml")) {}
  ~Rules() {
    Runtime::shared().rules().unwatch();
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  void start(const std::string& text) {
    write(text);
    yard::WatchSettings settings;
    settings.debounce = std::chrono::milliseconds(20);
    Runtime::shared().rules().watch(path_.string(), settings).or_throw();
  }
  // Returns when the new text is in force.
  void change(const std::string& text) {
    const uint64_t before = Runtime::shared().rules().history().back().number;
    write(text);
    for (const auto start = Clock::now();
         Runtime::shared().rules().history().back().number == before;) {
      if (seconds_since(start) > 10) throw std::runtime_error("the rule file was not read again");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

 private:
  // Replaces the file atomically, as editors do.
  void write(const std::string& text) {
    const std::filesystem::path next = path_.string() + ".new";
    std::ofstream(next) << "version: \"1.0\"\n" << text;
    std::filesystem::permissions(
        next, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    std::filesystem::rename(next, path_);
  }
  const std::filesystem::path path_;
};

std::string counts() {
  uint64_t calls = 0, failures = 0;
  for (const yard::KernelInfo& k : Runtime::shared().list().find_kernels("vendor.acme"))
    calls += k.calls, failures += k.failures;
  return std::to_string(calls) + " calls served, " + std::to_string(failures) + " failed";
}

void note(const std::string& text) { std::printf("\n    -- %s\n    ", text.c_str()); }

void disturb(size_t tokens, Rules& rules, const char* broken, const char* repaired) {
  yard::Plugins plugins = Runtime::shared().plugins();
  if (tokens == 8) {
    plugins.load(broken).or_throw();
    note(
        "plugin acme 1.0 is loaded, and rules prefer its kernels for embedding, argmax and linear; "
        "all of them fail");
  } else if (tokens == 24) {
    note("acme 1.0: " + counts() + ". The rule file changes: acme no longer for linear");
    rules.change(
        "score:\n  - {operation: embedding, kernel: vendor.acme, add: 500, optional: true}\n"
        "  - {operation: argmax, kernel: vendor.acme, add: 500, optional: true}\n");
  } else if (tokens == 32) {
    plugins.replace("acme", repaired).value().wait().or_throw();
    note("the plugin is upgraded to acme 2.0, whose kernels work; its breakers are closed");
  } else if (tokens == 52) {
    note("acme 2.0: " + counts() + ". It is unloaded");
    plugins.unload("acme").value().wait().or_throw();
  }
}

void print_rates(const llm::Model& model, const Ids& prompt) {
  struct Row {
    const char* name;
    yard::Policy policy;
    size_t tokens;
  };
  std::vector<Row> rows = {
      {"reference", {}, 3}, {"simd", {}, kTokens}, {"vendor", {}, 8}, {"default", {}, kTokens}};
  rows[0].policy.reference_only = true;
  rows[1].policy.allow_kernels = {"default.simd*", "reference.*"};
  rows[2].policy.prefer = yard::Kind::kVendor;
  std::printf("\n    %-10s %14s %14s\n", "policy", "prompt, tok/s", "decode, tok/s");
  for (const Row& row : rows) {
    const yard::ScopedPolicy in(row.policy);
    const bool slow = row.tokens < 8;  // for the reference kernels
    const Ids start(prompt.begin(), slow ? prompt.begin() + 4 : prompt.end());
    if (!slow) answer(model, start, 1);  // makes the plans
    const auto begin = Clock::now();
    double prompt_s = 0;
    answer(model, start, row.tokens, [&](size_t n, int32_t) {
      if (n == 1) prompt_s = seconds_since(begin);
    });
    const double decode_s = seconds_since(begin) - prompt_s;
    std::printf("    %-10s %14.1f %14.1f\n", row.name, static_cast<double>(start.size()) / prompt_s,
                static_cast<double>(row.tokens) / decode_s);
    std::fflush(stdout);
  }
}

int run(char** argv) {
  const llm::Model model(llm::Gguf::open(argv[1]));
  const llm::Tokenizer tokenizer(model.file());
  const Ids prompt = tokenizer.encode({{"<|im_start|>user\n", true},
                                       {"Tell me a story about a lighthouse.", false},
                                       {"<|im_end|>\n<|im_start|>assistant\n", true}});
  std::printf("    Undisturbed: %zu tokens ... ", kTokens), std::fflush(stdout);
  const Ids expected = answer(model, prompt, kTokens);
  std::puts("done. Now the same, disturbed:\n");
  Rules rules;
  rules.start("score:\n  - {kernel: vendor.acme, add: 500, optional: true}\n");
  std::printf("    ");
  std::string text;
  const Ids tokens = answer(model, prompt, kTokens, [&](size_t n, int32_t id) {
    text.clear();
    tokenizer.append_text(id, text);
    std::fputs(yard::printable(text).c_str(), stdout), std::fflush(stdout);
    disturb(n, rules, argv[2], argv[3]);
  });
  if (tokens != expected) return std::puts("\n\n    The tokens differ: this is a defect."), 1;
  std::printf("\n\n    %zu tokens, all equal to the tokens of the undisturbed run.\n",
              tokens.size());
  Runtime::shared().rules().load("").or_throw();
  print_rates(model, prompt);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4)
    return std::fputs("usage: yard_llm_demo FILE.gguf BROKEN_PLUGIN.so PLUGIN.so\n", stderr), 2;
  return run(argv);
} catch (const std::exception& e) {
  return std::fprintf(stderr, "yard_llm_demo: %s\n", e.what()), 1;
}
