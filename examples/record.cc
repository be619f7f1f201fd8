// SPDX-License-Identifier: Apache-2.0
// Records the calls of a program for the command `yard`.
#include <yard/yard.h>

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "check.h"

inline constexpr yard::Op<void(yard::Out, yard::In)> softmax{"softmax"};

int main() {
  namespace fs = std::filesystem;
  const std::string file =
      fs::temp_directory_path() / ("yard-record-" + std::to_string(::getpid()) + ".txt");
  yard::Runtime& runtime = yard::Runtime::shared();
  std::vector<float> x(2 * 4, 1.0f), y(2 * 4);
  const yard::TensorView in = yard::view(x, {2, 4}), out = yard::view(y, {2, 4});

  // [record]
  runtime.recording().to(file).or_throw();  // a path that cannot be written is an error here
  for (int i = 0; i < 100; ++i) softmax(out, in).or_throw();
  const yard::Recording::Stats stats = runtime.recording().stats();
  std::printf("%s: %llu calls, %zu distinct\n", stats.path.c_str(),
              static_cast<unsigned long long>(stats.calls), stats.distinct);
  runtime.recording().stop().or_throw();
  // [/record]
  CHECK(stats.calls == 100 && stats.distinct == 1 && stats.dropped == 0);

  std::ifstream read(file);
  std::string line;
  while (std::getline(read, line) && line[0] == '#') {
  }
  CHECK(line.starts_with("100\tsoftmax(f32[2,4]"));
  fs::remove(file);
}
