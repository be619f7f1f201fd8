// SPDX-License-Identifier: Apache-2.0
// Plugins: shared libraries with ops, kernels, backends and functions.
//
// Finding a plugin runs none of its code: its manifest (YARD_MANIFEST in plugin.h) lists what it serves. It is opened
// when one of its ops or functions is first used, or by load(). An invalid file is refused with a reason.
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

  // Whether to load only plugins that passed `yard verify FILE` or were reported by remember_verified().
  bool require_verified = false;
  // Absolute path of the directory that stores results of `yard verify`. Empty: `yard` in $XDG_STATE_HOME
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
  kNoManifest, kBadManifest, kAbiTooNew, kAbiTooOld, kMissingFeature, kOtherSanitizer, kDuplicateName, kBusy,
  kBadLockFile, kNotInLockFile, kDigestDiffers, kNotVerified,
  kCannotOpen, kNoQuery, kQueryDeclined, kQueryThrew, kBadDescriptor, kManifestDiffers, kConflict, kStartFailed,
};
// clang-format on

// "found", "loaded", ...; "not_found", "other_sanitizer", ...
YARD_API const char* to_string(PluginState state) noexcept;
YARD_API const char* to_string(PluginReason reason) noexcept;

struct PluginInfo {
  std::string path;
  PluginState state = PluginState::kFound;
  PluginReason reason = PluginReason::kNone;
  std::string detail;
  // From the manifest; empty if there is none.
  std::string name, version, build, arch, sanitizer;
  uint32_t abi = 0;
  std::vector<std::string> devices, features, ops, groups;  // groups of functions
  std::string sha256;                                       // set by load() and inspect()
  bool verified = false;  // the stored result for that digest; set by inspect()
};

// Writes a lock file with name, version and digest of these plugins, atomically.
YARD_API Status write_plugin_lock(const std::string& path, const std::vector<PluginInfo>& plugins);

// The plugins of one runtime; valid as long as it. All functions may be called from any thread. Inside of a plugin's
// query, start or stop, everything but list() and inspect() fails with `would_deadlock`.
class YARD_API Plugins {
 public:
  // Searches files and directories (absolute paths) before the places known so far; without any, searches those again.
  // Fails if an entry itself is invalid; refused files of a directory are only listed. Plugins that were unloaded stay so,
  // unless their own file is given or has changed. Plugins for an op or group in use are loaded at once.
  Status discover(const std::vector<std::string>& paths = {});
  // All plugins that were found or refused, in search order.
  std::vector<PluginInfo> list() const;
  // By name, or by the absolute path of a file. Does nothing if it is loaded already: replace() loads a new file at its
  // path. On failure nothing has changed.
  Status load(std::string_view name_or_path);
  // Unregisters everything of the plugin at once. The ticket is done when no call uses it, its state is destroyed and the
  // library is closed. Fails if others depend on an op or backend of it.
  Result<Ticket> unload(std::string_view name);
  // Replaces a loaded plugin by the file that is at its path now, or by that at another absolute path, in one change: every
  // call finds the old or the new version. If the new one is refused, or lacks an op or backend that others depend on, the
  // old one stays. Breakers of its backend close, except those opened manually. The ticket is done when the old version has
  // stopped. If the file has the same digest, nothing happens.
  Result<Ticket> replace(std::string_view name, std::string_view path = {});
  // Removes it from the list, if it is not loaded.
  Status forget(std::string_view name_or_path);

  // Reads a file without running any of its code; the list does not change.
  PluginInfo inspect(std::string_view path) const;
  // The same, with the checks of load() before the file is opened: lock file and require_verified. Other plugins of
  // the same name are ignored.
  PluginInfo would_load(std::string_view path) const;
  // For `require_verified`.
  Status remember_verified(std::string_view sha256, bool passed = true) const;

  // States what devices other than the cpu have: "cuda:sm_90" of every cuda device, or "cuda:1:sm_90", which precedes it. A
  // number after the last '_' is a level, which satisfies lower ones. Plugins refused for lack of it are considered again.
  Status state_device_features(const std::vector<std::string>& features);

  // For the library itself.
  plugin::Loader& loader() const noexcept { return *loader_; }

 private:
  friend class Runtime;
  Plugins(const Runtime& runtime, plugin::Loader& loader) : runtime_(&runtime), loader_(&loader) {}
  const Runtime* runtime_;
  plugin::Loader* loader_;
};

}  // namespace yard
