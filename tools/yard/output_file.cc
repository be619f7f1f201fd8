// SPDX-License-Identifier: Apache-2.0
#include "output_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

namespace yard::tool {
namespace {

namespace fs = std::filesystem;
constexpr int kMostLinks = 40;

Status not_written(const std::string& path, const std::string& why) {
  return Status(Code::kNotFound,
                fmt::format("cannot write '{}'{}{}", path, why.empty() ? "" : ": ", why));
}

// The target of links, which may not exist.
fs::path real_file(fs::path path) {
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(path, error)); ++i)
    path = path.parent_path() / fs::read_symlink(path, error);
  return path;
}

}  // namespace

Status write_output(const std::string& path, const std::string& text) {
  std::error_code error;
  const fs::file_status there = fs::status(path, error);
  const bool special = fs::exists(there) && !fs::is_regular_file(there);
  if (fs::is_directory(there)) return not_written(path, "it is a directory");
  if (fs::is_block_file(there) || fs::is_socket(there))
    return not_written(path, "it is a block device or a socket; expected a file");
  const fs::path real = real_file(path);
  const std::string to = special ? path : real.string() + ".new";
  std::ofstream file(to, std::ios::binary);
  file << text;
  file.close();
  if (file && !special) fs::rename(to, real, error);
  if (file && (special || !error)) return {};
  if (!special) fs::remove(to, error);
  return not_written(path, "");
}

}  // namespace yard::tool
