// SPDX-License-Identifier: Apache-2.0
// The metadata of one call, without data pointers. Selection, explanation and verification use a
// Call if they have no tensors, or if the metadata must outlive the tensors.
#pragma once

#include <functional>
#include <list>

#include "op/call_spec.h"
#include "op/program.h"

namespace yard::op {

// Immutable; copies share their arguments. Thread-safe.
class Call {
 public:
  // Fills in defaults, infers missing outputs, and checks that the call fits. `op` provides the
  // shape function, if the program needs one.
  static Result<Call> from_spec(const Program& program, const CallSpec& spec,
                                const yard_op_t* op = nullptr);

  // Copies the metadata of a call that fits. Adds YARD_CALL_ALIASED to the flags if an output is
  // exactly an input.
  static Call capture(const Program& program, const yard_value_t* args, uint32_t flags = 0,
                      Labels labels = {});

  // Tensors have facts but no data. An output that is an input is the same yard_tensor_t.
  const yard_value_t* args() const noexcept { return body_->args; }
  uint32_t count() const noexcept { return body_->count; }
  uint32_t flags() const noexcept { return body_->flags; }
  Device device() const noexcept { return body_->device; }
  const Labels& labels() const noexcept { return body_->labels; }

  // Returns the canonical spec, from which from_spec() makes an equal call. See shortest_float().
  CallSpec to_spec(const Program& program) const;

 private:
  friend class CallBuilder;
  struct Tensor {
    yard_tensor_t t{};
    int64_t dims[2 * YARD_MAX_RANK]{};
  };
  struct Body {
    yard_value_t args[YARD_MAX_ARGS]{};
    uint32_t count = 0;
    uint32_t flags = 0;
    Device device;
    Labels labels;
    // The elements of these lists do not move.
    std::list<Tensor> tensors;
    std::list<std::string> strings;
    std::vector<std::vector<const yard_tensor_t*>> lists;
  };
  explicit Call(std::shared_ptr<const Body> body) : body_(std::move(body)) {}

  std::shared_ptr<const Body> body_;
};

// Identifies a call: two calls have equal keys if their CallSpecs are equal. A key is quicker to
// make than the text. A CallKey that is set again reuses its memory.
class CallKey {
 public:
  // Sets the key of a call without its labels. `args` must fit the program.
  void set(const Program& program, const yard_value_t* args, uint32_t flags);
  // Adds other data that distinguishes calls.
  void add(uint64_t word) { words_.push_back(word); }
  void add(std::string_view text);
  void add(const Labels& labels);

  std::string_view bytes() const noexcept {
    return {reinterpret_cast<const char*>(words_.data()), words_.size() * sizeof(uint64_t)};
  }

 private:
  void add(const yard_tensor_t& t);
  std::vector<uint64_t> words_;
};

// Hashes the bytes of a CallKey. Maps can also look up a std::string.
struct CallKeyHash {
  using is_transparent = void;
  size_t operator()(std::string_view key) const noexcept {
    return std::hash<std::string_view>()(key);
  }
};

}  // namespace yard::op
