// SPDX-License-Identifier: Apache-2.0
// States the features of the program's devices, because the program knows them.
#include <yard/yard.h>

#include "check.h"

int main() {
  // [state]
  yard::RuntimeSettings settings;
  settings.device_features = {"cuda:0:sm_80", "cuda:1:sm_90"};
  yard::Runtime runtime(settings);
  // Or later, and on any runtime:
  yard::Runtime::shared().plugins().state_device_features({"cuda:sm_90"}).or_throw();
  // [/state]
  CHECK(runtime.problems().empty());
  CHECK(!runtime.plugins().state_device_features({"sm_90"}).ok());  // fails: the device is missing
  return 0;
}
