// SPDX-License-Identifier: Apache-2.0
#include "function/check.h"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <thread>

#include "base/thread_record.h"
#include "dispatch/scope.h"

namespace yard::function {
namespace {

bool same_answer(const Answer& a, const Answer& b) {
  return a.accepted == b.accepted && a.verdict.reason == b.verdict.reason &&
         std::memcmp(a.verdict.figures, b.verdict.figures, sizeof a.verdict.figures) == 0;
}

std::string described(const Implementation& i, const Answer& a) {
  return a.accepted ? "yes" : "no, " + i.text_of(a.verdict.reason, a.verdict.figures);
}

// On two threads at once that are in the same scope. Where they differ, the one that is not as `first`.
Answer ask_elsewhere(const Implementation& i, const detail::ThreadHead& thread,
                     const detail::FunctionArgs& args, const Answer& first) {
  Answer answers[2];
  const auto ask = [&](Answer& to) {
    base::ThreadRecord& other = base::this_thread();
    const detail::ScopeOfCaller scope(other, thread.scope_state);
    to = ask_once(i, other, args);
  };
  std::thread one([&] { ask(answers[0]); }), two([&] { ask(answers[1]); });
  one.join(), two.join();
  return answers[0].broken.empty() && same_answer(first, answers[0]) ? answers[1] : answers[0];
}

}  // namespace

Answer ask_once(const Implementation& i, const detail::ThreadHead& thread,
                const detail::FunctionArgs& args) {
  Answer a;
  if (i.verify == nullptr) {
    a.accepted = true;
    return a;
  }
  try {
    const int32_t code = args.ask(args.tuple, thread, i, a.verdict);
    a.accepted = code == YARD_OK && a.verdict.reason == YARD_REASON_NONE;
    if (!a.accepted && a.verdict.reason <= YARD_REASON_NONE) a.verdict.reason = YARD_REASON_REFUSED;
  } catch (const std::exception& e) {
    a.broken = std::string("it threw: ") + e.what();
  } catch (...) {
    if (detail::thread_is_unwinding()) throw;
    a.broken = "it threw something that is no std::exception";
  }
  return a;
}

Answer ask_checked(const Implementation& i, const detail::ThreadHead& thread,
                   const detail::FunctionArgs& args) {
  Answer first = ask_once(i, thread, args);
  if (i.verify == nullptr || !first.broken.empty()) return first;
  const Answer second = ask_once(i, thread, args);
  const Answer elsewhere = ask_elsewhere(i, thread, args, first);
  const auto differs = [&](const char* when, const Answer& other) {
    return fmt::format("it says {}, and {} {}", described(i, first), when,
                       other.broken.empty() ? described(i, other) : other.broken);
  };
  if (!same_answer(first, second) || !second.broken.empty())
    first.broken = differs("asked again", second);
  else if (!same_answer(first, elsewhere) || !elsewhere.broken.empty())
    first.broken = differs("on another thread", elsewhere);
  else if (!first.accepted && !i.has_text(first.verdict.reason))
    first.broken = "it refuses for a reason that is not in its list of texts";
  if (!first.broken.empty()) first.accepted = false;
  return first;
}

}  // namespace yard::function
