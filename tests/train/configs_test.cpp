// Every configuration that plait ships can be read, and planned for as many ranks as it asks for, with programs that are right.
#include <gtest/gtest.h>

#include <filesystem>

#include "config/config.h"
#include "data/tokenizer.h"
#include "parallel/job_plan.h"
#include "parallel/proof/validator.h"
#include "site/site_planning.h"
#include "test_paths.h"

namespace plait::train {
namespace {

TEST(ShippedConfigs, ReadAndPlan) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::filesystem::path(test_paths::source) / "configs")) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path().string());
    ++files;
    const Config config = load_config(entry.path().string());
    EXPECT_EQ(to_yaml(parse_config(to_yaml(config))), to_yaml(config));
    if (!keys_left_to_planner(config).empty()) {
      const site::SitedPlan planned =
          site::plan_on_site(config, parallel::Decision{}, data::vocabulary(config),
                             {.gpus = 8, .topology = {}, .device = "h200", .calibration = {}, .what_if = false});
      EXPECT_GT(planned.job.best.step_seconds, 0);
      EXPECT_TRUE(keys_left_to_planner(planned.job.config).empty());
      continue;
    }
    for (const DeviceKind kind : {DeviceKind::host, DeviceKind::cuda}) {
      if (kind == DeviceKind::cuda && config.precision.compute == "fp64") continue;  // runs on CPUs only
      const std::int64_t data = config.parallel.size[Axis::data].value_or(2);
      const auto ranks = static_cast<int>(data * config.parallel.size[Axis::tensor] * config.parallel.size[Axis::pipeline]);
      const parallel::Layout layout = parallel::resolve_layout(config.parallel, ranks);
      const std::int64_t vocab = config.data.tokenizer == "bytes" ? 256 : config.model.vocab.value();
      const std::vector<parallel::RankPlan> plans = parallel::make_job_plan(config, parallel::Decision{}, vocab, layout, kind);
      for (const parallel::RankPlan& plan : plans) EXPECT_GT(plan.memory.total_bytes(), 0u);
      EXPECT_NO_THROW(parallel::require_valid(parallel::training_programs(plans)));
      EXPECT_NO_THROW(parallel::require_valid(parallel::evaluation_programs(plans)));
    }
  }
  EXPECT_GE(files, 3);
}

}  // namespace
}  // namespace plait::train
