// SPDX-License-Identifier: Apache-2.0
// Tests that every row of the table is read, printed, merged and, if it has a variable, read from
// the environment.
#include "policy/config_rows.h"

#include <gtest/gtest.h>

#include <functional>

#include "policy/process.h"
#include "policy/testing_config.h"

namespace yard::policy {
namespace {

// Sets a value that differs from the default and that the row allows.
struct Sample {
  static void set(bool& to, const ValueForm&) { to = true; }
  static void set(int& to, const ValueForm& form) { to = static_cast<int>(form.least) + 7; }
  static void set(int64_t& to, const ValueForm& form) { to = static_cast<int64_t>(form.least) + 7; }
  static void set(double& to, const ValueForm& form) { to = form.least > 0 ? form.least : 0.5; }
  static void set(std::chrono::nanoseconds& to, const ValueForm&) {
    to = std::chrono::milliseconds(1500);
  }
  template <IsEnum Enum>
  static void set(Enum& to, const ValueForm& form) {
    to = form.value_of<Enum>(form.words.size() - 1);
  }
  static void set(std::string& to, const ValueForm& form) {
    const bool path = form.is(shape::kPath) || form.is(shape::kFolder);
    to = path                        ? "/some/path"
         : form.is(shape::kLevels)   ? "info"
         : !form.words.empty()       ? form.words.back()
         : form.is(shape::kOpOrders) ? "impl:some.name"
                                     : "some.name";
  }
  static void set(KernelRef& to, const ValueForm&) { to = {"some.kernel", true, {}}; }
  static void set(std::vector<Condition>& to, const ValueForm&) {
    to = {{"rows_gte", {{"8", false}}, false, {}},
          {"tenant", {{"a", false}, {"9", true}}, true, {}}};
  }
  template <class V>
  static void set(std::optional<V>& to, const ValueForm& form) {
    set(to.emplace(), form);
  }
  template <class V>
  static void set(std::vector<V>& to, const ValueForm& form) {
    set(to.emplace_back(), form);
  }
  template <class V>
  static void set(std::map<std::string, V, std::less<>>& to, const ValueForm& form) {
    set(to["some_key"], form);
  }
  // Sets the required fields of a struct, without which it cannot be read.
  template <HasFields T>
  static void set(T& to, const ValueForm&) {
    visit_fields<T>([&](const auto& row) {
      if (row.required) set(to.*row.member, row.form);
    });
  }
};

struct OneRow {
  std::string path;  // "settings.cache.size"
  const Key* key;
  Config config;
};

// Returns the struct that a member holds, creating it if it is an optional, an item or an entry.
template <class M>
auto* inner_struct(M& member, const ValueForm& form) {
  if constexpr (HasFields<M>) {
    return &member;
  } else {
    Sample::set(member, form);
    if constexpr (IsOptional<M>)
      return &*member;
    else if constexpr (IsMap<M>)
      return &member.begin()->second;
    else
      return &member.front();
  }
}

// `struct_of` returns the struct with these rows in a Config.
template <class T, class Rows>
void collect_rows(const Rows& rows, const std::string& prefix,
                  const std::function<T&(Config&)>& struct_of, std::vector<OneRow>& to) {
  visit_rows(rows, [&](const auto& row) {
    const std::string path = prefix + row.name;
    if constexpr (requires { row.member; }) {
      using M = typename std::decay_t<decltype(row)>::Type;
      if constexpr (HasFields<M> || HasFields<Part<M>>) {
        using Inner = std::conditional_t<HasFields<M>, M, Part<M>>;
        collect_rows<Inner>(
            kFields<Inner>, path + ".",
            [&](Config& c) -> Inner& { return *inner_struct(struct_of(c).*row.member, row.form); },
            to);
      } else {
        OneRow one{path, &row, {}};
        T& in = struct_of(one.config);
        Sample::set(in.*row.member, row.form);
        // A rule must have one of these.
        if constexpr (std::is_same_v<T, DispatchRule>)
          if (in.kernel.empty() && in.deny.empty() && !in.allow) in.kernel = "default.simd";
        to.push_back(std::move(one));
      }
    }
  });
}

std::vector<OneRow> single_rows() {
  std::vector<OneRow> to;
  collect_rows<Config>(
      kFields<Config>, "", [](Config& c) -> Config& { return c; }, to);
  return to;
}

TEST(ConfigKeys, EveryRowIsPrintedAndReadBack) {
  EXPECT_GT(single_rows().size(), 60u);
  for (const OneRow& one : single_rows()) {
    EXPECT_NE(one.config, Config()) << one.path;
    const std::string yaml = to_yaml(one.config);
    const ConfigReading back = parse_config_from(yaml, "/some/rules.yaml", opener({}));
    for (const ConfigProblem& p : back.problems) ADD_FAILURE() << to_string(p) << "\n" << yaml;
    if (one.key->section == nullptr) {
      EXPECT_NE(yaml.find(std::string(one.key->name) + ":"), std::string::npos) << yaml;
      EXPECT_EQ(back.config, one.config) << one.path << "\n" << yaml;
      EXPECT_FALSE(diff(Config(), one.config).empty()) << one.path;
    } else {
      // A section of the file sets this policy instead.
      EXPECT_NE(yaml.find(std::string(one.key->section) + ":"), std::string::npos) << yaml;
      EXPECT_EQ(policy_of(back.config), policy_of(one.config)) << one.path << "\n" << yaml;
    }
  }
}

TEST(ConfigKeys, EveryRowOfAnIncludedFileIsMerged) {
  for (const OneRow& one : single_rows()) {
    Config none, weak = one.config, strong = one.config;
    merge_weaker(none, weak);
    EXPECT_EQ(none, one.config) << one.path;
    weak = {};
    merge_weaker(strong, weak);
    EXPECT_EQ(strong, one.config) << one.path;
  }
}

TEST(ConfigKeys, EveryFieldOfAPolicyIsMergedNotedAndReadFromItsVariable) {
  size_t variables = 0;
  visit_fields<Policy>([&](const auto& row) {
    Policy p;
    Sample::set(p.*row.member, row.form);
    EXPECT_EQ(merge(p, Policy()), p) << row.name;
    EXPECT_EQ(merge(Policy(), p), p) << row.name;
    EXPECT_TRUE(validate(p).ok()) << row.name;
    const std::vector<Explanation::PolicyNote> said = notes(p, "process");
    ASSERT_EQ(said.size(), 1u) << row.name;
    EXPECT_TRUE(said[0].field.starts_with(row.name)) << said[0].field;
    EXPECT_EQ(said[0].source, "process");
    EXPECT_EQ(to_string(p), said[0].field + "=" + said[0].value);
    if (row.variable == nullptr) return;
    ++variables;
    // Orders are written as OP=TOKEN. All other notes are the value of the variable.
    const bool order = row.form.is(shape::kOpOrders);
    std::vector<EnvProblem> problems;
    const Environment e = read_environment(
        {{row.variable, (order ? "some_key=" : "") + said[0].value}}, {}, problems);
    for (const EnvProblem& problem : problems) ADD_FAILURE() << to_string(problem);
    EXPECT_EQ(e.policy, p) << row.name;
    EXPECT_EQ(e.sources.at(said[0].field), row.variable);
  });
  EXPECT_EQ(variables, 8u);
}

TEST(ConfigKeys, EveryFieldOfTheEnvironmentIsReadFromItsVariable) {
  visit_fields<Environment>([&](const auto& row) {
    Environment expected;
    Sample::set(expected.*row.member, row.form);
    std::string text = "on";
    if constexpr (std::is_same_v<typename std::decay_t<decltype(row)>::Type, std::string>)
      text = expected.*row.member;
    if constexpr (std::is_same_v<typename std::decay_t<decltype(row)>::Type,
                                 std::optional<int64_t>>)
      text = std::to_string((expected.*row.member).value());
    std::vector<EnvProblem> problems;
    EXPECT_EQ(read_environment({{row.variable, text}}, {}, problems), expected) << row.name;
    for (const EnvProblem& problem : problems) ADD_FAILURE() << to_string(problem);
  });
}

}  // namespace
}  // namespace yard::policy
