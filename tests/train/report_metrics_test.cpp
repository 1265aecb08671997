#include "train/report/step_metrics.h"

#include <gmock/gmock.h>

#include <limits>

#include "checkpoint/checkpoint_files.h"

namespace plait::train {
namespace {

using namespace checkpoint::test;
using ::testing::HasSubstr;

class Metrics : public InTemporaryDirectory {
 protected:
  void SetUp() override {
    InTemporaryDirectory::SetUp();
    path_ = directory_ / "metrics.jsonl";
  }
  fs::path path_;
};

nlohmann::ordered_json line(std::int64_t step) { return {{"step", step}, {"loss", 2.5}}; }

TEST_F(Metrics, KeysStandInTheDocumentedOrder) {
  StepMetrics metrics;
  metrics.step = 10;
  metrics.loss = 3.25;
  metrics.loss_tokens = 4000;
  metrics.learning_rate = 1e-3;
  metrics.grad_norm = 0.5;
  metrics.tokens_per_second = 1e6;
  metrics.step_ms = 58.5;
  EXPECT_EQ(
      to_json(metrics).dump(),
      R"({"step":10,"loss":3.25,"loss_tokens":4000,"lr":0.001,"grad_norm":0.5,"tokens_per_second":1000000.0,"step_ms":58.5})");
  metrics.exposed_comm_ms = 0.25;
  metrics.mfu = 0.5;
  metrics.tflops_per_gpu = 452.0;
  metrics.peak_bytes = 1 << 30;
  metrics.tokens = 4096;
  metrics.epochs = {0.5, 2};
  metrics.validation_loss = 3.5;
  EXPECT_THAT(to_json(metrics).dump(),
              HasSubstr(R"("step_ms":58.5,"exposed_comm_ms":0.25,"mfu":0.5,"tflops_per_gpu":452.0,)"
                        R"("peak_bytes":1073741824,"validation_loss":3.5,"tokens":4096,"epochs":[0.5,2.0]})"));
}

TEST_F(Metrics, EachLineIsInTheFileAtOnce) {
  MetricsWriter writer(path_);
  writer.write(line(10));
  EXPECT_EQ(read_file(path_), "{\"step\":10,\"loss\":2.5}\n");
  writer.write({{"step", 20}, {"loss", std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_EQ(read_file(path_), "{\"step\":10,\"loss\":2.5}\n{\"step\":20,\"loss\":null}\n");
  EXPECT_EQ(static_cast<unsigned>(fs::status(path_).permissions()), 0600u);
}

TEST_F(Metrics, StepsAscend) {
  MetricsWriter writer(path_);
  writer.write(line(10));
  EXPECT_THROW(writer.write(line(10)), InternalError);
  EXPECT_THROW(writer.write(line(9)), InternalError);
}

TEST_F(Metrics, ANewRunDoesNotContinueAnOldFile) {
  MetricsWriter(path_).write(line(1));
  EXPECT_THAT(config_error([&] { MetricsWriter again(path_); }),
              AllOf(HasSubstr("metrics.jsonl exists already"), HasSubstr("--resume")));
}

TEST_F(Metrics, ADamagedLineIsNamedWithWhatToDo) {
  std::ofstream(path_) << line(1).dump() << "\nno json\n";
  EXPECT_THAT(config_error([&] { MetricsWriter again(path_, 25); }),
              AllOf(HasSubstr("metrics.jsonl, line 2: not a JSON object"), HasSubstr("take that line away")));
}

TEST_F(Metrics, ResumingCutsOffLaterSteps) {
  {
    MetricsWriter writer(path_);
    for (const int step : {10, 20, 30, 40}) writer.write(line(step));
  }
  {
    MetricsWriter writer(path_, 25);
    EXPECT_THROW(writer.write(line(20)), InternalError);
    writer.write(line(30));
  }
  EXPECT_EQ(read_file(path_), "{\"step\":10,\"loss\":2.5}\n{\"step\":20,\"loss\":2.5}\n{\"step\":30,\"loss\":2.5}\n");
  MetricsWriter(path_, 0).write(line(1));
  EXPECT_EQ(read_file(path_), "{\"step\":1,\"loss\":2.5}\n");
}

TEST_F(Metrics, ResumingCutsOffATornLine) {
  const std::string whole = "{\"step\":10,\"loss\":2.5}\n";
  for (const std::string torn : {"{\"step\":20,\"lo", "{\"step\":20,\"loss\":2.5}", "{"}) {
    write_file(path_, whole + torn);
    MetricsWriter(path_, 100).write(line(30));
    EXPECT_EQ(read_file(path_), whole + "{\"step\":30,\"loss\":2.5}\n");
    fs::remove(path_);
  }
}

TEST_F(Metrics, ResumingWithoutAFileStartsOne) {
  MetricsWriter(path_, 100).write(line(110));
  EXPECT_EQ(read_file(path_), "{\"step\":110,\"loss\":2.5}\n");
}

TEST_F(Metrics, AForeignLineIsRefused) {
  write_file(path_, "{\"step\":10}\nhello\n{\"step\":20}\n");
  EXPECT_THAT(config_error([&] { MetricsWriter again(path_, 100); }), HasSubstr("metrics.jsonl, line 2"));
  write_file(path_, "{\"step\":\"x\"}\n");
  EXPECT_THAT(config_error([&] { MetricsWriter again(path_, 100); }), HasSubstr("metrics.jsonl, line 1"));
  EXPECT_EQ(read_file(path_), "{\"step\":\"x\"}\n");
}

}  // namespace
}  // namespace plait::train
