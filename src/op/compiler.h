// SPDX-License-Identifier: Apache-2.0
// From a schema to a Program: which tensor leads, what lanes cover, and steps for the rest. Internal to
// src/op.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "op/program.h"
#include "op/program_cold.h"

namespace yard::op {

// Compiles one schema that has been checked.
class Compiler {
 public:
  explicit Compiler(Schema s) : s_(std::move(s)) {}
  Program run();

 private:
  const Param& param(size_t i) const { return s_.params[i]; }
  size_t count() const { return s_.params.size(); }
  bool in_lane(size_t i) const { return lane_of_[i] >= 0; }
  bool is_lead(size_t i) const { return lane_of_[i] == 0; }
  bool is_lead_param(size_t i) const { return static_cast<int>(i) == lead_; }

  uint8_t reg(const std::string& name) {
    return regs_.try_emplace(name, static_cast<uint8_t>(regs_.size())).first->second;
  }
  Step& emit(Step::Op op, size_t arg) {
    Step& s = cold_.steps.emplace_back();
    s.op = op;
    s.arg = static_cast<uint8_t>(arg);
    return s;
  }
  static bool always_there(const Param& p) { return p.kind == Kind::kTensor && !p.optional; }
  bool is_int(const std::string& name) const {
    const int i = s_.index_of(name);
    return i >= 0 && param(static_cast<size_t>(i)).kind == Kind::kInt;
  }

  // ---- Outputs, uses of names, lanes: compiler.cc ----

  void outputs();
  bool may_alias(size_t output, size_t input) const;
  // In how many tensors a parameter can speak: those of a list must agree with each other.
  static size_t voices(const Param& p) { return p.kind == Kind::kTensorList ? 2 : 1; }
  // How often each name occurs; a dimension that occurs once and is asked about nowhere needs no check.
  void count_uses();
  void choose_lead();
  static bool same_dim(const Dim& a, const Dim& b);
  // Whether a lane can say how the dimensions of p relate to those of the lead.
  static bool relate(const Param& lead, const Param& p, Program::Lane& lane);
  void fixed_facts(const Param& p, uint32_t& mask, uint32_t& value) const;
  void make_lanes();
  Program::Lane make_lane(size_t i);
  Program::Form form() const;

  // ---- Steps: compiler_steps.cc ----

  void scalars();
  void facts();
  void dtypes();
  void integers();
  // Whether a dimension of the lead must be looked at although lanes compare it.
  bool lead_dim_special(const Param& p, const Dim& d) const;
  // Names whose value steps need: everything that is not said completely by lanes.
  std::set<std::string> names_needed() const;
  void dims();
  void dim(size_t i, const Dim& d, size_t axis, const std::set<std::string>& needed);
  void spreads();
  void clauses();
  void comparison(const Clause& c);
  void overlaps();

  Schema s_;
  Program program_;
  ProgramCold cold_;
  int lead_ = -1;
  std::vector<int> lane_of_;
  std::vector<bool> covered_;
  std::map<std::string, uint8_t> regs_;
  std::map<std::string, size_t> uses_;
  std::set<std::string> asked_;
};

}  // namespace yard::op
