// SPDX-License-Identifier: Apache-2.0
// Dumps as bytes and back: see yard/verify.h.
#include <yard/verify.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/file.h"
#include "base/text.h"
#include "tune/canary_dump.h"

namespace yard {
namespace {

constexpr std::string_view kFirstLine = "yard canary dump 1";
constexpr size_t kMostLine = 64 << 10, kMostTensors = 4096;
constexpr uint64_t kMostFile = uint64_t{1} << 30;

// One line, whatever it holds.
std::string line_of(std::string_view text) {
  std::string to(text.substr(0, kMostLine / 2));
  for (char& c : to)
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = ' ';
  return std::string(base::trim(to));
}

// The lines of a dump, one after the other.
class Reader {
 public:
  Reader(std::string_view bytes, std::string_view name) : left_(bytes), name_(name) {}

  Result<CanaryDump> read() {
    std::string_view line;
    if (!next(line) || line != kFirstLine)
      return bad(
          fmt::format("this is no dump of a canary; expected '{}' as its first line", kFirstLine));
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
      return bad(fmt::format("{} is there already; expected once", base::excerpt(key)));
    CanaryMismatch& m = to_.mismatch;
    if (key == "op") return set(m.op, value);
    if (key == "kernel") return set(m.kernel, value);
    if (key == "against") return set(m.against, value);
    if (key == "call") return set(m.call, value);
    if (key == "worst") return set(m.worst, value);
    if (key == "found") return set(m.found, value);
    if (key == "expected") return set(m.expected, value);
    if (key == "error") return set(m.error, value);
    if (key == "rtol") return set(to_.rtol.emplace(), value);
    if (key == "atol") return set(to_.atol.emplace(), value);
    if (key == "when_us") return read_time(value);
    return bad(fmt::format("the key {} means nothing", base::excerpt(key)));
  }

  static Status set(std::string& to, std::string_view value) { return to = value, Status(); }
  Status set(double& to, std::string_view value) const {
    const auto v = base::number<double>(value);
    if (!v) return bad(fmt::format("{} is no number", base::excerpt(value)));
    to = *v;
    return {};
  }

  Status read_time(std::string_view value) {
    const auto us = base::number<int64_t>(value);
    // Until some time in 2112, which is more than a clock in nanoseconds has to be able to say.
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
      return bad(fmt::format("{} bytes of data; expected {}, as its lines say", left_.size(), all));
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
  const auto text = [&](const char* key, std::string_view value) {
    if (const std::string line = line_of(value); !line.empty())
      to += fmt::format("\n{}: {}", key, line);
  };
  const auto figure = [&](const char* key, double value) {
    to += fmt::format("\n{}: {}", key, base::format_double(value));
  };
  text("op", m.op), text("kernel", m.kernel), text("against", m.against);
  text("call", m.call), text("worst", m.worst);
  figure("found", m.found), figure("expected", m.expected), figure("error", m.error);
  if (dump.rtol) figure("rtol", *dump.rtol);
  if (dump.atol) figure("atol", *dump.atol);
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
  return Reader(bytes, name).read();
}

Result<CanaryDump> read_canary_dump(const std::string& path) {
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
}

}  // namespace yard
