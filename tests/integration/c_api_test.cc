// SPDX-License-Identifier: Apache-2.0
// Runs what c_api_use.c, which is C, checks.
#include <gtest/gtest.h>

extern "C" int yard_c_api_use(void);

TEST(CApi, ServesAProgramInC) {
  EXPECT_EQ(yard_c_api_use(), 0) << "the line of c_api_use.c that failed";
}
