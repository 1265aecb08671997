// plait study fit, on directories as runs leave them.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>

#include "config/config.h"
#include "data/tokenizer.h"
#include "program_test.h"

namespace plait::app {
namespace {

using testing::HasSubstr;

class StudyFitCommand : public ProgramTest {
 protected:
  // Five sizes for four lengths each, with losses of a known law in (N, D).
  void write_runs(double alpha, double beta, double irreducible) {
    for (const int layers : {1, 2, 4, 8, 16}) {
      for (const int steps : {100, 400, 1600, 6400}) {
        const std::string name = "runs/" + std::to_string(layers) + "-" + std::to_string(steps);
        std::filesystem::create_directories(path(name));
        const Config config = parse_config(
            "model: {hidden: 64, heads: 1}\ndata: {train: [text/**], tokenizer: bytes, sequence_length: 32}\n"
            "train: {global_batch: 8, micro_batch: 8}\n",
            {"model.layers=" + std::to_string(layers), "train.steps=" + std::to_string(steps)});
        const double n = layers * 12 * 64 * 64 + 256 * 64, d = steps * 8.0 * 32;
        const double loss = irreducible + 20 * std::pow(n, -alpha) + 50 * std::pow(d, -beta);
        write(name + "/config.yaml", to_yaml(config));
        data::make_byte_tokenizer()->save(path(name));
        write(name + "/metrics.jsonl", nlohmann::json{{"step", steps}, {"validation_loss", loss}}.dump() + "\n");
      }
    }
  }
};

TEST_F(StudyFitCommand, FitsTheLossesOfAFolderOfRuns) {
  write_runs(0.3, 0.4, 1.2);
  const auto fit = json("study fit @/runs --json --bootstraps 20");
  EXPECT_EQ(fit["runs"], 20);
  EXPECT_NEAR(fit["law"]["alpha"]["value"].get<double>(), 0.3, 0.003);
  EXPECT_NEAR(fit["law"]["beta"]["value"].get<double>(), 0.4, 0.004);
  EXPECT_NEAR(fit["optimum"]["parameter_exponent"]["value"].get<double>(), 0.4 / 0.7, 0.006);
  const Outcome page = plait("study fit @/runs --bootstraps 20");
  EXPECT_EQ(page.status, 0);
  EXPECT_THAT(page.output, HasSubstr("# Scaling law of 20 runs"));
}

TEST_F(StudyFitCommand, ARefusedFitIsAFailedCheck) {
  write_runs(0.3, 0.4, 0);  // it never levels off
  const Outcome outcome = plait("study fit @/runs --json --bootstraps 20");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(nlohmann::json::parse(outcome.output)["refused"].get<std::string>(), HasSubstr("no interior minimum"));
  EXPECT_THAT(refused("study fit @/nowhere"), HasSubstr("no such directory"));
  EXPECT_THAT(refused("study fit @/runs --bootstraps 0"), HasSubstr("--bootstraps"));
  for (const char* confidence : {"nan", "0.4", "1", "much"})
    EXPECT_THAT(refused(std::string("study fit @/runs --confidence ") + confidence),
                HasSubstr("must be a number from 0.5 to 0.999"));
}

}  // namespace
}  // namespace plait::app
