// SPDX-License-Identifier: Apache-2.0
// yard plugin upgrade: checks a new version of a plugin, shows what it changes, and replaces the
// installed file.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yard/log.h>

#include <cstring>
#include <filesystem>
#include <iterator>
#include <set>

#include "arguments.h"
#include "commands.h"
#include "json.h"
#include "output.h"
#include "plugin/show.h"
#include "terminal.h"
#include "verify/file.h"

namespace yard::tool {
namespace {

namespace fs = std::filesystem;

struct UpgradeQuestion {
  std::string file, into;
  bool dry_run = false, no_verify = false, allow_incompatible = false, json = false;
};

struct UpgradeChanges {
  std::vector<std::string> added, removed;
};

struct Upgrade {
  PluginInfo before, after;  // after.path is the given file
  bool verified = false;     // the whole plugin passed, in a separate process
  std::string unverified = "--no-verify was given";  // why `verified` is false
  UpgradeChanges ops, kernels;
  bool written = false;
};

UpgradeChanges changes_between(const std::set<std::string>& before,
                               const std::set<std::string>& after) {
  UpgradeChanges d;
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                      std::back_inserter(d.added));
  std::set_difference(before.begin(), before.end(), after.begin(), after.end(),
                      std::back_inserter(d.removed));
  return d;
}

std::set<std::string> registered_kernels(const Runtime& runtime) {
  std::set<std::string> to;
  for (const OpInfo& op : runtime.list().ops)
    for (const KernelInfo& k : op.kernels) to.insert(op.name + " " + k.id);
  return to;
}

// Returns the installed file of the plugin: the file `into`, a file in the directory `into`, or the
// file that a program of this environment finds.
Result<PluginInfo> installed(const Runtime& runtime, const UpgradeQuestion& q,
                             const std::string& name) {
  std::error_code error;
  const std::string into = q.into.empty() ? "" : absolute(q.into);
  if (!into.empty() && !fs::is_directory(into, error)) {
    PluginInfo there = runtime.plugins().inspect(into);
    if (there.name == name) return there;
    return Status(Code::kNotFound, fmt::format("{}: expected plugin '{}', got {}", q.into, name,
                                               there.name.empty() ? why_refused(there)
                                                                  : "plugin '" + there.name + "'"));
  }
  for (const PluginInfo& p : runtime.plugins().list())
    if (p.name == name && p.reason != PluginReason::kDuplicateName &&
        (into.empty() || fs::path(p.path).parent_path() == fs::path(into)))
      return runtime.plugins().inspect(p.path);
  return Status(
      Code::kNotFound,
      fmt::format("no plugin '{}' was found {}", name,
                  into.empty() ? "in this environment; --into tells where it is" : "in " + q.into));
}

// strverscmp() compares numbers in versions by value, so 1.10 is above 1.9.
const char* version_change(const Upgrade& u) {
  const int order = ::strverscmp(u.before.version.c_str(), u.after.version.c_str());
  return order < 0 ? "higher" : order > 0 ? "lower" : "unchanged";
}

// Replaces the old version by the new one in this process. Loads only the new version if the old
// one cannot be loaded.
Status rehearse(Runtime& runtime, Upgrade& u, KeptOps keep) {
  Plugins plugins = runtime.plugins();
  const bool had_old = plugins.load(u.before.path).ok();
  const auto before = registered_kernels(runtime);
  Status s = had_old ? plugins.replace(u.before.name, u.after.path, keep).status()
                     : plugins.load(u.after.path);
  if (s.ok()) u.kernels = changes_between(before, registered_kernels(runtime));
  return s;
}

std::string errno_text() { return std::strerror(errno); }

// Replaces the file at `path` by a copy of the new one, atomically and with the old permissions.
Status put_in_place(const Runtime& runtime, const PluginInfo& from, const std::string& path) {
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  const auto cannot = [&](const std::string& why) {
    return Status(Code::kNotFound, fmt::format("cannot write '{}': {}", path, why));
  };
  if (error) return cannot(error.message());
  const std::string beside = fmt::format("{}.new.{}", target.string(), ::getpid());
  fs::copy_file(from.path, beside, error);
  if (error) return cannot(error.message());
  Status s;
  struct stat old;
  const int fd = ::open(beside.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0 || ::stat(target.c_str(), &old) != 0 || ::fchmod(fd, old.st_mode & 07777) != 0 ||
      ::fsync(fd) != 0)
    s = cannot(errno_text());
  if (fd >= 0) ::close(fd);
  // The file may have changed after it was checked.
  if (s.ok() && runtime.plugins().inspect(beside).sha256 != from.sha256)
    s = cannot(fmt::format("{} has changed meanwhile", from.path));
  if (s.ok() && ::rename(beside.c_str(), target.c_str()) != 0) s = cannot(errno_text());
  if (!s.ok()) ::unlink(beside.c_str());
  return s;
}

Json changes_json(const UpgradeChanges& d) { return {{"added", d.added}, {"removed", d.removed}}; }

void print_upgrade(const Upgrade& u, const UpgradeQuestion& q) {
  const auto line = [](const char* what, const std::string& value) {
    print_out("  {:<10} {}\n", what, value);
  };
  const auto changes = [&](const char* what, const UpgradeChanges& d) {
    std::string text;
    for (const std::string& a : d.added) text += (text.empty() ? "+ " : ", + ") + a;
    for (const std::string& r : d.removed) text += (text.empty() ? "- " : ", - ") + r;
    line(what, text.empty() ? "unchanged" : text);
  };
  const bool same = u.before.sha256 == u.after.sha256;
  print_out("{} {} -> {}\n", paint(Paint::kBold, u.after.name), u.before.version, u.after.version);
  if (const std::string_view change = version_change(u); !same && change != "higher")
    line("version", paint(Paint::kWarning, fmt::format("{}, although the file differs", change)));
  line("file", u.before.path);
  line("sha256", same ? u.after.sha256 + ", unchanged" : u.before.sha256 + " ->");
  if (!same) line("", u.after.sha256);
  if (!same) line("verified", u.verified ? paint(Paint::kGood, "yes") : "no: " + u.unverified);
  changes("ops", u.ops);
  changes("kernels", u.kernels);
  if (same)
    print_out("It is the same file; nothing was written.\n");
  else if (q.dry_run)
    print_out("Dry run; nothing was written.\n");
  else
    print_out(
        "{}. Programs that have loaded version {} keep it until they call\n"
        "Plugins::replace(\"{}\") or start again.\n",
        paint(Paint::kGood, "Replaced"), u.before.version, u.after.name);
}

int report_upgrade(const Upgrade& u, const UpgradeQuestion& q) {
  if (!q.json) {
    print_upgrade(u, q);
    return kOk;
  }
  Json j = {{"name", u.after.name},
            {"path", u.before.path},
            {"before", {{"version", u.before.version}, {"sha256", u.before.sha256}}},
            {"after", {{"version", u.after.version}, {"sha256", u.after.sha256}}},
            {"version", version_change(u)},
            {"verified", u.verified},
            {"ops", changes_json(u.ops)},
            {"kernels", changes_json(u.kernels)},
            {"written", u.written}};
  print_json(j);
  return kOk;
}

int upgrade(const UpgradeQuestion& q) {
  set_log_level("plugin", LogLevel::kOff).ignore();  // other refused plugins do not matter here
  need(check_features(), kUsage);
  RuntimeSettings settings = as_the_environment_has_it();
  if (!q.into.empty()) settings.plugins.paths.push_back(absolute(q.into));
  Runtime runtime(settings);
  Upgrade u;
  u.after = runtime.plugins().inspect(absolute(q.file));
  if (u.after.reason == PluginReason::kNotFound)
    return fail(kUsage, fmt::format("{}: {}", q.file, u.after.detail));
  const auto refused = [&](const std::string& why) {
    return fail(kFailed, fmt::format("{} would be refused: {}; nothing was written", q.file, why));
  };
  if (u.after.state == PluginState::kRefused) return refused(why_refused(u.after));
  u.before = need(installed(runtime, q, u.after.name), kUsage);
  u.ops = changes_between({u.before.ops.begin(), u.before.ops.end()},
                          {u.after.ops.begin(), u.after.ops.end()});
  if (u.before.sha256 == u.after.sha256) return report_upgrade(u, q);
  if (!q.no_verify) {
    auto why = verify_silently(u.after.path, u.after.name);
    if (!why.ok())
      return fail(kFailed, Status(why.status())
                               .note("nothing was written; `yard verify` shows more, and "
                                     "--no-verify installs it unverified"));
    u.verified = why->empty(), u.unverified = *std::move(why);
  }
  const KeptOps keep = q.allow_incompatible ? KeptOps::kNone : KeptOps::kAll;
  if (Status s = rehearse(runtime, u, keep); !s.ok())
    return fail(kFailed,
                s.note(s.code() != Code::kConflict
                           ? "nothing was written"
                           : "nothing was written; --allow-incompatible installs it though "
                             "programs may call what is missing"));
  if (!q.dry_run) {
    need(put_in_place(runtime, u.after, u.before.path), kFailed);
    u.written = true;
  }
  return report_upgrade(u, q);
}

}  // namespace

void add_plugin_upgrade(CLI::App& plugin, Action& action) {
  const auto [c, q] = add_command<UpgradeQuestion>(
      plugin, action, "upgrade", "Replace an installed plugin by a new version", upgrade);
  c->add_option("FILE", q->file, "The new version")->required();
  add_value(*c, "--into", q->into, "PATH",
            "The file to replace, or its directory; otherwise the one that is found");
  add_feature_option(*c);
  c->add_flag("--dry-run", q->dry_run, "Check and show the changes, but write nothing");
  c->add_flag("--no-verify", q->no_verify, "Do not verify it in a separate process first");
  c->add_flag("--allow-incompatible", q->allow_incompatible,
              "Also if it lacks ops of the old version, or has them with other schemas");
}

}  // namespace yard::tool
