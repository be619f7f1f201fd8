// SPDX-License-Identifier: Apache-2.0
// A separate installation in a folder: the library in lib/, a program that prints what it used in
// bin/, plugins in lib/yard/plugins. It uses nothing from the machine's installation or from the
// build.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include "plugin_files.h"

namespace yard::testing {

// Runs the program and returns its stdout, or "failed" if it does not succeed.
inline std::string output_of(const std::string& program,
                             const std::vector<std::string>& environment,
                             const std::function<bool()>& before = {}) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  std::vector<char*> variables;
  for (const std::string& v : environment) variables.push_back(const_cast<char*>(v.c_str()));
  variables.push_back(nullptr);
  char* const arguments[] = {const_cast<char*>(program.c_str()), nullptr};
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], 1);
    if (before && !before()) ::_exit(126);
    ::execve(program.c_str(), arguments, variables.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string text;
  char piece[4096];
  for (ssize_t n; (n = ::read(ends[0], piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? text : "failed: " + text;
}

struct Installation {
  explicit Installation(const Folder& folder)
      : program(folder.file("bin/program")), library(folder.file(YARD_TEST_LIBDIR)) {
    plugins = fs::canonical(folder.path()).string() + "/" YARD_TEST_LIBDIR "/yard/plugins";
    fs::create_directories(plugins), fs::create_directories(folder.file("bin"));
    fs::copy_file(YARD_OUTSIDE_PROGRAM, program);
    // There is no shared library to copy if the program links a static one.
    const fs::path shared = YARD_TEST_LIBRARY;
    if (!shared.empty()) fs::copy_file(shared, library / shared.filename());
  }
  std::string run(std::vector<std::string> environment) const {
    environment.push_back("LD_LIBRARY_PATH=" + library.string());
    return output_of(program, environment);
  }
  std::string program, plugins;
  fs::path library;
};

}  // namespace yard::testing
