#include "config/auto.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/schema.h"
#include "core/error.h"

namespace plait {
namespace {

using testing::HasSubstr;

constexpr const char* open_run = R"(
model: {preset: gpt2-124m}
data: {train: [a.txt]}
train: {steps: 10, global_batch: 8, micro_batch: 2}
)";

std::string error_of_use(const auto& read) {
  try {
    read();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Auto, IsOpenUntilItIsGiven) {
  Auto<std::int64_t> number;
  EXPECT_TRUE(number.is_auto());
  EXPECT_FALSE(number.given().has_value());
  EXPECT_EQ(number.value_or(3), 3);
  number = 0;
  EXPECT_FALSE(number.is_auto()) << "0 is a number as any other";
  EXPECT_EQ(number.value_or(3), 0);
  EXPECT_EQ(number + 5, 5);
  number = automatic;
  EXPECT_TRUE(number.is_auto());
}

TEST(Auto, ReadingAnOpenValueIsAnInternalError) {
  const Auto<std::int64_t> number;
  EXPECT_THAT(error_of_use([&] { return number + 1; }), HasSubstr("a value that is `auto` was read as if decided"));
  EXPECT_THAT(error_of_use([&] { return number > 0; }), HasSubstr("read as if decided"));
  EXPECT_THAT(error_of_use([&] { return static_cast<double>(Auto<double>()); }), HasSubstr("read as if decided"));
  EXPECT_THAT(error_of_use([&] { return Auto<Backend>().value(); }), HasSubstr("auto_test.cpp"));
  EXPECT_THAT(error_of_use([&] { return ParallelConfig().size[rest_axis] * 2; }), HasSubstr("read as if decided"));
  EXPECT_THAT(error_of_use([&] { return product(ParallelConfig().size); }), HasSubstr("read as if decided"));
  EXPECT_EQ(product(ParallelConfig().known_sizes()), 0);
}

TEST(Auto, IsEqualToWhatItHoldsAndOpenToNothingButOpen) {
  const Auto<Backend> open, nccl = Backend::nccl;
  EXPECT_EQ(nccl, Backend::nccl);
  EXPECT_NE(nccl, Backend::gloo);
  EXPECT_NE(open, Backend::nccl);
  EXPECT_NE(open, nccl);
  EXPECT_EQ(open, automatic);
  EXPECT_NE(Auto<std::int64_t>(), 0);
  EXPECT_NE(Auto<std::int64_t>(), -1);
  EXPECT_EQ(Auto<std::int64_t>(2), 2);
}

// Every key that takes `auto` is `auto` again in the text of a configuration that leaves it open, and is planned as declared.
TEST(Auto, EveryKeyThatTakesItIsReadAndWritten) {
  std::vector<std::string> keys, set;
  for (const config::Field& field : config::fields()) {
    if (!field.takes_auto) continue;
    keys.push_back(field.path);
    set.push_back(field.path + "=auto");
  }
  EXPECT_GT(keys.size(), 25U);
  const Config config = parse_config(open_run, set), back = parse_config(to_yaml(config));
  EXPECT_EQ(to_yaml(back), to_yaml(config));
  std::set<std::string> planned;
  for (const std::string& key : keys) {
    const config::Field& field = *config::find_field(key);
    EXPECT_TRUE(config::is_automatic(field.get(config))) << key;
    EXPECT_TRUE(config::is_automatic(field.get(back))) << key;
    EXPECT_EQ(config::yaml_text(field.get(back)), "auto") << key;
    EXPECT_EQ(field.rule.broken(automatic), "") << key;
    EXPECT_FALSE(config::is_automatic(field.type)) << key;
    if (field.planned) planned.insert(key);
  }
  const std::vector<std::string> left = keys_left_to_planner(back);
  EXPECT_EQ(std::set<std::string>(left.begin(), left.end()), planned);
}

// 0 and -1 are what they say, where a key takes them.
TEST(Auto, IsNoNumber) {
  const auto config = [](const std::string& set) { return parse_config(open_run, {set}); };
  EXPECT_EQ(config("parallel.zero=0").parallel.zero, 0);
  EXPECT_THROW(config("parallel.zero=-1"), ConfigError);
  EXPECT_THROW(config("train.micro_batch=-1"), ConfigError);
  EXPECT_THROW(config("model.window=0"), ConfigError);
  EXPECT_THROW(config("comm.bucket_mb=0"), ConfigError);
  EXPECT_THROW(config("parallel.data=0"), ConfigError);
}

TEST(Auto, IsWordedAsInAFile) {
  EXPECT_EQ(to_string(Auto<std::int64_t>()), "auto");
  EXPECT_EQ(to_string(Auto<std::int64_t>(-3)), "-3");
  EXPECT_EQ(to_string(Auto<Recompute>()), "auto");
  EXPECT_EQ(to_string(Auto<Recompute>(Recompute::full)), "full");
}

}  // namespace
}  // namespace plait
