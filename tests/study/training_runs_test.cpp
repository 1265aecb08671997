// What `plait train` is called with for the points of a study of losses.
#include "study/training_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/temporary_directory.h"
#include "study_files.h"

namespace plait::study {
namespace {

namespace fs = std::filesystem;

class TrainingRunsTest : public testing::Test {
 protected:
  // A point of each length, of one size.
  fs::path study_of(const std::vector<std::int64_t>& lengths) {
    const Config study = test::study_config(folder_.path());
    std::vector<Point> points;
    for (const std::int64_t steps : lengths) {
      Config config = study;
      config.train.steps = steps;
      config.train.optimizer.schedule = Decay::wsd;
      config.train.optimizer.warmup = 10, config.train.optimizer.decay_fraction = 0.5;
      points.push_back(test::point(config, static_cast<int>(points.size()), 1, 10));
    }
    return create_study(study, train::environment_here(), nullptr, points);
  }
  // What is trained for each point, one run after the other: a piece of the trunk, a fork of it, or a run by itself.
  static std::vector<std::vector<std::string>> runs_of(const StudyFolder& folder) {
    std::vector<std::vector<std::string>> of_points;
    for (const Point& point : folder.data().points) {
      std::vector<std::string>& names = of_points.emplace_back();
      for (const TrainingRun& run : training_runs(folder, point, "round-1.log")) {
        const bool forks = std::ranges::find(run.arguments, "--init-from") != run.arguments.end();
        const std::string name = run.run_directory.filename().string();
        names.push_back(name == "run" ? (forks ? "fork" : "alone") : name);
      }
    }
    return of_points;
  }

  plait::test::TemporaryDirectory folder_;
};

using testing::ElementsAre;

TEST_F(TrainingRunsTest, LengthsOfOneSizeForkOneTrunk) {
  const StudyFolder folder(study_of({40, 80}));
  EXPECT_THAT(runs_of(folder), ElementsAre(ElementsAre("step-20", "fork"), ElementsAre("step-20", "step-40", "fork")));
}

// The decay of both short ones begins with the end of the warm-up.
TEST_F(TrainingRunsTest, ALengthWhoseForkIsTakenIsTrainedAlone) {
  const StudyFolder folder(study_of({12, 14, 80}));
  EXPECT_THAT(runs_of(folder),
              ElementsAre(ElementsAre("step-10", "fork"), ElementsAre("alone"), ElementsAre("step-10", "step-40", "fork")));
}

TEST_F(TrainingRunsTest, OneForkNeedsNoTrunk) {
  const StudyFolder folder(study_of({12, 14}));
  EXPECT_THAT(runs_of(folder), ElementsAre(ElementsAre("alone"), ElementsAre("alone")));
}

}  // namespace
}  // namespace plait::study
