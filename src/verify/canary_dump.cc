// SPDX-License-Identifier: Apache-2.0
// Canary dumps of yard/verify.h: their format, and a folder that keeps a bounded number of them.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/results.h"
#include "base/text.h"
#include "verify/canary.h"

namespace yard {
namespace {

constexpr std::string_view kFirstLine = "yard canary dump 1";
constexpr size_t kMostLine = 64 << 10, kMostInputs = 4096;
constexpr uint64_t kMostFile = uint64_t{1} << 30;

// The lines of a dump, in order; then come when_us and the inputs.
constexpr std::pair<std::string_view, std::string CanaryReport::Mismatch::*> kTexts[] = {
    {"op", &CanaryReport::Mismatch::op},
    {"kernel", &CanaryReport::Mismatch::kernel},
    {"against", &CanaryReport::Mismatch::against},
    {"call", &CanaryReport::Mismatch::call},
    {"worst", &CanaryReport::Mismatch::worst}};
constexpr std::pair<std::string_view, double CanaryReport::Mismatch::*> kNumbers[] = {
    {"found", &CanaryReport::Mismatch::found},
    {"expected", &CanaryReport::Mismatch::expected},
    {"error", &CanaryReport::Mismatch::error}};
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
    while (next(line) && line != "data") YARD_RETURN_IF_ERROR(read_line(line));
    if (line != "data") return bad("the line 'data' is missing, or a line is too long");
    for (const char* key : {"op", "kernel", "call"})
      if (!seen_.contains(key)) return bad(fmt::format("the line '{}: ...' is missing", key));
    const uint64_t all = std::accumulate(sizes_.begin(), sizes_.end(), uint64_t{0});
    if (all != left_.size())
      return bad(fmt::format("invalid data: expected {} bytes, got {}", all, left_.size()));
    for (size_t i = 0; i < sizes_.size(); left_.remove_prefix(sizes_[i++]))
      to_.inputs[i].bytes = left_.substr(0, sizes_[i]);
    return std::move(to_);
  }

 private:
  Status bad(std::string_view what) const {
    return Status(Code::kParse, fmt::format("{}:{}: {}", name_, line_, what));
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
    if (key != "when_us") return bad(fmt::format("unknown key {}", base::excerpt(key)));
    const auto us = base::number<int64_t>(value);
    // Up to the year 2112, so that the time fits a clock in nanoseconds.
    if (!us || *us < 0 || *us > int64_t{1} << 52)
      return bad("expected a time in microseconds since 1970");
    to_.mismatch.when += std::chrono::microseconds(*us);
    return {};
  }

  Status read_number(std::string_view value, double& to) const {
    const auto v = base::number<double>(value);
    if (!v) return bad(fmt::format("invalid number {}", base::excerpt(value)));
    to = *v;
    return {};
  }

  Status read_input(std::string_view value) {
    const size_t blank = std::min(value.find(' '), value.size());
    const auto bytes = base::number<uint64_t>(value.substr(std::min(blank + 1, value.size())));
    if (!bytes || *bytes > kMostFile) return bad("expected 'input: NAME BYTES'");
    if (sizes_.size() == kMostInputs)
      return bad(fmt::format("expected at most {} inputs", kMostInputs));
    to_.inputs.push_back({std::string(value.substr(0, blank)), {}});
    sizes_.push_back(*bytes);
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
  const CanaryReport::Mismatch& m = dump.mismatch;
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
    YARD_ASSIGN_OR_RETURN(const auto bytes, base::read_small_file(path, kMostFile));
    return DumpReader(bytes, path).read();
  });
}

}  // namespace yard

namespace yard::verification {
namespace {

namespace fs = std::filesystem;

using WallTime = std::chrono::system_clock::time_point;

// In parts, because "??-" would be a trigraph.
constexpr const char* kDumpName =
    "canary-????????"
    "-??????"
    "-???"
    "-*.yarddump";
constexpr std::string_view kTemporary = ".new.";  // after the name, while base::write_file() writes
constexpr auto kLongestWrite = std::chrono::minutes(1);
// Mismatches that are further apart belong to different incidents.
constexpr auto kIncidentGap = std::chrono::minutes(10);

// "canary-20260131-235959-123-PID-N-op-kernel.yarddump". Names sort by time.
std::string dump_name(const CanaryReport::Mismatch& m) {
  static std::atomic<unsigned> count{0};
  const auto plain = [](std::string_view text) {
    std::string to(text.substr(0, 60));
    for (char& c : to)
      if (!base::is_bare_word({&c, 1})) c = '_';
    return to;
  };
  std::string when = base::utc_text(m.when);  // 2026-01-31T23:59:59.123Z
  std::erase_if(when, [](char c) { return c == '-' || c == ':' || c == 'Z'; });
  std::ranges::replace(when, 'T', '-');
  std::ranges::replace(when, '.', '-');
  return fmt::format("canary-{}-{}-{:04}-{}-{}.yarddump", when, ::getpid(), count.fetch_add(1),
                     plain(m.op), plain(m.kernel));
}

struct DumpFile {
  std::string path;
  uint64_t bytes;
  WallTime written;  // or when a later dump of the same incident was refused
};

// The dumps of the folder, oldest first. Removes unfinished ones of processes that have ended.
std::vector<DumpFile> dumps_in(const std::string& folder) {
  std::vector<DumpFile> to;
  for (const std::string& name : base::names_in(folder)) {
    const std::string path = folder + "/" + name;
    const size_t suffix = name.rfind(kTemporary);
    struct stat info {};
    if (!glob_matches(kDumpName, std::string_view(name).substr(0, suffix)) ||
        ::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode))
      continue;
    const WallTime written = std::chrono::system_clock::from_time_t(info.st_mtime);
    if (suffix == name.npos)
      to.push_back({path, static_cast<uint64_t>(info.st_size), written});
    else if (std::chrono::system_clock::now() - written > kLongestWrite)
      ::unlink(path.c_str());
  }
  std::ranges::sort(to, {}, &DumpFile::path);
  return to;
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
  const std::vector<DumpFile> present = dumps_in(folder);
  size_t earlier = present.size();  // the number of dumps of earlier incidents
  for (WallTime end = dump.mismatch.when;
       earlier > 0 && end - present[earlier - 1].written <= kIncidentGap;)
    end = present[--earlier].written;
  uint64_t all = bytes.size();
  for (const DumpFile& f : present) all += f.bytes;
  for (size_t gone = 0; present.size() - gone >= most || all > most_bytes; ++gone) {
    if (gone == earlier) {
      // The incident goes on, although no file of it is written.
      for (size_t i = earlier; i < present.size(); ++i)
        ::utimensat(AT_FDCWD, present[i].path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
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
