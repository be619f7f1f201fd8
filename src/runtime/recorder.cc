// SPDX-License-Identifier: Apache-2.0
// What tells calls apart while they are counted, and the text they are written as.
#include "runtime/recorder.h"

#include <cstring>

#include "op/call.h"

namespace yard::runtime {
namespace {

constexpr uint32_t kFormFacts =
    0x7fffffff;  // all but how much memory it spans, which its sizes tell

// Everything about a call that its CallSpec shows, as bytes. Quicker to make than the text.
class KeyMaker {
 public:
  explicit KeyMaker(std::string& to) : to_(to) { to_.clear(); }

  void put(uint64_t word) { to_.append(reinterpret_cast<const char*>(&word), sizeof word); }
  void put(std::string_view text) {
    put(text.size());
    to_.append(text);
  }
  void put(const yard_tensor_t& t) {
    const uint64_t facts = t.facts != 0 ? t.facts : yard_facts(&t);
    put(facts & kFormFacts);
    for (int32_t i = 0; i < t.ndim; ++i) put(static_cast<uint64_t>(t.shape[i]));
    if ((facts & YARD_FACTS_COMPACT) == 0 && t.strides != nullptr)
      for (int32_t i = 0; i < t.ndim; ++i) put(static_cast<uint64_t>(t.strides[i]));
  }
  void put(const yard_value_t& v) {
    put((static_cast<uint64_t>(v.tag) << 32) | v.count);
    switch (v.tag) {
      case YARD_TAG_NONE: return;
      case YARD_TAG_TENSOR: return put(*v.u.tensor);
      case YARD_TAG_STRING: return put(std::string_view(v.u.string, v.count));
      case YARD_TAG_LIST:
        for (uint32_t i = 0; i < v.count; ++i) put(*v.u.list[i]);
        return;
      default: return put(static_cast<uint64_t>(v.u.i));
    }
  }
  // Which inputs the outputs are.
  void put_aliases(const registry::ObservedCall& call) {
    const auto address = [&](uint32_t i) -> uint64_t {
      const yard_value_t& v = call.args[i];
      if (v.tag != YARD_TAG_TENSOR) return 0;
      return reinterpret_cast<uintptr_t>(v.u.tensor->data) + v.u.tensor->byte_offset;
    };
    for (const uint8_t out : call.program.outputs())
      for (uint32_t in = 0; in < call.program.arg_count(); ++in)
        if (call.program.may_alias(out, in)) put(uint64_t{address(out) == address(in)});
  }

 private:
  std::string& to_;
};

void make_key(uint64_t runtime, const registry::ObservedCall& call, std::string& key) {
  KeyMaker to(key);
  to.put(runtime);
  to.put((uint64_t{call.index} << 32) | call.flags);
  for (uint32_t i = 0; i < call.program.arg_count(); ++i) to.put(call.args[i]);
  if ((call.flags & YARD_CALL_ALIASED) != 0) to.put_aliases(call);
  for (const auto& [name, value] : call.labels) to.put(name), to.put(value);
}

std::atomic<uint64_t> g_last_id{0};

}  // namespace

Recorder::Recorder(std::shared_ptr<Recording> recording)
    : recording_(std::move(recording)),
      id_(g_last_id.fetch_add(1, std::memory_order_relaxed) + 1) {}

void Recorder::seen(const registry::ObservedCall& call) noexcept {
  try {
    thread_local std::string key;
    make_key(id_, call, key);
    if (recording_->count(key)) return;
    const op::Call captured = op::Call::capture(call.program, call.args, call.flags, call.labels);
    recording_->add(key, op::to_string(captured.to_spec(call.program)));
  } catch (...) {  // no memory: the call goes on
    recording_->drop();
  }
}

}  // namespace yard::runtime
