// SPDX-License-Identifier: Apache-2.0
// Canary dumps of yard/verify.h: their format, and a folder that keeps a bounded number of them.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/log.h"
#include "base/results.h"
#include "base/text.h"
#include "verify/canary.h"

namespace yard {
namespace {

constexpr std::string_view kFirstLine = "yard canary dump 1";
constexpr size_t kMostLine = 64 << 10, kMostTensors = 4096;
constexpr uint64_t kMostFile = uint64_t{1} << 30;

// The lines of a dump, in order; then come when_us and the inputs.
constexpr std::pair<std::string_view, std::string CanaryMismatch::*> kTexts[] = {
    {"op", &CanaryMismatch::op},
    {"kernel", &CanaryMismatch::kernel},
    {"against", &CanaryMismatch::against},
    {"call", &CanaryMismatch::call},
    {"worst", &CanaryMismatch::worst}};
constexpr std::pair<std::string_view, double CanaryMismatch::*> kNumbers[] = {
    {"found", &CanaryMismatch::found},
    {"expected", &CanaryMismatch::expected},
    {"error", &CanaryMismatch::error}};
constexpr std::pair<std::string_view, std::optional<double> CanaryDump::*> kTolerances[] = {
    {"rtol", &CanaryDump::rtol}, {"atol", &CanaryDump::atol}};

// The text with control characters replaced, cut to fit a line.
std::string line_of(std::string_view text) {
  std::string to(text.substr(0, kMostLine / 2));
  for (char& c : to)
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = ' ';
  return std::string(base::trim(to));
}

class DumpReader {
 public:
  DumpReader(std::string_view bytes, std::string_view name) : left_(bytes), name_(name) {}

  Result<CanaryDump> read() {
    std::string_view line;
    if (!next(line) || line != kFirstLine)
      return bad(fmt::format("not a canary dump: expected '{}' as the first line", kFirstLine));
    for (;;) {
      if (!next(line)) return bad("the line 'data' is missing, or a line is too long");
      if (line == "data") break;
      YARD_RETURN_IF_ERROR(read_line(line));
    }
    for (const char* key : {"op", "kernel", "call"})
      if (seen_.count(key) == 0) return bad(fmt::format("the line '{}: ...' is missing", key));
    YARD_RETURN_IF_ERROR(read_data());
    return std::move(to_);
  }

 private:
  Status bad(std::string_view what) const {
    return Status(Code::kParse, line_ == 0 ? fmt::format("{}: {}", name_, what)
                                           : fmt::format("{}:{}: {}", name_, line_, what));
  }

  bool next(std::string_view& line) {
    const size_t end = left_.substr(0, kMostLine).find('\n');
    ++line_;
    if (end == std::string_view::npos) return false;
    line = left_.substr(0, end);
    left_.remove_prefix(end + 1);
    return true;
  }

  Status read_line(std::string_view line) {
    const size_t colon = line.find(": ");
    if (colon == std::string_view::npos) return bad("expected 'KEY: VALUE' or 'data'");
    const std::string_view key = line.substr(0, colon), value = line.substr(colon + 2);
    if (value.empty() || line_of(value) != value)
      return bad("expected a value on one line, without blanks around it");
    if (key == "input") return read_input(value);
    if (!seen_.insert(std::string(key)).second)
      return bad(fmt::format("duplicate key {}", base::excerpt(key)));
    for (const auto& [name, member] : kTexts)
      if (key == name) return to_.mismatch.*member = value, Status();
    for (const auto& [name, member] : kNumbers)
      if (key == name) return read_number(value, to_.mismatch.*member);
    for (const auto& [name, member] : kTolerances)
      if (key == name) return read_number(value, (to_.*member).emplace());
    if (key == "when_us") return read_time(value);
    return bad(fmt::format("unknown key {}", base::excerpt(key)));
  }

  Status read_number(std::string_view value, double& to) const {
    const auto v = base::number<double>(value);
    if (!v) return bad(fmt::format("invalid number {}", base::excerpt(value)));
    to = *v;
    return {};
  }

  Status read_time(std::string_view value) {
    const auto us = base::number<int64_t>(value);
    // Up to the year 2112, so that the time fits a clock in nanoseconds.
    if (!us || *us < 0 || *us > int64_t{1} << 52)
      return bad("expected a time in microseconds since 1970");
    to_.mismatch.when += std::chrono::microseconds(*us);
    return {};
  }

  Status read_input(std::string_view value) {
    const size_t blank = value.find(' ');
    const auto bytes = blank == std::string_view::npos
                           ? std::nullopt
                           : base::number<uint64_t>(value.substr(blank + 1));
    if (!bytes || *bytes > kMostFile) return bad("expected 'input: NAME BYTES'");
    if (sizes_.size() >= kMostTensors)
      return bad(fmt::format("expected at most {} inputs", kMostTensors));
    to_.inputs.push_back({std::string(value.substr(0, blank)), {}});
    sizes_.push_back(*bytes);
    return {};
  }

  Status read_data() {
    uint64_t all = 0;
    for (const uint64_t n : sizes_) all += n;  // at most 4096 times 1 GiB
    line_ = 0;
    if (all != left_.size())
      return bad(fmt::format("invalid data: expected {} bytes, got {}", all, left_.size()));
    for (size_t i = 0; i < sizes_.size(); ++i) {
      to_.inputs[i].bytes = left_.substr(0, sizes_[i]);
      left_.remove_prefix(sizes_[i]);
    }
    return {};
  }

  std::string_view left_, name_;
  size_t line_ = 0;
  std::set<std::string> seen_;
  std::vector<uint64_t> sizes_;
  CanaryDump to_;
};

}  // namespace

std::string to_bytes(const CanaryDump& dump) {
  const CanaryMismatch& m = dump.mismatch;
  std::string to(kFirstLine);
  for (const auto& [name, member] : kTexts)
    if (const std::string line = line_of(m.*member); !line.empty())
      to += fmt::format("\n{}: {}", name, line);
  for (const auto& [name, member] : kNumbers)
    to += fmt::format("\n{}: {}", name, base::format_double(m.*member));
  for (const auto& [name, member] : kTolerances)
    if (dump.*member) to += fmt::format("\n{}: {}", name, base::format_double(*(dump.*member)));
  to += fmt::format(
      "\nwhen_us: {}",
      std::chrono::duration_cast<std::chrono::microseconds>(m.when.time_since_epoch()).count());
  for (const TensorBytes& t : dump.inputs)
    to += fmt::format("\ninput: {} {}", line_of(t.name), t.bytes.size());
  to += "\ndata\n";
  for (const TensorBytes& t : dump.inputs) to += t.bytes;
  return to;
}

Result<CanaryDump> parse_canary_dump(std::string_view bytes, std::string_view name) {
  return base::or_out_of_memory([&] { return DumpReader(bytes, name).read(); });
}

Result<CanaryDump> read_canary_dump(const std::string& path) {
  return base::or_out_of_memory([&]() -> Result<CanaryDump> {
    const auto bad = [&](std::string_view what) {
      return Status(Code::kNotFound, fmt::format("{}: {}", path, what));
    };
    const base::File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat info {};
    if (!file || ::fstat(file.fd(), &info) != 0)
      return bad(fmt::format("cannot be opened: {}", std::strerror(errno)));
    if (!S_ISREG(info.st_mode)) return bad("is no regular file");
    if (static_cast<uint64_t>(info.st_size) > kMostFile) return bad("has more than 1 GiB");
    std::string bytes(static_cast<size_t>(info.st_size), '\0');
    const ssize_t n = file.read_at(bytes.data(), bytes.size(), 0);
    if (n < 0) return bad(fmt::format("cannot be read: {}", std::strerror(errno)));
    bytes.resize(static_cast<size_t>(n));
    return parse_canary_dump(bytes, path);
  });
}

}  // namespace yard

namespace yard::verification {
namespace {

namespace fs = std::filesystem;

using WallTime = std::chrono::system_clock::time_point;

constexpr std::string_view kPrefix = "canary-", kSuffix = ".yarddump";
constexpr std::string_view kTemporary = ".new.";  // after the name, while base::write_file() writes
constexpr auto kLongestWrite = std::chrono::minutes(1);

// "canary-20260131-235959-123-PID-N-op-kernel.yarddump": the order of names is the order of times.
std::string dump_name(const CanaryMismatch& m) {
  static std::atomic<unsigned> count{0};
  const auto plain = [](std::string_view text) {
    std::string to(text.substr(0, 60));
    for (char& c : to)
      if (!base::is_bare_word({&c, 1})) c = '_';
    return to;
  };
  std::string when = base::utc_text(m.when);  // 2026-01-31T23:59:59.123Z
  std::erase_if(when, [](char c) { return c == '-' || c == ':' || c == 'Z'; });
  for (char& c : when)
    if (c == 'T' || c == '.') c = '-';
  return fmt::format("{}{}-{}-{:04}-{}-{}{}", kPrefix, when, ::getpid(),
                     count.fetch_add(1, std::memory_order_relaxed), plain(m.op), plain(m.kernel),
                     kSuffix);
}

bool is_dump_name(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return false;
  constexpr std::string_view kForm = "00000000-000000-000-";
  const std::string_view time = std::string_view(name).substr(kPrefix.size());
  if (time.size() < kForm.size()) return false;
  for (size_t i = 0; i < kForm.size(); ++i)
    if (kForm[i] == '-' ? time[i] != '-' : time[i] < '0' || time[i] > '9') return false;
  return true;
}

// The time in the name of a dump.
WallTime time_of(const std::string& name) {
  std::tm t{};
  int ms = 0;
  if (std::sscanf(name.c_str() + kPrefix.size(), "%4d%2d%2d-%2d%2d%2d-%3d", &t.tm_year, &t.tm_mon,
                  &t.tm_mday, &t.tm_hour, &t.tm_min, &t.tm_sec, &ms) != 7)
    return {};
  t.tm_year -= 1900, t.tm_mon -= 1;
  return std::chrono::system_clock::from_time_t(::timegm(&t)) + std::chrono::milliseconds(ms);
}

struct DumpFile {
  std::string path;
  uint64_t bytes;
  WallTime begin;  // of its mismatch
  WallTime end;    // when it was written; of the last of a full folder, when one more was refused
};

// Those of the folder, oldest first. Removes what a process that ended while it wrote a dump has left behind.
std::vector<DumpFile> dumps_in(const std::string& folder, WallTime now) {
  std::vector<DumpFile> to;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string(), path = it->path().string();
    const size_t suffix = name.rfind(kTemporary);
    const bool temporary = suffix != std::string::npos;
    struct stat info {};
    if (!is_dump_name(temporary ? name.substr(0, suffix) : name) ||
        ::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode))
      continue;
    const WallTime written = std::chrono::system_clock::from_time_t(info.st_mtime);
    if (!temporary)
      to.push_back({path, static_cast<uint64_t>(info.st_size), time_of(name), written});
    else if (now - written > kLongestWrite)
      ::unlink(path.c_str());
  }
  std::sort(to.begin(), to.end(),
            [](const DumpFile& a, const DumpFile& b) { return a.path < b.path; });
  return to;
}

// How many of the dumps, oldest first, are of earlier incidents than one that goes on at `now`.
size_t earlier_incidents(const std::vector<DumpFile>& present, WallTime now) {
  size_t first = present.size();
  for (WallTime begin = now; first > 0 && begin - present[first - 1].end <= kIncidentGap;)
    begin = present[--first].begin;
  return first;
}

}  // namespace

Result<std::string> add_dump(const std::string& folder, size_t most, const CanaryDump& dump,
                             uint64_t most_bytes) {
  const std::string bytes = to_bytes(dump);
  if (bytes.size() > most_bytes)
    return Status(
        Code::kUnsupported,
        fmt::format("a dump of {} bytes is larger than the limit of {}", bytes.size(), most_bytes));
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    return Status(Code::kNotFound,
                  fmt::format("{}: cannot be created: {}", folder, error.message()));
  const std::vector<DumpFile> present = dumps_in(folder, std::chrono::system_clock::now());
  const size_t earlier = earlier_incidents(present, dump.mismatch.when);
  uint64_t all = bytes.size();
  for (const DumpFile& f : present) all += f.bytes;
  for (size_t gone = 0; present.size() - gone >= most || all > most_bytes; ++gone) {
    if (gone == earlier) {
      // The incident goes on, although no file of it is written.
      ::utimensat(AT_FDCWD, present.back().path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
      return std::string();
    }
    if (::unlink(present[gone].path.c_str()) != 0 && errno != ENOENT)
      return Status(Code::kNotFound, fmt::format("{}: the oldest dump cannot be removed: {}",
                                                 folder, std::strerror(errno)));
    all -= present[gone].bytes;
  }
  std::string path = (fs::path(folder) / dump_name(dump.mismatch)).string();
  // Readable by the owner only: inputs may be confidential.
  YARD_RETURN_IF_ERROR(base::write_file(path, bytes, 0600));
  return path;
}

}  // namespace yard::verification
