// SPDX-License-Identifier: Apache-2.0
#include "base/digest.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace yard::base {
namespace {

TEST(Digest, KnownValues) {
  EXPECT_EQ(sha256("").value(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc").value(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Digest, OfAFileIsThatOfItsBytesAndLeavesItsPosition) {
  std::FILE* stream = std::tmpfile();
  ASSERT_NE(stream, nullptr);
  std::string bytes;
  for (int i = 0; i < 100000; ++i) bytes += std::to_string(i);  // more than one piece
  ASSERT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), stream), bytes.size());
  std::fflush(stream);
  const File file(::dup(::fileno(stream)));
  const off_t before = ::lseek(file.fd(), 0, SEEK_CUR);
  EXPECT_EQ(sha256(file).value(), sha256(bytes).value());
  EXPECT_EQ(::lseek(file.fd(), 0, SEEK_CUR), before);
  std::fclose(stream);
}

TEST(Digest, OfWhatCannotBeReadIsAnError) { EXPECT_FALSE(sha256(File()).ok()); }

TEST(Digest, IsRecognised) {
  EXPECT_TRUE(is_sha256(sha256("x").value()));
  EXPECT_FALSE(is_sha256(""));
  EXPECT_FALSE(is_sha256(std::string(63, 'a')));
  EXPECT_FALSE(is_sha256(std::string(64, 'A')));
}

}  // namespace
}  // namespace yard::base
