// SPDX-License-Identifier: Apache-2.0
// Copies of the inputs that a kernel may overwrite, so that another can be tried if it fails.
#pragma once

#include <yard/plugin.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "op/program.h"

namespace yard::exec {

class SavedInputs {
 public:
  // Copies `~` arguments and inputs that share memory with written tensors. False, and nothing is held, if
  // they are not in host memory or there is too little of it.
  bool save(const op::Program& program, const yard_value_t* args);
  // Writes them back; may be called repeatedly.
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
