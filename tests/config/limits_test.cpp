// Configurations that ask for too much: refused with path, value and rule, at once and without taking memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>

#include "config/config.h"
#include "config/schema.h"
#include "core/config_error.h"
#include "core/error.h"
#include "core/temporary_directory.h"

namespace plait {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* small = R"(model: {layers: 2, hidden: 64, heads: 16}
data: {train: [text/**]}
train: {steps: 10, global_batch: 8, micro_batch: 2}
)";

// What is wrong with the small configuration and these values.
std::vector<ConfigProblem> problems_with(const std::vector<std::string>& overrides) {
  try {
    parse_config(small, overrides, "test.yaml");
  } catch (const ConfigError& error) {
    return error.problems();
  }
  return {};
}

// Every number but the seed, which is any.
std::vector<const config::Field*> numbers() {
  std::vector<const config::Field*> all;
  for (const config::Field& field : config::fields()) {
    const config::Value value = field.get(Config{});
    const bool is_number = std::holds_alternative<std::int64_t>(value) || std::holds_alternative<double>(value) ||
                           std::holds_alternative<std::vector<std::int64_t>>(value);
    if (is_number) all.push_back(&field);
  }
  return all;
}

bool is_real(const config::Field& field) { return std::holds_alternative<double>(field.get(Config{})); }

TEST(ConfigLimits, EveryNumberHasBothBounds) {
  ASSERT_GT(numbers().size(), 35u);
  for (const config::Field* field : numbers()) {
    const std::vector<std::string> beyond =
        is_real(*field) ? std::vector<std::string>{"-1e-300", "-1e300", "1e300", "1.7976931348623157e308"}
                        : std::vector<std::string>{"-9223372036854775808", "-2", "2147483648000", "9223372036854775807"};
    for (const std::string& value : beyond) {
      const auto problems = problems_with({field->path + "=" + value});
      ASSERT_FALSE(problems.empty()) << field->path << "=" << value;
      EXPECT_EQ(problems.front().path, field->path) << value;
      EXPECT_EQ(problems.front().value, value);
      EXPECT_FALSE(problems.front().rule.empty()) << field->path;
    }
  }
}

TEST(ConfigLimits, EveryUpperBoundHasAReasonAndIsDocumented) {
  const std::string page = configuration_markdown();
  for (const config::Field* field : numbers()) {
    const bool says_it_itself = field->rule.words.find("0 to 2") != std::string::npos ||   // parallel.zero
                                field->rule.words.find("0 and 1") != std::string::npos ||  // fractions
                                field->rule.words.find("less than 1") != std::string::npos ||
                                field->path == "placement.devices";
    if (says_it_itself) continue;
    ASSERT_FALSE(field->rule.reason.empty()) << field->path;
    EXPECT_THAT(page, HasSubstr(field->rule.reason)) << field->path;
  }
}

TEST(ConfigLimits, WhatIsTooMuchTogetherIsNamed) {
  struct Case {
    std::vector<std::string> overrides;
    std::string path, rule;
  };
  const Case cases[] = {
      {{"train.global_batch=16777216", "train.micro_batch=1", "parallel.data=1"},
       "train.global_batch",
       "100663296 passes in a step"},
      {{"train.global_batch=65536", "train.micro_batch=1", "parallel.data=1", "model.layers=4"},
       "train.global_batch",
       "655360 passes in a step, which must be at most 524288"},
      {{"train.global_batch=65536", "train.micro_batch=65536", "data.sequence_length=65536"},
       "train.micro_batch",
       "times data.sequence_length=65536 must be at most 2147483647 tokens"},
      {{"parallel.data=65536", "parallel.tensor=2", "parallel.pipeline=2"}, "parallel.data", "must be at most 65536 ranks"},
      {{"parallel.tensor=65536", "parallel.pipeline=65536"}, "parallel.data", "must be at most 65536 ranks"},
      {{"model.layers=4096", "model.hidden=131072", "train.global_batch=16777216", "train.micro_batch=16777216",
        "data.sequence_length=128"},
       "model.layers",
       "bytes, and must be at most 2^60"},
  };
  for (const Case& c : cases) {
    bool named = false;
    for (const ConfigProblem& p : problems_with(c.overrides))
      named |= p.path == c.path && p.rule.find(c.rule) != std::string::npos;
    EXPECT_TRUE(named) << c.rule;
  }
  EXPECT_TRUE(problems_with({"train.global_batch=65536", "train.micro_batch=1", "parallel.data=1"}).empty()) << "at the bound";
}

// Whatever is accepted, no product that the engine makes of it overflows.
TEST(ConfigLimits, AcceptedSizesFitIntoIntegers) {
  std::mt19937_64 random(7);
  const auto any_of = [&](std::initializer_list<std::int64_t> values) { return std::data(values)[random() % values.size()]; };
  int accepted = 0;
  const Config base = parse_config(small);
  for (int i = 0; i < 500; ++i) {
    Config c = base;
    c.model.layers = any_of({1, 2, 100, 4096});
    c.model.hidden = any_of({64, 8192, 131072});
    c.model.ffn = any_of({64, 65536, 1048576});
    c.model.vocab = any_of({256, 131072, 16777216});
    c.data.sequence_length = any_of({16, 8192, 1048576, 16777216});
    c.train.micro_batch = any_of({1, 64, 4096, 16777216});
    c.train.global_batch = c.train.micro_batch * any_of({1, 16, 1024, 65536});
    if (!problems_of(c).empty()) continue;
    ++accepted;
    const long double wide = static_cast<long double>(c.model.hidden) * 16 + static_cast<long double>(c.model.ffn) * 8;
    const long double elements = static_cast<long double>(c.model.layers) * wide *
                                     static_cast<long double>(c.train.global_batch * c.data.sequence_length) +
                                 static_cast<long double>(c.model.vocab) * static_cast<long double>(c.model.hidden);
    EXPECT_LT(elements * 8, 9.2e18L) << to_yaml(c);
  }
  EXPECT_GT(accepted, 20);
}

// What reading `path` takes; it must be refused.
struct Refusal {
  std::string text;
  double seconds = 0;  // of a processor
};

Refusal refusal_of(const std::string& path) {
  const std::clock_t start = std::clock();
  Refusal refusal{.text = config_error([&] { load_config(path); })};
  refusal.seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  return refusal;
}

class HugeFiles : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = folder_.path() + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  test::TemporaryDirectory folder_;
};

TEST_F(HugeFiles, WhatIsNotAFileOrTooLongIsNotRead) {
  const std::string fifo = folder_.path() + "/fifo", sparse = write("sparse.yaml", "");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::filesystem::resize_file(sparse, std::uintmax_t{10} << 30);
  EXPECT_THAT(refusal_of(folder_.path()).text, AllOf(HasSubstr(folder_.path()), HasSubstr("not a regular file")));
  EXPECT_THAT(refusal_of(fifo).text,
              AllOf(HasSubstr(fifo), HasSubstr("a pipe that nothing writes to, or that was read to its end before; start")));
  EXPECT_THAT(refusal_of("/dev/zero").text, AllOf(HasSubstr("/dev/zero: at least"), HasSubstr("more than the 1048576")));
  EXPECT_THAT(refusal_of(sparse).text, AllOf(HasSubstr(sparse), HasSubstr("10737418240 bytes, more than the 1048576")));
}

TEST_F(HugeFiles, AreRefusedAtOnce) {
  const auto repeated = [](const std::string& text, std::size_t bytes) {
    std::string all;
    while (all.size() < bytes) all += text;
    return all;
  };
  std::string keys = "run: {name: x}\n";
  for (int i = 0; keys.size() < limits::config_bytes - 32; ++i) keys += "k" + std::to_string(i) + ":\n";
  const std::size_t most = limits::config_bytes - 64;
  const std::pair<std::string, std::string> cases[] = {
      {write("list.yaml", "placement: {devices: [" + repeated("1,", most) + "1]}\n"), "has more than 100000 values"},
      {write("long.yaml", "placement: {devices: [" + repeated("1,", 10'000'000) + "1]}\n"), "more than the 1048576"},
      {write("keys.yaml", keys), "values"},
      {write("fewer.yaml", keys.substr(0, keys.find("k40000"))), "more problems"},
      {write("documents.yaml", repeated("---\n", most)), "values"},
      {write("key.yaml", "? " + repeated("x", most) + "\n: 1\n"), "unknown key"},
      {write("deep.yaml", repeated("{a: ", most)), "is not valid YAML"},
      {write("nested.yaml", repeated("- ", most)), "is not valid YAML"},
  };
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  for (const auto& [path, words] : cases) {
    const Refusal refusal = refusal_of(path);
    EXPECT_THAT(refusal.text, HasSubstr(words)) << path;
    EXPECT_LT(refusal.text.size(), 30'000u) << path;
    EXPECT_LT(refusal.seconds, 20) << path;  // a tenth of a second where nothing is instrumented
  }
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr long shadow = 4;  // a sanitizer keeps notes of all memory
#else
  constexpr long shadow = 1;
#endif
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, shadow * 500 * 1024) << "KiB";
}

TEST_F(HugeFiles, AliasesAreNotMultiplied) {
  std::string yaml = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 30; ++i) {
    const std::string before = "*a" + std::to_string(i - 1), name = "a" + std::to_string(i);
    yaml += name + ": &" + name + " [";
    for (int n = 0; n < 10; ++n) yaml += (n > 0 ? ", " : "") + before;
    yaml += "]\n";
  }
  yaml += "placement: {devices: *a29}\n";
  EXPECT_THAT(refusal_of(write("aliases.yaml", yaml)).text, HasSubstr("placement.devices"));
}

// What is accepted can be resumed: a run's own configuration has every key.
TEST(ConfigLimits, HoldForTheConfigurationThatARunKeeps) {
  const auto with_files = [](std::size_t files) {
    std::string list;  // of what has to be quoted, in which the text that is kept is longer
    for (std::size_t i = 0; i < files; ++i) list += std::string(i ? "," : "") + "'*" + std::string(89, 'x') + "'";
    return "model: {layers: 2, hidden: 64, heads: 16}\ndata: {train: [" + list + "]}\n" +
           "train: {steps: 10, global_batch: 8, micro_batch: 2}\n";
  };
  const std::string fits = with_files(10'000), too_long = with_files(11'200);
  ASSERT_LT(too_long.size(), limits::config_bytes);
  const Config config = parse_config(fits);
  EXPECT_EQ(to_yaml(parse_config(to_yaml(config))), to_yaml(config));
  EXPECT_THAT(error_of<ConfigError>([&] { parse_config(too_long); }), testing::HasSubstr("with every key written out"));
}

}  // namespace
}  // namespace plait
