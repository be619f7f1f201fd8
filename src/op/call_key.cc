// SPDX-License-Identifier: Apache-2.0
#include "op/call_key.h"

#include <string_view>

namespace yard::op {
namespace {

constexpr uint32_t kFormFacts = 0x7fffffff;  // all but the span, which follows from the sizes

class KeyMaker {
 public:
  explicit KeyMaker(std::string& to) : to_(to) {}

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
  // Which inputs the outputs are. In the metadata of a call (op/call.h) such tensors are the same object.
  void put_aliases(const Program& program, const yard_value_t* args) {
    const auto address = [&](uint32_t i) -> uint64_t {
      const yard_value_t& v = args[i];
      if (v.tag != YARD_TAG_TENSOR) return 0;
      if (v.u.tensor->data == nullptr) return reinterpret_cast<uintptr_t>(v.u.tensor);
      return reinterpret_cast<uintptr_t>(v.u.tensor->data) + v.u.tensor->byte_offset;
    };
    for (const uint8_t out : program.outputs())
      for (uint32_t in = 0; in < program.arg_count(); ++in)
        if (program.may_alias(out, in)) put(uint64_t{address(out) == address(in)});
  }

 private:
  std::string& to_;
};

}  // namespace

void make_call_key(const Program& program, const yard_value_t* args, uint32_t flags,
                   std::string& to) {
  to.clear();
  KeyMaker key(to);
  key.put(uint64_t{flags});
  for (uint32_t i = 0; i < program.arg_count(); ++i) key.put(args[i]);
  if ((flags & YARD_CALL_ALIASED) != 0) key.put_aliases(program, args);
}

void add_to_key(const Labels& labels, std::string& to) {
  KeyMaker key(to);
  for (const auto& [name, value] : labels) key.put(name), key.put(value);
}

void add_to_key(uint64_t word, std::string& to) { KeyMaker(to).put(word); }

}  // namespace yard::op
