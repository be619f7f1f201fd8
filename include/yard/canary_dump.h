// SPDX-License-Identifier: Apache-2.0
// The inputs of a call that a canary found wrong, as a file, and running it again.
//
//   auto dump = yard::read_canary_dump("dumps/canary-....yarddump").value();
//   auto again = yard::replay(yard::Runtime::shared(), dump).value();
//   std::puts(again.ok() ? "right now" : again.difference.worst.c_str());
//
// A file is text up to the line `data`, then the bytes of the tensors, one behind the other, in the order of their
// lines. What is read is checked; a file may come from anywhere.
#pragma once

#include <yard/call_tensors.h>
#include <yard/canary.h>
#include <yard/runtime.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yard {

struct CanaryDump {
  CanaryMismatch mismatch;           // without `dump`
  std::optional<double> rtol, atol;  // of the rule; both unset: the op's own
  std::vector<TensorBytes> inputs;   // every tensor that the call reads
};

// The file's bytes. Texts that do not fit a line are cut.
YARD_API std::string to_bytes(const CanaryDump& dump);
// Failures are Code::kParse and name what is wrong; `name` is what messages call it.
YARD_API Result<CanaryDump> parse_canary_dump(std::string_view bytes, std::string_view name);
// At most 1 GiB.
YARD_API Result<CanaryDump> read_canary_dump(const std::string& path);

struct CanaryReplay {
  std::string op, kernel, against, call;
  Status status;          // of the kernel
  Difference difference;  // only if that is OK
  std::string damage;     // what it changed that is not its own; empty: nothing
  bool ok() const noexcept { return status.ok() && damage.empty() && difference.within; }
};

// Runs the kernel of the dump, or another of the op, and the kernel that is right (the dump's, else the reference
// kernel) on the dump's inputs. Policy and health play no part. An error if that cannot be done: op or kernel are not
// known, they do not take the call, the inputs are not those of the call, the right kernel fails.
YARD_API Result<CanaryReplay> replay(const Runtime& runtime, const CanaryDump& dump,
                                     std::string_view kernel = {});

}  // namespace yard
