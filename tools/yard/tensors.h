// SPDX-License-Identifier: Apache-2.0
// Real tensors for a call read from text: memory with the strides and alignment it names, filled with
// numbers that suit the op, and the arguments to call it by name.
#pragma once

#include <yard/call_spec.h>
#include <yard/value.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace yard::tool {

// Memory of one tensor. An image of what was filled in is kept for what a kernel may overwrite.
class Buffer {
 public:
  explicit Buffer(const ParsedTensor& tensor);
  const TensorView& view() const noexcept { return view_; }
  size_t bytes() const noexcept { return bytes_; }
  void remember() { image_.assign(begin_, begin_ + bytes_); }
  void restore() const;

 private:
  struct Free {
    void operator()(void* p) const noexcept;
  };
  std::unique_ptr<char, Free> memory_;
  char* begin_ = nullptr;  // lowest byte that an element reaches
  size_t bytes_ = 0;       // from there to behind the highest
  TensorView view_;
  std::vector<char> image_;
};

// A tensor that a kernel writes, and what to call it: "out", "outs[1]".
struct Written {
  std::string name;
  const TensorView* view;
};

class CallTensors {
 public:
  // Whether tensors for the call can be made here: on the cpu, and in memory, `copies` times.
  static Status check(const ParsedCall& call, int copies);

  // The same seed gives the same contents.
  CallTensors(ParsedCall call, uint64_t seed);
  CallTensors(const CallTensors&) = delete;
  CallTensors& operator=(const CallTensors&) = delete;

  // By name, for Runtime::call. Borrowed from this object.
  const std::vector<Arg>& args() const noexcept { return args_; }
  // Every tensor as it was before the first call.
  void restore() const;
  const std::vector<Written>& written() const noexcept { return written_; }
  // Bytes of the elements that a call reads and writes.
  uint64_t traffic() const noexcept { return traffic_; }

 private:
  Buffer& make(const ParsedArg& arg, const ParsedTensor& tensor, uint64_t seed, uint64_t indices);

  ParsedCall call_;  // arguments borrow names and strings from it
  std::deque<Buffer> buffers_;
  std::vector<Buffer*> overwritten_;
  std::deque<std::vector<TensorView>> views_;
  std::deque<TensorList> lists_;
  std::vector<Arg> args_;
  std::vector<Written> written_;
  uint64_t traffic_ = 0;
};

}  // namespace yard::tool
