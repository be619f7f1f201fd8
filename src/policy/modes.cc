// SPDX-License-Identifier: Apache-2.0
#include "policy/modes.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <set>

#include "base/fork.h"
#include "base/text.h"

namespace yard::policy {
namespace {

constexpr size_t kLongestName = 64;
// By value of Mode; the last one stands for all modes of the program.
constexpr const char* kModeNames[] = {"auto",   "static",     "dynamic",
                                      "config", "hot_reload", "program"};
constexpr size_t kProgramMode = static_cast<size_t>(Mode::kProgram);
static_assert(std::size(kModeNames) == kProgramMode + 1);

bool is_name(std::string_view s) {
  return !s.empty() && s.size() <= kLongestName && s[0] >= 'a' && s[0] <= 'z' &&
         std::all_of(s.begin(), s.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

// The one copy of a name, never freed: there are only as many as a program has modes.
const char* interned(std::string_view name) {
  struct ModeNames {
    std::mutex lock;
    std::set<std::string, std::less<>> all;
  };
  static constinit base::PerProcess<ModeNames> g_names;
  ModeNames& names = g_names.get();
  const std::lock_guard lock(names.lock);
  return names.all.emplace(name).first->c_str();
}

}  // namespace

Result<std::shared_ptr<const ProgramMode>> make_mode(std::string_view name, ModeProvider provider) {
  if (!is_name(name))
    return Status(
        Code::kInvalidArgument,
        fmt::format(
            "{} cannot be the name of a mode; expected lower-case letters, digits and '_', a "
            "letter first, at most {} of them",
            base::excerpt(name), kLongestName));
  if (parse_mode(name) || name == to_string(Mode::kProgram))
    return Status(Code::kConflict,
                  fmt::format("'{}' is the name of a mode already; expected another", name));
  if (!provider.plan && !provider.kernel)
    return Status(
        Code::kInvalidArgument,
        fmt::format("mode '{}' has neither plan nor kernel; expected one of the two functions, or "
                    "both",
                    name));
  return std::make_shared<const ProgramMode>(ProgramMode{interned(name), std::move(provider)});
}

std::vector<std::string> mode_names(const Modes* modes) {
  std::vector<std::string> names(kModeNames, kModeNames + kProgramMode);
  if (modes != nullptr)
    for (const auto& [name, mode] : *modes) names.push_back(name);
  return names;
}

Status check_mode_name(std::string_view name, const Modes* modes) {
  if (parse_mode(name) || (modes != nullptr && modes->find(name) != modes->end())) return {};
  const std::vector<std::string> names = mode_names(modes);
  std::string hint = base::did_you_mean(name, names);
  if (hint.empty()) hint = "; expected " + base::one_of(names);
  return Status(Code::kInvalidArgument,
                fmt::format("no mode is called {}{}", base::excerpt(name), hint));
}

}  // namespace yard::policy

namespace yard {

const char* to_string(Mode m) noexcept {
  const auto index = static_cast<size_t>(m);
  return index < std::size(policy::kModeNames) ? policy::kModeNames[index] : "?";
}

std::optional<Mode> parse_mode(std::string_view text) noexcept {
  for (size_t i = 0; i < policy::kProgramMode; ++i)
    if (text == policy::kModeNames[i]) return static_cast<Mode>(i);
  return std::nullopt;
}

}  // namespace yard
