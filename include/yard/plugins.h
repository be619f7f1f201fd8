// SPDX-License-Identifier: Apache-2.0
// Plugins: shared libraries with ops, kernels, backends and hooks.
//
// Finding a plugin runs none of its code: its manifest (YARD_MANIFEST in plugin.h) lists what it serves. It is opened
// when one of its ops is first called, resolved, explained or attached, when one of its hooks is first used, or by
// load(). An invalid file is refused with a reason, and does not affect others.
//
//   runtime.plugins().discover({"/opt/acme/plugins"}).or_throw();
//   rms_norm(out, x, weight, 1e-6f).or_throw();                     // opens what serves rms_norm
//   yard::Ticket old = runtime.plugins().replace("acme").value();   // a new file is at its path: calls go on without a gap
//   old.wait().or_throw();                                          // the code of the old version is gone
//
// Replace a file by renaming another over it, as installers do, not by writing into it.
#pragma once

#include <yard/config.h>
#include <yard/registry.h>
#include <yard/status.h>

#include <functional>
#include <vector>

namespace yard {

namespace plugin {
class Loader;
}
namespace detail {
// All of the program `yard-probe`, which the library starts, but its main(): opens the library on descriptor 4, exercises
// it and says on descriptor 3 what it is about. Returns the program's exit code.
YARD_API int probe_child(int argc, char** argv);
}  // namespace detail

struct PluginSettings {
  // Absolute paths of files, or of directories with *.so files. Searched before all others.
  std::vector<std::string> paths;
  bool installed = true;                        // whether to search the installation directory
  bool allow_writable = false;                  // whether to accept what other users can write
  uint64_t max_file_bytes = uint64_t{2} << 30;  // larger files are refused before they are read
  // Only plugins in this lock file are loaded. Empty: those in the `yard.lock` files of the searched directories, or all
  // if there is none.
  std::string lock_file;
  // Paths of plugins that need no entry in lock files: `yard verify FILE` runs a plugin before it is locked.
  std::vector<std::string> unlocked;

  // When to probe plugins in a separate process. Unset: YARD_PLUGIN_PROBE, else the rule file, else never by load() and, if
  // the probe program is installed, `changed` by replace(). A probe takes some tens of milliseconds.
  std::optional<PluginProbe> probe;
  double probe_seconds = 10;
  uint64_t probe_memory = uint64_t{4} << 30;  // bytes of address space
  // Absolute path of the probe program. Empty: the `yard-probe` installed with this library.
  std::string probe_program;
  // Whether to load only plugins that passed `yard verify FILE` or were reported by remember_verified().
  bool require_verified = false;
  // Absolute path of the directory that stores results of probes and of `yard verify`. Empty: `yard` in $XDG_STATE_HOME
  // or ~/.local/state. A file that other users can write is ignored.
  std::string state_directory;

  // Called before each step of a load: "opening", "query", "start", so that a crash can be located. Must neither throw
  // nor use the runtime.
  std::function<void(std::string_view path, std::string_view step)> watch;
};

enum class PluginState {
  kFound,      // its manifest is valid; opened when it is needed
  kLoaded,     //
  kRefused,    // see `reason` and `detail`; load() and discover() try it again
  kUnloading,  // unregistered; calls in flight still use it
  kUnloaded,   // closed; load() opens it again, calls do not
  kPinned,     // unregistered, but its code cannot be removed from the process: see `detail`
};

// Why a file, a path or a plugin was refused. docs/reference/plugin_reasons.md explains each.
// clang-format off
enum class PluginReason {
  kNone = 0,
  kNotFound, kUnreadable, kRelativePath, kWritableByOthers, kTooLarge, kNotElf, kDamaged, kOtherMachine, kNotALibrary,
  kNoManifest, kBadManifest, kAbiTooNew, kAbiTooOld, kMissingFeature, kOtherSanitizer, kDuplicateName,
  kBadLockFile, kNotInLockFile, kDigestDiffers, kNotVerified, kNotProbed, kProbeFailed,
  kCannotOpen, kNoQuery, kQueryDeclined, kQueryThrew, kBadDescriptor, kManifestDiffers, kConflict, kStartFailed,
};
// clang-format on

// What a plugin can be needed for.
enum class PluginOffer { kOp, kGroup, kHook };

// "found", "loaded", ...; "not_found", "other_sanitizer", ...
YARD_API const char* to_string(PluginState state) noexcept;
YARD_API const char* to_string(PluginReason reason) noexcept;

// A library that a plugin needs, outside of the system's directories.
struct PluginLibrary {
  std::string path, sha256;
  bool operator==(const PluginLibrary&) const = default;
};

struct PluginInfo {
  std::string path;
  PluginState state = PluginState::kFound;
  PluginReason reason = PluginReason::kNone;
  std::string detail;  // also of a loaded plugin, if another file is at its path now
  // From the manifest; empty if there is none.
  std::string name, version, build, arch, sanitizer;
  uint32_t abi = 0;
  std::vector<std::string> devices, features, ops, groups, hooks;
  std::string sha256;                    // set by load() and inspect()
  std::vector<PluginLibrary> libraries;  // set by load() and inspect()
  // Stored results for that digest; set by inspect() and probe().
  std::optional<bool> probed;  // whether the last probe passed
  bool verified = false;
};

// The result of a probe in a separate process.
struct ProbeReport {
  PluginReason reason = PluginReason::kNone;  // kProbeFailed, kNotProbed, or why it was refused
  std::string detail;                         // "died of SIGSEGV in its query"
  PluginInfo info;                            // as from inspect()
  size_t kernels = 0, runs = 0;
  // Kernels that were not run because their backend or a feature is not available here, and why. That is no refusal.
  std::string unavailable;
  double seconds = 0;
  bool passed() const noexcept { return reason == PluginReason::kNone; }
};

// Writes a lock file with name, version and digest of these plugins and of the libraries they need, atomically.
YARD_API Status write_plugin_lock(const std::string& path, const std::vector<PluginInfo>& plugins);

// The plugins of one runtime; valid as long as it. All functions may be called from any thread. Inside of a plugin's
// query, start or stop, everything but list() and inspect() fails with `would_deadlock`.
class YARD_API Plugins {
 public:
  // Searches files and directories (absolute paths) before the places known so far; without any, searches those again.
  // Plugins that were unloaded stay so, unless their own file is given or has changed. Fails if an entry itself is
  // invalid; refused files of a directory are only listed. Plugins for an op or hook that is in use are loaded at once.
  // When all that is done, fails with `conflict` if the file of a loaded plugin is another one now: see replace().
  Status discover(const std::vector<std::string>& paths = {});
  // All plugins that were found or refused, in search order.
  std::vector<PluginInfo> list() const;
  // By name, or by the absolute path of a file. Succeeds if it is loaded already, and fails with `conflict` if its file is
  // another one now: see replace(). On failure nothing has changed.
  Status load(std::string_view name_or_path);
  // Opens the plugins that serve an op, a group of dispatched functions or a hook, as its first use does. Plugins that
  // cannot be opened are refused and logged.
  Status need(PluginOffer what, std::string_view name);
  // Unregisters everything of the plugin at once. The ticket is done when no call uses it, its state is destroyed and the
  // library is closed. Fails if others depend on an op or backend of it.
  Result<Ticket> unload(std::string_view name);
  // Replaces a loaded plugin by the file that is at its path now, or by that at another absolute path. The new version is
  // checked as by load(), and probed first unless probing is off or the probe program is not installed. Its registration
  // and the end of the old one's are one change: every call finds one of them. Kernels of others on its ops and backends
  // stay; an error if the new version lacks these, or has an op with another schema. If it is refused, the old version
  // stays. The old one stops when no call uses it, after the new one has started; the ticket is then done. Breakers of its
  // backend close, except those opened manually. If the file has the same digest, nothing happens.
  Result<Ticket> replace(std::string_view name, std::string_view path = {});
  // Removes it from the list, if it is not loaded.
  Status forget(std::string_view name_or_path);

  // Reads a file without running any of its code; the list does not change.
  PluginInfo inspect(std::string_view path) const;
  // The same, with the checks of load() before the file is opened: lock file, require_verified, failed probe. Other
  // plugins of the same name are ignored.
  PluginInfo would_load(std::string_view path) const;
  // Probes a file in a separate process, regardless of stored results and lock files, and stores the result. None of its
  // code runs in this process.
  ProbeReport probe(std::string_view path) const;
  // For `require_verified`.
  Status remember_verified(std::string_view sha256, bool passed = true) const;

  // For the library itself.
  plugin::Loader& loader() const noexcept { return *loader_; }

 private:
  friend class Runtime;
  explicit Plugins(plugin::Loader& loader) : loader_(&loader) {}
  plugin::Loader* loader_;
};

}  // namespace yard
