// SPDX-License-Identifier: Apache-2.0
// The ways to call an op, ours and PyTorch's, measured in turn in one process. Prints JSON.
#include <fmt/format.h>

#include <cstdlib>

#include "bench_paths.h"
#include "bench_timing.h"
#include "torch_paths.h"

int main(int argc, char** argv) {
  using namespace yard;
  const double seconds = argc > 1 ? std::atof(argv[1]) : 5;
  tool::BenchCall::prepare().or_throw();
  tool::BenchCall call;
  std::vector<tool::Path> paths = call.paths();
  for (tool::Path& p : bench::torch_paths()) paths.push_back(std::move(p));
  const std::vector<double> ns = tool::in_turn(paths, seconds);
  std::string json;
  double dynamic = 0, torch = 0;
  for (size_t i = 0; i < paths.size(); ++i) {
    json += fmt::format("  \"{}_ns\": {:.2f},\n", paths[i].key, ns[i]);
    if (std::string_view(paths[i].key) == "dynamic") dynamic = ns[i];
    if (std::string_view(paths[i].key) == "torch_typed") torch = ns[i];
  }
  json += torch > 0 ? fmt::format("  \"dynamic_over_torch_typed\": {:.3f}\n", dynamic / torch)
                    : "  \"torch\": \"not installed\"\n";
  fmt::print("{{\n{}}}\n", json);
  return 0;
}
