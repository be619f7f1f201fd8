// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/testing_fork.h"

namespace yard::base {
namespace {

namespace fs = std::filesystem;

class WriteFile : public ::testing::Test {
 protected:
  WriteFile() {
    std::string name = (fs::temp_directory_path() / "yard_write_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~WriteFile() override { fs::remove_all(folder_); }
  std::string file(const char* name) const { return folder_ + "/" + name; }
  std::string read(const char* name) const {
    std::ifstream in(file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }
  std::string folder_;
};

TEST_F(WriteFile, BeyondTheFileLimitIsAnErrorAndNoSignal) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_DFL);
    const rlimit some{100, 100};
    ::setrlimit(RLIMIT_FSIZE, &some);
    const Status s = write_file(file("a"), std::string(200, 'x'));
    _exit(s.message().find(std::strerror(EFBIG)) != std::string_view::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(files(), 0u);
}

constexpr OwnFile kNote{"a note",
                        [](std::string_view start) noexcept { return start.starts_with("note:"); }};

TEST_F(WriteFile, AnOwnFileReplacesOnlyItsKindAndKeepsTheMode) {
  ASSERT_TRUE(write_own_file(file("a"), "note: 1", kNote).ok());
  ::chmod(file("a").c_str(), 0640);
  ASSERT_TRUE(can_write_own_file(file("a"), kNote).ok());
  ASSERT_TRUE(write_own_file(file("a"), "note: 2", kNote).ok());
  EXPECT_EQ(read("a"), "note: 2");
  struct stat info {};
  ::stat(file("a").c_str(), &info);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
  ASSERT_TRUE(write_file(file("other"), "precious").ok());
  for (const Status& s :
       {write_own_file(file("other"), "note: 3", kNote), can_write_own_file(file("other"), kNote)})
    EXPECT_EQ(s.message(), file("other") +
                               ": cannot be written: it is another file; expected a note or a new "
                               "file");
  EXPECT_EQ(read("other"), "precious");
  ASSERT_TRUE(write_file(file("empty"), "").ok());
  EXPECT_TRUE(write_own_file(file("empty"), "note: 4", kNote).ok());
  EXPECT_EQ(files(), 3u);
}

TEST_F(WriteFile, AnOwnFileFollowsNoLink) {
  ASSERT_TRUE(write_file(file("real"), "note: 1").ok());
  fs::create_symlink("real", file("link"));
  fs::create_symlink("none", file("dangling"));
  for (const char* name : {"link", "dangling"}) {
    for (const Status& s :
         {write_own_file(file(name), "note: 2", kNote), can_write_own_file(file(name), kNote)})
      EXPECT_THAT(s.to_string(), ::testing::HasSubstr("it is a symbolic link")) << name;
    EXPECT_TRUE(fs::is_symlink(file(name)));
  }
  EXPECT_EQ(read("real"), "note: 1");
  EXPECT_FALSE(fs::exists(file("none")));
  fs::create_symlink("/dev/null", file("null"));
  EXPECT_TRUE(write_own_file(file("null"), "note: 2", kNote).ok());
}

// In a program without stderr the next file would get descriptor 2, and the log would go there.
TEST_F(WriteFile, NoFileIsHeldBelowDescriptorThree) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int fd : {0, 1, 2}) ::close(fd);
    const auto open = [&](const char* name) {
      return ::open(file(name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    };
    const File a(open("a")), b(open("b")), c(open("c"));
    log(LogLevel::kError, "base", "a line for a stderr that is closed");
    File moved(File(open("d")));
    for (const File* f : {&a, &b, &c, static_cast<const File*>(&moved)})
      if (f->fd() <= STDERR_FILENO || ::fcntl(f->fd(), F_GETFD) != FD_CLOEXEC) _exit(1);
    for (const int fd : {0, 1, 2})
      if (::fcntl(fd, F_GETFD) >= 0) _exit(2);
    const File none(-1);
    _exit(none ? 3 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  for (const char* name : {"a", "b", "c", "d"}) EXPECT_EQ(read(name), "") << name;
}

TEST_F(WriteFile, WhatIsWrittenToAClosedStderrMeanwhileIsNotInTheFile) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::close(STDERR_FILENO);
    const auto write_often = [&](const char* name) {
      for (int i = 0; i < 500; ++i)
        if (!write_file(file(name), "text").ok() || read(name) != "text") ::_exit(1);
    };
    std::atomic<bool> done = false;
    std::thread other([&] { write_often("other"); }), logs([&] {
      while (!done) [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, "a line\n", 7);
    });
    write_often("file");
    other.join(), done = true, logs.join();
    ::_exit(::fcntl(STDERR_FILENO, F_GETFD) >= 0 ? 2 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Another user makes the path a pipe, a link and nothing by turns, if the test runs as root.
TEST_F(WriteFile, APathThatOthersAlternateReachesNoFileOfOurs) {
  fs::create_directory(file("open"));
  ASSERT_TRUE(write_file(file("precious"), "precious").ok());
  ::chmod(file("precious").c_str(), 0600);
  const bool root = ::geteuid() == 0;
  const bool device = root && ::mknod(file("device").c_str(), S_IFCHR | 0666, makedev(1, 3)) == 0;
  ::chmod(folder_.c_str(), 0711), ::chmod(file("open").c_str(), 0777);
  const std::string path = file("open/path"), next = file("open/next");
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    constexpr uid_t kNobody = 65534;
    if (root && (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)) ::_exit(1);
    for (;;) {
      ::mkfifo(next.c_str(), 0666);
      const int reader = ::open(next.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
      ::rename(next.c_str(), path.c_str());
      for (const std::string& to : {file("precious"), file("device")}) {
        if (::symlink(to.c_str(), next.c_str()) != 0) ::_exit(1);
        ::rename(next.c_str(), path.c_str());
      }
      ::unlink(path.c_str());
      ::close(reader);
    }
  }
  int written = 0;
  for (int i = 0; i < 3000; ++i) {
    written += write_own_file(path, "note: 1", kNote).ok();
    if (root) write_file(path, "text").ignore();  // follows this user's own links
  }
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_GT(written, 0);
  EXPECT_EQ(read("precious"), "precious");
  EXPECT_TRUE(!device || fs::is_character_file(file("device")));
}

TEST_F(WriteFile, LinksOfOtherUsersAreNotFollowed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make links of another user";
  ASSERT_TRUE(write_file(file("real"), "precious").ok());
  fs::create_symlink("real", file("link"));
  ASSERT_EQ(::lchown(file("link").c_str(), 65534, 65534), 0);
  EXPECT_THAT(write_file(file("link"), "text").to_string(),
              ::testing::HasSubstr("it is a symbolic link of user 65534"));
  EXPECT_EQ(read("real"), "precious");
}

TEST_F(WriteFile, AnOpenFileIsWrittenByItsDescriptor) {
  const File deleted(::open(file("deleted").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ::unlink(file("deleted").c_str());
  const std::string path = "/proc/self/fd/" + std::to_string(deleted.fd());
  for (const char* text : {"a long text", "text"}) ASSERT_TRUE(write_file(path, text).ok());
  char got[16];
  EXPECT_EQ(deleted.read_at(got, sizeof got, 0), 4);
  EXPECT_THAT(write_own_file(path, "note: 1", kNote).to_string(),
              ::testing::HasSubstr("it is a symbolic link; expected a note or a new file"));
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  EXPECT_TRUE(write_own_file("/dev/fd/" + std::to_string(ends[1]), "note: 1", kNote).ok());
  EXPECT_EQ(::read(ends[0], got, sizeof got), 7);
  ::close(ends[0]), ::close(ends[1]);
}

TEST_F(WriteFile, CanBeTriedWithoutChangingAnything) {
  EXPECT_TRUE(can_write_own_file(file("a"), kNote).ok());
  EXPECT_EQ(files(), 0u);
  ASSERT_TRUE(write_file(file("a"), "note: 1").ok());
  EXPECT_TRUE(can_write_own_file(file("a"), kNote).ok());
  EXPECT_EQ(read("a"), "note: 1");
  EXPECT_THAT(can_write_own_file(file("none/a"), kNote).to_string(),
              ::testing::HasSubstr("cannot be written: No such file or directory"));
  EXPECT_THAT(can_write_own_file(folder_, kNote).to_string(),
              ::testing::HasSubstr("Is a directory"));
}

TEST_F(WriteFile, TakesThePlaceOfWhatWasThereAndLeavesNothingElse) {
  ASSERT_TRUE(write_file(file("a"), "one").ok());
  ASSERT_TRUE(write_file(file("a"), "two, longer").ok());
  EXPECT_EQ(read("a"), "two, longer");
  ASSERT_TRUE(write_file(file("a"), "").ok());
  EXPECT_EQ(read("a"), "");
  EXPECT_EQ(files(), 1u);
}

TEST_F(WriteFile, SaysWhatIsWrongAndChangesNothing) {
  fs::create_directory(file("taken"));
  std::ofstream(file("taken") + "/inside") << "x";
  const Status s = write_file(file("taken"), "text");
  EXPECT_FALSE(s.ok());
  EXPECT_THAT(std::string(s.message()), ::testing::HasSubstr("taken: cannot be written: "));
  EXPECT_EQ(files(), 1u);
  EXPECT_FALSE(write_file(file("no/such"), "text").ok());
}

TEST_F(WriteFile, ReadersSeeTheOldOrTheNewFile) {
  const std::string a(20000, 'a'), b(30000, 'b');
  ASSERT_TRUE(write_file(file("f"), a).ok());
  std::vector<std::thread> writers;
  for (const std::string& text : {a, b})
    writers.emplace_back([&, text] {
      for (int i = 0; i < 40; ++i) write_file(file("f"), text).or_throw();
    });
  for (int i = 0; i < 200; ++i) {
    const std::string seen = read("f");
    ASSERT_TRUE(seen == a || seen == b) << seen.size();
  }
  for (std::thread& t : writers) t.join();
  EXPECT_EQ(files(), 1u);
}

TEST_F(WriteFile, FollowsLinksAndLeavesThem) {
  fs::create_directory(file("real"));
  ASSERT_TRUE(write_file(file("real/a"), "one").ok());
  fs::create_symlink("real/a", file("link"));
  fs::create_symlink(file("link"), file("second"));
  const ino_t before = [&] {
    struct stat s {};
    ::stat(file("real/a").c_str(), &s);
    return s.st_ino;
  }();
  ASSERT_TRUE(write_file(file("second"), "two").ok());
  EXPECT_TRUE(fs::is_symlink(file("link")) && fs::is_symlink(file("second")));
  EXPECT_EQ(read("real/a"), "two");
  struct stat after {};
  ASSERT_EQ(::stat(file("real/a").c_str(), &after), 0);
  EXPECT_NE(after.st_ino, before);  // the file was replaced, not written over
  // The target of this link does not exist yet.
  fs::create_symlink("real/b", file("early"));
  ASSERT_TRUE(write_file(file("early"), "three").ok());
  EXPECT_TRUE(fs::is_symlink(file("early")));
  EXPECT_EQ(read("real/b"), "three");
  EXPECT_EQ(std::distance(fs::directory_iterator(file("real")), {}), 2);
  fs::create_symlink("circle", file("circle"));
  EXPECT_THAT(write_file(file("circle"), "x").to_string(), ::testing::HasSubstr("symbolic links"));
}

TEST_F(WriteFile, WritesIntoAPipeThatStaysOne) {
  ASSERT_EQ(::mkfifo(file("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(can_write_own_file(file("pipe"), kNote).ok());
  EXPECT_THAT(write_file(file("pipe"), "lost").to_string(),
              ::testing::HasSubstr("a pipe without a reader"));
  const int reader = ::open(file("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(write_file(file("pipe"), "heard").ok());
  char buffer[16];
  EXPECT_EQ(::read(reader, buffer, sizeof buffer), 5);
  EXPECT_EQ(std::string(buffer, 5), "heard");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(file("pipe")));
  EXPECT_EQ(files(), 1u);
}

TEST_F(WriteFile, AReaderThatGoesAwayIsAnErrorAndNotTheEnd) {
  ASSERT_EQ(::mkfifo(file("pipe").c_str(), 0600), 0);
  std::string said = "accepts no data";
  // Try again if the reader did not get its turn before the writer lost patience.
  for (int i = 0; i < 5 && said.find("accepts no data") != said.npos; ++i) {
    const int reader = ::open(file("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ASSERT_GE(reader, 0);
    std::thread leaves([&] {
      char buffer[4096];
      while (::read(reader, buffer, sizeof buffer) <= 0) std::this_thread::yield();
      ::close(reader);
    });
    said = write_file(file("pipe"), std::string(4 << 20, 'x')).to_string();
    leaves.join();
  }
  EXPECT_THAT(said, ::testing::HasSubstr("Broken pipe"));
  sigset_t waiting;
  ::sigpending(&waiting);
  EXPECT_EQ(::sigismember(&waiting, SIGPIPE), 0);
}

TEST_F(WriteFile, NeverReplacesADeviceOrASocket) {
  // Use links of our own, so that a failure harms nothing on the machine.
  fs::create_symlink("/dev/full", file("full"));
  fs::create_symlink("/dev/null", file("null"));
  EXPECT_TRUE(can_write_own_file(file("full"), kNote).ok());
  EXPECT_THAT(write_file(file("full"), "x").to_string(),
              ::testing::HasSubstr("No space left on device"));
  EXPECT_TRUE(write_file(file("null"), "x").ok());
  EXPECT_TRUE(fs::is_symlink(file("full")) && fs::is_character_file(file("full")));
  EXPECT_TRUE(fs::is_symlink(file("null")) && fs::is_character_file(file("null")));
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(file("socket").size(), sizeof address.sun_path);
  file("socket").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  for (const Status& s :
       {can_write_own_file(file("socket"), kNote), write_file(file("socket"), "x")})
    EXPECT_THAT(s.to_string(), ::testing::HasSubstr("it is a socket"));
  EXPECT_TRUE(fs::is_socket(file("socket")));
  ::close(fd);
  EXPECT_EQ(files(), 3u);
}

// Opening a file of a slow disk may take long.
TEST(MakeFile, AFileThatIsSlowToOpenHoldsUpNoFork) {
  std::atomic<bool> opening{false}, open{false};
  std::thread slow([&] {
    make_file([&] {
      opening = true;
      for (int i = 0; i < 500 && !open; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return -1;
    });
    open = true;
  });
  while (!opening) std::this_thread::yield();
  EXPECT_TRUE(true_in_child([] { return true; }));
  EXPECT_FALSE(open.exchange(true));
  slow.join();
}

}  // namespace
namespace {

TEST(Digest, KnownValues) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Digest, OfAFileIsThatOfItsBytesAndLeavesItsPosition) {
  std::FILE* stream = std::tmpfile();
  ASSERT_NE(stream, nullptr);
  std::string bytes;
  for (int i = 0; i < 100000; ++i) bytes += std::to_string(i);  // more than one piece
  ASSERT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), stream), bytes.size());
  std::fflush(stream);
  const File file(::dup(::fileno(stream)));
  const off_t before = ::lseek(file.fd(), 0, SEEK_CUR);
  EXPECT_EQ(sha256(file).value(), sha256(bytes));
  EXPECT_EQ(sha256(file, bytes.size()).value(), sha256(bytes));
  EXPECT_FALSE(sha256(file, bytes.size() - 1).ok());
  EXPECT_EQ(::lseek(file.fd(), 0, SEEK_CUR), before);
  std::fclose(stream);
}

TEST(Digest, OfWhatCannotBeReadIsAnError) { EXPECT_FALSE(sha256(File()).ok()); }

TEST(Digest, IsRecognised) {
  EXPECT_TRUE(is_sha256(sha256("x")));
  EXPECT_FALSE(is_sha256(""));
  EXPECT_FALSE(is_sha256(std::string(63, 'a')));
  EXPECT_FALSE(is_sha256(std::string(64, 'A')));
}

}  // namespace
}  // namespace yard::base
