// SPDX-License-Identifier: Apache-2.0
#include "policy/config_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "base/file.h"
#include "base/trusted_path.h"
#include "policy/clauses.h"
#include "policy/config_rows.h"

namespace yard::policy {

static constexpr size_t kMostProblems = 200;

void add_problems(ConfigReading& reading, std::vector<ConfigProblem> more) {
  std::vector<ConfigProblem>& all = reading.problems;
  std::ranges::move(more, std::back_inserter(all));
  // Errors come first, so that cutting the list never hides that there is one.
  std::ranges::stable_sort(all, {}, &ConfigProblem::severity);
  const bool cut = all.size() > kMostProblems;
  if (cut) all.resize(kMostProblems);
  std::ranges::stable_sort(all, {}, [&](const ConfigProblem& p) {
    const auto file = std::ranges::find(reading.files, p.file);
    return std::tuple(file - reading.files.begin(), p.line, p.column);
  });
  if (cut)
    all.push_back({Severity::kWarning, reading.files.empty() ? "configuration" : reading.files[0],
                   0, 0, "", "there are more problems", "fix these first"});
}

void FileProblems::add(base::YamlMark mark, std::string path, std::string found,
                       std::string right) {
  if (included) {
    if (found.starts_with("found "))
      found = "invalid value";
    else if (found.starts_with("duplicate "))
      found = "duplicate value";
    else if (right.empty())
      found = "invalid YAML", right = "expected a rule file";
  }
  add_shown(mark, std::move(path), std::move(found), std::move(right));
}

void FileProblems::add_shown(base::YamlMark mark, std::string path, std::string found,
                             std::string right) {
  // add_problems() would cut more.
  if (to.size() <= kMostProblems)
    to.push_back({Severity::kError, name, mark.line, mark.column, std::move(path), std::move(found),
                  std::move(right)});
}

namespace {

constexpr ssize_t kMostBytes = ssize_t{4} << 20;

std::string why() { return std::generic_category().message(errno); }

class FilesReader {
 public:
  explicit FilesReader(const Opener& open) : open_(open) {}

  ConfigReading read(const std::string& path, const Result<std::string>& text) {
    to_.files.push_back(path);
    first_[normal(path)] = "";
    if (text.ok()) {
      to_.config = read_text(*text, path, true);
    } else {
      to_.problems.push_back({Severity::kError, path, 0, 0, "",
                              std::string(text.status().message()), expected(text.status(), "")});
    }
    to_.config.sources.files = names_;
    to_.sha256 = base::sha256(texts_);
    add_problems(to_, {});
    return std::move(to_);
  }

 private:
  static const char* expected(const Status& s, const char* otherwise) {
    return s.code() == Code::kInvalidArgument
               ? "expected a file that only root and this user can write"
               : otherwise;
  }

  static std::string normal(const std::string& path) {
    return std::filesystem::path(path).lexically_normal().string();
  }

  Config read_text(std::string_view text, const std::string& name, bool main) {
    texts_ += fmt::format("{}:", text.size());
    texts_ += text;
    FileProblems problems{name, static_cast<uint32_t>(names_.size()), to_.problems, !main};
    names_.push_back(name);
    const base::YamlDocument doc = base::parse_yaml(text);
    for (const base::YamlError& e : doc.errors) problems.add(e.at, "", e.message, "");
    // A truncated tree would only cause follow-up problems.
    if (!doc.whole) return {};
    if (doc.root.kind == base::YamlNode::Kind::kNull) {
      problems.add({1, 1}, "", "the file is empty", "expected a map with version and rules");
      return {};
    }
    std::vector<Include> includes;
    Config config = read_tree(doc.root, main, problems, includes);
    stack_.push_back(normal(name));
    for (const Include& i : includes) include(i, problems, config);
    stack_.pop_back();
    return config;
  }

  void include(const Include& i, FileProblems& from, Config& into) {
    const auto bad = [&](std::string found, std::string right) {
      from.add_shown(i.at, i.path, std::move(found), std::move(right));
    };
    const std::string id = normal(i.file), what = base::excerpt(i.file, 200);
    if (base::contains(stack_, id))
      return bad(what + " includes itself", "expected each file once");
    if (const auto it = first_.find(id); it != first_.end())
      return bad(fmt::format("{} is included already, by {}", what, it->second),
                 "expected each file once");
    if (stack_.size() > kDeepestInclude)
      return bad("included too deeply", fmt::format("expected at most {} levels", kDeepestInclude));
    if (first_.size() > kMostIncludes)
      return bad("too many files", fmt::format("expected at most {}", kMostIncludes));
    first_[id] = fmt::format("{}:{}", from.name, i.at.line);
    to_.files.push_back(i.file);
    const auto text = open_(i.file);
    if (!text.ok())
      return bad(fmt::format("{} {}", what, text.status().message()),
                 expected(text.status(), "expected a file, relative to this one"));
    Config included = read_text(*text, i.file, false);
    merge_weaker(into, included);
    into.sources.places.merge(included.sources.places);
  }

  const Opener& open_;
  ConfigReading to_;
  std::vector<std::string> names_, stack_;
  std::map<std::string, std::string> first_;  // file → the place that includes it
  std::string texts_;
};

}  // namespace

Result<std::string> open_file(const std::string& path) {
  constexpr int kMostTries = 16;
  const auto bad = [](std::string text) { return Status(Code::kNotFound, std::move(text)); };
  base::File file;
  std::string untrusted;
  int tries = 0;
  do {  // try again if the file is replaced meanwhile
    struct stat info {};
    file = base::File(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!file || ::fstat(file.fd(), &info) != 0) return bad("cannot be opened: " + why());
    if (!S_ISREG(info.st_mode)) return bad("is not a regular file");
    untrusted = base::why_untrusted(path, file);
  } while (!untrusted.empty() && ++tries < kMostTries);
  if (!untrusted.empty()) return Status(Code::kInvalidArgument, untrusted);
  std::string text(kMostBytes + 1, '\0');
  const ssize_t size = file.read_at(text.data(), text.size(), 0);
  if (size < 0) return bad("cannot be read: " + why());
  if (size > kMostBytes) return bad("has more than 4 MiB");
  text.resize(static_cast<size_t>(size));
  text.shrink_to_fit();
  return text;
}

ConfigPlace place_of(const Config& config, const std::string& path, const std::string& name) {
  const auto it = config.sources.places.find(path + "/" + name);
  return it == config.sources.places.end() ? ConfigPlace() : it->second;
}

Config with_sections(Config c) {
  const auto refs = [](const Names& ids) {
    std::vector<KernelRef> to;
    for (const std::string& id : ids) to.push_back({id, false, {}});
    return to;
  };
  for (const auto& [op, id] : c.policy.locks)
    c.kernel_locks.try_emplace(op, KernelRef{id, false, {}});
  std::vector<KernelRef> in_file = std::exchange(c.kernel_denies, refs(c.policy.deny_kernels));
  merge_value(c.kernel_denies, in_file);
  if (c.policy.allow_kernels && !c.kernel_allows) c.kernel_allows = refs(*c.policy.allow_kernels);
  return c;
}

ConfigReading read_config_from(const std::string& path, const Opener& open) {
  return FilesReader(open).read(path, open(path));
}

ConfigReading parse_config_from(std::string_view text, const std::string& name,
                                const Opener& open) {
  return FilesReader(open).read(name, std::string(text));
}

}  // namespace yard::policy

namespace yard {

bool ConfigReading::ok() const noexcept {
  return std::none_of(problems.begin(), problems.end(),
                      [](const ConfigProblem& p) { return p.severity == Severity::kError; });
}

const char* to_string(Severity s) noexcept { return s == Severity::kError ? "error" : "warning"; }

// Turns "found X" and "expected Y; HINT" into "expected Y, got X; HINT".
static std::string sentence(std::string_view found, std::string_view right) {
  constexpr std::string_view kFound = "found ";
  if (!found.starts_with(kFound) || !right.starts_with("expected "))
    return fmt::format("{}{}{}", found, right.empty() ? "" : "; ", right);
  const size_t hint = std::min(right.find("; did you mean "), right.size());
  return fmt::format("{}, got {}{}", right.substr(0, hint), found.substr(kFound.size()),
                     right.substr(hint));
}

std::string to_string(const ConfigProblem& p) {
  // Escapes line breaks in the name.
  std::string text = base::excerpt(p.file, 400);
  if (text.size() == p.file.size() + 2) text = p.file;
  if (p.line > 0) text += fmt::format(":{}:{}", p.line, p.column);
  text += fmt::format(": {}: ", to_string(p.severity));
  if (!p.path.empty()) text += p.path + ": ";
  return text += sentence(p.found, p.right);
}

ConfigReading read_config(const std::string& path) {
  return policy::read_config_from(path, policy::open_file);
}

ConfigReading parse_config(std::string_view text, const std::string& name) {
  return policy::parse_config_from(text, name, policy::open_file);
}

BreakerSettings breaker_of(const Config& config, const BreakerSettings& base) {
  const ConfigSettings::Breaker& b = config.settings.breaker;
  const auto count = [](const std::optional<int64_t>& set, uint32_t otherwise) {
    return static_cast<uint32_t>(std::clamp<int64_t>(set.value_or(otherwise), 0, UINT32_MAX));
  };
  return {.enabled = b.enabled.value_or(base.enabled),
          .failure_threshold = count(b.failure_threshold, base.failure_threshold),
          .failure_percent = count(b.failure_percent, base.failure_percent),
          .failure_min_calls = count(b.failure_min_calls, base.failure_min_calls),
          .failure_window = b.failure_window.value_or(base.failure_window),
          .cooldown = b.cooldown.value_or(base.cooldown),
          .cooldown_growth = b.cooldown_growth.value_or(base.cooldown_growth),
          .cooldown_cap = b.cooldown_cap.value_or(base.cooldown_cap),
          .success_threshold = count(b.success_threshold, base.success_threshold),
          .half_open_max_calls = count(b.half_open_max_calls, base.half_open_max_calls)};
}

Policy policy_of(const Config& config) {
  Policy p = config.policy;
  for (const auto& [op, kernel] : config.kernel_locks) p.locks[op] = kernel.id;
  for (const KernelRef& kernel : config.kernel_denies)
    if (!base::contains(p.deny_kernels, kernel.id)) p.deny_kernels.push_back(kernel.id);
  if (config.kernel_allows) p.allow_kernels = policy::ids(*config.kernel_allows);
  return p;
}

}  // namespace yard
