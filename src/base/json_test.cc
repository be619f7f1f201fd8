// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <gtest/gtest.h>

#include <limits>

namespace yard::base {
namespace {

TEST(Json, ObjectsAreWrittenKeyByKey) {
  JsonObject o;
  o.add("text", "a\"b").add("yes", true).add("n", uint64_t{18446744073709551615u});
  o.add("x", 0.5).add("nan", std::numeric_limits<double>::quiet_NaN()).add_or_null("none", "");
  o.add_json("list", json_strings({"a", "\xff"}));
  const std::string text = std::move(o).text();
  EXPECT_EQ(text,
            R"({"text": "a\"b", "yes": true, "n": 18446744073709551615, "x": 0.5, "nan": null, )"
            R"("none": null, "list": ["a", "\ufffd"]})");
  EXPECT_EQ(std::move(JsonObject()).text(), "{}");
}

}  // namespace
}  // namespace yard::base
