// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a canary's dump. Reading ends and names mistakes, a dump that was read
// survives writing and reading, and replaying it ends with an answer. The input also chooses an
// allocation that fails; reading may then report out_of_memory.
// Kernels of vendors are not replayed under failing allocations: oneDNN 2.7 reads freed memory
// after one of its allocations failed.
#include <yard/verify.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>

#include "base/testing_allocations.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// Skips large calls, which only take time.
bool is_small(const yard::CanaryDump& dump) {
  size_t bytes = 0;
  for (const yard::TensorBytes& t : dump.inputs) bytes += t.bytes.size();
  const auto call = yard::Runtime::shared().parse(dump.mismatch.call);
  if (!call.ok()) return true;
  for (const yard::ParsedArg& a : call->args)
    if (const auto* t = std::get_if<yard::ParsedTensor>(&a.value))
      for (size_t i = 0; i < t->shape.size(); ++i)
        if (t->shape[i] > 64 || t->strides[i] > 4096 || t->strides[i] < -4096) return false;
  return bytes < 65536;
}

// Reads and replays while allocations fail.
void fail_allocations(std::string_view bytes, yard::Code expected, bool may_replay) {
  using yard::base::FailingAllocations;
  const uint64_t n = std::hash<std::string_view>()(bytes) % 1024;
  for (const auto which : {FailingAllocations::kOne, FailingAllocations::kAllLater}) {
    yard::Code code = yard::Code::kOk;
    {
      const FailingAllocations failing(n % 64, which);
      code = yard::parse_canary_dump(bytes, "dump").status().code();
    }
    require(code == expected || code == yard::Code::kOutOfMemory);
    const auto dump = yard::parse_canary_dump(bytes, "dump");
    if (!dump.ok() || !may_replay || dump->mismatch.kernel.starts_with("vendor.")) continue;
    const FailingAllocations failing(n, which);
    const auto replay = yard::replay(yard::Runtime::shared(), *dump);
    require(replay.ok() || !replay.status().message().empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto dump = yard::parse_canary_dump(bytes, "dump");
  if (!dump.ok()) {
    require(dump.status().code() == yard::Code::kParse);
    require(dump.status().message().starts_with("dump:"));
    fail_allocations(bytes, dump.status().code(), false);
    return 0;
  }
  const std::string written = yard::to_bytes(*dump);
  const auto again = yard::parse_canary_dump(written, "dump");
  require(again.ok() && again->inputs == dump->inputs && yard::to_bytes(*again) == written);
  const bool small = is_small(*dump);
  fail_allocations(bytes, yard::Code::kOk, small);
  if (!small) return 0;
  const auto replay = yard::replay(yard::Runtime::shared(), *dump);
  require(replay.ok() || !replay.status().message().empty());
  return 0;
}
