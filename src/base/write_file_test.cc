// SPDX-License-Identifier: Apache-2.0
#include "base/write_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

namespace yard::base {
namespace {

namespace fs = std::filesystem;

class WriteFile : public ::testing::Test {
 protected:
  WriteFile() {
    std::string name = (fs::temp_directory_path() / "yard_write_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~WriteFile() override { fs::remove_all(folder_); }
  std::string file(const char* name) const { return folder_ + "/" + name; }
  std::string read(const char* name) const {
    std::ifstream in(file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }
  std::string folder_;
};

TEST_F(WriteFile, CanBeTriedWithoutChangingAnything) {
  EXPECT_TRUE(can_write_file(file("a")).ok());
  EXPECT_EQ(files(), 0u);
  ASSERT_TRUE(write_file(file("a"), "one").ok());
  EXPECT_TRUE(can_write_file(file("a")).ok());
  EXPECT_EQ(read("a"), "one");
  EXPECT_THAT(can_write_file(file("none/a")).to_string(),
              ::testing::HasSubstr("cannot be written: No such file or directory"));
  EXPECT_THAT(can_write_file(folder_).to_string(), ::testing::HasSubstr("Is a directory"));
}

TEST_F(WriteFile, TakesThePlaceOfWhatWasThereAndLeavesNothingElse) {
  ASSERT_TRUE(write_file(file("a"), "one").ok());
  ASSERT_TRUE(write_file(file("a"), "two, longer").ok());
  EXPECT_EQ(read("a"), "two, longer");
  ASSERT_TRUE(write_file(file("a"), "").ok());
  EXPECT_EQ(read("a"), "");
  EXPECT_EQ(files(), 1u);
}

TEST_F(WriteFile, SaysWhatIsWrongAndChangesNothing) {
  fs::create_directory(file("taken"));
  std::ofstream(file("taken") + "/inside") << "x";
  const Status s = write_file(file("taken"), "text");
  EXPECT_FALSE(s.ok());
  EXPECT_THAT(std::string(s.message()), ::testing::HasSubstr("taken: cannot be written: "));
  EXPECT_EQ(files(), 1u);
  EXPECT_FALSE(write_file(file("no/such"), "text").ok());
}

TEST_F(WriteFile, NobodyReadsHalfOfIt) {
  const std::string a(20000, 'a'), b(30000, 'b');
  ASSERT_TRUE(write_file(file("f"), a).ok());
  std::vector<std::thread> writers;
  for (const std::string& text : {a, b})
    writers.emplace_back([&, text] {
      for (int i = 0; i < 40; ++i) write_file(file("f"), text).or_throw();
    });
  for (int i = 0; i < 200; ++i) {
    const std::string seen = read("f");
    ASSERT_TRUE(seen == a || seen == b) << seen.size();
  }
  for (std::thread& t : writers) t.join();
  EXPECT_EQ(files(), 1u);
}

}  // namespace
}  // namespace yard::base
