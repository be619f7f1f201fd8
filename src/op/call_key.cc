// SPDX-License-Identifier: Apache-2.0
#include "op/call_key.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace yard::op {
namespace {

constexpr uint32_t kFormFacts = 0x7fffffff;  // all but the span, which follows from the sizes
constexpr size_t kWord = sizeof(uint64_t);

uint64_t word_at(const char* p, size_t bytes = kWord) noexcept {
  uint64_t w = 0;
  std::memcpy(&w, p, bytes);
  return w;
}

}  // namespace

// Writes words into a key that has room for them.
class CallKey::Writer {
 public:
  Writer(CallKey& key, size_t room) : key_(key), to_(grown(key, room) + key.used_) {}
  ~Writer() { key_.used_ = static_cast<size_t>(to_ - key_.memory_.data()); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void put(uint64_t word) noexcept {
    std::memcpy(to_, &word, sizeof word);
    to_ += sizeof word;
  }
  static size_t room(std::string_view text) noexcept { return 2 * kWord + text.size(); }
  void put(std::string_view text) noexcept {
    put(text.size());
    for (; text.size() >= kWord; text.remove_prefix(kWord)) put(word_at(text.data()));
    if (!text.empty()) put(word_at(text.data(), text.size()));
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
    if (v.tag == YARD_TAG_STRING) bytes += 2 * kWord + v.count;
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

 private:
  static char* grown(CallKey& key, size_t room) {
    if (key.memory_.size() - key.used_ < room) key.memory_.resize(key.used_ + room);
    return key.memory_.data();
  }
  CallKey& key_;
  char* to_;
};

void CallKey::set(const Program& program, const yard_value_t* args, uint32_t flags) {
  used_ = 0;
  const bool aliased = (flags & YARD_CALL_ALIASED) != 0;
  size_t room = kWord + (aliased ? Writer::room_for_aliases(program) : 0);
  for (uint32_t i = 0; i < program.arg_count(); ++i) room += Writer::room(args[i]);
  Writer to(*this, room);
  to.put(uint64_t{flags});
  for (uint32_t i = 0; i < program.arg_count(); ++i) to.put(args[i]);
  if (aliased) to.put_aliases(program, args);
}

void CallKey::add(uint64_t word) { Writer(*this, kWord).put(word); }

void CallKey::add(std::string_view text) { Writer(*this, Writer::room(text)).put(text); }

void CallKey::add(const Labels& labels) {
  for (const auto& [name, value] : labels)
    add(std::string_view(name)), add(std::string_view(value));
}

size_t CallKeyHash::operator()(std::string_view key) const noexcept {
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15u;
  uint64_t lanes[4] = {key.size(), 1, 2, 3};  // which do not wait for each other
  const auto mix = [&](uint64_t& lane, uint64_t word) {
    lane = (lane ^ word) * kFactor;
    lane ^= lane >> 32;
  };
  for (; key.size() >= sizeof lanes; key.remove_prefix(sizeof lanes))
    for (size_t i = 0; i < 4; ++i) mix(lanes[i], word_at(key.data() + i * kWord));
  for (size_t i = 0; !key.empty(); ++i) {
    const size_t n = std::min(key.size(), kWord);
    mix(lanes[i], word_at(key.data(), n));
    key.remove_prefix(n);
  }
  for (size_t i = 1; i < 4; ++i) mix(lanes[0], lanes[i]);
  return lanes[0];
}

}  // namespace yard::op
