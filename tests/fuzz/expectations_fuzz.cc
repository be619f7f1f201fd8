// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a list of expectations. Reading ends, mistakes have a line number, and a list
// that was read survives writing and reading.
#include <yard/verify.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto list = yard::parse_expectations(text, "list");
  if (!list.ok()) {
    require(list.status().code() == yard::Code::kParse);
    require(list.status().message().starts_with("list:"));
    for (const std::string& note : list.status().notes()) require(note.starts_with("list:"));
    return 0;
  }
  for (const yard::Expectation& e : *list) {
    require(!e.kernel.empty() && !e.op.empty() && !e.call.empty() && !e.reason.empty());
    const bool fails = e.kind == yard::Expectation::Kind::kFails;
    const auto again =
        yard::parse_expectations(e.kernel + " " + e.op + " " + e.call + " : " +
                                     (fails ? "fails" : "unsupported") + " : " + e.reason,
                                 "list");
    require(again.ok() && again->size() == 1);
    const yard::Expectation& b = again->front();
    require(b.kernel == e.kernel && b.op == e.op && b.call == e.call && b.kind == e.kind &&
            b.reason == e.reason);
  }
  return 0;
}
