// SPDX-License-Identifier: Apache-2.0
// Objects must not grow beyond these sizes.
#include <gtest/gtest.h>
#include <unistd.h>
#include <yard/yard.h>

#include <cstdio>

#include "exec/executor.h"

namespace yard {
namespace {

TEST(Sizes, APlanWithAKeyOfFourWords) {
  EXPECT_LE(sizeof(exec::Plan) + 4 * sizeof(uint64_t), 300u);
}

// 128 bytes of the record are the id.
TEST(Sizes, AResultRecord) { EXPECT_LE(sizeof(ResultRecord), 200u); }

TEST(Sizes, AValueAndATensor) {
  EXPECT_EQ(sizeof(yard_value_t), 16u);
  EXPECT_EQ(sizeof(yard_tensor_t), 64u);
  EXPECT_EQ(sizeof(Status), sizeof(void*));
}

int64_t resident_bytes() {
  long pages = 0, ignored = 0;
  std::FILE* f = std::fopen("/proc/self/statm", "r");
  if (f == nullptr || std::fscanf(f, "%ld %ld", &ignored, &pages) != 2) pages = 0;
  if (f != nullptr) std::fclose(f);
  return pages * sysconf(_SC_PAGESIZE);
}

TEST(Sizes, ARuntimeWithTheBuiltInBackends) {
  const int64_t before = resident_bytes();
  ASSERT_GT(before, 0);
  const Runtime runtime;
  EXPECT_FALSE(runtime.list().ops.empty());
  EXPECT_LE(resident_bytes() - before, 8 << 20);
}

}  // namespace
}  // namespace yard
