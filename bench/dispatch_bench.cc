// SPDX-License-Identifier: Apache-2.0
// dispatch_bench [SECONDS [THREADS]]: compares the ways to call an op with PyTorch's dispatcher in
// one process. Prints the JSON of `yard bench dispatch`, PyTorch's figures, and the ratio of each
// of our ways to PyTorch's typed call.
#include <fmt/format.h>

#include <cstdlib>

#include "bench/measure.h"
#include "torch_paths.h"

int main(int argc, char** argv) {
  using namespace yard;
  const double seconds = argc > 1 ? std::atof(argv[1]) : 5;
  const int threads = argc > 2 ? std::atoi(argv[2]) : tool::default_threads();
  if (threads < 2) {
    fmt::print(stderr, "dispatch_bench: invalid number of threads: expected 2 or more, got {}\n",
               argv[2]);
    return 2;
  }
  const tool::DispatchFigures f = tool::measure_dispatch(seconds, threads, bench::torch_paths);
  std::string json = tool::json_members(f);
  if (f.other.empty()) {
    json += ",\n  \"torch\": \"not installed\"";
  } else {
    for (const auto& r : f.other) json += fmt::format(",\n  \"{}_ns\": {:.3f}", r.key, r.ns);
    json += fmt::format(",\n  \"torch_speedup\": {:.3f}", f.other_speedup);
    for (const auto& r : f.rows)
      json += fmt::format(",\n  \"{}_over_torch_typed\": {:.3f}", r.key, r.ns / f.other[0].ns);
  }
  fmt::print("{{\n{}\n}}\n", json);
  return 0;
}
