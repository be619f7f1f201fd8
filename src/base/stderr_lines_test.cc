// SPDX-License-Identifier: Apache-2.0
// Tests a standard error that takes nothing: a pipe, a socket and a terminal that nobody reads.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <string>

#include "base/file.h"
#include "base/log.h"
#include "base/testing_files.h"

namespace yard::base {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// Redirects standard error to `to` while it lives.
class WithStderr {
 public:
  explicit WithStderr(int to) : before_(::dup(STDERR_FILENO)) { ::dup2(to, STDERR_FILENO); }
  ~WithStderr() { ::dup2(before_.fd(), STDERR_FILENO); }
  WithStderr(const WithStderr&) = delete;
  WithStderr& operator=(const WithStderr&) = delete;

 private:
  const File before_;
};

struct Ends {
  File read, write;
};
Ends pipe_ends() {
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  return {File(ends[0]), File(ends[1])};
}
Ends socket_ends() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) std::abort();
  return {File(ends[0]), File(ends[1])};
}
Ends terminal_ends() {
  File master(::posix_openpt(O_RDWR | O_NOCTTY));
  if (!master || ::grantpt(master.fd()) != 0 || ::unlockpt(master.fd()) != 0) return {};
  File slave(::open(::ptsname(master.fd()), O_RDWR | O_NOCTTY));
  return {std::move(master), std::move(slave)};
}

// Reads everything that is available.
std::string drain(const File& from) {
  std::string to;
  char buffer[4096];
  pollfd one{from.fd(), POLLIN, 0};
  while (::poll(&one, 1, 200) > 0) {
    const ssize_t n = ::read(from.fd(), buffer, sizeof buffer);
    if (n <= 0) break;
    to.append(buffer, static_cast<size_t>(n));
  }
  return to;
}

const std::string kLine = std::string(99, 'x') + '\n';

// These tests hang if a write waits. A terminal moves bytes between its own buffers, so it may take
// more lines and a notice before anybody reads, and it may take a part of a line.
void expect_lines_are_dropped_and_counted(const Ends& ends, bool is_terminal = false) {
  const WithStderr now(ends.write.fd());
  for (int i = 0; i < 10'000; ++i) write_or_drop_lines(kLine);
  EXPECT_EQ(::fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK, 0) << "others share it";
  std::string all = drain(ends.read);
  const auto arrived = static_cast<size_t>(std::ranges::count(all, '\n'));
  EXPECT_THAT(all, HasSubstr("xxx"));
  if (!is_terminal) {
    EXPECT_THAT(all, Not(HasSubstr("dropped")));
  }
  // A terminal may need some time before it takes more.
  for (int i = 0; i < 50 && all.find("the last") == all.npos; ++i) {
    write_or_drop_lines("the last\n");
    all += drain(ends.read);
  }
  EXPECT_THAT(all, HasSubstr("the last"));
  const size_t notice = all.rfind(" lines were dropped, because standard error took no more");
  ASSERT_NE(notice, all.npos);
  const size_t count = std::stoul(all.substr(all.rfind("yard: ", notice) + 6));
  if (is_terminal) {
    EXPECT_GT(count, 0u);
    EXPECT_LE(count, 10'050u);
  } else {
    EXPECT_EQ(count, 10'000 - arrived);
  }
}

TEST(StderrLines, APipeThatNobodyReadsMakesNobodyWait) {
  expect_lines_are_dropped_and_counted(pipe_ends());
}
TEST(StderrLines, ASocketThatNobodyReadsMakesNobodyWait) {
  expect_lines_are_dropped_and_counted(socket_ends());
}
TEST(StderrLines, ATerminalThatNobodyReadsMakesNobodyWait) {
  const Ends ends = terminal_ends();
  if (!ends.write) GTEST_SKIP() << "terminals are not available here";
  expect_lines_are_dropped_and_counted(ends, true);
}

TEST(StderrLines, TheDropsAreExactOnAPipe) {
  const Ends ends = pipe_ends();
  const WithStderr now(ends.write.fd());
  for (int i = 0; i < 10'000; ++i) write_or_drop_lines(kLine);
  const size_t arrived = drain(ends.read).size();
  EXPECT_EQ(arrived % kLine.size(), 0u) << "only whole lines";
  write_or_drop_lines("the last\n");
  EXPECT_THAT(drain(ends.read),
              HasSubstr("yard: " + std::to_string(10'000 - arrived / kLine.size()) + " lines"));
}

TEST(StderrLines, SomeLinesAreWholeLines) {
  const Ends ends = pipe_ends();
  const WithStderr now(ends.write.fd());
  std::string many;
  for (int i = 0; i < 10'000; ++i) many += kLine;
  const size_t done = write_some_lines(many);
  EXPECT_GT(done, 0u);
  EXPECT_LT(done, many.size());
  EXPECT_EQ(done % kLine.size(), 0u);
  EXPECT_EQ(drain(ends.read).size(), done);
  const std::string one(10 * PIPE_BUF, 'y');  // is written in pieces
  EXPECT_EQ(write_some_lines(one), one.size());
  EXPECT_EQ(drain(ends.read), one);
}

TEST(StderrLines, AFileGetsAll) {
  const TempFolder folder;
  std::string many;
  for (int i = 0; i < 10'000; ++i) many += kLine;
  {
    const File file(::open((folder / "log").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600));
    const WithStderr now(file.fd());
    EXPECT_EQ(write_some_lines(many), many.size());
    write_or_drop_lines("the last\n");
  }
  EXPECT_THAT(*read_small_file(folder / "log", 10 << 20), EndsWith(kLine + "the last\n"));
}

TEST(StderrLines, ABrokenPipeTakesNothingAndRaisesNoSignal) {
  Ends ends = pipe_ends();
  ends.read = File();
  const WithStderr now(ends.write.fd());
  EXPECT_EQ(write_some_lines(kLine), kLine.size());
}

TEST(StderrLines, ALogMessageDoesNotWait) {
  const Ends ends = pipe_ends();
  const WithStderr now(ends.write.fd());
  for (int i = 0; i < 2'000; ++i) log_event(LogLevel::kError, "base", kLine);
  EXPECT_THAT(drain(ends.read), HasSubstr("yard.base: xxx"));
  log_event(LogLevel::kError, "base", "the last");
  EXPECT_THAT(drain(ends.read), HasSubstr("lines were dropped"));
}

}  // namespace
}  // namespace yard::base
