// SPDX-License-Identifier: Apache-2.0
// One row per variable: how its value is read, and which part of a policy is its own.
#include "policy/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "base/log.h"
#include "base/text.h"
#include "policy/sources.h"
#include "policy/words.h"

namespace yard::policy {
namespace {

constexpr std::string_view kPrefix = "YARD_", kBackend = "YARD_BACKEND_";
constexpr size_t kMostTold = 8;  // problems of one value

// Copies what a Result holds, or says why it holds nothing.
template <class T, class To>
void take(Result<T> from, To& to, Problems& problems) {
  if (from.ok())
    to = *std::move(from);
  else
    problems.emplace_back(from.status().message());
}

// A variable of a fixed name.
struct Row {
  const char* name;
  void (*read)(std::string_view value, Policy& to, Problems& problems);
  void (*keep)(const Policy& from, Policy& to);
};

// In alphabetical order, which is that of the problems.
constexpr Row kRows[] = {
    {"YARD_ALLOW_KERNELS",
     [](std::string_view v, Policy& p, Problems& w) { p.allow_kernels = read_globs(v, w); },
     [](const Policy& from, Policy& to) { to.allow_kernels = from.allow_kernels; }},
    {"YARD_ALLOW_VENDORS",
     [](std::string_view v, Policy& p, Problems& w) { p.allow_vendors = read_vendors(v, w); },
     [](const Policy& from, Policy& to) { to.allow_vendors = from.allow_vendors; }},
    {"YARD_CHECK_VERIFIERS",  // no part of a policy: only checked here
     [](std::string_view v, Policy&, Problems& w) {
       bool ignored = false;
       take(read_switch(v), ignored, w);
     },
     [](const Policy&, Policy&) {}},
    {"YARD_CONFIG",  // no part of a policy: whoever reads the file says what is wrong with it
     [](std::string_view, Policy&, Problems&) {}, [](const Policy&, Policy&) {}},
    {"YARD_DENY_KERNELS",
     [](std::string_view v, Policy& p, Problems& w) { p.deny_kernels = read_globs(v, w); },
     [](const Policy& from, Policy& to) { to.deny_kernels = from.deny_kernels; }},
    {"YARD_DENY_VENDORS",
     [](std::string_view v, Policy& p, Problems& w) { p.deny_vendors = read_vendors(v, w); },
     [](const Policy& from, Policy& to) { to.deny_vendors = from.deny_vendors; }},
    {"YARD_DISABLE",
     [](std::string_view v, Policy& p, Problems& w) { take(read_switch(v), p.reference_only, w); },
     [](const Policy& from, Policy& to) { to.reference_only = from.reference_only; }},
    {"YARD_LOG_LEVEL",  // no part of a policy: only checked here
     [](std::string_view v, Policy&, Problems& w) { base::parse_log_levels(v, w); },
     [](const Policy&, Policy&) {}},
    {"YARD_PER_OP",
     [](std::string_view v, Policy& p, Problems& w) { p.per_op = read_orders(v, w); },
     [](const Policy& from, Policy& to) { to.per_op = from.per_op; }},
    {"YARD_PLUGINS",  // no part of a policy, as the next
     [](std::string_view, Policy&, Problems&) {}, [](const Policy&, Policy&) {}},
    {"YARD_PLUGIN_PATH", [](std::string_view, Policy&, Problems&) {},
     [](const Policy&, Policy&) {}},
    {"YARD_PLUGIN_PROBE",  // only checked here, as the levels
     [](std::string_view v, Policy&, Problems& w) {
       std::string ignored;
       take(read_probe(v), ignored, w);
     },
     [](const Policy&, Policy&) {}},
    {"YARD_PREFER",
     [](std::string_view v, Policy& p, Problems& w) { take(read_kind(v), p.prefer, w); },
     [](const Policy& from, Policy& to) { to.prefer = from.prefer; }},
    {"YARD_RECORD",  // no part of a policy: whoever opens the file says what is wrong with it
     [](std::string_view, Policy&, Problems&) {}, [](const Policy&, Policy&) {}},
    {"YARD_STRICT",
     [](std::string_view v, Policy& p, Problems& w) { take(read_switch(v), p.strict, w); },
     [](const Policy& from, Policy& to) { to.strict = from.strict; }},
};

// What the variable spells, in small letters.
std::string spelled(std::string_view variable) {
  return base::lower(variable.substr(kBackend.size()));
}

bool is_backend_variable(std::string_view name) {
  return name.starts_with(kBackend) && name.size() > kBackend.size() &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
         });
}

void read_backend(std::string_view value, const std::string& backend, Policy& to,
                  Problems& problems) {
  if (base::same_word(value, "auto")) return;
  const auto on = read_switch(value);
  if (on.ok())
    to.backends[backend] = *on;
  else
    problems.push_back("expected on, off or auto" +
                       base::did_you_mean(base::lower(value), {"on", "off", "auto"}));
}

std::string nobody_reads(const std::string& name) {
  const std::string large = base::upper(name);
  const std::vector<std::string> known = known_variables();
  std::string hint = base::did_you_mean(large, known);
  if (is_backend_variable(large))
    hint = base::did_you_mean(large, {large});
  else if (large.starts_with(kBackend.substr(0, kBackend.size() - 1)))
    hint = "; expected YARD_BACKEND_NAME, with the backend's name in capitals";
  else if (hint.empty())
    hint = "; expected " + base::one_of(known);
  return "nothing reads this variable" + hint;
}

class Reader {
 public:
  Reader(const Environment& last_good, std::vector<EnvProblem>& problems)
      : last_(last_good), problems_(problems) {}

  void read(const std::string& name, const std::string& value) {
    const std::string_view text = base::trim(value);
    const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                  [&](const Row& r) { return name == r.name; });
    Policy part;
    Problems wrong;
    if (row != std::end(kRows)) {
      if (text.empty()) return;
      row->read(text, part, wrong);
    } else if (is_backend_variable(name)) {
      if (text.empty()) return;
      read_backend(text, spelled(name), part, wrong);
    } else {
      problems_.push_back({shown(name), base::excerpt(value), nobody_reads(name), false});
      return;
    }
    if (wrong.empty())
      if (Status s = validate(part); !s) wrong.emplace_back(s.message());
    // Two of a kind are said once.
    wrong.erase(std::unique(wrong.begin(), wrong.end()), wrong.end());
    report(name, value, wrong);
    if (!wrong.empty()) {
      part = {};
      if (row != std::end(kRows))
        row->keep(last_.policy, part);
      else if (const auto it = last_.policy.backends.find(spelled(name));
               it != last_.policy.backends.end())
        part.backends.insert(*it);
    }
    if (name == "YARD_LOG_LEVEL")
      to_.log_levels = wrong.empty() ? std::string(text) : last_.log_levels;
    if (name == "YARD_PLUGINS") to_.plugins = text;
    if (name == "YARD_PLUGIN_PATH") to_.plugin_path = text;
    if (name == "YARD_CONFIG") to_.config = text;
    if (name == "YARD_RECORD") to_.record = text;
    if (name == "YARD_CHECK_VERIFIERS")
      to_.check_verifiers = wrong.empty() ? *read_switch(text) : last_.check_verifiers;
    if (name == "YARD_PLUGIN_PROBE")
      to_.plugin_probe = wrong.empty() ? base::lower(text) : last_.plugin_probe;
    for (const PolicyNote& n : notes(part, "")) to_.sources[n.field] = name;
    to_.policy = merge(to_.policy, part);
  }
  Environment result() && { return std::move(to_); }

 private:
  static std::string shown(const std::string& name) {
    return base::is_bare_word(name) && name.size() <= 80 ? name : base::excerpt(name);
  }

  void report(const std::string& name, const std::string& value, const Problems& wrong) {
    for (size_t i = 0; i < std::min(wrong.size(), kMostTold); ++i)
      problems_.push_back({shown(name), base::excerpt(value), wrong[i], true});
    if (wrong.size() > kMostTold)
      problems_.push_back({shown(name), base::excerpt(value),
                           fmt::format("{} more are wrong with it", wrong.size() - kMostTold),
                           true});
  }

  const Environment& last_;
  std::vector<EnvProblem>& problems_;
  Environment to_;
};

}  // namespace

std::string to_string(const EnvProblem& p) {
  return fmt::format("{}={}: {}", p.variable, p.found, p.message);
}

Environment read_environment(const Variables& variables, const Environment& last_good,
                             std::vector<EnvProblem>& problems) {
  Reader reader(last_good, problems);
  for (const auto& [name, value] : variables)
    if (name.starts_with(kPrefix)) reader.read(name, value);
  return std::move(reader).result();
}

Variables yard_variables() {
  Variables found;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const size_t equals = entry.find('=');
    // The first of two with the same name, as getenv has it.
    if (entry.starts_with(kPrefix) && equals != std::string_view::npos)
      found.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return found;
}

std::vector<std::string> known_variables() {
  std::vector<std::string> names;
  for (const Row& r : kRows) names.emplace_back(r.name);
  return names;
}

std::string backend_variable(std::string_view backend) {
  std::string name(kBackend);
  for (char c : base::upper(backend))
    name += (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c : '_';
  return name;
}

OwnSwitch read_own_switch(const std::string& variable, std::string_view value,
                          const std::string& backend) {
  const std::string_view text = base::trim(value);
  if (text.empty() || base::same_word(text, "auto")) return {};
  if (const auto on = read_switch(text); on.ok()) return {*on, {}};
  return {{},
          EnvProblem{
              variable, base::excerpt(text),
              fmt::format("expected on, off or auto; backend '{}' stays at its default", backend),
              true}};
}

Policy with_backend_names(const Policy& policy, const std::vector<std::string>& backends) {
  Policy to = policy;
  for (const std::string& real : backends) {
    const auto it = policy.backends.find(spelled(backend_variable(real)));
    if (it == policy.backends.end()) continue;
    to.backends.insert_or_assign(real, it->second);
    if (std::find(backends.begin(), backends.end(), it->first) == backends.end())
      to.backends.erase(it->first);
  }
  return to;
}

}  // namespace yard::policy
