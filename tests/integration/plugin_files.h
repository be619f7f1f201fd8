// SPDX-License-Identifier: Apache-2.0
// Plugin files for tests: a temporary folder with copies of the plugins that tests/plugins builds.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>
#include <yard/yard.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace yard::testing {

namespace fs = std::filesystem;

inline std::string built_plugin(const std::string& name) {
  std::string path = YARD_TEST_PLUGINS;  // in pieces, because g++ 12 warns about a sum of strings
  path += '/';
  path += name;
  path += ".so";
  return path;
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Folder {
 public:
  Folder() {
    std::string path = (fs::temp_directory_path() / "yard_plugins_XXXXXX").string();
    path_ = ::mkdtemp(path.data());
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // Copies a plugin into the folder. It replaces a file of the same name by renaming, as installers
  // do.
  std::string put(const std::string& plugin, const std::string& as = {}) const {
    return put_bytes(read_file(built_plugin(plugin)), (as.empty() ? plugin : as) + ".so");
  }
  std::string put_bytes(const std::string& bytes, const std::string& name) const {
    const std::string at = file(name), beside = at + ".new";
    std::ofstream(beside, std::ios::binary) << bytes;
    fs::permissions(beside, fs::perms::owner_all);
    fs::rename(beside, at);
    return at;
  }

 private:
  std::string path_;
};

// Returns settings of a runtime that looks for plugins only in these paths.
inline RuntimeSettings alone(std::vector<std::string> paths = {}) {
  RuntimeSettings s;
  s.environment = false;
  s.plugins.installed = false;
  s.plugins.paths = std::move(paths);
  return s;
}

// Returns the answer of the plugins' op. If the call fails, returns -1 and stores the failure in
// `why`.
inline int64_t ask(Runtime& runtime, const char* op = "answer", Status* why = nullptr) {
  int64_t out = -1, x = 0;
  const TensorView view(&out, DType::i64, {1});
  Status s = runtime.call(op, {view, TensorView(&x, DType::i64, {1})});
  if (why != nullptr) *why = s;
  return s.ok() ? out : -1;
}

// Returns whether a plugin waits for the removal of this file. See tests/plugins/behave.cc.
inline bool waits_at(const std::string& gate) {
  return fs::status(gate).permissions() == fs::perms(0444);
}

inline PluginInfo info_of(const Runtime& runtime, const std::string& name) {
  PluginInfo found;
  for (const PluginInfo& p : runtime.plugins().list())
    if (p.name == name || p.path == name) found = p;
  return found;
}

}  // namespace yard::testing
