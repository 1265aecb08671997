// Every configuration that plait ships can be read, and planned for as many ranks as it asks for.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/config.h"
#include "parallel/rank_plan.h"

namespace plait::train {
namespace {

TEST(ShippedConfigs, ReadAndPlan) {
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(std::filesystem::path(PLAIT_SOURCE_DIR) / "configs")) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path().string());
    ++files;
    const Config config = load_config(entry.path().string());
    EXPECT_EQ(to_yaml(parse_config(to_yaml(config))), to_yaml(config));
    for (const DeviceKind kind : {DeviceKind::host, DeviceKind::cuda}) {
      const int ranks = config.parallel.data > 0 ? static_cast<int>(config.parallel.data) : 2;
      const parallel::Layout layout = parallel::resolve_layout(config.parallel, ranks);
      const std::int64_t vocab = config.data.tokenizer == "bytes" ? 256 : config.model.vocab;
      const parallel::RankPlan plan = parallel::make_rank_plan(config, vocab, layout, 0, kind);
      EXPECT_GT(plan.memory.total_bytes(), 0u);
    }
  }
  EXPECT_GE(files, 3);
}

}  // namespace
}  // namespace plait::train
