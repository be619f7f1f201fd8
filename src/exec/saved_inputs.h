// SPDX-License-Identifier: Apache-2.0
// Copies of the inputs that a kernel may write over, so that another can be tried when it fails.
#pragma once

#include <yard/plugin.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "op/program.h"

namespace yard::exec {

class SavedInputs {
 public:
  // Copies `~` arguments and those inputs that share memory with something written. False if that cannot be
  // done: memory that is not the host's, or too little of it. Then nothing is held.
  bool save(const op::Program& program, const yard_value_t* args);
  // Writes them back. May be done again.
  void restore() const noexcept;
  bool held() const noexcept { return held_; }

 private:
  struct Copy {
    const yard_tensor_t* tensor;
    std::unique_ptr<std::byte[]> bytes;
  };
  bool add(const yard_tensor_t& t);

  std::vector<Copy> copies_;
  bool held_ = false;
};

}  // namespace yard::exec
