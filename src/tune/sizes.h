// SPDX-License-Identifier: Apache-2.0
// Sizes for the names of a schema: dimensions, leading groups and integer arguments, drawn so that edges
// come often and the schema's clauses hold.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "op/schema.h"
#include "tune/deck.h"

namespace yard::tune {

// What one call is to look like, before there are tensors.
struct Draft {
  std::map<std::string, int64_t> numbers;              // dimensions and integer arguments
  std::map<std::string, std::vector<int64_t>> groups;  // leading dimensions
  std::vector<bool> present;                           // by parameter; false: an optional left out

  // The value of a clause's name: a number or a group's product. Nothing if no argument says it.
  std::optional<int64_t> value(const op::Schema& schema, const std::string& name) const;
};

class Sizes {
 public:
  // No tensor gets more than `max_elements`, as far as sizes that are free decide it.
  Sizes(const op::Schema& schema, int64_t max_elements);

  // Which optionals are there, and sizes. Clauses hold where a few rounds of repair can make them; the
  // caller checks.
  Draft draw(Random& random);
  // Makes clauses hold, as far as a few rounds can, without changing what is `pinned`.
  void repair(Draft& draft, const std::set<std::string>& pinned, Random& random) const;
  // A size for a dimension without a name.
  int64_t any(Random& random);

 private:
  // What the sizes of one call are like.
  enum class Profile { kEdge, kEmpty, kOdd, kPrime, kPower, kNearPower, kTypical, kLarge };

  void choose_present(Draft& draft, Random& random);
  void choose_groups(Draft& draft, Random& random);
  int64_t size(Random& random);
  int64_t integer(const op::Param& param, Random& random);
  void shrink(Draft& draft) const;
  bool settle(Draft& draft, const op::Clause& clause, const std::set<std::string>& pinned,
              Random& random) const;
  bool is_active(const Draft& draft, const op::Clause& clause) const;

  const op::Schema& s_;
  const int64_t max_elements_;
  std::vector<std::string> dims_, groups_;
  Deck<Profile> profiles_;
  Profile profile_ = Profile::kEdge;
  std::string marked_;  // the name that this call makes empty or large
  std::map<std::string, Deck<int>> group_ranks_;
  std::vector<Deck<char>> optionals_;  // by parameter
  std::map<std::string, Deck<int>> integers_;
};

}  // namespace yard::tune
