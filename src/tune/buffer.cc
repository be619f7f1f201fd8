// SPDX-License-Identifier: Apache-2.0
// Guarded memory: see buffer.h.
#include "tune/buffer.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

namespace yard::tune {
namespace {

constexpr size_t kLine = YARD_MAX_ALIGN;
constexpr int kAroundRead = 0xff, kAroundWritten = 0xdb;

// How many elements lie below and above the first one.
struct Reach {
  uint64_t below = 0, above = 0;
};
Reach reach(const ParsedTensor& t) {
  Reach r;
  for (size_t i = 0; i < t.shape.size(); ++i) {
    if (t.shape[i] <= 1) continue;
    const uint64_t steps = static_cast<uint64_t>(t.shape[i] - 1);
    if (t.strides[i] < 0)
      r.below += steps * static_cast<uint64_t>(-t.strides[i]);
    else
      r.above += steps * static_cast<uint64_t>(t.strides[i]);
  }
  return r;
}

bool has_elements(const ParsedTensor& t) {
  for (const int64_t d : t.shape)
    if (d == 0) return false;
  return true;
}

}  // namespace

double reach_in_bytes(const ParsedTensor& t) {
  double elements = has_elements(t) ? 1 : 0;
  for (size_t i = 0; i < t.shape.size() && elements > 0; ++i)
    elements += static_cast<double>(t.shape[i] - 1) * std::fabs(static_cast<double>(t.strides[i]));
  return elements * static_cast<double>(element_size(t.dtype));
}

void Buffer::Free::operator()(void* p) const noexcept { std::free(p); }

Buffer::Buffer(const ParsedTensor& t, bool written) {
  const size_t size = element_size(t.dtype);
  const bool empty = !has_elements(t);
  const Reach r = empty ? Reach() : reach(t);
  bytes_ = empty ? 0 : (r.below + r.above + 1) * size;
  const size_t before = (r.below * size + kLine - 1) / kLine * kLine;
  // An address with exactly the alignment asked for, never a better one.
  const size_t offset = kGuard + before + (t.align < kLine ? t.align : 0);
  const size_t behind = empty ? 0 : (r.above + 1) * size;
  room_ = (offset + behind + kGuard + kLine - 1) / kLine * kLine;
  memory_.reset(static_cast<char*>(std::aligned_alloc(kLine, room_)));
  if (memory_ == nullptr) throw std::bad_alloc();
  std::memset(memory_.get(), written ? kAroundWritten : kAroundRead, room_);
  char* data = memory_.get() + offset;
  begin_ = data - r.below * size;
  view_ = TensorView(static_cast<void*>(data), t.dtype, t.shape, t.strides, t.device);
}

void Buffer::restore() const { std::memcpy(memory_.get(), image_.data(), image_.size()); }

void Buffer::scramble(uint8_t byte) const {
  const size_t size = element_size(view_.dtype());
  for_each_element(view_, [&](char* at) { std::memset(at, byte, size); });
}

std::string Buffer::damage(bool elements) const {
  if (std::memcmp(memory_.get(), image_.data(), room_) == 0) return "";
  std::vector<char> now(memory_.get(), memory_.get() + room_);
  if (!elements) {
    const size_t size = element_size(view_.dtype());
    for_each_element(view_, [&](const char* at) {
      const auto where = static_cast<size_t>(at - memory_.get());
      std::memcpy(&now[where], &image_[where], size);
    });
  }
  size_t at = 0;
  while (at < room_ && now[at] == image_[at]) ++at;
  if (at == room_) return "";
  const auto begin = static_cast<size_t>(begin_ - memory_.get());
  if (at < begin) return fmt::format("{} bytes before its first element", begin - at);
  if (at >= begin + bytes_)
    return fmt::format("{} bytes behind its last element", at - begin - bytes_);
  return fmt::format("at byte {}{}", at - begin, elements ? "" : ", between its elements");
}

}  // namespace yard::tune
