// SPDX-License-Identifier: Apache-2.0
#include "tune/call_copy.h"

#include <fmt/format.h>

#include "op/call_spec.h"
#include "tune/rows.h"

namespace yard::tune {
namespace {

// Gives f(tensor, its name, parameter) every tensor of a call; ends when f returns false.
template <class F>
void for_each_tensor(const op::Program& program, const yard_value_t* args, const F& f) {
  for (uint32_t i = 0; i < program.arg_count(); ++i) {
    const op::Param& p = program.schema().params[i];
    if (args[i].tag == YARD_TAG_TENSOR && !f(*args[i].u.tensor, -1, p)) return;
    if (args[i].tag != YARD_TAG_LIST) continue;
    for (uint32_t k = 0; k < args[i].count; ++k)
      if (!f(*args[i].u.list[k], static_cast<int>(k), p)) return;
  }
}

std::string name_of(const op::Param& p, int item) {
  return item < 0 ? p.name : fmt::format("{}[{}]", p.name, item);
}

ParsedTensor form_of(const yard_tensor_t& t) {
  const TensorView v(t);
  ParsedTensor to;
  to.dtype = v.dtype(), to.device = v.device(), to.align = op::spec_of(t).align;
  to.shape.assign(v.shape().begin(), v.shape().end());
  to.strides.assign(v.strides().begin(), v.strides().end());
  return to;
}

}  // namespace

bool on_host(const op::Program& program, const yard_value_t* args) noexcept {
  bool host = true;
  for_each_tensor(program, args, [&](const yard_tensor_t& t, int, const op::Param&) {
    return host = t.device.type == Device{}.type;
  });
  return host;
}

double copy_bytes(const op::Program& program, const yard_value_t* args) {
  double bytes = 0;
  for_each_tensor(program, args, [&](const yard_tensor_t& t, int, const op::Param&) {
    bytes += reach_in_bytes(form_of(t));
    return true;
  });
  return bytes;
}

bool reads_finite(const op::Program& program, const yard_value_t* args) {
  bool finite = true;
  for_each_tensor(program, args, [&](const yard_tensor_t& t, int, const op::Param& p) {
    return finite = p.is_output() || all_finite(TensorView(t));
  });
  return finite;
}

bool writes_finite(const op::Program& program, const yard_value_t* args, std::string& where,
                   double& value) {
  bool finite = true;
  for_each_tensor(program, args, [&](const yard_tensor_t& t, int item, const op::Param& p) {
    if (!p.is_written() || all_finite(TensorView(t))) return true;
    const NotFinite first = first_not_finite(TensorView(t));
    where = fmt::format("{}[{}]", name_of(p, item), fmt::join(first.index, ","));
    value = first.value;
    return finite = false;
  });
  return finite;
}

CallCopy::Copied::Copied(const yard_tensor_t& t, std::string n, const op::Param& p)
    : original(t),
      buffer(form_of(t), p.is_written()),
      name(std::move(n)),
      read(!p.is_output()),
      written(p.is_written()) {
  if (read) copy_elements(original, buffer.view());
}

const yard_tensor_t* CallCopy::hold(const yard_tensor_t& t, std::string name,
                                    const op::Param& param) {
  return &held_.emplace_back(t, std::move(name), param).buffer.view().c();
}

CallCopy::CallCopy(const op::Program& program, const yard_value_t* args, bool outputs)
    : count_(program.arg_count()) {
  for (uint32_t i = 0; i < count_; ++i) {
    const op::Param& p = program.schema().params[i];
    if (p.is_output() && !outputs) continue;
    args_[i] = args[i];
    if (args[i].tag == YARD_TAG_TENSOR) args_[i].u.tensor = hold(*args[i].u.tensor, p.name, p);
    if (args[i].tag != YARD_TAG_LIST) continue;
    auto& list = lists_.emplace_back();
    for (uint32_t k = 0; k < args[i].count; ++k)
      list.push_back(hold(*args[i].u.list[k], name_of(p, static_cast<int>(k)), p));
    args_[i].u.list = list.data();
  }
}

void CallCopy::remember() {
  for (Copied& h : held_)
    if (h.read && h.written) h.buffer.remember(), h.remembered = true;
}

std::vector<TensorBytes> CallCopy::inputs() const {
  std::vector<TensorBytes> to;
  for (const Copied& h : held_) {
    if (!h.read) continue;
    if (h.remembered) h.buffer.restore();
    to.push_back({h.name, packed_elements(h.buffer.view())});
  }
  return to;
}

std::vector<WrittenTensor> CallCopy::original() const {
  std::vector<WrittenTensor> to;
  for (const Copied& h : held_)
    if (h.written) to.push_back({h.name, &h.original});
  return to;
}

std::vector<WrittenTensor> CallCopy::copied() const {
  std::vector<WrittenTensor> to;
  for (const Copied& h : held_)
    if (h.written) to.push_back({h.name, &h.buffer.view()});
  return to;
}

void CallCopy::write_back() const {
  for (const Copied& h : held_)
    if (h.written) copy_elements(h.buffer.view(), h.original);
}

}  // namespace yard::tune
