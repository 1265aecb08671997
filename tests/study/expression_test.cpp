#include "study/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/config_error.h"
#include "core/error.h"
#include "core/error_of.h"

namespace plait::study {
namespace {

using testing::HasSubstr;

Config config(const std::string& more = "") {
  return parse_config(
      "run: {name: r}\nmodel: {layers: 4, hidden: 32, heads: 4, vocab: 64}\ndata: {tokenizer: random}\n"
      "train: {steps: 3, global_batch: 8, micro_batch: 2}\nparallel: {pipeline: 2, data: 2, schedule: zb-h1" +
      more + "}\n");
}

std::optional<bool> holds(const std::string& text, const Config& of = config()) { return Expression(text, "--only").holds(of); }

TEST(Expression, ComparesKeysWithNumbersAndTexts) {
  EXPECT_EQ(holds("pipeline == 2"), true);
  EXPECT_EQ(holds("parallel.pipeline > 2"), false);
  EXPECT_EQ(holds("schedule == zb-h1"), true) << "the one of `parallel`, not the optimizer's";
  EXPECT_EQ(holds("schedule != \"zb-h1\""), false);
  EXPECT_EQ(holds("train.optimizer.lr < 1e-3"), true);
  EXPECT_EQ(holds("overlap == true"), true);
}

TEST(Expression, CalculatesBeforeItCompares) {
  EXPECT_EQ(holds("pipeline * data * tensor == 4"), true);
  EXPECT_EQ(holds("global_batch - micro_batch * 3 == 2"), true);
  EXPECT_EQ(holds("(global_batch - micro_batch) * 3 == 18"), true);
  EXPECT_EQ(holds("global_batch % 3 == 2 and global_batch / 2 >= 4"), true);
  EXPECT_EQ(holds("-pipeline < 0"), true);
}

TEST(Expression, AndBindsCloserThanOr) {
  EXPECT_EQ(holds("pipeline == 2 or tensor == 9 and data == 9"), true);
  EXPECT_EQ(holds("(pipeline == 2 or tensor == 9) and data == 9"), false);
  EXPECT_EQ(holds("not pipeline == 2 or not (tensor == 2)"), true);
}

TEST(Expression, WhatIsOpenIsUnknownUnlessTheRestSettlesIt) {
  const Config open = config(", tensor: auto");
  EXPECT_EQ(holds("tensor > 1", open), std::nullopt);
  EXPECT_EQ(holds("tensor > 1 and pipeline == 3", open), false);
  EXPECT_EQ(holds("tensor > 1 or pipeline == 2", open), true);
  EXPECT_EQ(holds("tensor > 1 and pipeline == 2", open), std::nullopt);
}

TEST(Expression, RefusesWhatIsNoneAndSaysWhere) {
  const auto refusal = [](const std::string& text) { return error_of<ConfigError>([&] { holds(text); }); };
  EXPECT_THAT(refusal("pipeline ="), HasSubstr("--only"));
  EXPECT_THAT(refusal("pipeline"), HasSubstr("where it ends"));
  EXPECT_THAT(refusal("pipeline == 2 data == 1"), HasSubstr("instead of 'data'"));
  EXPECT_THAT(refusal("pipelin == 2"), HasSubstr("'pipelin' is no key"));
  EXPECT_THAT(refusal("schedule + 1 == 2"), HasSubstr("needs numbers"));
  EXPECT_THAT(refusal("(pipeline == 2"), HasSubstr("--only"));
  EXPECT_THAT(refusal("schedule == \"zb"), HasSubstr("quotation mark"));
  EXPECT_THAT(refusal(std::string(1000, '(') + "1 == 1" + std::string(1000, ')')), HasSubstr("levels"));
  EXPECT_THAT(refusal(""), HasSubstr("--only"));
}

}  // namespace
}  // namespace plait::study
