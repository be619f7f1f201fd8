// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <cstdlib>

namespace yard::vendor_template {

int64_t driver_version() {
  const char* said = std::getenv("TEMPLATE_DRIVER");
  return said != nullptr ? std::atoll(said) : kOldestDriver;
}

}  // namespace yard::vendor_template
