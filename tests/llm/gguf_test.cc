// SPDX-License-Identifier: Apache-2.0
// Tests the reader of GGUF files with valid, truncated and inconsistent files.
#include "gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <random>

#include "gguf_writer.h"

namespace llm {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;

GgufWriter small_file() {
  GgufWriter w;
  w.value("general.name", std::string("tiny"));
  w.value("i", int32_t{-3});
  w.value("u", uint64_t{7});
  w.value("f", 0.5f);
  w.value("d", 0.25);
  w.value("b", true);
  w.values("words", std::vector<std::string>{"a", "", "ccc"});
  w.values("numbers", std::vector<int16_t>{-1, 2});
  w.floats("x", {3, 2}, {0, 1, 2, 3, 4, 5});
  w.tensor("q", {32, 2}, 8, std::string(68, 'q'));
  return w;
}

// Returns the error of reading these bytes, or an empty string.
std::string error_of(const std::string& bytes) {
  // The copy has no slack at its end, so that a sanitizer sees reads beyond it.
  const std::vector<char> exact(bytes.begin(), bytes.end());
  try {
    Gguf::parse(std::as_bytes(std::span(exact)), "the test");
    return "";
  } catch (const std::runtime_error& e) {
    return e.what();
  }
}
std::string error_of(const GgufWriter& w) { return error_of(w.bytes()); }

TEST(Gguf, ReadsValuesAndTensors) {
  const std::string bytes = small_file().bytes();
  const Gguf g = Gguf::parse(as_bytes(bytes));
  EXPECT_EQ(g.text("general.name"), "tiny");
  EXPECT_EQ(g.integer("i"), -3);
  EXPECT_EQ(g.integer("u"), 7);
  EXPECT_EQ(g.number("f"), 0.5);
  EXPECT_EQ(g.number("d"), 0.25);
  EXPECT_TRUE(g.flag("b", false));
  EXPECT_THAT(g.texts("words"), ElementsAre("a", "", "ccc"));
  EXPECT_THAT(g.integers("numbers"), ElementsAre(-1, 2));
  ASSERT_EQ(g.tensors().size(), 2u);
  const GgufTensor& x = g.tensor("x");
  EXPECT_EQ(x.dtype, yard::DType::f32);
  EXPECT_THAT(x.shape, ElementsAre(2, 3));
  float last = 0;
  std::memcpy(&last, x.data + 20, 4);
  EXPECT_EQ(last, 5);
  EXPECT_EQ(g.tensor("q").bytes, 68u);
  EXPECT_EQ(g.tensor("q").dtype, yard::DType::q8_0);
  EXPECT_EQ(g.find("none"), nullptr);
}

TEST(Gguf, GivesTheFallbackOfAMissingKeyOnly) {
  const std::string bytes = small_file().bytes();
  const Gguf g = Gguf::parse(as_bytes(bytes));
  EXPECT_EQ(g.integer("none", 5), 5);
  EXPECT_EQ(g.text("none", "x"), "x");
  EXPECT_THROW(g.integer("none"), std::runtime_error);
  EXPECT_THROW(g.integer("f", 5), std::runtime_error);
  EXPECT_THROW(g.number("i", 5.0), std::runtime_error);
  EXPECT_THROW(g.text("words", "x"), std::runtime_error);
  EXPECT_THROW(g.texts("numbers"), std::runtime_error);
  EXPECT_THROW(g.integers("i"), std::runtime_error);
  EXPECT_THROW(g.flag("i", true), std::runtime_error);
  EXPECT_THROW(g.tensor("none"), std::runtime_error);
}

TEST(Gguf, MapsAFileWhichCopiesKeepAlive) {
  const std::string path = testing::TempDir() + "gguf_test_" + std::to_string(::getpid());
  std::ofstream(path, std::ios::binary) << small_file().bytes();
  std::optional<Gguf> first = Gguf::open(path);
  const Gguf copy = *first;
  first.reset();
  std::remove(path.c_str());
  EXPECT_EQ(copy.text("general.name"), "tiny");
  EXPECT_EQ(copy.tensor("q").data[0], std::byte{'q'});
}

struct TemporaryPath {
  const std::string path =
      testing::TempDir() + "gguf_test_" + std::to_string(::getpid()) + "_temporary";
  ~TemporaryPath() { std::remove(path.c_str()); }
};

std::string error_of_opening(const std::string& path) {
  try {
    Gguf::open(path);
    return "";
  } catch (const std::runtime_error& e) {
    return e.what();
  }
}

TEST(Gguf, OpensRegularFilesOnly) {
  const TemporaryPath pipe;
  ASSERT_EQ(::mkfifo(pipe.path.c_str(), 0600), 0);
  EXPECT_THAT(error_of_opening(pipe.path), HasSubstr("expected a regular file, got a pipe"));
  EXPECT_THAT(error_of_opening("/dev/null"), HasSubstr("expected a regular file"));
  EXPECT_THAT(error_of_opening("/"), HasSubstr("expected a GGUF file, got a folder"));
  EXPECT_THAT(error_of_opening("/none.gguf"),
              HasSubstr("cannot open the model /none.gguf: No such"));
  std::remove(pipe.path.c_str());
  std::ofstream(pipe.path).flush();
  EXPECT_THAT(error_of_opening(pipe.path), HasSubstr("got an empty file"));
  std::ofstream(pipe.path) << "GG";
  EXPECT_THAT(error_of_opening(pipe.path), HasSubstr("expected the four letters GGUF"));
}

int64_t peak_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

// These files have some GiB, almost all of them in a hole.
TEST(Gguf, TakesNoMemoryForWhatIsNotAsked) {
  const TemporaryPath file;
  std::ofstream(file.path) << "not a model";
  ASSERT_EQ(::truncate(file.path.c_str(), int64_t{8} << 30), 0);
  const int64_t before = peak_bytes();
  EXPECT_THAT(error_of_opening(file.path), HasSubstr("expected the four letters GGUF"));

  GgufWriter w;
  const uint64_t count = uint64_t{1} << 30;
  std::string array("\11\0\0\0\1\0\0\0", 8);  // of i8
  GgufWriter::put(array, count);
  w.raw_value("large", array);
  std::ofstream(file.path, std::ios::binary | std::ios::trunc) << w.bytes();
  ASSERT_EQ(::truncate(file.path.c_str(), static_cast<int64_t>(count) + (1 << 20)), 0);
  const Gguf g = Gguf::open(file.path);
  EXPECT_THROW(g.integers("large"), std::runtime_error);
  EXPECT_LT(peak_bytes() - before, 64 << 20);
}

TEST(Gguf, ReleasesTheMemoryOfATensorAndReadsItAgain) {
  constexpr int64_t kCount = 1 << 20;
  const TemporaryPath file;
  GgufWriter w;
  w.floats("before", {3}, {1, 2, 3});
  w.floats("x", {kCount}, std::vector<float>(kCount, 5));
  w.floats("after", {3}, {1, 2, 4});
  std::ofstream(file.path, std::ios::binary) << w.bytes();
  const Gguf g = Gguf::open(file.path);
  const auto mapped_pages = [] {
    int64_t size = 0, resident = 0, of_files = 0;
    std::ifstream("/proc/self/statm") >> size >> resident >> of_files;
    return of_files;
  };
  g.prefetch();
  const GgufTensor& x = g.tensor("x");
  const auto value = [](const GgufTensor& t, int64_t i) {
    return reinterpret_cast<const float*>(t.data)[i];
  };
  double sum = 0;
  for (int64_t i = 0; i < kCount; ++i) sum += static_cast<double>(value(x, i));
  const int64_t before = mapped_pages();
  g.release(yard::TensorView(x.data, x.dtype, x.shape));
  const int64_t released = (before - mapped_pages()) * ::sysconf(_SC_PAGESIZE);
  EXPECT_GT(released, kCount * 4 / 2);
  for (int64_t i = 0; i < kCount; ++i) sum -= static_cast<double>(value(x, i));
  EXPECT_EQ(sum, 0);
  EXPECT_EQ(value(g.tensor("before"), 2), 3);
  EXPECT_EQ(value(g.tensor("after"), 2), 4);
}

TEST(Gguf, RefusesTooManyElementsAndEntries) {
  GgufWriter w;
  const auto add = [&](const char* key, uint64_t count) {
    std::string array("\11\0\0\0\0\0\0\0", 8);  // of u8
    GgufWriter::put(array, count);
    w.raw_value(key, array + std::string(count, '\7'));
  };
  add("many", Gguf::kMostElements + 1);
  add("enough", Gguf::kMostElements);
  const std::string bytes = w.bytes();
  const Gguf g = Gguf::parse(as_bytes(bytes));
  EXPECT_EQ(g.integers("enough").back(), 7);
  try {
    g.integers("many");
    ADD_FAILURE() << "no error";
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("key 'many' with at most 4194304 elements, got 4194305"));
  }
  GgufWriter other;
  other.more_values = Gguf::kMostEntries + 1;
  EXPECT_THAT(error_of(other.bytes() + std::string(32 << 20, '\0')),
              HasSubstr("expected at most 1048576 values, got 1048577"));
}

TEST(GgufDeathTest, ATruncatedFileEndsTheProcessWithAMessage) {
  const TemporaryPath file;
  GgufWriter w;
  w.floats("x", {1 << 16}, std::vector<float>(1 << 16, 1));
  std::ofstream(file.path, std::ios::binary) << w.bytes();
  const auto use_truncated = [&] {
    end_on_truncation("the model became shorter\n", 2);
    const Gguf g = Gguf::open(file.path);
    g.prefetch();
    if (::truncate(file.path.c_str(), 4096) != 0) return;
    const volatile std::byte last = g.tensor("x").data[(1 << 18) - 1];
    (void)last;
  };
  EXPECT_EXIT(use_truncated(), testing::ExitedWithCode(1), "^the model became shorter");
}

TEST(Gguf, RefusesEveryTruncation) {
  const std::string bytes = small_file().bytes();
  EXPECT_EQ(error_of(bytes), "");
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_THAT(error_of(bytes.substr(0, n)), HasSubstr("invalid GGUF file: expected")) << n;
}

TEST(Gguf, SurvivesChangedBytes) {
  const std::string bytes = small_file().bytes();
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string other = bytes;
    for (int n = 0; n < 3; ++n)
      other[random() % other.size()] = static_cast<char>(random() % 3 == 0 ? 255 : random());
    EXPECT_THAT(error_of(other), AnyOf("", HasSubstr("invalid GGUF file: expected")));
  }
}

TEST(Gguf, RefusesOtherFiles) {
  EXPECT_THAT(error_of("PK\3\4 a zip file"), HasSubstr("expected the four letters GGUF"));
  GgufWriter w;
  w.version = 1;
  EXPECT_THAT(error_of(w), HasSubstr("expected version 2 or 3, little-endian, got 1"));
  w.version = 0x03000000;
  EXPECT_THAT(error_of(w), HasSubstr("little-endian"));
}

TEST(Gguf, RefusesCountsThatTheFileCannotHold) {
  GgufWriter w = small_file();
  w.more_tensors = uint64_t{1} << 60;
  EXPECT_THAT(error_of(w), HasSubstr("tensors in the rest of the file, got 1152921504606846978"));
  w = small_file();
  w.more_values = uint64_t{1} << 40;
  EXPECT_THAT(error_of(w), HasSubstr("values in the rest of the file"));
  w = small_file();
  std::string array;
  GgufWriter::put(array, uint32_t{9}), GgufWriter::put(array, uint32_t{10});
  GgufWriter::put(array, uint64_t{1} << 61);
  w.raw_value("long", array);
  EXPECT_THAT(error_of(w), HasSubstr("elements in the rest of the file"));
}

TEST(Gguf, RefusesUnknownTypesOfValues) {
  GgufWriter w;
  w.raw_value("odd", std::string("\15\0\0\0", 4));
  EXPECT_THAT(error_of(w), HasSubstr("expected the type of a value, 0 to 12, got 13"));
  w = {};
  w.raw_value("deep", std::string("\11\0\0\0\11\0\0\0", 8) + std::string(64, '\0'));
  EXPECT_THAT(error_of(w), HasSubstr("got an array of arrays"));
}

TEST(Gguf, RefusesNamesThatAreNotUnique) {
  GgufWriter w = small_file();
  w.value("i", int32_t{4});
  EXPECT_THAT(error_of(w), HasSubstr("expected each key once, got 'i' again"));
  w = small_file();
  w.floats("x", {1}, {0});
  EXPECT_THAT(error_of(w), HasSubstr("expected each tensor once, got 'x' again"));
}

TEST(Gguf, RefusesTensorsThatDoNotFit) {
  const std::string data(256, 'x');
  const auto with = [&](std::vector<uint64_t> sizes, uint32_t type, int64_t offset = -1) {
    GgufWriter w = small_file();
    w.tensor("t", sizes, type, data, offset);
    return error_of(w);
  };
  EXPECT_EQ(with({64}, 0), "");
  EXPECT_THAT(with({65}, 0), HasSubstr("the 260 bytes of tensor 't'"));
  EXPECT_THAT(with({}, 0), HasSubstr("tensor 't' of 1 to 4 dimensions, got 0"));
  EXPECT_THAT(with({1, 1, 1, 1, 1}, 0), HasSubstr("got 5"));
  EXPECT_THAT(with({0}, 0), HasSubstr("got 0"));
  EXPECT_THAT(with({uint64_t{1} << 32, uint64_t{1} << 32}, 0), HasSubstr("fit 64 bits"));
  EXPECT_THAT(with({uint64_t{1} << 63}, 0), HasSubstr("fit 64 bits"));
  EXPECT_THAT(with({33}, 8), HasSubstr("rows of tensor 't' in blocks of 32, got rows of 33"));
  EXPECT_THAT(with({8}, 0, 1), HasSubstr("as a multiple of 32, got 1"));
  EXPECT_THAT(with({8}, 0, 1 << 20),
              HasSubstr("the 32 bytes of tensor 't' at offset 1048576, got"));
  EXPECT_THAT(with({8}, 0, 512), HasSubstr("the 32 bytes of tensor 't'"));
}

TEST(Gguf, NamesTensorAndTypeOfUnsupportedOnes) {
  GgufWriter w;
  w.tensor("blk.0.ffn_up.weight", {256}, 13, std::string(176, 'x'));
  EXPECT_THAT(error_of(w), HasSubstr("expected tensor 'blk.0.ffn_up.weight' of type f32, f16,"));
  EXPECT_THAT(error_of(w), HasSubstr("got q5_k"));
  w = {};
  w.tensor("t", {256}, 1000, std::string(176, 'x'));
  EXPECT_THAT(error_of(w), HasSubstr("got type number 1000"));
}

TEST(Gguf, FollowsTheAlignmentOfTheFile) {
  GgufWriter w;
  w.alignment = 64;
  w.value("general.alignment", uint32_t{64});
  w.floats("a", {1}, {1});
  w.floats("b", {1}, {2});
  const std::string bytes = w.bytes();
  const Gguf g = Gguf::parse(as_bytes(bytes));
  float b = 0;
  std::memcpy(&b, g.tensor("b").data, 4);
  EXPECT_EQ(b, 2);
  for (const uint32_t wrong : {0u, 48u, 1u << 30}) {
    GgufWriter other;
    other.value("general.alignment", wrong);
    EXPECT_THAT(error_of(other), HasSubstr("a power of two"));
  }
}

}  // namespace
}  // namespace llm
