// SPDX-License-Identifier: Apache-2.0
// Checks, loads, watches, refuses and rolls back rules from a file that changes at run time.
#include <yard/yard.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "check.h"

namespace {

namespace fs = std::filesystem;

// Writes a new file and renames it, as a deployment should.
void write(const fs::path& path, const std::string& text) {
  std::ofstream(path.string() + ".new") << text;
  fs::rename(path.string() + ".new", path);
}

void wait_for(const std::atomic<int>& count, int least) {
  while (count < least) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

}  // namespace

int main() {
  const fs::path folder = fs::temp_directory_path() / ("yard-reload-" + std::to_string(::getpid()));
  fs::create_directory(folder);
  const std::string file = folder / "serving.yaml";
  fs::copy_file(fs::path(YARD_EXAMPLES) / "serving.yaml", file);
  yard::Runtime runtime;
  yard::Options free;
  free.labels["tenant"] = "free";
  const auto chosen = [&](const char* call) { return runtime.resolve(call, free).value().kernel; };

  // [check]
  for (const yard::ConfigProblem& p : runtime.rules().check(file)) std::puts(to_string(p).c_str());
  // [/check]
  CHECK(runtime.rules().check(file).empty());

  // [load]
  runtime.rules().load(file).or_throw();  // with an error nothing changes
  CHECK(chosen("rms_norm(f32[64,4096], f32[4096])") == "reference.cpp");
  // [/load]
  CHECK(chosen("rms_norm(f32[128,4096], f32[4096])") != "reference.cpp");

  // [validate]
  runtime.rules().add_validator([](const yard::Config& c) {
    if (c.dispatch_rules.size() <= 500) return yard::Status();
    return yard::Status(yard::Code::kInvalidArgument, "we agreed on 500 rules at most");
  });
  // [/validate]

  std::atomic<int> events{0}, refused{0};
  // [watch]
  runtime.rules().on_change([&](const yard::ConfigEvent& e) {
    std::puts(to_string(e).c_str());  // reloaded, refused or rolled back, and all problems
    if (e.kind == yard::ConfigEvent::Kind::kRefused) ++refused;
    ++events;
  });
  runtime.rules().watch(file).or_throw();
  // [/watch]
  wait_for(events, 1);

  write(file, "version: '1.0'\nkernel_locks: {rms_norm: default.smid}\n");
  wait_for(events, 2);
  CHECK(refused == 1);
  write(file, "version: '1.0'\nkernel_denies: [reference.cpp]\n");
  wait_for(events, 3);
  CHECK(chosen("rms_norm(f32[64,4096], f32[4096])") != "reference.cpp");

  // [back]
  for (const yard::ConfigVersion& v : runtime.rules().history()) {
    std::printf("%llu %s %.8s%s\n", static_cast<unsigned long long>(v.number), v.source.c_str(),
                v.sha256.c_str(), v.in_force ? " (in force)" : "");
    for (const yard::ConfigChange& c : v.changes)
      std::printf("  %s: %s -> %s\n", c.path.c_str(), c.before.c_str(), c.after.c_str());
  }
  runtime.rules().roll_back(1).or_throw();
  CHECK(chosen("rms_norm(f32[64,4096], f32[4096])") == "reference.cpp");
  // [/back]
  wait_for(events, 4);

  // [stop]
  runtime.rules().unwatch();            // the rules in force stay
  runtime.rules().load("").or_throw();  // the rules are gone
  // [/stop]
  CHECK(chosen("rms_norm(f32[64,4096], f32[4096])") != "reference.cpp");
  fs::remove_all(folder);
}
