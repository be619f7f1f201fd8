// SPDX-License-Identifier: Apache-2.0
// Checks of a Config that need no registry.
#include <fmt/format.h>

#include <filesystem>

#include "policy/check.h"
#include "policy/config_files.h"
#include "policy/config_rows.h"

namespace yard::policy {

void Findings::add(Severity severity, const Where& where, std::string found, std::string right) {
  const auto& [at, path] = where;
  const Names& files = config.sources.files;
  problems.push_back({severity, at.file < files.size() ? files[at.file] : "configuration", at.line,
                      at.column, to_string(path), std::move(found), std::move(right)});
}

Where Findings::where(const Path& path) const { return {place_of(config, to_string(path)), path}; }
Where Findings::where_entry(const Path& map, const std::string& name) const {
  return {place_of(config, to_string(map), name), {&map, name}};
}

namespace {

namespace fs = std::filesystem;

void check_range(double number, const char* unit, const ValueForm& form, const Path& path,
                 Findings& to) {
  if (number >= form.least && number <= form.most) return;
  to.error(to.where(path), fmt::format("found {}{}", number, unit), "expected " + wanted(form));
}

// Checks numbers and words that were set in code. The reader has checked those in files.
template <class M>
void check_set(const M& value, const ValueForm& form, const Path& path, Findings& to) {
  if constexpr (IsOptional<M>) {
    if (value) check_set(*value, form, path, to);
  } else if constexpr (HasFields<M>) {
    visit_fields<M>([&](const auto& row) {
      check_set(value.*row.member, row.form, {&path, row.name}, to);
    });
  } else if constexpr (IsList<M> && HasFields<Part<M>>) {
    for (size_t i = 0; i < value.size(); ++i) check_set(value[i], form, Path{&path, {}, i}, to);
  } else if constexpr (std::is_same_v<M, std::chrono::nanoseconds>) {
    check_range(static_cast<double>(value.count()) / 1e9, "s", form, path, to);
  } else if constexpr (std::is_arithmetic_v<M> && !std::is_same_v<M, bool>) {
    check_range(static_cast<double>(value), "", form, path, to);
  } else if constexpr (std::is_same_v<M, Names>) {
    const Names words(form.words.begin(), form.words.end());
    for (size_t i = 0; i < value.size() && !words.empty(); ++i)
      if (!base::contains(words, value[i]))
        to.error({{}, {&path, {}, i}}, fmt::format("found '{}'", value[i]),
                 advice(value[i], words, ""));
  }
}

// Only the program (its values have no line) may choose where to write. `inside` is the folder.
void check_output(const std::string& path, const fs::path& inside, const Where& where,
                  const Known& known, Findings& to) {
  if (where.at.line == 0) return;
  const Names& files = to.config.sources.files;
  fs::path folder = known.output_directory;
  if (folder.empty() && !files.empty()) folder = fs::absolute(files[0]).parent_path();
  std::error_code error;
  const fs::path top = fs::weakly_canonical(fs::absolute(folder), error);
  const fs::path at = fs::weakly_canonical(fs::absolute(inside), error);
  if (error || std::ranges::mismatch(top, at).in1 != top.end())
    to.error(where, "found " + base::excerpt(path, 200),
             fmt::format("expected a path below {}, which YARD_OUTPUT_DIRECTORY can change",
                         folder.string()));
}

void check_breaker(Findings& to) {
  const std::string path = "settings.breaker";
  if (std::ranges::any_of(to.problems, [&](auto& p) { return p.path.starts_with(path); })) return;
  if (const Status status = validate(breaker_of(to.config)); !status.ok()) {
    const bool cap = to.config.settings.breaker.cooldown_cap.has_value();
    to.error({place_of(to.config, path + (cap ? ".cooldown_cap" : ".cooldown")), {&kTop, path}},
             std::string(status.message()), "");
  }
}

}  // namespace

void check_settings(const Known& known, Findings& to) {
  const Config& c = to.config;
  check_set(c, {}, kTop, to);
  const auto check_file = [&](const std::optional<std::string>& file, const char* name) {
    const Path path{&kTop, name};
    if (file) check_output(*file, fs::path(*file).parent_path(), to.where(path), known, to);
  };
  check_file(c.settings.telemetry.record, "settings.telemetry.record");
  check_file(c.settings.events, "settings.events");
  const Path canaries{&kTop, "canary"};
  for (size_t i = 0; i < c.canary.size(); ++i) {
    const CanaryRule& r = c.canary[i];
    const Path path{&canaries, {}, i};
    if (!r.op.empty() && !r.dump.empty())
      check_output(r.dump, r.dump, {r.at, {&path, "dump"}}, known, to);
  }
  check_breaker(to);
}

}  // namespace yard::policy
