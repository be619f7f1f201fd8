// SPDX-License-Identifier: Apache-2.0
// Makes random calls of a random world.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "random_world.h"

#include <array>

#include "op/facts.h"

namespace yard::testing {
namespace {

constexpr int64_t kAllSizes[] = {0, 1, 2, 3, 4, 7, 8, 12, 16, 17, 64, 100, 128, 1000, 4096};
constexpr std::span<const int64_t> kSizes(kAllSizes);
constexpr int64_t kExtremes[] = {INT64_MIN, INT64_MIN + 1, INT64_MAX, -1};
constexpr double kFloats[] = {0, 0.5, 1, std::numeric_limits<double>::quiet_NaN()};

}  // namespace

// `spot` keeps the addresses of different arguments far apart. Nothing dereferences them.
TensorView World::tensor(const op::Param& p, size_t arg, uint64_t spot) {
  std::vector<int64_t> shape;
  for (const op::Dim& d : p.dims) {
    if (d.kind == op::Dim::Kind::kLeading)
      shape.insert(shape.end(), rows_.begin(), rows_.end());
    else
      shape.push_back((d.name == "d" ? d_ : k_) * d.number);
  }
  const DType dtype = p.variable.empty() ? p.dtype : p.variable == "T" ? t_ : u_;
  std::vector<int64_t> strides(shape.size());
  // The layouts are compact, rows with a gap, every second element, all rows the same, and the last
  // two dimensions swapped.
  const size_t form = random_.chance(75) ? 0 : 1 + random_.below(4);
  int64_t step = form == 2 ? 2 : 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
    if (form == 1 && i + 1 == shape.size()) step += random_.chance(50) ? 8 : 16;
  }
  if (form == 3 && !shape.empty() && !p.is_written()) strides[0] = 0;
  if (form == 4 && shape.size() > 1) {
    const size_t last = shape.size() - 1;
    strides[last - 1] = 1, strides[last] = std::max<int64_t>(shape[last - 1], 1);
  }
  // A dimension of size one may have any stride.
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] == 1 && random_.chance(10)) strides[i] = 77;
  const uint64_t address =
      ((arg * 64 + spot + 1) << 36) + (random_.chance(75) ? 64 : 1u << random_.below(7));
  return TensorView(reinterpret_cast<void*>(address), dtype, std::span<const int64_t>(shape),
                    std::span<const int64_t>(strides), device_);
}

RandomCall World::call() {
  RandomCall c;
  // Each world uses few sizes, so that classes repeat.
  while (sizes_.size() < 3) sizes_.push_back(random_.of(kSizes));
  const auto size = [&] {
    return random_.of(random_.chance(92) ? std::span<const int64_t>(sizes_) : kSizes);
  };
  if (rows_.size() == 1 && random_.chance(30)) {
    std::swap(rows_[0], d_);  // the same number of bytes as the previous call in another shape
  } else {
    rows_.assign(random_.chance(70) ? 1 : random_.below(3), 0);
    for (int64_t& r : rows_) r = size();
    d_ = size(), k_ = size();
    t_ = random_.chance(60) ? DType::f32 : random_.of(kTypes), u_ = random_.of(kTypes);
    device_ = random_.chance(92) ? Device{1, 0} : random_.chance(50) ? Device{1, 1} : Device{2, 0};
  }
  const auto& params = program_->schema().params;
  for (size_t i = 0; i < params.size(); ++i) {
    const op::Param& p = params[i];
    yard_value_t v{};
    if (p.optional && random_.chance(50)) {
      c.args.push_back(v);
      continue;
    }
    switch (p.kind) {
      case op::Kind::kTensor: v = Value(c.tensors.emplace_back(tensor(p, i, 0))).c(); break;
      case op::Kind::kTensorList: {
        auto& list = c.lists.emplace_back();
        for (size_t n = random_.below(3); n > 0; --n)
          list.push_back(&c.tensors.emplace_back(tensor(p, i, n)).c());
        v.tag = YARD_TAG_LIST, v.u.list = list.data(), v.count = static_cast<uint32_t>(list.size());
        break;
      }
      case op::Kind::kInt:
        v.tag = YARD_TAG_INT;
        v.u.i = random_.chance(10) ? random_.of(kExtremes) : size() - 1;
        break;
      case op::Kind::kEnum:
        v.tag = YARD_TAG_INT, v.u.i = static_cast<int64_t>(random_.below(3));
        break;
      case op::Kind::kBool: v.tag = YARD_TAG_BOOL, v.u.i = random_.chance(50) ? 1 : 0; break;
      case op::Kind::kFloat: v = Value(random_.of(kFloats)).c(); break;
      case op::Kind::kString: v = Value(c.strings.emplace_back(random_.below(12), 'a')).c(); break;
    }
    c.args.push_back(v);
  }
  if (program_->may_alias(0, 1) && random_.chance(20)) {
    const bool dense = (op::facts_of(c.args[1].u.tensor) & YARD_FACTS_PLAIN) != 0;
    if (dense) c.args[0] = c.args[1];
  }
  return c;
}

Options World::options() {
  Options o;
  o.deterministic = random_.chance(15);
  o.capturing = random_.chance(15);
  o.inference = random_.chance(30);
  if (random_.chance(5) && !present_.empty()) o.force = random_.of(present_)->id;
  if (random_.chance(10)) o.deny = {pattern()};
  if (random_.chance(10)) o.policy = policy();
  if (random_.chance(15))
    o.mode = random_.of(std::array{Mode::kAuto, Mode::kDynamic, Mode::kConfig, Mode::kStatic});
  else if (random_.chance(20))
    o.mode_name = random_.of(kWorldModes);
  if (random_.chance(15)) o.labels["tenant"] = std::to_string(random_.below(4));
  if (random_.chance(15)) o.labels["tp_size"] = random_.of(std::array{"1", "2", "08", "x"});
  return o;
}

std::string World::describe() const {
  std::string text = schema_ + "\npolicy: " + to_string(runtime_.policy()) + "\n" +
                     to_yaml(runtime_.rules().config());
  for (const RandomKernel* k : present_) {
    text += "\n" + k->id + " #" + std::to_string(k->number) + " (" + k->backend + ") flags " +
            std::to_string(k->d.flags) + " limits";
    for (const yard_limit_t& l : k->limits)
      text += " [" + std::to_string(l.kind) + " " + (l.field != nullptr ? l.field : "*") + " " +
              std::to_string(l.a) + " " + std::to_string(l.b) + "]";
    if (k->d.verify != nullptr) text += k->verify_reads.empty() ? " verifies all" : " verifies";
    for (const char* r : k->verify_reads) text += r != nullptr ? std::string(" ") + r : "";
    for (const yard_param_t& p : k->params)
      text += std::string(" (") + p.name + " " + (p.layout != nullptr ? p.layout : "") + " " +
              std::to_string(p.flags) + " " + std::to_string(p.dtypes) + " " +
              std::to_string(p.align) + " " + std::to_string(p.pad) + ")";
    if (k->d.cost != nullptr) text += " costs";
    for (const char* r : k->cost_reads) text += r != nullptr ? std::string(" ") + r : "";
  }
  return text;
}

}  // namespace yard::testing
