// SPDX-License-Identifier: Apache-2.0
// Reads a schema directly, independently of its compiled form, for tests of the check.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "op/overlap.h"
#include "op/schema.h"
#include "op/steps.h"

namespace yard::op {

// Decides from the schema alone whether a call fits. The reference for the compiled check.
class SchemaOracle {
 public:
  SchemaOracle(const Schema& s, const std::vector<yard_value_t>& args) : s_(s), args_(args) {}

  bool fits() {
    if (args_.size() != s_.params.size()) return false;
    for (size_t i = 0; i < args_.size(); ++i)
      if (!value_fits(s_.params[i], args_[i])) return false;
    if (!readable_on_one_device()) return false;
    for (const bool broadcast : {false, true})
      for (size_t i = 0; i < args_.size(); ++i)
        for (const yard_tensor_t* t : tensors_of(args_[i]))
          if (!tensor_fits(s_.params[i], *t, broadcast)) return false;
    return std::all_of(s_.clauses.begin(), s_.clauses.end(),
                       [&](const Clause& c) { return clause_fits(c); }) &&
           memory_fits();
  }

 private:
  bool value_fits(const Param& p, const yard_value_t& v) {
    if (v.tag == YARD_TAG_NONE) return p.optional;
    switch (p.kind) {
      case Kind::kTensor: return v.tag == YARD_TAG_TENSOR && v.u.tensor != nullptr;
      case Kind::kTensorList:
        return v.tag == YARD_TAG_LIST && (v.count == 0 || v.u.list != nullptr) &&
               std::count(v.u.list, v.u.list + v.count, nullptr) == 0;
      case Kind::kFloat: return v.tag == YARD_TAG_FLOAT;
      case Kind::kBool: return v.tag == YARD_TAG_BOOL;
      case Kind::kString: return v.tag == YARD_TAG_STRING && (v.count == 0 || v.u.string);
      case Kind::kInt: return v.tag == YARD_TAG_INT && same(numbers_, p.name, v.u.i);
      case Kind::kEnum:
        return v.tag == YARD_TAG_INT && v.u.i >= 0 &&
               v.u.i < static_cast<int64_t>(p.enumerators.size());
    }
    return false;
  }

  bool readable_on_one_device() const {
    const yard_tensor_t* first = nullptr;
    for (const yard_value_t& v : args_)
      for (const yard_tensor_t* t : tensors_of(v)) {
        if (first == nullptr) first = t;
        if (t->facts == 0 || t->device.type != first->device.type ||
            t->device.index != first->device.index)
          return false;
      }
    return true;
  }

  template <class T>
  static bool same(std::map<std::string, T>& known, const std::string& name, const T& value) {
    return known.try_emplace(name, value).first->second == value;
  }

  // Names get their values from dimensions that do not broadcast, in a first pass.
  bool tensor_fits(const Param& p, const yard_tensor_t& t, bool broadcast) {
    const DType dtype = from_dlpack(t.dtype);
    if (p.variable.empty() ? dtype != p.dtype : !same(variables_, p.variable, dtype)) return false;
    const auto rank = static_cast<size_t>(t.ndim);
    if (p.has_leading() ? rank < p.trailing() : rank != p.trailing()) return false;
    for (size_t k = 0; k < p.dims.size(); ++k) {
      const Dim& d = p.dims[k];
      if (d.kind == Dim::Kind::kAny || d.broadcast != broadcast) continue;
      if (d.kind == Dim::Kind::kLeading) {
        const std::vector<int64_t> dims(t.shape, t.shape + (rank - p.trailing()));
        if (broadcast ? !broadcasts(dims, groups_.at(d.name)) : !same(groups_, d.name, dims))
          return false;
        continue;
      }
      const int64_t size = t.shape[rank - p.dims.size() + k];
      if (d.kind == Dim::Kind::kConstant && size != d.number) return false;
      if (d.kind != Dim::Kind::kNamed || (broadcast && size == 1)) continue;
      if (broadcast ? numbers_.at(d.name) * d.number != size
                    : size % d.number != 0 || !same(numbers_, d.name, size / d.number))
        return false;
    }
    return true;
  }

  static bool broadcasts(std::vector<int64_t> dims, const std::vector<int64_t>& to) {
    if (dims.size() > to.size()) return false;
    dims.insert(dims.begin(), to.size() - dims.size(), 1);
    for (size_t i = 0; i < to.size(); ++i)
      if (dims[i] != 1 && dims[i] != to[i]) return false;
    return true;
  }

  bool given(const std::string& param) const {
    return args_[static_cast<size_t>(s_.index_of(param))].tag != YARD_TAG_NONE;
  }

  // Returns a term's value, or nullopt if its name has none in this call.
  std::optional<int64_t> value(const Term& t) const {
    if (t.name.empty()) return t.number;
    if (const auto n = numbers_.find(t.name); n != numbers_.end()) return t.number * n->second;
    const auto g = groups_.find(t.name);
    if (g == groups_.end()) return std::nullopt;
    int64_t product = t.number;
    for (const int64_t n : g->second) product *= n;
    return product;
  }

  bool clause_fits(const Clause& c) const {
    if (c.guard != Clause::Guard::kNone && given(c.guard_param) != (c.guard == Clause::Guard::kIf))
      return true;
    switch (c.kind) {
      case Clause::Kind::kElements:
      case Clause::Kind::kMayAlias: return true;
      case Clause::Kind::kIff: return given(c.left.name) == given(c.right.name);
      case Clause::Kind::kOr: return given(c.left.name) || given(c.right.name);
      case Clause::Kind::kDTypes: {
        const auto v = variables_.find(c.left.name);
        return v == variables_.end() ||
               std::count(c.dtypes.begin(), c.dtypes.end(), v->second) != 0;
      }
      case Clause::Kind::kIffDTypes: {
        const auto v = variables_.find(c.right.name);
        if (v == variables_.end()) return true;
        const bool listed = std::count(c.dtypes.begin(), c.dtypes.end(), v->second) != 0;
        return listed ? given(c.left.name) : !given(c.left.name);
      }
      case Clause::Kind::kFloat:
        return holds(args_[static_cast<size_t>(s_.index_of(c.left.name))].u.f, c.compare, c.bound);
      default: break;
    }
    const std::optional<int64_t> a = value(c.left), b = value(c.right);
    if (!a || !b) return true;
    if (c.kind == Clause::Kind::kMultiple) return *b == 0 ? *a == 0 : *a % *b == 0;
    return holds(*a, c.compare, *b);
  }

  template <class Number>
  static bool holds(Number a, Compare c, Number b) {
    switch (c) {
      case Compare::kEq: return a == b;
      case Compare::kNe: return a != b;
      case Compare::kLt: return a < b;
      case Compare::kLe: return a <= b;
      case Compare::kGt: return a > b;
      default: return a >= b;
    }
  }

  bool may_alias(const Param& output, const Param& input) const {
    return std::any_of(s_.clauses.begin(), s_.clauses.end(), [&](const Clause& c) {
      return c.kind == Clause::Kind::kMayAlias && c.left.name == output.name &&
             c.right.name == input.name;
    });
  }

  bool memory_fits() const {
    for (size_t w = 0; w < args_.size(); ++w) {
      const auto written = tensors_of(args_[w]);
      if (!s_.params[w].is_written()) continue;
      if (std::any_of(written.begin(), written.end(),
                      [](const yard_tensor_t* t) { return overlaps_itself(*t); }))
        return false;
      for (size_t o = 0; o < args_.size(); ++o) {
        const auto others = tensors_of(args_[o]);
        const bool allowed = may_alias(s_.params[w], s_.params[o]);
        for (size_t i = 0; i < written.size(); ++i)
          for (size_t k = 0; k < others.size(); ++k) {
            if (w == o && i == k) continue;
            const Overlap found = overlap(*written[i], *others[k]);
            if (found == Overlap::kPartial || (found == Overlap::kSame && !allowed)) return false;
          }
      }
    }
    return true;
  }

  const Schema& s_;
  const std::vector<yard_value_t>& args_;
  std::map<std::string, int64_t> numbers_;
  std::map<std::string, std::vector<int64_t>> groups_;
  std::map<std::string, DType> variables_;
};

}  // namespace yard::op
