// SPDX-License-Identifier: Apache-2.0
// Short questions about lists and maps.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

namespace yard::base {

template <class List, class V>
bool contains(const List& list, const V& value) {
  return std::find(std::begin(list), std::end(list), value) != std::end(list);
}

template <class Map>
std::vector<std::string> keys(const Map& map) {
  std::vector<std::string> to;
  for (const auto& [key, value] : map) to.push_back(key);
  return to;
}

}  // namespace yard::base
