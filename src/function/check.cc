// SPDX-License-Identifier: Apache-2.0
#include "function/check.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <exception>
#include <string_view>
#include <thread>

#include "dispatch/scope.h"
#include "function/registry.h"

namespace yard::function {
namespace {

// FNV-1a: quick, and nobody means harm.
struct Fingerprint {
  uint64_t value = 14695981039346656037ull;
  void add(const void* data, size_t bytes) noexcept {
    const auto* p = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) value = (value ^ p[i]) * 1099511628211ull;
  }
};

uint64_t arguments_seen(const detail::FunctionArgs& args) {
  Fingerprint f;
  args.visit(
      args.tuple,
      [](void* to, const void* data, size_t n) { static_cast<Fingerprint*>(to)->add(data, n); },
      &f);
  return f.value;
}

uint64_t environment_seen() {
  Fingerprint f;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) f.add(*at, std::strlen(*at) + 1);
  return f.value;
}

struct World {
  uint64_t arguments, environment, generation;
};
World look(const detail::FunctionArgs& args, const detail::Core* core) {
  uint64_t generation = core != nullptr ? core->snapshot()->generation : 0;
  // What a runtime has published never becomes less, so neither does the sum.
  if (const Registry* shared = Registry::serving(); shared != nullptr && &shared->core() != core)
    generation += shared->core().snapshot()->generation;
  return {arguments_seen(args), environment_seen(), generation};
}

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

namespace {

// One round; `world` says whether something else than the verifier can have changed the world.
Answer ask_repeatedly(const Implementation& i, const detail::ThreadHead& thread,
                      const detail::FunctionArgs& args, const detail::Core* core, bool& world) {
  world = false;
  const World before = look(args, core);
  Answer first = ask_once(i, thread, args);
  if (!first.broken.empty()) return first;
  const Answer second = ask_once(i, thread, args);
  const Answer elsewhere = ask_elsewhere(i, thread, args, first);
  const World after = look(args, core);
  const auto differs = [&](const char* when, const Answer& other) {
    return fmt::format("it says {}, and {} {}", described(i, first), when,
                       other.broken.empty() ? described(i, other) : other.broken);
  };
  world = before.arguments == after.arguments &&
          (before.environment != after.environment || before.generation != after.generation);
  if (!same_answer(first, second) || !second.broken.empty())
    first.broken = differs("asked again", second);
  else if (!same_answer(first, elsewhere) || !elsewhere.broken.empty())
    first.broken = differs("on another thread", elsewhere);
  else if (before.arguments != after.arguments)
    first.broken = "it changes its arguments";
  else if (before.environment != after.environment)
    first.broken = "it changes the environment";
  else if (before.generation != after.generation)
    first.broken = "it changes the registry";
  else if (!first.accepted && !i.has_text(first.verdict.reason))
    first.broken = "it refuses for a reason that is not in its list of texts";
  if (!first.broken.empty()) first.accepted = false;
  return first;
}

}  // namespace

Answer ask_checked(const Implementation& i, const detail::ThreadHead& thread,
                   const detail::FunctionArgs& args, const detail::Core* core) {
  if (i.verify == nullptr) return ask_once(i, thread, args);
  bool world = false;
  Answer a;
  // Others may change registry and environment just then; not every time.
  for (int round = 0; round < 3; ++round) {
    a = ask_repeatedly(i, thread, args, core, world);
    if (!world) break;
  }
  return a;
}

}  // namespace yard::function
