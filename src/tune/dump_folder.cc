// SPDX-License-Identifier: Apache-2.0
// Dumps in a folder: see tune/canary_dump.h.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <vector>

#include "base/text.h"
#include "base/utc_time.h"
#include "base/write_file.h"
#include "tune/canary_dump.h"

namespace yard::tune {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "canary-", kSuffix = ".yarddump";

// "canary-20260131-235959-123-PID-N-op-kernel.yarddump": names in order are times in order.
std::string folder_name(const CanaryMismatch& m) {
  static std::atomic<unsigned> count{0};
  const auto plain = [](std::string_view text) {
    std::string to(text.substr(0, 60));
    for (char& c : to)
      if (!base::is_bare_word({&c, 1})) c = '_';
    return to;
  };
  const base::UtcTime t(m.when);
  return fmt::format("{}{:04}{:02}{:02}-{:02}{:02}{:02}-{:03}-{}-{:04}-{}-{}{}", kPrefix, t.year,
                     t.month, t.day, t.hour, t.minute, t.second, t.millisecond, ::getpid(),
                     count.fetch_add(1, std::memory_order_relaxed), plain(m.op), plain(m.kernel),
                     kSuffix);
}

bool is_ours(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return false;
  constexpr std::string_view kForm = "00000000-000000-000-";
  const std::string_view time = std::string_view(name).substr(kPrefix.size());
  if (time.size() < kForm.size()) return false;
  for (size_t i = 0; i < kForm.size(); ++i)
    if (kForm[i] == '-' ? time[i] != '-' : time[i] < '0' || time[i] > '9') return false;
  return true;
}

struct Ours {
  std::string name;
  uint64_t bytes;
};

// Oldest first.
std::vector<Ours> ours_in(const std::string& folder) {
  std::vector<Ours> to;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    const std::string name = it->path().filename().string();
    if (!is_ours(name) || !fs::is_regular_file(it->symlink_status(gone))) continue;
    const auto bytes = it->file_size(gone);
    if (!gone) to.push_back({name, bytes});
  }
  std::sort(to.begin(), to.end(), [](const Ours& a, const Ours& b) { return a.name < b.name; });
  return to;
}

}  // namespace

Result<std::string> add_dump(const std::string& folder, size_t most, const CanaryDump& dump,
                             uint64_t most_bytes) {
  const std::string bytes = to_bytes(dump);
  if (bytes.size() > most_bytes)
    return Status(Code::kUnsupported,
                  fmt::format("a dump of {} bytes is larger than all dumps may be", bytes.size()));
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    return Status(Code::kNotFound, fmt::format("{}: cannot be made: {}", folder, error.message()));
  std::vector<Ours> there = ours_in(folder);
  uint64_t all = bytes.size();
  for (const Ours& o : there) all += o.bytes;
  size_t gone = 0;
  for (; gone < there.size() && (there.size() - gone >= most || all > most_bytes); ++gone) {
    fs::remove(fs::path(folder) / there[gone].name, error);
    if (error)
      return Status(Code::kNotFound, fmt::format("{}: the oldest dump cannot be removed: {}",
                                                 folder, error.message()));
    all -= there[gone].bytes;
  }
  std::string path = (fs::path(folder) / folder_name(dump.mismatch)).string();
  // What a program computes with is not for everybody.
  YARD_RETURN_IF_ERROR(base::write_file(path, bytes, 0600));
  return path;
}

}  // namespace yard::tune
