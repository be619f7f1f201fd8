// SPDX-License-Identifier: Apache-2.0
// Runs the whole corpus of hostile libraries and files. A file is refused with a message before any
// of its code runs. A library is refused with a message, or the child process that verifies it
// finds the fault or dies of it. Other tests check the refusals one by one.
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

std::vector<std::string> hostile_plugins() {
  std::istringstream names(YARD_HOSTILE_PLUGINS);
  return {std::istream_iterator<std::string>(names), {}};
}

struct File {
  std::string what, bytes;
};

// These libraries run until the child's alarm ends them.
bool hangs(const std::string& name) { return name.ends_with("_hang") || name.ends_with("_spin"); }

// Cuts a good library at each boundary of its sections and within its headers.
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

// Returns whether the message names a reason from the catalogue and is long enough to help.
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
  // Returns what verify finds wrong with a loaded plugin, or an empty string.
  static std::string found_by_verify(const Runtime& runtime, const std::string& path) {
    VerifyOptions options;
    options.plugin = path, options.cases = 40;
    const auto report = verify(runtime, options);
    if (!report.ok()) return report.status().to_string();
    for (const KernelReport& k : report->kernels)
      if (!k.failures.empty()) return k.failures[0].what;
    return {};
  }
  // Loads, verifies and unloads the library in a child, and returns what was wrong.
  std::string judge(const std::string& path) const {
    Runtime runtime(settings());
    const Status s = runtime.plugins().load(path);
    if (!s.ok()) return in_words(s) ? std::string(s.message()) : "";
    std::string found = found_by_verify(runtime, path);
    runtime.plugins().unload(runtime.plugins().list()[0].name).value().wait().ignore();
    return found;
  }
  // Returns the answer of the child, or "died" if the child did not exit normally.
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
    ::kill(-child, SIGKILL);  // processes that the library started
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
  // Most libraries are refused with a message. Verify finds wrong results, exceptions and stray
  // writes.
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
