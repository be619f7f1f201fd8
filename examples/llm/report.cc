// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <future>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace llm {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

std::string dump(const Json& j) { return j.dump(2, ' ', false, Json::error_handler_t::replace); }

// Extrapolates from the noted steps of decoding to all steps.
Profile decode_profile(const Answer& a) {
  Profile all;
  const size_t noted = std::max<size_t>(a.noted, 1);
  all.add(a.of_decode, static_cast<double>(a.steps) / static_cast<double>(noted));
  return all;
}

// Returns the bandwidth of copies on several threads, in GB/s read and written. No cache holds the
// memory.
double copy_rate(int32_t threads) {
  const auto copy = [] {
    std::vector<char> from(size_t{64} << 20, 1), to(from.size(), 2);
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < 4; ++i) std::memcpy(to.data(), from.data(), to.size()), from[0] = to[1];
    const std::chrono::duration<double> taken = Clock::now() - start;
    return 4 * 2 * static_cast<double>(to.size()) / 1e9 / taken.count();
  };
  std::vector<std::future<double>> running;
  while (threads-- > 0) running.push_back(std::async(std::launch::async, copy));
  double sum = 0;
  for (auto& of_thread : running) sum += of_thread.get();
  return sum;
}

}  // namespace

void put(std::string_view text) {
  std::string shown(text);
  if (::isatty(STDOUT_FILENO) != 0) {
    shown.clear();
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find_first_of("\n\t", at), text.size());
      shown += yard::printable(text.substr(at, end - at), text.size());
      if (end < text.size()) shown += text[end];
      at = end + 1;
    }
  }
  const bool written = std::fwrite(shown.data(), 1, shown.size(), stdout) == shown.size();
  if (std::fflush(stdout) != 0 || !written)
    throw std::runtime_error(cat("cannot write the output: ", std::strerror(errno)));
}

void LoadingLine::show(double done, double all) {
  if (Clock::now() < next_ || ::isatty(STDERR_FILENO) == 0) return;
  next_ = Clock::now() + std::chrono::milliseconds(100);
  is_shown_ = true;
  std::fprintf(stderr, "\r\x1b[Kloading %.1f of %.1f GB", done / 1e9, all / 1e9);
}

void LoadingLine::clear() {
  if (is_shown_) std::fputs("\r\x1b[K", stderr);
  is_shown_ = false;
}

std::string to_json(const Answer& a, const Sampling& sampling) {
  Profile all;
  all.add(a.of_prompt), all.add(decode_profile(a));
  Json kernels = Json::array();
  for (const auto& e : all.entries())
    kernels.push_back({{"op", e.op}, {"kernel", e.kernel}, {"calls", e.calls}, {"ms", e.ms()}});
  Json out = {{"prompt_tokens", a.prompt}, {"tokens", a.ids},          {"text", a.text},
              {"stopped", a.stopped},      {"prompt_ms", a.prompt_ms}, {"decode_ms", a.decode_ms},
              {"kernels", kernels}};
  if (sampling.temperature != 0) out["seed"] = sampling.seed;
  return dump(out);
}

std::string error_json(std::string_view message, int exit_code) {
  return dump({{"error", message}, {"exit_code", exit_code}});
}

double rate(size_t tokens, double ms) {
  return ms > 0 ? 1e3 * static_cast<double>(tokens) / ms : 0.0;
}

std::string profile_text(const Answer& a, int32_t threads) {
  const double copied = copy_rate(threads);
  std::string text = "\n" + a.of_prompt.to_text("prompt", a.prompt_ms, copied);
  if (!a.outside.empty()) {
    std::vector<double> outside = a.outside;
    const auto median = outside.begin() + static_cast<std::ptrdiff_t>(outside.size() / 2);
    std::nth_element(outside.begin(), median, outside.end());
    const Profile decode = decode_profile(a);
    const double ms = decode.ms() + static_cast<double>(a.steps) * *median;
    text += "\n" + decode.to_text("decode", ms, copied);
  }
  return text + fmt::format("\nprompt {:.1f}, answer {:.1f} tokens a second; copying {:.1f} GB/s\n",
                            rate(a.prompt.size(), a.prompt_ms), rate(a.steps, a.decode_ms), copied);
}

}  // namespace llm
