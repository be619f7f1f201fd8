// SPDX-License-Identifier: Apache-2.0
// The types that the code generator shares with its plugins.
#pragma once

#include <string>
#include <vector>

namespace codegen {

struct Value {
  std::string name;
  int bits = 32;
};

// Collects the emitted lines; each line gives a value.
class Builder {
 public:
  Value emit(const std::string& text, int bits) {
    const std::string name = "%" + std::to_string(lines_.size());
    lines_.push_back(name + " = " + text);
    return {name, bits};
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

}  // namespace codegen
