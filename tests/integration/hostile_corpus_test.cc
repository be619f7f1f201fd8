// SPDX-License-Identifier: Apache-2.0
// The whole corpus of hostile libraries and files. A file is refused with a message before any of its code runs. A
// library is refused with a message, or the child process in which it is verified finds its fault or dies of it. The other
// tests check how each is refused.
#include <elf.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yard/verify.h>

#include <cstring>
#include <iostream>
#include <random>
#include <set>
#include <sstream>

#include "plugin_files.h"

namespace yard::testing {
namespace {

// All that tests/plugins builds to be refused.
std::vector<std::string> hostile_plugins() {
  std::istringstream names(YARD_HOSTILE_PLUGINS);
  return {std::istream_iterator<std::string>(names), {}};
}

struct File {
  std::string what, bytes;
};

// Libraries that end by the alarm of the child.
bool hangs(const std::string& name) { return name.ends_with("_hang") || name.ends_with("_spin"); }

// A good library cut at each boundary of its sections, and within its headers.
void add_cuts(const std::string& good, std::vector<File>& to) {
  Elf64_Ehdr header;
  std::memcpy(&header, good.data(), sizeof header);
  std::set<size_t> cuts = {0, 1, 4, 15, 16, 63, 64, header.e_shoff, good.size() - 1};
  for (size_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, good.data() + header.e_shoff + i * sizeof section, sizeof section);
    cuts.insert(section.sh_offset);
    if (section.sh_type != SHT_NOBITS) cuts.insert(section.sh_offset + section.sh_size);
  }
  for (const size_t cut : cuts)
    if (cut < good.size()) to.push_back({"cut at " + std::to_string(cut), good.substr(0, cut)});
}

std::vector<File> hostile_files() {
  std::vector<File> to;
  add_cuts(read_file(built_plugin("answer")), to);
  add_cuts(read_file(built_plugin("behave")), to);
  std::mt19937_64 random(4711);
  for (int i = 0; i < 40; ++i) {
    std::string bytes(1 + random() % 5000, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (i % 2 == 0 && bytes.size() > 4) bytes.replace(0, 4, "\177ELF");
    to.push_back({"random bytes " + std::to_string(i), bytes});
  }
  return to;
}

// Words: a name of the catalogue, and something that a person can use.
bool in_words(const Status& s) {
  return !s.ok() && s.message().find(" is refused: ") != std::string_view::npos &&
         s.message().size() > 40 && s.message().find("unknown:") == std::string_view::npos;
}

class Corpus : public ::testing::Test {
 protected:
  RuntimeSettings settings() const {
    RuntimeSettings s = alone();
    s.plugins.state_directory = state_.path();
    return s;
  }
  // Empty if verify finds nothing wrong with a plugin that is loaded.
  static std::string found_by_verify(const Runtime& runtime, const std::string& path) {
    VerifyOptions options;
    options.plugin = path, options.cases = 40;
    const auto report = verify(runtime, options);
    if (!report.ok()) return report.status().to_string();
    for (const KernelReport& k : report->kernels)
      if (!k.failures.empty()) return k.failures[0].what;
    return {};
  }
  // In a child: loads, verifies and unloads the library, and says what was wrong.
  std::string judge(const std::string& path) const {
    Runtime runtime(settings());
    const Status s = runtime.plugins().load(path);
    if (!s.ok()) return in_words(s) ? std::string(s.message()) : "";
    std::string found = found_by_verify(runtime, path);
    runtime.plugins().unload(runtime.plugins().list()[0].name).value().wait().ignore();
    return found;
  }
  // What the child said, or "died" if it did not come to an end by itself.
  std::string judge_in_child(const std::string& path, unsigned seconds) const {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::setpgid(0, 0);
      const rlimit none = {0, 0}, memory = {uint64_t{1} << 30, uint64_t{1} << 30};
      ::setrlimit(RLIMIT_CORE, &none);
      if (YARD_SANITIZER_[0] == 'n') ::setrlimit(RLIMIT_AS, &memory);
      ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
      ::alarm(seconds);
      const std::string found = "said: " + judge(path);
      EXPECT_GT(::write(ends[1], found.data(), found.size()), 0);
      ::_exit(0);
    }
    ::close(ends[1]);
    int status = 0;
    ::waitpid(child, &status, 0);
    ::kill(-child, SIGKILL);  // what the library has started
    char text[4096];
    const ssize_t n = ::read(ends[0], text, sizeof text);
    ::close(ends[0]);
    return n > 0 && status == 0 ? std::string(text, static_cast<size_t>(n)) : "died";
  }
  Folder folder_, state_;
};

TEST_F(Corpus, EveryLibraryIsRefusedWithAMessageOrFailsInAChild) {
  size_t died = 0, verified = 0;
  const std::vector<std::string> names = hostile_plugins();
  for (const std::string& name : names) {
    const std::string found = judge_in_child(folder_.put(name), hangs(name) ? 2 : 60);
    EXPECT_NE(found, "said: ") << name << " is taken";
    died += found == "died";
    verified += found.starts_with("said: ") && found.find(" is refused: ") == found.npos;
  }
  // Most are refused in words. Wrong results, exceptions and writes of kernels are what verify is for.
  EXPECT_GE(verified, 5u);
  EXPECT_LT(died, names.size() / 2);
  std::cout << died << " died, " << verified << " were found by verify\n";
}

TEST_F(Corpus, EveryFileIsRefusedWithAMessage) {
  Runtime runtime(settings());
  for (const File& f : hostile_files()) {
    const std::string path = folder_.put_bytes(f.bytes, "hostile.so");
    const Status s = runtime.plugins().load(path);
    EXPECT_TRUE(in_words(s)) << f.what << ": " << s.message();
    EXPECT_TRUE(runtime.plugins().forget(path).ok());
  }
}

TEST_F(Corpus, HasHundredsOfCases) {
  const size_t libraries = hostile_plugins().size(), files = hostile_files().size();
  std::cout << libraries << " libraries, " << files << " files\n";
  EXPECT_GE(libraries, 100u);
  EXPECT_GE(files, 100u);
}

}  // namespace
}  // namespace yard::testing
