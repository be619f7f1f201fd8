// SPDX-License-Identifier: Apache-2.0
#include "conversation.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

namespace llm {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

constexpr int64_t kContext = 2048;  // default length
constexpr size_t kPiece = 512;      // tokens of a prompt between two checks for an interrupt

// Returns the length of the context. Throws if the machine has too little memory for it.
int64_t checked_context(const Model& m, int64_t asked) {
  const int64_t context = asked > 0 ? asked : std::min(m.context, kContext);
  const double needed = Session::bytes(m, context);
  const double memory =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (needed > memory)
    throw std::runtime_error(cat("invalid context: ", context, " tokens take ", needed / 1e9,
                                 " GB of memory, and this machine has ", memory / 1e9,
                                 "; the model was trained for ", m.context, " tokens"));
  return context;
}

}  // namespace

Conversation::Conversation(const ConversationSettings& settings, const Loading& loading)
    : settings_(settings),
      model_(Gguf::open(settings.model)),
      tokenizer_(model_.file()),
      session_(model_, checked_context(model_, settings.context)) {
  if (!settings_.raw) template_.emplace(model_.file());
  if (tokenizer_.size() > model_.vocabulary)
    model_.file().fail(cat("at most ", model_.vocabulary, " tokens"), tokenizer_.size());
  // The first calls choose kernels, start threads and pack weights. Computing a token that is
  // thrown away does this before the first prompt arrives.
  const int32_t any = 0;
  Session first(model_, 1);
  double done = 0;
  if (loading)
    first.after_products([&](const Linear& w) {
      loading(done += static_cast<double>(Profile::bytes_of(w.weight)), model_.product_bytes);
    });
  first.advance({&any, 1}).or_throw();
  restart();
}

void Conversation::restart(std::optional<std::string> system) {
  if (system) settings_.system = std::move(system);
  history_.clear(), turns_.clear();
  session_.rewind(0);
  if (tokenizer_.begin() >= 0) history_.push_back(tokenizer_.begin());
  if (template_) {
    const Ids ids = template_->system(tokenizer_, settings_.system);
    history_.insert(history_.end(), ids.begin(), ids.end());
  }
  system_ = history_.size();
}

void Conversation::begin_turn(std::string_view prompt, Answer& a) {
  const Ids ids = template_ ? template_->message(tokenizer_, prompt) : tokenizer_.encode(prompt);
  const auto context = static_cast<size_t>(session_.context());
  if (ids.empty() && static_cast<size_t>(session_.position()) == history_.size())
    throw std::runtime_error("invalid prompt: expected a token, got none");
  if (system_ + ids.size() > context)
    throw std::runtime_error(cat("the message has ", ids.size(), " tokens, and the context of ",
                                 context, " has room for ", context - std::min(context, system_),
                                 "; --context makes it larger"));
  turns_.push_back(history_.size());
  history_.insert(history_.end(), ids.begin(), ids.end());
  make_room(0, a);
  a.prompt.assign(history_.begin() + session_.position(), history_.end());
}

bool Conversation::make_room(size_t more, Answer& a) {
  const auto context = static_cast<size_t>(session_.context());
  if (history_.size() + more <= context) return true;
  // Shrinks the context to half, so that it is not full again soon. The remaining turns are
  // computed again.
  size_t dropped = 0;
  const auto left = [&] { return history_.size() + more - (turns_[dropped] - system_); };
  while (dropped + 1 < turns_.size() && left() > context / 2) ++dropped;
  const size_t tokens = turns_[dropped] - system_;
  if (left() > context || dropped == 0) return false;
  const auto first = history_.begin() + static_cast<std::ptrdiff_t>(system_);
  history_.erase(first, first + static_cast<std::ptrdiff_t>(tokens));
  turns_.erase(turns_.begin(), turns_.begin() + static_cast<std::ptrdiff_t>(dropped));
  for (size_t& turn : turns_) turn -= tokens;
  session_.rewind(std::min(session_.position(), static_cast<int64_t>(system_)));
  a.forgotten += dropped;
  return true;
}

std::optional<int32_t> Conversation::next(Profile* profile, const Interrupted& interrupted) {
  session_.set_profile(profile);
  do {
    if (interrupted && interrupted()) return {};
    const auto fresh = std::span(history_).subspan(static_cast<size_t>(session_.position()));
    session_.advance(fresh.first(std::min(fresh.size(), kPiece))).or_throw();
  } while (static_cast<size_t>(session_.position()) < history_.size());
  int32_t id = 0;
  session_.sample(settings_.sampling, &id, history_).or_throw();
  return id;
}

void Conversation::decode(int32_t first, Answer& a, const Sink& sink,
                          const Interrupted& interrupted) {
  std::optional<int32_t> id = first;
  size_t written = 0;
  const auto write = [&](size_t end) {
    if (sink && end > written) sink(std::string_view(a.text).substr(written, end - written));
    written = std::max(written, end);
  };
  double in_kernels = 0;  // in ms, for the last noted step
  for (; !tokenizer_.is_end(*id); ++a.steps) {
    a.ids.push_back(*id);
    history_.push_back(*id);
    tokenizer_.append_text(*id, a.text);
    write(complete_characters(a.text));
    if (static_cast<int64_t>(a.ids.size()) == settings_.tokens) {
      a.stopped = "tokens";
      break;
    }
    if (!make_room(0, a)) {
      a.stopped = "context";
      break;
    }
    const size_t each = settings_.note_each;
    const bool is_noted = each > 0 && a.steps % each == 0;
    const double before = a.of_decode.ms();
    const Clock::time_point begin = Clock::now();
    id = next(is_noted ? &a.of_decode : nullptr, interrupted);
    if (!id) {
      a.stopped = "interrupted";
      break;
    }
    if (is_noted) in_kernels = a.of_decode.ms() - before, ++a.noted;
    // The step after a noted one runs equal kernels, but without the cost of records.
    if (each > 0 && a.steps % each == 1)
      a.outside.push_back(std::max(0.0, ms_since(begin) - in_kernels));
  }
  if (sink && written < a.text.size()) sink("\uFFFD");
}

Answer Conversation::answer(std::string_view prompt, const Sink& sink,
                            const Interrupted& interrupted) {
  Answer a;
  begin_turn(prompt, a);
  const auto forget_turn = [&] {
    history_.resize(turns_.back());
    turns_.pop_back();
    session_.rewind(std::min(session_.position(), static_cast<int64_t>(history_.size())));
  };
  const auto most = static_cast<size_t>(std::min(settings_.tokens, session_.context()));
  a.ids.reserve(most), a.text.reserve(16 * most);  // so that steps need not allocate
  a.outside.reserve(most), history_.reserve(history_.size() + most);
  try {
    Clock::time_point start = Clock::now();
    const auto id = next(settings_.note_each > 0 ? &a.of_prompt : nullptr, interrupted);
    a.prompt_ms = ms_since(start);
    if (!id) {
      a.stopped = "interrupted";
      forget_turn();
      return a;
    }
    start = Clock::now();
    decode(*id, a, sink, interrupted);
    a.decode_ms = ms_since(start);
  } catch (...) {
    forget_turn();
    throw;
  }
  if (template_) {
    const Ids end = template_->end(tokenizer_);
    history_.insert(history_.end(), end.begin(), end.end());
  }
  return a;
}

}  // namespace llm
