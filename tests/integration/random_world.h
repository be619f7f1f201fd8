// SPDX-License-Identifier: Apache-2.0
// Random registries, policies and calls: everything a choice may depend on, drawn from small pools so
// that calls of one class come again and again.
#pragma once

#include <yard/yard.h>

#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "op/program.h"

namespace yard::testing {

// Those of random calls, and of random limits.
inline constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  size_t below(size_t n) { return static_cast<size_t>(engine_() % n); }
  bool chance(unsigned percent) { return below(100) < percent; }
  template <class C>
  const auto& of(const C& c) {
    return *(std::begin(c) + static_cast<ptrdiff_t>(below(std::size(c))));
  }

 private:
  std::mt19937_64 engine_;
};

// The `self` of a kernel: all that its functions need, and the room its descriptor's lists take.
struct RandomKernel {
  int number = 0;
  uint64_t salt = 0;
  std::string id, backend, op;
  std::vector<yard_limit_t> limits;
  std::deque<std::string> names;  // of fields, with stable addresses
  std::vector<const char*> verify_reads, cost_reads;
  std::deque<yard_param_t> params;  // of its own
  std::vector<const yard_param_t*> param_list;
  std::vector<int>
      whole;  // arguments the verifier reads; one entry per verify_reads, -1: an integer
  yard_kernel_t d{};
};

// One call: arguments over addresses that are never dereferenced.
struct RandomCall {
  std::vector<yard_value_t> args;
  std::deque<TensorView> tensors;
  std::deque<std::vector<const yard_tensor_t*>> lists;
  std::deque<std::string> strings;
};

class World {
 public:
  World(uint64_t seed, int kernels);

  Runtime& runtime() { return runtime_; }
  const std::string& schema() const { return schema_; }
  const op::Program& program() const { return *program_; }
  Random& random() { return random_; }

  RandomCall call();
  Options options();
  Policy policy();
  // As if the process's environment said so.
  void set_environment(Policy policy);
  // Registers, replaces or removes a kernel, or sets another policy, rule file or label.
  void change();
  Config config();
  // The id under which a kernel was registered.
  const std::string& id_of(int number) const { return kernels_[static_cast<size_t>(number)]->id; }
  std::string describe() const;

 private:
  void make_schema();
  void add_backends();
  std::unique_ptr<RandomKernel> make_kernel(int number);
  void add_limits(RandomKernel& k);
  void add_verifier(RandomKernel& k);
  void add_cost(RandomKernel& k);
  void add_params(RandomKernel& k);
  Condition condition();
  void add_modes();
  void change_config();
  TensorView tensor(const op::Param& p, size_t arg, uint64_t spot);
  std::string pattern();
  std::string kernel_id(int number) const;

  Random random_;
  std::string schema_;
  std::optional<op::Program> program_;
  Runtime runtime_;
  std::vector<std::string> fields_, tensors_, optionals_;
  int next_ = 0;
  bool lean_ = false;                                  // nothing but limits, so that keys are short
  std::deque<std::unique_ptr<RandomKernel>> kernels_;  // all there ever were
  std::vector<RandomKernel*> present_;
  // Of the call being made.
  std::vector<int64_t> sizes_, rows_;
  int64_t d_ = 1, k_ = 1;
  DType t_ = DType::f32, u_ = DType::f32;
  Device device_;
};

// Mixes all that a key tells of an argument into a hash.
uint64_t hash_value(uint64_t h, const yard_value_t& v);
uint64_t mix(uint64_t h, uint64_t v);
// Modes that every world has.
inline constexpr const char* kWorldModes[] = {"some_fields", "everything"};

// Which kernels ran on this thread, by number, since it was cleared; and what they return.
extern thread_local std::vector<int> t_ran_kernels;
extern thread_local int32_t t_answer;

}  // namespace yard::testing
