// Which layouts are verified: from words, from `all`, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "config/schedule_files.h"
#include "core/error.h"
#include "core/error_of.h"
#include "verify/layouts.h"
#include "verify/verify_cases.h"

namespace plait::verify::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Strings = std::vector<std::string>;

VerifyMatrix matrix(const Strings& layouts, const Strings& set = {}) {
  return make_matrix(verify_request({}, {}, set).config, layouts);
}

std::string matrix_refusal(const Strings& layouts, const Strings& set = {}) {
  return error_of<ConfigError>([&] { matrix(layouts, set); });
}

Strings names(const VerifyMatrix& m) {
  Strings list;
  for (const VerifyCase& c : m.cases) list.push_back(m.models[c.model].name + ": " + c.layout);
  return list;
}

TEST(VerifyOverrides, AWordWithoutAnEqualsSignBelongsToTheValueBefore) {
  EXPECT_THAT(split_overrides("pipeline=2  stages=[1, 3] zero=1", "k"), ElementsAre("pipeline=2", "stages=[1, 3]", "zero=1"));
  EXPECT_THAT(split_overrides("", "k"), ElementsAre());
  EXPECT_THAT(split_overrides("a=b=c", "k"), ElementsAre("a=b=c"));
  EXPECT_THAT(error_of<ConfigError>([] { split_overrides("2 a=1", "the.key"); }),
              AllOf(HasSubstr("the.key"), HasSubstr("'2'")));
}

TEST(VerifyLayouts, TextSaysWhatIsNotUsual) {
  const auto text = [](const std::string& layout, const Strings& set = {}) { return matrix({layout}, set).cases.at(0).layout; };
  EXPECT_EQ(text("tensor=2 pipeline=2 data=1"), "pipeline=2 tensor=2");
  EXPECT_EQ(text("data=1"), "data=1");
  EXPECT_EQ(text("zero=0 data=2"), "data=2");
  EXPECT_EQ(text("pipeline=2 schedule=interleaved virtual_stages=2 stages=[1, 1, 1, 1]"),
            "pipeline=2 schedule=interleaved virtual_stages=2 stages=[1, 1, 1, 1]");
  // What the configuration says holds where the layout says nothing, data apart. The text says so, and gives that layout again.
  const Strings set = {"parallel.zero=1", "parallel.recompute=full", "parallel.data=2"};
  EXPECT_EQ(text("pipeline=2 data=2", set), "pipeline=2 data=2 zero=1 recompute=full");
  EXPECT_EQ(text("data=2 zero=0", set), "data=2 zero=0 recompute=full");
  EXPECT_EQ(text("data=2 zero=0 recompute=full", set), "data=2 zero=0 recompute=full");
}

TEST(VerifyLayouts, PairsAreOfRanksThatTheLargestLayoutHas) {
  const VerifyMatrix m = matrix({"data=1", "pipeline=2"}, {"comm.p2p_pairs=[0-1=host]", "launch.device=cpu"});
  EXPECT_THAT(m.cases.at(0).config.comm.p2p_pairs, ElementsAre());
  EXPECT_THAT(m.cases.at(1).config.comm.p2p_pairs, ElementsAre("0-1=host"));
  EXPECT_THAT(matrix_refusal({"data=1", "pipeline=2"}, {"comm.p2p_pairs=[0-1=host, 0-7=host]", "launch.device=cpu"}),
              HasSubstr("comm.p2p_pairs=0-7=host: names a rank that does not exist; the job has 2 ranks"));
}

TEST(VerifyLayouts, AllAreEveryMeshScheduleAndZero) {
  const auto texts = [](int ranks) {
    Strings list;
    for (const LayoutRequest& request : all_layouts(ranks, {})) list.push_back(request.text);
    return list;
  };
  EXPECT_THAT(texts(1), ElementsAre("data=1"));
  Strings two = {"tensor=2", "tensor=2 sequence_parallel=false", "data=2", "data=2 zero=1", "data=2 zero=2"};
  for (const ScheduleRow& row : built_in_schedules) {
    const bool usual = row.kind == ParallelConfig{}.schedule, several = row.takes_any_chunks();
    const std::string schedule = "pipeline=2" + (usual ? "" : " schedule=" + std::string(row.name));
    if (row.kind != ScheduleKind::interleaved) two.push_back(schedule);
    if (several) two.push_back(schedule + " virtual_stages=2");
  }
  EXPECT_EQ(texts(2), two);
  EXPECT_THAT(two, testing::IsSupersetOf(
                       {"pipeline=2", "pipeline=2 schedule=interleaved virtual_stages=2", "pipeline=2 schedule=zb-v"}));
  for (const int ranks : {3, 4, 8, 12}) {
    const Strings list = texts(ranks);
    EXPECT_EQ(std::set(list.begin(), list.end()).size(), list.size()) << "twice the same";
    std::set<std::string> meshes;
    for (const LayoutRequest& request : all_layouts(ranks, {})) {
      std::int64_t product = 1;
      for (const std::string& override_text : request.overrides) {
        for (const char* axis : {"parallel.pipeline=", "parallel.data=", "parallel.tensor="}) {
          if (override_text.starts_with(axis)) product *= std::stoll(override_text.substr(std::string(axis).size()));
        }
      }
      EXPECT_EQ(product, ranks) << request.text;
    }
  }
}

TEST(VerifyMatrix, LeavesOutWhatARuleRefusesAndSaysWhy) {
  const VerifyMatrix m =
      matrix({"all"}, {"verify.ranks=[4]", "model.layers=2", "verify.variants=[\"narrow: model.kv_heads=2\"]"});
  EXPECT_THAT(names(m), testing::Contains("base: tensor=4"));
  EXPECT_THAT(names(m), testing::Contains("narrow: tensor=2 data=2").Times(0));
  EXPECT_THAT(names(m), testing::Contains("narrow: data=2 tensor=2"));
  std::set<std::string> reasons;
  for (const RefusedLayout& refused : m.refused) reasons.insert(refused.model + ": " + refused.layout + ": " + refused.reason);
  EXPECT_THAT(reasons, testing::Contains(HasSubstr("narrow: tensor=4: parallel.tensor=4: must divide model.kv_heads=2")));
  EXPECT_THAT(reasons, testing::Contains(AllOf(HasSubstr("base: pipeline=4 schedule=zb-v"), HasSubstr("must be at most 3"))));
  EXPECT_THAT(reasons, testing::Contains(
                           AllOf(HasSubstr("base: pipeline=2 data=2 schedule=zb-h1 zero=2"), HasSubstr("must be 0 or 1"))));
  EXPECT_TRUE(std::is_sorted(m.cases.begin(), m.cases.end(), [](const auto& a, const auto& b) { return a.model < b.model; }));
}

TEST(VerifyMatrix, AllLeavesToAVariantWhatItSaysOfTheLayout) {
  const VerifyMatrix m =
      matrix({"all"}, {"verify.ranks=[1, 4]", "parallel.recompute=none",
                       "verify.variants=[\"full: parallel.recompute=full parallel.sequence_parallel=false\"]"});
  int of_base = 0, of_variant = 0;
  for (const VerifyCase& c : m.cases) {
    const ParallelConfig& parallel = c.config.parallel;
    ++(c.model == 0 ? of_base : of_variant);
    EXPECT_EQ(parallel.recompute, c.model == 0 ? Recompute::none : Recompute::full) << c.layout;
    EXPECT_EQ(parallel.sequence_parallel, c.layout.find("sequence_parallel=false") == std::string::npos) << c.layout;
    EXPECT_TRUE(c.model == 0 || !parallel.sequence_parallel) << c.layout;
  }
  EXPECT_GT(of_variant, 10);
  EXPECT_LT(of_variant, of_base);  // there is no layout with and one without sequence parallelism
  EXPECT_THAT(names(m), testing::Contains("full: tensor=4 sequence_parallel=false recompute=full"));
  // One that is given is taken as it is given.
  const VerifyMatrix given = matrix({"tensor=2 recompute=none"}, {"verify.variants=[\"full: parallel.recompute=full\"]"});
  for (const VerifyCase& c : given.cases) EXPECT_EQ(c.config.parallel.recompute, Recompute::none) << c.layout;
}

TEST(VerifyLayouts, AllHasTheConfigurationsFileWhereItsRanksFit) {
  ParallelConfig base;
  base.schedule = ScheduleKind::file;
  base.schedule_file = parsed_schedule("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "my.csv");
  const auto of_the_file = [&](int ranks) {
    Strings texts;
    for (const LayoutRequest& request : all_layouts(ranks, base)) {
      if (request.text.find("my.csv") != std::string::npos) texts.push_back(request.text);
    }
    return texts;
  };
  EXPECT_THAT(of_the_file(1), testing::IsEmpty());
  EXPECT_THAT(of_the_file(2), ElementsAre("pipeline=2 schedule.file=my.csv"));
  EXPECT_THAT(of_the_file(4),
              ElementsAre("pipeline=2 tensor=2 schedule.file=my.csv", "pipeline=2 data=2 schedule.file=my.csv",
                          "pipeline=2 data=2 schedule.file=my.csv zero=1", "pipeline=2 data=2 schedule.file=my.csv zero=2"));
}

// Overrides are YAML.
TEST(VerifyLayouts, AFilesPathMayHaveAnyCharacters) {
  ParallelConfig base;
  base.schedule = ScheduleKind::file;
  base.schedule_file = parsed_schedule("0F0,0B0\n1F0,1B0\n", "a #1: [b].csv");
  Strings overrides;
  for (const LayoutRequest& request : all_layouts(2, base)) {
    overrides.insert(overrides.end(), request.overrides.begin(), request.overrides.end());
  }
  EXPECT_THAT(overrides, testing::Contains("parallel.schedule.file=\"a #1: [b].csv\""));
}

TEST(VerifyMatrix, TheSerialRunHasOneRankWhateverTheConfigurationSays) {
  const VerifyMatrix m = matrix({"pipeline=2"}, {"parallel.tensor=2", "parallel.zero=1", "parallel.schedule=zb-h1",
                                                 "launch.ranks=8", "parallel.recompute=full"});
  const ParallelConfig& serial = m.models.at(0).serial.parallel;
  EXPECT_EQ(product(serial.size), 1);
  EXPECT_EQ(serial.zero, 0);
  EXPECT_EQ(serial.recompute, Recompute::none);
  EXPECT_EQ(m.cases.at(0).layout, "pipeline=2 tensor=2 schedule=zb-h1 zero=1 recompute=full");
}

TEST(VerifyMatrix, ListsALayoutOnce) {
  EXPECT_THAT(names(matrix({"data=2", "zero=0 data=2", "all"}, {"verify.ranks=[2, 2]"})),
              testing::SizeIs(5 + built_in_schedules.size() + 1));
}

TEST(VerifyMatrix, RefusesWhatCannotBeMeant) {
  EXPECT_THAT(matrix_refusal({"al"}), HasSubstr("must be `all`, or keys of `parallel`"));
  EXPECT_THAT(matrix_refusal({"tensr=2"}), AllOf(HasSubstr("unknown key"), HasSubstr("did you mean 'parallel.tensor'")));
  EXPECT_THAT(matrix_refusal({"tensor=two"}), HasSubstr("parallel.tensor=two: wrong type"));
  EXPECT_THAT(matrix_refusal({"schedule=zbv pipeline=2"}), HasSubstr("did you mean 'zb-v'"));
  // A layout by name that a rule refuses is an error, once for all models; `all` with nothing left is one too.
  const std::string three = matrix_refusal({"data=1", "tensor=3"}, {"verify.variants=[\"x: model.bias=false\"]"});
  EXPECT_THAT(three,
              AllOf(HasSubstr("parallel.tensor=3: must divide model.heads=4 (layout \"tensor=3\")"), HasSubstr("3 problems")));
  EXPECT_THAT(matrix_refusal({"all"}, {"verify.ranks=[13]"}), HasSubstr("no layout is left"));
  EXPECT_THAT(matrix_refusal({"data=1"}, {"verify.variants=[\"model.bias=false\"]"}), HasSubstr("must be `name: path=value"));
  EXPECT_THAT(matrix_refusal({"data=1"}, {"verify.variants=[\"x: model.bais=false\"]"}),
              AllOf(HasSubstr("unknown key (variant \"x\")"), HasSubstr("did you mean 'model.bias'")));
  EXPECT_THAT(matrix_refusal({"data=1"}, {"verify.variants=[\"base: model.bias=false\"]"}), HasSubstr("name of another model"));
  EXPECT_THAT(matrix_refusal({"data=1"}, {"launch.mode=external", "launch.rendezvous=/tmp/x"}),
              HasSubstr("threads or processes"));
}

TEST(VerifyMatrix, ALayoutThatSuitsSomeModelsIsRefusedForTheOthers) {
  const VerifyMatrix m = matrix({"tensor=4"}, {"verify.variants=[\"narrow: model.kv_heads=2\"]"});
  EXPECT_THAT(names(m), ElementsAre("base: tensor=4"));
  ASSERT_EQ(m.refused.size(), 1u);
  EXPECT_EQ(m.refused[0].model, "narrow");
}

}  // namespace
}  // namespace plait::verify::test
