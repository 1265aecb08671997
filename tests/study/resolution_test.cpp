// What is known of a study's points before they run.
#include "study/resolution.h"

#include <gtest/gtest.h>

#include <string>

#include "site/site_planning.h"
#include "study/expansion.h"

namespace plait::study {
namespace {

// A point is measured by a process of its own, which plans its job as `plait train` does: what the study predicts has to be of
// that job. On two GPUs with NVLink it has its exchanges and reductions by links.
TEST(PointResolution, PredictsTheJobThatThePointRuns) {
  site::PlanningWish wish;
  wish.gpus = 2, wish.device = "h200";
  for (const char* layout : {"tensor=2", "zero=1", "pipeline=2", "auto"}) {
    const Config study = parse_config(
        "run: {name: s}\nmodel: {preset: gpt2-124m}\ndata: {tokenizer: random, sequence_length: 1024}\n"
        "train: {steps: 3, global_batch: 16, micro_batch: 4}\nlaunch: {ranks: 2}\nstudy: {axes: {layout: [\"" +
        std::string(layout) + "\"]}}\n");
    const Draft draft = expand(study, 2).front();
    const Resolved resolved = Resolver(wish, 0).resolve(draft);
    const site::SitedPlan planned = site::plan_on_site(draft.config.value(), parallel::Decision{}, 50257, wish);
    ASSERT_TRUE(resolved.prediction.has_value()) << layout << ": " << resolved.problem;
    EXPECT_DOUBLE_EQ(resolved.prediction->step_ms, 1e3 * planned.job.best.step_seconds) << layout;
    EXPECT_EQ(resolved.prediction->peak_bytes, planned.job.best.peak_bytes) << layout;
  }
}

}  // namespace
}  // namespace plait::study
