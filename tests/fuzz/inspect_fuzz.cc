// SPDX-License-Identifier: Apache-2.0
// Any bytes as a request of live control: read or refused with a message, and whatever the command does, the answer is one
// line of valid JSON with the request's id. What JSON was read prints and reads back as the same.
#include <yard/runtime.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/json.h"
#include "runtime/inspect.h"

namespace {

using namespace yard;

void require(bool condition) {
  if (!condition) std::abort();
}

// A runtime that has been called, so that commands find it.
void make_runtime() {
  static Runtime* runtime = nullptr;
  if (runtime != nullptr) return;
  set_log_level(LogLevel::kOff);
  runtime = new Runtime;
  float x[4] = {1, 2, 3, 4}, out[4];
  runtime->call("softmax", {TensorView(out, DType::f32, {1, 4}), TensorView(x, DType::f32, {1, 4})})
      .or_throw();
}

void check_answer(const std::string& line, const std::string& id) {
  require(line.find('\n') == line.npos);
  const auto parsed = base::parse_json(line, {.bytes = size_t{64} << 20, .nodes = 10'000'000});
  require(parsed.ok());
  require(base::to_json(*parsed->find("id")) == id);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  make_runtime();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto json = base::parse_json(text); json.ok()) {
    const auto again = base::parse_json(base::to_json(*json));
    require(again.ok() && base::to_json(*again) == base::to_json(*json));
  } else {
    require(!json.status().message().empty());
  }
  inspect::Request request;
  const Status parsed = inspect::parse_request(text, request);
  if (!parsed.ok()) {
    check_answer(inspect::answer(request, parsed), request.id);
    return 0;
  }
  // These open files that the input names.
  if (request.command.starts_with("record") || request.command == "config.load") return 0;
  const auto result = runtime::handle_request(request, {0, 1});
  check_answer(
      result.ok() ? inspect::answer(request, *result) : inspect::answer(request, result.status()),
      request.id);
  // Back to where it began.
  inspect::Request undo;
  undo.command = "undo";
  while (runtime::handle_request(undo, {0, 1}).ok()) {
  }
  return 0;
}
