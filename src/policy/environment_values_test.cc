// SPDX-License-Identifier: Apache-2.0
// Tests invalid values, and the problem of each.
#include <gtest/gtest.h>

#include "policy/environment.h"

namespace yard::policy {
namespace {

// Texts of messages that occur more than once.
const std::string kKinds = "expected default, vendor or reference";
const std::string kSwitches = "expected 0/1, off/on, false/true or no/yes";
const std::string kBackend = "expected on, off or auto";
const std::string kOrder = "expected OP=TOKEN|TOKEN with ';' between ops, got ";
const std::string kTokens =
    " in the order of rms_norm is not a token; expected default, vendor, reference, vendor:NAME or "
    "impl:ID";
const std::string kVendorToken =
    " in the order of rms_norm is not a token; expected vendor:NAME, with the name of a vendor";
const std::string kHeads =
    " in the order of rms_norm is not a token; expected vendor:NAME or impl:ID";
const std::string kImplToken =
    " in the order of rms_norm is not a token; expected impl:ID, with the id of a kernel";
const std::string kOpName =
    " is not the name of an op; expected lower-case letters, digits, '_' and '.'";
const std::string kEmptyToken = "\"\"" + kTokens;
const std::string kEmptyOrder = kOrder + "an empty entry";
const std::string kEmptyLevel = " is empty; expected one ',' between entries";
const std::string kTwice = " twice; expected each token once";
const std::string kVendor = "expected names of vendors with ',' between them, got ";
const std::string kGlob = "expected ids or globs of kernels with ',' between them, got ";
const std::string kEmpty = "an empty entry";
const std::string kLevels = " is not a level; expected debug, info, warn, error or off";
const std::string kEntries = "; expected LEVEL or NAME=LEVEL, with ',' between entries";
const std::string kLoggers =
    "; expected base, core, op, telemetry, registry, policy, health, select, exec, plugin, "
    "dispatch, verify, "
    "runtime, inspect or backend";
const std::string kBytes = "expected a whole number from 0 to 1000000000000000";
const std::string kUnknown = "unknown variable";
const std::string kVariables =
    "; expected YARD_ALLOW_KERNELS, YARD_ALLOW_VENDORS, "
    "YARD_CONFIG, YARD_DENY_KERNELS, YARD_DENY_VENDORS, "
    "YARD_DISABLE, YARD_EVENTS, YARD_INSPECT, YARD_LOG_LEVEL, YARD_OUTPUT_DIRECTORY, YARD_PER_OP, "
    "YARD_PLUGINS, "
    "YARD_PLUGIN_PATH, "
    "YARD_PREFER, YARD_PYTHON_PLUGINS, YARD_RECORD, YARD_STATE_BYTES, YARD_STRICT or YARD_VERBOSE";
const std::string kBackendName =
    "; expected YARD_BACKEND_NAME, with the backend's name in capitals";

struct Wrong {
  std::string variable, value;
  std::string messages;  // one per line
};

// An unknown variable is a warning. All other problems are errors.
bool is_unknown(const Wrong& w) { return w.messages.starts_with(kUnknown); }

const std::vector<Wrong>& table() {
  static const std::vector<Wrong> rows = {
      {"YARD_PREFER", "vendr", kKinds + "; did you mean 'vendor'?"},
      {"YARD_PREFER", "refrence", kKinds + "; did you mean 'reference'?"},
      {"YARD_PREFER", "defalut", kKinds + "; did you mean 'default'?"},
      {"YARD_PREFER", "vendors", kKinds + "; did you mean 'vendor'?"},
      {"YARD_PREFER", "cpu", kKinds},
      {"YARD_PREFER", "vendor,default", kKinds},
      {"YARD_PREFER", "vendor:onednn", kKinds},
      {"YARD_PREFER", "1", kKinds},
      {"YARD_PREFER", "none", kKinds},
      {"YARD_PREFER", "flag_gems", kKinds},
      {"YARD_PREFER", "vendor\n", kKinds + "; did you mean 'vendor'?"},
      {"YARD_PREFER", "\"vendor\"", kKinds + "; did you mean 'vendor'?"},
      {"YARD_PREFER", "vendor default", kKinds},
      {"YARD_STRICT", "2", kSwitches},
      {"YARD_STRICT", "-1", kSwitches},
      {"YARD_STRICT", "00", kSwitches},
      {"YARD_STRICT", "01", kSwitches},
      {"YARD_STRICT", "1.0", kSwitches},
      {"YARD_STRICT", "y", kSwitches},
      {"YARD_STRICT", "n", kSwitches},
      {"YARD_STRICT", "t", kSwitches},
      {"YARD_STRICT", "ture", kSwitches + "; did you mean 'true'?"},
      {"YARD_STRICT", "flase", kSwitches + "; did you mean 'false'?"},
      {"YARD_STRICT", "enabled", kSwitches},
      {"YARD_STRICT", "disable", kSwitches},
      {"YARD_STRICT", "null", kSwitches},
      {"YARD_STRICT", "\"false\"", kSwitches + "; did you mean 'false'?"},
      {"YARD_STRICT", "on;off", kSwitches},
      {"YARD_STRICT", "yes please", kSwitches},
      {"YARD_STRICT", "\033[31mon", kSwitches},
      {"YARD_DISABLE", "2", kSwitches},
      {"YARD_DISABLE", "tru", kSwitches + "; did you mean 'true'?"},
      {"YARD_DISABLE", "all", kSwitches},
      {"YARD_DISABLE", "auto", kSwitches},
      {"YARD_DISABLE", "simd", kSwitches},
      {"YARD_DISABLE", "O", kSwitches},
      {"YARD_PER_OP", "rms_norm", kOrder + "\"rms_norm\""},
      {"YARD_PER_OP", "rms_norm:vendor", kOrder + "\"rms_norm:vendor\""},
      {"YARD_PER_OP", "=", kOrder + "\"=\""},
      {"YARD_PER_OP", "=vendor", kOrder + "\"=vendor\""},
      {"YARD_PER_OP", "rms_norm=", kEmptyToken},
      {"YARD_PER_OP", "rms_norm= ;softmax=vendor", kEmptyToken},
      {"YARD_PER_OP", "rms_norm=|", kEmptyToken},
      {"YARD_PER_OP", "rms_norm=vendor|", kEmptyToken},
      {"YARD_PER_OP", "rms_norm=|vendor", kEmptyToken},
      {"YARD_PER_OP", "rms_norm=vendor||default", kEmptyToken},
      {"YARD_PER_OP", ";", kEmptyOrder},
      {"YARD_PER_OP", "rms_norm=vendor;", kEmptyOrder},
      {"YARD_PER_OP", ";rms_norm=vendor", kEmptyOrder},
      {"YARD_PER_OP", "rms_norm=vendor;;softmax=reference", kEmptyOrder},
      {"YARD_PER_OP", "rms_norm=vendor;rms_norm=default",
       "rms_norm has an order already; expected one entry for each op"},
      {"YARD_PER_OP", "rms_norm=vendor|vendor", "the order of rms_norm has vendor" + kTwice},
      {"YARD_PER_OP", "rms_norm=flaggems", "\"flaggems\"" + kTokens},
      {"YARD_PER_OP", "rms_norm=VENDOR:acme|vendor:acme",
       "the order of rms_norm has vendor:acme" + kTwice},
      {"YARD_PER_OP", "rms_norm=vendr", "\"vendr\"" + kTokens + "; did you mean 'vendor'?"},
      {"YARD_PER_OP", "rms_norm=refernce|default",
       "\"refernce\"" + kTokens + "; did you mean 'reference'?"},
      {"YARD_PER_OP", "rms_norm=fastest", "\"fastest\"" + kTokens},
      {"YARD_PER_OP", "rms_norm=vendor,default", "\"vendor,default\"" + kTokens},
      {"YARD_PER_OP", "rms_norm=vendor,softmax=reference",
       "\"vendor,softmax=reference\"" + kTokens},
      {"YARD_PER_OP", "rms_norm=vendor:", "\"vendor:\"" + kVendorToken},
      {"YARD_PER_OP", "rms_norm=vendor: |default", "\"vendor:\"" + kVendorToken},
      {"YARD_PER_OP", "rms_norm=vendor:a:b", "\"vendor:a:b\"" + kVendorToken},
      {"YARD_PER_OP", "rms_norm=:acme", "\":acme\"" + kHeads},
      {"YARD_PER_OP", "rms_norm=impl", "\"impl\"" + kImplToken},
      {"YARD_PER_OP", "rms_norm=impl:", "\"impl:\"" + kImplToken},
      {"YARD_PER_OP", "rms_norm=impl:default.*", "\"impl:default.*\"" + kImplToken},
      {"YARD_PER_OP", "rms_norm=impl:a b", "\"impl:a b\"" + kImplToken},
      {"YARD_PER_OP", "rms_norm=imp:default.simd",
       "\"imp:default.simd\"" + kHeads + "; did you mean 'impl'?"},
      {"YARD_PER_OP", "rms_norm=kernel:default.simd", "\"kernel:default.simd\"" + kHeads},
      {"YARD_PER_OP", "rms_norm=default.simd",
       "\"default.simd\" in the order of rms_norm is not a token; expected impl:default.simd"},
      {"YARD_PER_OP", "rms_norm==vendor", "\"=vendor\"" + kTokens + "; did you mean 'vendor'?"},
      {"YARD_PER_OP", "RmsNorm=vendor", "\"RmsNorm\"" + kOpName},
      {"YARD_PER_OP", "rms norm=vendor", "\"rms norm\"" + kOpName},
      {"YARD_PER_OP", "rms-norm=vendor", "\"rms-norm\"" + kOpName},
      {"YARD_PER_OP", "*=vendor", "\"*\"" + kOpName},
      {"YARD_PER_OP", "{rms_norm: vendor}", kOrder + "\"{rms_norm: vendor}\""},
      {"YARD_PER_OP", "rms_norm=vendr;softmax=;gelu",
       "\"vendr\"" + kTokens +
           "; did you mean 'vendor'?\n\"\" in the order of softmax is not a token; expected "
           "default, "
           "vendor, reference, vendor:NAME or impl:ID\n" +
           kOrder + "\"gelu\""},
      {"YARD_PER_OP", "rms_norm=\001", "\"\\x01\"" + kTokens},
      {"YARD_DENY_VENDORS", ",", kVendor + kEmpty},
      {"YARD_DENY_VENDORS", "acme,", kVendor + kEmpty},
      {"YARD_DENY_VENDORS", ",acme", kVendor + kEmpty},
      {"YARD_DENY_VENDORS", "acme,,intel", kVendor + kEmpty},
      {"YARD_DENY_VENDORS", "acme;intel", kVendor + "\"acme;intel\""},
      {"YARD_DENY_VENDORS", "acme|intel", kVendor + "\"acme|intel\""},
      {"YARD_DENY_VENDORS", "vendor:acme", kVendor + "\"vendor:acme\""},
      {"YARD_DENY_VENDORS", "[acme]", kVendor + "\"[acme]\""},
      {"YARD_DENY_VENDORS", "acme*", kVendor + "\"acme*\""},
      {"YARD_DENY_VENDORS", "\"acme\"", kVendor + "\"\\\"acme\\\"\""},
      {"YARD_DENY_VENDORS", "ac\tme", kVendor + "\"ac\\tme\""},
      {"YARD_ALLOW_VENDORS", "acme, ,intel", kVendor + kEmpty},
      {"YARD_ALLOW_VENDORS", "acme=on", kVendor + "\"acme=on\""},
      {"YARD_ALLOW_VENDORS", "acme:intel", kVendor + "\"acme:intel\""},
      {"YARD_ALLOW_VENDORS", "!acme", kVendor + "\"!acme\""},
      {"YARD_ALLOW_KERNELS", "default.*,", kGlob + kEmpty},
      {"YARD_ALLOW_KERNELS", "default.*;vendor.*", kGlob + "\"default.*;vendor.*\""},
      {"YARD_ALLOW_KERNELS", "default simd", kGlob + "\"default simd\""},
      {"YARD_ALLOW_KERNELS", "default.[ab]", kGlob + "\"default.[ab]\""},
      {"YARD_ALLOW_KERNELS", "^default", kGlob + "\"^default\""},
      {"YARD_DENY_KERNELS", ",,", kGlob + kEmpty},
      {"YARD_DENY_KERNELS", "vendor.*|default.*", kGlob + "\"vendor.*|default.*\""},
      {"YARD_DENY_KERNELS", "impl:default.simd", kGlob + "\"impl:default.simd\""},
      {"YARD_DENY_KERNELS", "rms_norm/default.simd", kGlob + "\"rms_norm/default.simd\""},
      {"YARD_DENY_KERNELS", "vendor.(onednn)", kGlob + "\"vendor.(onednn)\""},
      {"YARD_BACKEND_SIMD", "atuo", kBackend + "; did you mean 'auto'?"},
      {"YARD_BACKEND_SIMD", "offf", kBackend + "; did you mean 'off'?"},
      {"YARD_BACKEND_SIMD", "enabled", kBackend},
      {"YARD_BACKEND_SIMD", "2", kBackend},
      {"YARD_BACKEND_SIMD", "default", kBackend},
      {"YARD_BACKEND_ONEDNN", "on,off", kBackend},
      {"YARD_BACKEND_ONEDNN", "none", kBackend},
      {"YARD_LOG_LEVEL", "inof", "\"inof\"" + kLevels + "; did you mean 'info'?"},
      {"YARD_LOG_LEVEL", "verbose", "\"verbose\"" + kLevels},
      {"YARD_LOG_LEVEL", "3", "\"3\"" + kLevels},
      {"YARD_LOG_LEVEL", "trace", "\"trace\"" + kLevels},
      {"YARD_LOG_LEVEL", "info,", "entry 2" + kEmptyLevel},
      {"YARD_LOG_LEVEL", ",info", "entry 1" + kEmptyLevel},
      {"YARD_LOG_LEVEL", "info;select=debug", "no logger is called \"info;select\"" + kEntries},
      {"YARD_LOG_LEVEL", "info,warn", "there is a default already; expected one bare level"},
      {"YARD_LOG_LEVEL", "select", "the logger select has no level; expected select=info"},
      {"YARD_LOG_LEVEL", "select=", "a level is missing; expected debug, info, warn, error or off"},
      {"YARD_LOG_LEVEL", "=debug", "no logger stands before '='; expected NAME=LEVEL"},
      {"YARD_LOG_LEVEL", "selct=debug", "no logger is called \"selct\"; did you mean 'select'?"},
      {"YARD_LOG_LEVEL", "select=loud", "\"loud\"" + kLevels},
      {"YARD_LOG_LEVEL", "select=debug,select=info",
       "select has a level already; expected one for each logger"},
      {"YARD_LOG_LEVEL", "select:debug", "\"select:debug\" is not a level" + kEntries},
      {"YARD_LOG_LEVEL", "select=debug=info", "\"debug=info\" is not a level" + kEntries},
      {"YARD_LOG_LEVEL", "yard.select=debug", "no logger is called \"yard.select\"" + kLoggers},
      {"YARD_LOG_LEVEL", "engine=debug", "no logger is called \"engine\"" + kLoggers},
      {"YARD_STATE_BYTES", "4G", kBytes},
      {"YARD_STATE_BYTES", "-1", kBytes},
      {"YARD_STATE_BYTES", "1.5", kBytes},
      {"YARD_STATE_BYTES", "1000000000000001", kBytes},
      {"YARD_PREFFER", "vendor", kUnknown + "; did you mean 'YARD_PREFER'?"},
      {"YARD_STRICTLY", "1", kUnknown + "; did you mean 'YARD_STRICT'?"},
      {"YARD_prefer", "vendor", kUnknown + "; did you mean 'YARD_PREFER'?"},
      {"YARD_DENY_VENDOR", "acme", kUnknown + "; did you mean 'YARD_DENY_VENDORS'?"},
      {"YARD_LOGLEVEL", "info", kUnknown + "; did you mean 'YARD_LOG_LEVEL'?"},
      {"YARD_PEROP", "rms_norm=vendor", kUnknown + "; did you mean 'YARD_PER_OP'?"},
      {"YARD_BACKEND_onednn", "off", kUnknown + "; did you mean 'YARD_BACKEND_ONEDNN'?"},
      {"YARD_BACKEND_", "off", kUnknown + kBackendName},
      {"YARD_BACKEND", "onednn", kUnknown + kBackendName},
      {"YARD_", "1", kUnknown + kVariables},
      {"YARD_ZEBRA", "1", kUnknown + kVariables},
      {"YARD_STRICT", "O", kSwitches},
      {"YARD_DENY_KERNELS", "\377\376", kGlob + "\"\\xff\\xfe\""},
      {"YARD_PREFER", "\377", kKinds},
      {"YARD_BACKENDS_SIMD", "off", kUnknown + kBackendName},
      {"YARD_DENY_VENDORS", "\377", kVendor + "\"\\xff\""},
  };
  return rows;
}

TEST(EnvironmentValues, EachInvalidValueIsReportedWithWhatWasExpected) {
  EXPECT_GE(table().size(), 100u);
  for (const Wrong& w : table()) {
    std::vector<EnvProblem> problems;
    const Environment e = read_environment({{w.variable, w.value}}, {}, problems);
    EXPECT_EQ(e, Environment()) << w.variable << '=' << w.value;
    std::string messages;
    for (const EnvProblem& p : problems) {
      if (!messages.empty()) messages += '\n';
      messages += p.message;
      EXPECT_EQ(p.variable, w.variable);
      EXPECT_EQ(p.error, !is_unknown(w));
    }
    EXPECT_EQ(messages, w.messages) << w.variable << '=' << w.value;
  }
}

TEST(EnvironmentValues, AnInvalidValueKeepsTheLastValidOne) {
  std::vector<EnvProblem> problems;
  const Environment good = read_environment({{"YARD_PREFER", "vendor"},
                                             {"YARD_STRICT", "1"},
                                             {"YARD_DISABLE", "no"},
                                             {"YARD_PER_OP", "softmax=vendor"},
                                             {"YARD_ALLOW_VENDORS", "a"},
                                             {"YARD_DENY_VENDORS", "b"},
                                             {"YARD_ALLOW_KERNELS", "c*"},
                                             {"YARD_DENY_KERNELS", "d*"},
                                             {"YARD_BACKEND_SIMD", "off"},
                                             {"YARD_BACKEND_ONEDNN", "on"},
                                             {"YARD_LOG_LEVEL", "info"},
                                             {"YARD_STATE_BYTES", "1000"}},
                                            {}, problems);
  ASSERT_TRUE(problems.empty());
  for (const Wrong& w : table()) {
    if (is_unknown(w)) continue;
    problems.clear();
    // The other variables of `good` count as unset here.
    const Environment one = read_environment({{w.variable, w.value}}, good, problems);
    EXPECT_FALSE(problems.empty());
    EXPECT_FALSE(one == Environment()) << w.variable << '=' << w.value;
    EXPECT_EQ(one.policy.empty(), !one.log_levels.empty() || one.state_bytes.has_value());
    for (const auto& [field, variable] : one.sources) {
      EXPECT_EQ(variable, w.variable);
      EXPECT_EQ(good.sources.at(field), variable);
    }
    EXPECT_EQ(merge(one.policy, good.policy), good.policy) << w.variable;
  }
}

}  // namespace
}  // namespace yard::policy
