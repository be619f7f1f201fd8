// SPDX-License-Identifier: Apache-2.0
// Invalid files, libraries and paths are refused with a message, nothing of them stays, and the
// runtime still works.
#include <elf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstring>
#include <random>

#include "plugin_files.h"

namespace yard::testing {
namespace {

using ::testing::HasSubstr;
using Reason = PluginReason;

struct Bad {
  const char* plugin;
  Reason reason;
  const char* words;
};

const Bad kBad[] = {
    {"no_manifest", Reason::kNoManifest, "YARD_MANIFEST"},
    {"abi_too_new", Reason::kAbiTooNew, "ABI 7"},
    {"other_sanitizer", Reason::kOtherSanitizer, "'memory'"},
    {"other_machine", Reason::kOtherMachine, "pdp11"},
    {"missing_feature", Reason::kMissingFeature, "warp_drive"},
    {"gpu_feature", Reason::kMissingFeature, "cuda:sm_90"},
    {"bad_manifest", Reason::kBadManifest, "nonsense"},
    {"other_name", Reason::kManifestDiffers, "somebody_else"},
    {"unlisted_op", Reason::kManifestDiffers, "'answer'"},
    {"too_small", Reason::kBadDescriptor, "size 8"},
    {"too_large", Reason::kBadDescriptor, "size 2147483647"},
    {"needs_more", Reason::kCannotOpen, "a_function_nobody_has"},
    {"start_fails", Reason::kStartFailed, "no licence for this machine"},
    {"other_schema", Reason::kConflict, "is registered already and differs: schema '"},
    {"bad_schema", Reason::kBadDescriptor, "answer(out!: i64["},
    {"bad_text", Reason::kBadDescriptor, "UTF-8"},
    {"no_symbol", Reason::kNoQuery, "yard_plugin_query"},
    {"query_null", Reason::kQueryDeclined, "NULL"},
    {"query_throws", Reason::kQueryThrew, "not today"},
    {"query_throws_int", Reason::kQueryThrew, "not a std::exception"},
    {"query_misaligned", Reason::kBadDescriptor, "aligned"},
    {"query_descriptor_abi", Reason::kBadDescriptor, "ABI 7"},
    {"query_no_name", Reason::kBadDescriptor, "name of a plugin is missing"},
    {"query_bad_name", Reason::kBadDescriptor, "has blanks"},
    {"query_other_version", Reason::kManifestDiffers, "'2.0'"},
    {"query_no_version", Reason::kManifestDiffers, "version"},
    {"query_kernels_missing", Reason::kBadDescriptor, "none given"},
    {"query_ops_missing", Reason::kBadDescriptor, "none given"},
    {"query_backends_missing", Reason::kBadDescriptor, "none given"},
    {"query_count_huge", Reason::kBadDescriptor, "beyond reason"},
    {"query_null_kernel", Reason::kBadDescriptor, "NULL"},
    {"query_no_run", Reason::kBadDescriptor, "no run function"},
    {"query_no_op", Reason::kBadDescriptor, "op of a kernel is missing"},
    {"query_no_id", Reason::kBadDescriptor, "id of a kernel is missing"},
    {"query_unknown_backend", Reason::kBadDescriptor, "nowhere"},
    {"query_two_backends", Reason::kBadDescriptor, "names no backend"},
    {"query_unknown_kind", Reason::kBadDescriptor, "kind 99"},
    {"query_bad_priority", Reason::kBadDescriptor, "priority -5"},
    {"query_taken_id", Reason::kConflict, "registered already"},
    {"query_foreign_reference", Reason::kConflict,
     "op 'rms_norm' is defined by a built-in backend"},
    {"query_no_vendor", Reason::kBadDescriptor, "needs a vendor"},
    {"query_bad_limit", Reason::kBadDescriptor, "4711"},
    {"query_limits_missing", Reason::kBadDescriptor, "5 limits"},
    {"query_unknown_field", Reason::kBadDescriptor, "no_such_dimension"},
    {"query_bad_signature", Reason::kBadDescriptor, "'xyz'"},
    {"query_bad_utf8", Reason::kBadDescriptor, "UTF-8"},
    {"query_control_character", Reason::kBadDescriptor, "control character"},
    {"query_kernel_too_small", Reason::kBadDescriptor, "size 12"},
    {"query_no_op_of_that_name", Reason::kBadDescriptor, "no_such_op"},
    {"query_kernel_too_large", Reason::kBadDescriptor, "size 1073741824"},
    {"query_size_zero", Reason::kBadDescriptor, "size 0"},
    {"query_backend_too_small", Reason::kBadDescriptor, "size 4"},
    {"query_backend_too_large", Reason::kBadDescriptor, "size 4294967295"},
    {"query_op_too_small", Reason::kBadDescriptor, "size 8"},
    {"query_op_too_large", Reason::kBadDescriptor, "size 4294967295"},
    {"query_null_op", Reason::kBadDescriptor, "NULL"},
    {"query_ops_huge", Reason::kBadDescriptor, "beyond reason"},
    {"query_no_schema", Reason::kBadDescriptor, "schema"},
    {"query_endless_schema", Reason::kBadDescriptor, "longer than"},
    {"query_tolerances_missing", Reason::kBadDescriptor, "3"},
    {"query_bad_tolerance", Reason::kBadDescriptor, "rtol -1"},
    {"query_functions_missing", Reason::kBadDescriptor, "none given"},
    {"query_functions_huge", Reason::kBadDescriptor, "beyond reason"},
    {"query_null_function", Reason::kBadDescriptor, "functions[2] is NULL"},
    {"query_function_too_small", Reason::kBadDescriptor, "size 16"},
    {"query_function_too_large", Reason::kBadDescriptor, "size 1073741824"},
    {"query_function_no_name", Reason::kBadDescriptor, "name of a function is missing"},
    {"query_function_bad_name", Reason::kBadDescriptor, "bad name"},
    {"query_function_no_backend", Reason::kBadDescriptor, "names no backend"},
    {"query_function_no_signature", Reason::kBadDescriptor, "no signature"},
    {"query_function_bad_utf8", Reason::kBadDescriptor, "UTF-8"},
    {"query_function_two_lines", Reason::kBadDescriptor, "one line"},
    {"query_function_endless_signature", Reason::kBadDescriptor, "longer than"},
    {"query_function_no_function", Reason::kBadDescriptor, "no function"},
    {"query_function_bad_flags", Reason::kBadDescriptor, "0x1267"},
    {"query_function_bad_priority", Reason::kBadDescriptor, "priority 1001"},
    {"query_function_reasons_missing", Reason::kBadDescriptor, "2 reasons stated"},
    {"query_function_no_group", Reason::kBadDescriptor, "its group is missing"},
    {"query_function_twice", Reason::kConflict, "priority 0 and 1"},
    {"query_function_bad_group", Reason::kBadDescriptor, "bad group"},
    {"query_function_unlisted", Reason::kManifestDiffers, "group 'unlisted_group'"},
    {"query_duplicate_kernels", Reason::kConflict, "registered already"},
    {"query_bad_enable", Reason::kBadDescriptor, "enable 7"},
    {"query_bad_device", Reason::kBadDescriptor, "4711"},
    {"query_create_without_destroy", Reason::kBadDescriptor, "no destroy"},
    {"query_typed_without_signature", Reason::kBadDescriptor, "typed_signature"},
};

class BadPlugin : public ::testing::TestWithParam<Bad> {};

TEST_P(BadPlugin, IsRefusedWithAMessageAndLeavesNothingBehind) {
  const Bad& bad = GetParam();
  Folder folder;
  const std::string path = folder.put(bad.plugin);
  Runtime runtime(alone());
  const auto before = runtime.stats(false).generation;
  const Listing listing = runtime.list();
  for (int round = 0; round < 2; ++round) {  // a second attempt has the same result
    const Status s = runtime.plugins().load(path);
    ASSERT_FALSE(s.ok());
    EXPECT_THAT(std::string(s.message()), HasSubstr(to_string(bad.reason)));
    const PluginInfo info = info_of(runtime, path);
    EXPECT_EQ(info.state, PluginState::kRefused);
    EXPECT_STREQ(to_string(info.reason), to_string(bad.reason)) << info.detail;
    EXPECT_THAT(info.detail, HasSubstr(bad.words));
  }
  EXPECT_EQ(runtime.stats(false).generation, before);
  EXPECT_EQ(runtime.list().backends.size(), listing.backends.size());
  const std::string maps = read_file("/proc/self/maps");
  EXPECT_EQ(maps.find(folder.path()), maps.npos) << "its code is still in the process";
  folder.put("answer", "good");
  EXPECT_TRUE(runtime.plugins().load(folder.file("good.so")).ok());
  EXPECT_EQ(ask(runtime), 1);
}
INSTANTIATE_TEST_SUITE_P(All, BadPlugin, ::testing::ValuesIn(kBad),
                         [](const auto& p) { return std::string(p.param.plugin); });

// ---- Files that no compiler made --------------------------------------------------------------

Elf64_Ehdr& header(std::string& elf) { return *reinterpret_cast<Elf64_Ehdr*>(elf.data()); }
Elf64_Phdr* segments(std::string& elf) {
  return reinterpret_cast<Elf64_Phdr*>(elf.data() + header(elf).e_phoff);
}

void expect_refused(const std::string& bytes, const std::string& what) {
  Folder folder;
  const std::string path = folder.put_bytes(bytes, "hostile.so");
  Runtime runtime({.builtin_backends = false, .environment = false, .plugins = alone().plugins});
  const Status s = runtime.plugins().load(path);
  EXPECT_FALSE(s.ok()) << what;
  EXPECT_GT(s.message().size(), 20u) << what;
}

TEST(HostileElf, CutAtEverySectionBoundary) {
  std::string good = read_file(built_plugin("answer"));
  std::vector<size_t> cuts = {0, 1, 15, 16, 63, 64, good.size() - 1};
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(good.data() + header(good).e_shoff);
  for (size_t i = 0; i < header(good).e_shnum; ++i) {
    cuts.push_back(sections[i].sh_offset);
    if (sections[i].sh_type != SHT_NOBITS)
      cuts.push_back(sections[i].sh_offset + sections[i].sh_size);
  }
  cuts.push_back(header(good).e_shoff);
  ASSERT_GT(cuts.size(), 40u);
  for (const size_t cut : cuts)
    if (cut < good.size()) expect_refused(good.substr(0, cut), "cut at " + std::to_string(cut));
}

TEST(HostileElf, InvalidHeaders) {
  const std::string good = read_file(built_plugin("answer"));
  const auto lie = [&](const char* what, auto change) {
    std::string bytes = good;
    change(header(bytes));
    expect_refused(bytes, what);
  };
  lie("magic", [](Elf64_Ehdr& h) { h.e_ident[0] = 'E'; });
  lie("32 bits", [](Elf64_Ehdr& h) { h.e_ident[EI_CLASS] = ELFCLASS32; });
  lie("big endian", [](Elf64_Ehdr& h) { h.e_ident[EI_DATA] = ELFDATA2MSB; });
  lie("no class", [](Elf64_Ehdr& h) { h.e_ident[EI_CLASS] = 9; });
  lie("machine", [](Elf64_Ehdr& h) { h.e_machine = EM_68K; });
  lie("program", [](Elf64_Ehdr& h) { h.e_type = ET_EXEC; });
  lie("object", [](Elf64_Ehdr& h) { h.e_type = ET_REL; });
  lie("no segments", [](Elf64_Ehdr& h) { h.e_phnum = 0; });
  lie("many segments", [](Elf64_Ehdr& h) { h.e_phnum = 0xfffe; });
  lie("escaped count", [](Elf64_Ehdr& h) { h.e_phnum = PN_XNUM; });
  lie("segment size", [](Elf64_Ehdr& h) { h.e_phentsize = 1; });
  lie("segments far away", [](Elf64_Ehdr& h) { h.e_phoff = ~0ull - 8; });
  lie("segments beyond", [](Elf64_Ehdr& h) { h.e_phoff = 1ull << 40; });
  lie("sections far away", [](Elf64_Ehdr& h) { h.e_shoff = ~0ull - 63; });
  lie("many sections", [](Elf64_Ehdr& h) { h.e_shnum = 0xfeff; });
  lie("section size", [](Elf64_Ehdr& h) { h.e_shentsize = 3; });
  lie("header size", [](Elf64_Ehdr& h) { h.e_ehsize = 9; });
  lie("version", [](Elf64_Ehdr& h) { h.e_version = 77; });
}

TEST(HostileElf, InvalidSegments) {
  std::string good = read_file(built_plugin("answer"));
  size_t cases = 0;
  for (size_t i = 0; i < header(good).e_phnum; ++i) {
    const uint32_t type = segments(good)[i].p_type;
    const auto lie = [&](const char* what, auto change) {
      std::string bytes = good;
      change(segments(bytes)[i]);
      expect_refused(bytes, "segment " + std::to_string(i) + ": " + what);
      ++cases;
    };
    if (type != PT_LOAD && type != PT_NOTE && type != PT_DYNAMIC) continue;
    lie("size", [](Elf64_Phdr& p) { p.p_filesz = 1ull << 40; });
    lie("size overflows", [](Elf64_Phdr& p) { p.p_filesz = ~0ull; });
    lie("offset", [](Elf64_Phdr& p) { p.p_offset = ~0ull - 16; });
    if (type == PT_LOAD) {
      lie("smaller in memory", [](Elf64_Phdr& p) { p.p_memsz = p.p_filesz - 1; });
      lie("huge in memory", [](Elf64_Phdr& p) { p.p_memsz = ~0ull - p.p_vaddr; });
      lie("address overflows", [](Elf64_Phdr& p) { p.p_memsz = ~0ull; });
      lie("alignment", [](Elf64_Phdr& p) { p.p_align = 12345; });
      lie("offset not as the address", [](Elf64_Phdr& p) { p.p_vaddr += 8; });
    }
    if (type == PT_DYNAMIC) {
      lie("elsewhere", [](Elf64_Phdr& p) { p.p_vaddr = 0; });
      lie("odd size", [](Elf64_Phdr& p) { p.p_filesz -= 1; });
      lie("no end", [](Elf64_Phdr& p) { p.p_filesz = 16; });
      lie("gone", [](Elf64_Phdr& p) { p.p_type = PT_NULL; });
    }
    // Other note segments may not describe the plugin.
    const size_t from = segments(good)[i].p_offset, manifest = good.find("abi=0\n");
    if (type == PT_NOTE && from < manifest && manifest < from + segments(good)[i].p_filesz) {
      lie("gone", [](Elf64_Phdr& p) { p.p_type = PT_NULL; });
      lie("empty", [](Elf64_Phdr& p) { p.p_filesz = 0; });
    }
  }
  EXPECT_GT(cases, 20u);
}

TEST(HostileElf, InvalidNotes) {
  const std::string good = read_file(built_plugin("answer"));
  const size_t text = good.find("abi=0\n");
  ASSERT_NE(text, good.npos);
  const size_t note = text - 20;
  const auto lie = [&](const char* what, size_t at, uint32_t value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + note + at, &value, sizeof value);
    expect_refused(bytes, what);
  };
  lie("owner's length", 0, 0xffffffff);
  lie("owner without end", 0, 4);
  lie("text's length", 4, 0xffffffff);
  lie("text beyond the segment", 4, 4096);
  lie("no text", 4, 0);
  lie("half of the text", 4, 20);
  lie("type", 8, 2);
  lie("owner", 12, 0x41414141);
}

// Inspection never runs code, so it is safe for any bytes.
TEST(HostileElf, RandomChangesDoNotCrashInspection) {
  const std::string good = read_file(built_plugin("answer"));
  Folder folder;
  Runtime runtime({.builtin_backends = false, .environment = false, .plugins = alone().plugins});
  std::mt19937_64 random(7);
  size_t refused = 0;
  for (int round = 0; round < 1200; ++round) {
    std::string bytes = good.substr(0, round % 5 == 0 ? random() % good.size() : good.size());
    for (int n = 1 + static_cast<int>(random() % 8); n > 0 && !bytes.empty(); --n) {
      // Most changes hit the headers.
      const size_t at =
          random() % (random() % 4 == 0 ? bytes.size() : std::min<size_t>(bytes.size(), 1024));
      bytes[at] = static_cast<char>(random());
    }
    const PluginInfo info = runtime.plugins().inspect(folder.put_bytes(bytes, "random.so"));
    if (info.state != PluginState::kRefused) continue;
    ++refused;
    EXPECT_FALSE(info.detail.empty());
  }
  EXPECT_GT(refused, 400u);
  for (int round = 0; round < 200; ++round) {
    std::string bytes(random() % 5000, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (bytes.size() > 4 && round % 2 == 0) bytes.replace(0, 4, "\177ELF");
    const PluginInfo info = runtime.plugins().inspect(folder.put_bytes(bytes, "random.so"));
    EXPECT_EQ(info.state, PluginState::kRefused);
  }
}

// ---- Paths ------------------------------------------------------------------------------------

Reason reason_for(Runtime& runtime, const std::string& path) {
  runtime.plugins().discover({path}).ignore();
  return info_of(runtime, path).reason;
}

TEST(Paths, ThatDependOnTheCurrentDirectoryAreRefused) {
  Runtime runtime(alone());
  EXPECT_EQ(reason_for(runtime, "plugins"), Reason::kRelativePath);
  EXPECT_EQ(reason_for(runtime, "./plugins"), Reason::kRelativePath);
  EXPECT_EQ(reason_for(runtime, ""), Reason::kRelativePath);
  EXPECT_EQ(runtime.plugins().load("./answer.so").code(), Code::kInvalidArgument);
  EXPECT_THAT(runtime.plugins().discover({"a/b"}).to_string(), HasSubstr("relative_path"));
}

TEST(Paths, ThatAreNotPluginsAreRefused) {
  Folder folder;
  Runtime runtime(alone());
  EXPECT_EQ(reason_for(runtime, folder.file("nothing.so")), Reason::kNotFound);
  EXPECT_EQ(reason_for(runtime, folder.put_bytes("", "empty.so")), Reason::kNotElf);
  EXPECT_EQ(reason_for(runtime, folder.put_bytes("#!/bin/sh\n", "script.so")), Reason::kNotElf);
  ASSERT_EQ(::mkfifo(folder.file("pipe.so").c_str(), 0600), 0);
  EXPECT_EQ(reason_for(runtime, folder.file("pipe.so")), Reason::kUnreadable);
  fs::create_directory(folder.file("folder.so"));
  EXPECT_EQ(runtime.plugins().inspect(folder.file("folder.so")).reason, Reason::kUnreadable);
  fs::create_symlink("/dev/zero", folder.file("zero.so"));
  EXPECT_EQ(runtime.plugins().inspect(folder.file("zero.so")).state, PluginState::kRefused);
  fs::create_symlink(folder.file("loop.so"), folder.file("loop.so"));
  EXPECT_EQ(runtime.plugins().inspect(folder.file("loop.so")).reason, Reason::kUnreadable);
  EXPECT_EQ(reason_for(runtime, fs::canonical("/proc/self/exe").string()), Reason::kNotALibrary);
}

TEST(Paths, WritableByOthersAreRefusedUnlessAllowed) {
  Folder folder;
  const std::string path = folder.put("answer");
  Runtime runtime(alone());
  ASSERT_EQ(::chmod(path.c_str(), 0777), 0);
  EXPECT_EQ(reason_for(runtime, path), Reason::kWritableByOthers);
  EXPECT_FALSE(runtime.plugins().load(path).ok());
  ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(folder.path().c_str(), 0777), 0);
  EXPECT_EQ(reason_for(runtime, folder.path()), Reason::kWritableByOthers);
  EXPECT_THAT(info_of(runtime, folder.path()).detail, HasSubstr("everybody"));
  // A sticky bit is not enough, because others may still add files.
  ASSERT_EQ(::chmod(folder.path().c_str(), 01777), 0);
  EXPECT_EQ(reason_for(runtime, folder.path()), Reason::kWritableByOthers);
  RuntimeSettings settings = alone({folder.path()});
  settings.plugins.allow_writable = true;
  Runtime trusting(settings);
  EXPECT_EQ(ask(trusting), 1);
  ASSERT_EQ(::chmod(folder.path().c_str(), 0700), 0);
  EXPECT_TRUE(runtime.plugins().load(path).ok());
}

// A sparse file takes no disk space, but hashing it would take minutes.
TEST(Paths, OfFilesThatAreTooLargeAreRefusedUnread) {
  Folder folder;
  const std::string good = folder.put("answer"), large = folder.put("answer_v2");
  fs::resize_file(large, (uint64_t{2} << 30) + 1);  // zeros at the end do not change a library
  Runtime runtime(alone());
  const auto expect_too_large = [&](const PluginInfo& info) {
    EXPECT_EQ(info.reason, Reason::kTooLarge);
    EXPECT_EQ(info.detail,
              "the file has 2147483649 bytes: expected at most 2147483648 (max_file_bytes)");
    EXPECT_EQ(info.sha256, "");
  };
  expect_too_large(runtime.plugins().inspect(large));
  expect_too_large(runtime.plugins().would_load(large));
  EXPECT_EQ(reason_for(runtime, large), Reason::kTooLarge);
  EXPECT_THAT(runtime.plugins().load(large).to_string(), HasSubstr("too_large"));
  expect_too_large(info_of(runtime, large));
  ASSERT_TRUE(runtime.plugins().load(good).ok());
  EXPECT_FALSE(runtime.plugins().replace("answer", large).ok());
  EXPECT_EQ(ask(runtime), 1);

  RuntimeSettings small = alone();
  small.plugins.max_file_bytes = fs::file_size(good) - 1;
  Runtime strict(small);
  EXPECT_EQ(reason_for(strict, good), Reason::kTooLarge);
  small.plugins.max_file_bytes = fs::file_size(good);
  Runtime fitting(small);
  EXPECT_TRUE(fitting.plugins().load(good).ok());
}

TEST(Names, TheFirstOfTwoCounts) {
  Folder first, second;
  first.put("answer"), second.put("answer_v2");
  Runtime runtime(alone({first.path(), second.path()}));
  EXPECT_EQ(info_of(runtime, second.file("answer_v2.so")).reason, Reason::kDuplicateName);
  EXPECT_THAT(info_of(runtime, second.file("answer_v2.so")).detail, HasSubstr(first.path()));
  EXPECT_EQ(ask(runtime), 1);
  EXPECT_EQ(runtime.plugins().load(second.file("answer_v2.so")).code(), Code::kConflict);
  Runtime other(alone({second.path(), first.path()}));
  EXPECT_EQ(ask(other), 2);
}

}  // namespace
}  // namespace yard::testing
