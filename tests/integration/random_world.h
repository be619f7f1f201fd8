// SPDX-License-Identifier: Apache-2.0
// Random registries, policies and calls. They vary everything that a selection may depend on, with
// values from small pools, so that calls of one class repeat.
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

// The dtypes of random calls and random limits.
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

// The `self` of a kernel. It holds what the kernel's functions need, and owns the lists of its
// descriptor.
struct RandomKernel {
  int number = 0;
  uint64_t salt = 0;
  std::string id, backend, op;
  std::vector<yard_limit_t> limits;
  std::deque<std::string> names;  // names of fields, in a deque for stable addresses
  std::vector<const char*> verify_reads, cost_reads;
  std::deque<yard_param_t> params;  // the kernel's own parameters
  std::vector<const yard_param_t*> param_list;
  // For each of verify_reads the index of an argument that is read as a whole, or -1 for an
  // integer field.
  std::vector<int> whole;
  yard_kernel_t d{};
};

// The arguments of a call. Nothing dereferences their addresses.
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
  // Sets a policy as the environment of the process would.
  void set_environment(Policy policy);
  // Registers, replaces or removes a kernel, or sets another policy, rule file or label.
  void change();
  Config config();
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
  bool lean_ = false;  // kernels have only limits, so that keys are short
  std::deque<std::unique_ptr<RandomKernel>> kernels_;  // all that were ever registered
  std::vector<RandomKernel*> present_;
  // Choices for the call being made.
  std::vector<int64_t> sizes_, rows_;
  int64_t d_ = 1, k_ = 1;
  DType t_ = DType::f32, u_ = DType::f32;
  Device device_;
};

// Mixes everything that a key contains of an argument into a hash.
uint64_t hash_value(uint64_t h, const yard_value_t& v);
uint64_t mix(uint64_t h, uint64_t v);
inline constexpr const char* kWorldModes[] = {"some_fields", "everything"};

// The numbers of the kernels that ran on this thread since the list was cleared, and the code that
// they return.
extern thread_local std::vector<int> t_ran_kernels;
extern thread_local int32_t t_answer;

}  // namespace yard::testing
