// SPDX-License-Identifier: Apache-2.0
#include "policy/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/log.h"
#include "policy/config_rows.h"
#include "policy/process.h"

namespace yard::policy {
namespace {

constexpr std::string_view kPrefix = "YARD_", kBackend = "YARD_BACKEND_";
constexpr size_t kMostReported = 8;  // problems of one value

// The value is meaningless if problems were added.
template <class V>
void read_value(std::string_view text, const ValueForm& form, V& to, Problems& problems) {
  Status s;
  if constexpr (IsOptional<V>) {
    read_value(text, form, to.emplace(), problems);
  } else if constexpr (std::is_same_v<V, Names>) {
    to = read_list(text, form, problems);
  } else if constexpr (std::is_same_v<V, Orders>) {
    to = read_orders(text, problems);
  } else if constexpr (std::is_same_v<V, bool>) {
    const auto on = read_switch(text);
    to = on.ok() && *on;
    s = on.status();
  } else if constexpr (requires { read_one(text, form, to); }) {
    if (form.is(shape::kLevels)) base::parse_log_levels(text, problems);
    s = read_one(text, form, to);  // paths are checked when they are used
  }
  if (!s.ok()) problems.emplace_back(s.message());
}

std::string spelled(std::string_view variable) {
  return base::lower(variable.substr(kBackend.size()));
}

bool is_backend_variable(std::string_view name) {
  return name.starts_with(kBackend) && name.size() > kBackend.size() &&
         name == backend_variable(spelled(name));
}

std::string unknown_variable(const std::string& name) {
  const std::string large = base::upper(name);
  const std::vector<std::string> known = known_variables();
  if (is_backend_variable(large)) return fmt::format("unknown variable; did you mean '{}'?", large);
  if (large.starts_with("YARD_BACKEND"))
    return "unknown variable; expected YARD_BACKEND_NAME, with the backend's name in capitals";
  return "unknown variable; " + suggestion(large, known, "expected " + base::one_of(known));
}

// Sets the variable's member to the value, or to the last valid one. Returns false if unknown.
template <class T>
bool read_row(const std::string& name, std::string_view text, const T& last, T& to,
              Problems& wrong) {
  bool known = false;
  visit_fields<T>([&](const auto& row) {
    if (row.variable == nullptr || name != row.variable) return;
    known = true;
    if (text.empty()) return;
    read_value(text, row.form, to.*row.member, wrong);
    if (!wrong.empty()) to.*row.member = last.*row.member;
  });
  return known;
}

void read_variable(const std::string& name, const std::string& value, const Environment& last,
                   Environment& to, std::vector<EnvProblem>& problems) {
  const std::string_view text = base::trim(value);
  const auto add = [&](std::string message, bool error = true) {
    problems.push_back({shown(name, false), base::excerpt(value), std::move(message), error});
  };
  Problems wrong;
  Policy part;
  if (is_backend_variable(name)) {
    const std::string backend = spelled(name);
    const auto& before = last.policy.backends;
    if (const auto on = read_switch(text); on.ok()) {
      part.backends[backend] = *on;
    } else if (!text.empty() && !base::same_word(text, "auto")) {
      wrong.push_back("expected on, off or auto" +
                      base::did_you_mean(base::lower(text), {"on", "off", "auto"}));
      if (const auto it = before.find(backend); it != before.end()) part.backends.insert(*it);
    }
  } else if (!read_row(name, text, last.policy, part, wrong) &&
             !read_row(name, text, last, to, wrong)) {
    return add(unknown_variable(name), false);
  }
  wrong.erase(std::unique(wrong.begin(), wrong.end()), wrong.end());
  for (size_t i = 0; i < std::min(wrong.size(), kMostReported); ++i) add(wrong[i]);
  if (wrong.size() > kMostReported)
    add(fmt::format("{} more problems", wrong.size() - kMostReported));
  for (const Explanation::PolicyNote& n : notes(part, "")) to.sources[n.field] = name;
  to.policy = merge(to.policy, part);
}

}  // namespace

std::string to_string(const EnvProblem& p) {
  return fmt::format("{}={}: {}", p.variable, p.found, p.message);
}

Environment read_environment(const Variables& variables, const Environment& last_good,
                             std::vector<EnvProblem>& problems) {
  Environment to;
  for (const auto& [name, value] : variables)
    if (name.starts_with(kPrefix)) read_variable(name, value, last_good, to, problems);
  return to;
}

Variables yard_variables() {
  Variables found;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const size_t equals = entry.find('=');
    // Like getenv, uses the first of two variables with the same name.
    if (entry.starts_with(kPrefix) && equals != std::string_view::npos)
      found.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return found;
}

std::vector<std::string> known_variables() {
  std::vector<std::string> names;
  for (const Keys keys : {Keys(kKeys<Policy>), Keys(kKeys<Environment>)})
    for (const Key* key : keys)
      if (key->variable != nullptr) names.emplace_back(key->variable);
  std::sort(names.begin(), names.end());
  return names;
}

std::string backend_variable(std::string_view backend) {
  std::string name(kBackend);
  for (char c : base::upper(backend))
    name += (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c : '_';
  return name;
}

OwnSwitch read_own_switch(const std::string& variable, std::string_view value,
                          const std::string& backend, std::optional<bool> last) {
  const std::string_view text = base::trim(value);
  if (text.empty() || base::same_word(text, "auto")) return {};
  if (const auto on = read_switch(text); on.ok()) return {*on, {}};
  return {last, EnvProblem{variable, base::excerpt(text),
                           fmt::format("expected on, off or auto; backend '{}' stays {}", backend,
                                       !last   ? "at its default"
                                       : *last ? "on"
                                               : "off"),
                           true}};
}

Policy with_backend_names(const Policy& policy, const std::vector<std::string>& backends) {
  Policy to = policy;
  for (const std::string& real : backends) {
    const auto it = policy.backends.find(spelled(backend_variable(real)));
    if (it == policy.backends.end()) continue;
    to.backends.insert_or_assign(real, it->second);
    if (!base::contains(backends, it->first)) to.backends.erase(it->first);
  }
  return to;
}

}  // namespace yard::policy
