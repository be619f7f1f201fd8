// SPDX-License-Identifier: Apache-2.0
#include "op/call_key.h"

#include <cstring>
#include <string_view>

namespace yard::op {
namespace {

constexpr uint32_t kFormFacts = 0x7fffffff;  // all but the span, which follows from the sizes

// Writes words into a string that has room for them.
class KeyMaker {
 public:
  KeyMaker(std::string& to, size_t room) : to_(to), used_(to.size()) { to.resize(used_ + room); }
  ~KeyMaker() { to_.resize(used_); }
  KeyMaker(const KeyMaker&) = delete;
  KeyMaker& operator=(const KeyMaker&) = delete;

  void put(uint64_t word) noexcept {
    std::memcpy(to_.data() + used_, &word, sizeof word);
    used_ += sizeof word;
  }
  static size_t room(std::string_view text) noexcept { return kWord + text.size(); }
  void put(std::string_view text) noexcept {
    put(text.size());
    std::memcpy(to_.data() + used_, text.data(), text.size());
    used_ += text.size();
  }
  static size_t room(const yard_tensor_t& t) noexcept {
    return kWord * (1 + 2 * static_cast<size_t>(t.ndim));
  }
  void put(const yard_tensor_t& t) noexcept {
    const uint64_t facts = t.facts != 0 ? t.facts : yard_facts(&t);
    put(facts & kFormFacts);
    for (int32_t i = 0; i < t.ndim; ++i) put(static_cast<uint64_t>(t.shape[i]));
    if ((facts & YARD_FACTS_COMPACT) == 0 && t.strides != nullptr)
      for (int32_t i = 0; i < t.ndim; ++i) put(static_cast<uint64_t>(t.strides[i]));
  }
  static size_t room(const yard_value_t& v) noexcept {
    size_t bytes = 2 * kWord;
    if (v.tag == YARD_TAG_TENSOR) bytes += room(*v.u.tensor);
    if (v.tag == YARD_TAG_STRING) bytes += kWord + v.count;
    if (v.tag == YARD_TAG_LIST)
      for (uint32_t i = 0; i < v.count; ++i) bytes += room(*v.u.list[i]);
    return bytes;
  }
  void put(const yard_value_t& v) noexcept {
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
  static size_t room_for_aliases(const Program& program) noexcept {
    return kWord * program.outputs().size() * program.arg_count();
  }
  void put_aliases(const Program& program, const yard_value_t* args) noexcept {
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

  static constexpr size_t kWord = sizeof(uint64_t);

 private:
  std::string& to_;
  size_t used_;
};

}  // namespace

void make_call_key(const Program& program, const yard_value_t* args, uint32_t flags,
                   std::string& to) {
  to.clear();
  const bool aliased = (flags & YARD_CALL_ALIASED) != 0;
  size_t room = KeyMaker::kWord + (aliased ? KeyMaker::room_for_aliases(program) : 0);
  for (uint32_t i = 0; i < program.arg_count(); ++i) room += KeyMaker::room(args[i]);
  KeyMaker key(to, room);
  key.put(uint64_t{flags});
  for (uint32_t i = 0; i < program.arg_count(); ++i) key.put(args[i]);
  if (aliased) key.put_aliases(program, args);
}

void add_to_key(const Labels& labels, std::string& to) {
  for (const auto& [name, value] : labels) {
    KeyMaker key(to, KeyMaker::room(name) + KeyMaker::room(value));
    key.put(std::string_view(name)), key.put(std::string_view(value));
  }
}

void add_to_key(uint64_t word, std::string& to) { KeyMaker(to, sizeof word).put(word); }

}  // namespace yard::op
