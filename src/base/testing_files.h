// SPDX-License-Identifier: Apache-2.0
// Helpers for tests with files: a temporary folder, the usual ways to write files, and waiting with
// a deadline.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "base/file.h"

namespace yard::base {

// Returns an open file without a name.
inline File file_of(std::string_view bytes) {
  File file(::memfd_create("yard-test", MFD_CLOEXEC));
  if (!file || write_all(file.fd(), bytes) != 0) std::abort();
  return file;
}

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "yard-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = std::filesystem::canonical(name);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline void write_in_place(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::trunc) << text;
}

// Replaces a file as editors and deployment tools do.
inline void replace(const std::string& path, const std::string& text) {
  write_in_place(path + ".new", text);
  std::filesystem::rename(path + ".new", path);
}

// Replaces a file as container platforms do with mounted configuration: files are links through
// `..data`, which is pointed at another folder.
inline void swap_data(const TempFolder& folder, const std::string& version, const std::string& file,
                      const std::string& text) {
  namespace fs = std::filesystem;
  fs::create_directory(folder / version);
  write_in_place(folder / (version + "/" + file), text);
  fs::remove(folder / "..data_tmp");
  fs::create_symlink(version, folder / "..data_tmp");
  fs::rename(folder / "..data_tmp", folder / "..data");
  if (!fs::is_symlink(folder / file)) fs::create_symlink("..data/" + file, folder / file);
}

// Returns false if the time is over before `is` returns true.
inline bool eventually(const std::function<bool()>& is,
                       std::chrono::milliseconds within = std::chrono::seconds(60)) {
  const auto end = std::chrono::steady_clock::now() + within;
  while (!is()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace yard::base
