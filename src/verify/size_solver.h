// SPDX-License-Identifier: Apache-2.0
// Chooses values for dimensions, leading groups and integers that satisfy a schema's clauses.
#pragma once

#include <set>

#include "op/predicate.h"
#include "verify/random.h"

namespace yard::verification {

struct Assignment {
  std::map<std::string, int64_t> numbers;              // dimensions and integer arguments
  std::map<std::string, std::vector<int64_t>> groups;  // leading dimensions
  std::vector<bool> present;                           // by parameter

  // Returns the number or product of a name, or nullopt if no given argument determines it.
  std::optional<int64_t> value(const op::Schema& schema, const std::string& name) const;
  // Sets the value of a name. A group keeps its rank, which becomes at least 1.
  void set(const std::string& name, int64_t value);
};

using VariableTypes = std::map<std::string, DType>;

struct SizeLimits {
  // Indexed by dimension, leading group (its product) and integer argument.
  std::map<std::string, std::vector<op::IntegerTest>> numbers;
  std::map<std::string, std::pair<int, int>> ranks;  // of leading groups
  std::map<size_t, bool> present;                    // by parameter
};

// A size that gets a separate call.
struct SizePoint {
  std::string name;
  int64_t size = 0;
};

class SizeSolver {
 public:
  // Keeps tensors below `max_elements` if free sizes allow it. The schema must outlive the solver.
  SizeSolver(const op::Schema& schema, int64_t max_elements, SizeLimits limits = {});

  // Chooses optionals and sizes. The clauses may not all hold, so the caller checks them. With a
  // point, chooses its size and small sizes for everything else. Returns nullopt if the call would
  // take too long.
  std::optional<Assignment> next(const SizePoint* point, Random& random,
                                 const VariableTypes& types);
  // Returns the boundaries of the limits, and sizes of well-known models within them.
  std::vector<SizePoint> points() const;
  // Gives or omits the optionals as the clauses require with these dtypes.
  void require_optionals(Assignment& assignment, const VariableTypes& types, Random& random) const;
  // Changes names that are not `pinned` until the clauses hold, for at most a few rounds.
  void repair(Assignment& assignment, const std::set<std::string>& pinned, Random& random) const;
  int64_t size(Random& random);

 private:
  enum class Profile { kEdge, kEmpty, kOdd, kPrime, kPower, kNearPower, kTypical, kLarge };
  struct Sizes;

  Assignment choose(Random& random, const VariableTypes& types);
  // Halves sizes until each tensor, and the product of all sizes, is small enough.
  void shrink(Assignment& assignment, const std::set<std::string>& pinned) const;
  Sizes all_sizes(Assignment& assignment, const std::set<std::string>& pinned) const;
  // Returns whether a name was changed to pass its limits.
  bool apply_limits(Assignment& assignment, const std::set<std::string>& pinned) const;
  bool satisfy(Assignment& assignment, const op::Clause& clause,
               const std::set<std::string>& pinned, Random& random) const;

  const op::Schema& s_;
  const int64_t max_elements_;
  const SizeLimits limits_;
  std::vector<std::string> dims_, groups_;
  ShuffleBag<Profile> profiles_;
  Profile profile_ = Profile::kEdge;
  std::string marked_;  // the name that is empty or large in this call
  std::map<std::string, ShuffleBag<int>> group_ranks_;
  std::vector<ShuffleBag<char>> optionals_;  // by parameter
  std::map<std::string, ShuffleBag<int>> integers_;
};

}  // namespace yard::verification
