// SPDX-License-Identifier: Apache-2.0
// Calls of an op, made from its schema alone: every dtype, size, stride, optional, enumerator and flag it
// allows comes up, edges often. The same seed gives the same calls.
//
// Each choice has a deck of its own (deck.h), so that all its values come up within few calls and meet
// those of other choices at random.
#pragma once

#include <yard/call_spec.h>
#include <yard/plugin.h>

#include <optional>
#include <string>

#include "op/call.h"
#include "tune/deck.h"
#include "tune/layouts.h"
#include "tune/sizes.h"

namespace yard::tune {

// A call and what its tensors hold.
struct Case {
  op::Call call;
  Contents contents = Contents::kNormal;
  uint64_t seed = 0;  // of the contents
};

class Generator {
 public:
  // `program` and `op` must outlive it; `op` brings the shape function where one is needed.
  Generator(const op::Program& program, const yard_op_t* op, uint64_t seed, int64_t max_elements);

  // Nothing when many attempts in a row made no call that fits.
  std::optional<Case> next();

 private:
  std::optional<op::Call> attempt();
  void choose_types();
  std::vector<int64_t> shape(const op::Param& param, const Draft& draft);
  // Nothing where a dimension is left to the op's shape function.
  std::optional<op::SpecValue> tensors(const op::Param& param, const Draft& draft);
  std::optional<op::SpecValue> scalar(const op::Param& param, const Draft& draft);
  // The outputs that are left to inference, written out, so that they can be laid out, too.
  void complete(op::CallSpec& spec, const op::Call& call) const;
  void lay_out(op::CallSpec& spec);
  void alias(op::CallSpec& spec);

  const op::Program& program_;
  const op::Schema& s_;
  const yard_op_t* op_;
  Random random_;
  Sizes sizes_;
  Layouts layouts_;
  std::map<std::string, Deck<DType>> types_;
  std::map<std::string, DType> chosen_types_;
  std::map<std::string, Deck<int>> scalars_;  // by parameter
  std::map<const op::Clause*, Deck<char>> aliases_;
  Deck<uint32_t> flags_;
  Deck<Contents> contents_;
};

}  // namespace yard::tune
