// SPDX-License-Identifier: Apache-2.0
// Writes metrics as JSON, and to a file.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yard/metrics.h>
#include <yard/runtime.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>

namespace yard {
namespace {

// The table guarantees that the text has no control characters and is valid UTF-8.
std::string in_quotes(std::string_view text) {
  std::string to = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') to += '\\';
    to += c;
  }
  return to + '"';
}

std::string sample_json(const MetricInfo& info, const Metric::Sample& s) {
  std::string to = R"({"labels": {)";
  for (size_t i = 0; i < s.labels.size(); ++i)
    to += fmt::format("{}{}: {}", i == 0 ? "" : ", ", in_quotes(info.labels[i]),
                      in_quotes(s.labels[i]));
  if (info.type != MetricInfo::Type::kHistogram)
    return fmt::format(R"({}}}, "value": {}}})", to, s.value);
  to += fmt::format(R"(}}, "count": {}, "sum": {}, "buckets": [)", s.count, s.value);
  for (size_t i = 0; i < s.buckets.size(); ++i)
    to += fmt::format(R"({}{{"le": {}, "count": {}}})", i == 0 ? "" : ", ", metric_bounds()[i],
                      s.buckets[i]);
  return to + "]}";
}

Status cannot_write(const std::string& path, int error) {
  return Status(Code::kNotFound, fmt::format("cannot write '{}': {}", path, std::strerror(error)));
}

// Makes a file size limit an error for this thread instead of a signal.
class WithoutSizeSignal {
 public:
  WithoutSizeSignal() noexcept {
    sigemptyset(&size_);
    sigaddset(&size_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &size_, &before_);
  }
  ~WithoutSizeSignal() {
    const timespec now{};
    if (!sigismember(&before_, SIGXFSZ)) ::sigtimedwait(&size_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSizeSignal(const WithoutSizeSignal&) = delete;
  WithoutSizeSignal& operator=(const WithoutSizeSignal&) = delete;

 private:
  sigset_t size_, before_;
};

// Returns errno of the failure, or 0 on success.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno != EINTR) return errno;
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

}  // namespace

std::string metrics_json(const std::vector<Metric>& all) {
  std::string to = R"({"metrics": [)";
  for (size_t m = 0; m < all.size(); ++m) {
    const MetricInfo& info = *all[m].info;
    to += fmt::format(R"({}{{"name": "{}", "type": "{}", "help": {}, "samples": [)",
                      m == 0 ? "" : ", ", info.name, to_string(info.type), in_quotes(info.help));
    for (size_t i = 0; i < all[m].samples.size(); ++i)
      to += (i == 0 ? "" : ", ") + sample_json(info, all[m].samples[i]);
    to += "]}";
  }
  return to + "]}";
}

Status write_metrics(const Runtime& runtime, const std::string& path, size_t max_series) {
  const Result<std::string> text = metrics_text(metrics(runtime, max_series));
  if (!text.ok()) return text.status();
  struct stat there;
  if (::lstat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode) && !S_ISLNK(there.st_mode))
    return Status(Code::kInvalidArgument,
                  fmt::format("cannot write '{}': expected a regular file", path));
  // The collector reads only files *.prom, so it ignores this name.
  std::string fresh = path + ".XXXXXX";
  const int made = ::mkostemp(fresh.data(), O_CLOEXEC);
  // Other threads may write to stdin, stdout and stderr, so the descriptor must be a higher one.
  const int fd = made < 0 ? -1 : ::fcntl(made, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (fd < 0) {
    const int why = errno;
    if (made >= 0) ::close(made), ::unlink(fresh.c_str());
    return cannot_write(path, why);
  }
  ::close(made);
  const WithoutSizeSignal no_signal;
  // Drops text that other threads wrote while the file had the descriptor of stdout or stderr.
  int error = ::ftruncate(fd, 0) != 0 || ::lseek(fd, 0, SEEK_SET) != 0 ? errno : 0;
  if (error == 0) error = write_all(fd, *text);
  ::fchmod(fd, 0644);  // the collector runs as another user
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(fresh.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return {};
  ::unlink(fresh.c_str());
  return cannot_write(path, error);
}

}  // namespace yard
