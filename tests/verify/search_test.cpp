// The search for the first divergence compares tensors of every layout with the serial run's: where nothing is wrong it must
// find nothing, or it would name the wrong place.
#include <gtest/gtest.h>

#include "core/file.h"
#include "verify/verify_cases.h"

namespace plait::verify::test {
namespace {

using Task = VerifyJob::Task;

const std::string llama =
    "model.norm=rms_norm model.mlp=swiglu model.position=rope model.bias=false model.qkv_bias=false "
    "model.kv_heads=2 model.tie_embeddings=false";

class Search : public testing::TestWithParam<const char*> {};

TEST_P(Search, FindsNothingWhereNothingIsWrong) {
  // Layouts of 1, 2 and 4 ranks that any precision, recomputation and model can have.
  const PrivateDirectory directory;
  const std::string reversed = directory.path() / "reversed.csv";  // micro-batches in descending order
  write_text_file(reversed, "0F3,0F2,0F1,0F0,0B3,0B2,0B1,0B0\n1F3,1B3,1F2,1B2,1F1,1B1,1F0,1B0\n");
  const VerifyRequest request = verify_request(
      {"all", "pipeline=2 schedule.file=" + reversed}, {},
      {std::string("verify.variants=[\"llama: ") + llama + "\"]", std::string("parallel.recompute=") + GetParam()});
  const VerifyMatrix matrix = make_matrix(request.config, request.layouts);
  int jobs = 0;
  const auto run = [&](Task task, std::size_t model, const Config& config) {
    const VerifyJob job{task, directory.path() / std::to_string(model), directory.path() / ("job-" + std::to_string(jobs++))};
    create_private_directories(job.result);
    create_private_directories(serial_run(job));
    return run_verify_job(job, {.config = config, .decision = {}, .plan = {}, .note = {}}, {}, {});
  };
  for (std::size_t m = 0; m < matrix.models.size(); ++m) {
    create_private_directories(directory.path() / std::to_string(m));
    matrix.models[m].tokenizer->save(directory.path() / std::to_string(m));
    run(Task::record_tensors, m, matrix.models[m].serial);
  }
  EXPECT_GT(matrix.cases.size(), 60u);
  for (const VerifyCase& c : matrix.cases) {
    const auto found = run(Task::search, c.model, c.config).first_divergence;
    EXPECT_FALSE(found) << matrix.models[c.model].name << " " << c.layout << ": " << found->text();
  }
}

INSTANTIATE_TEST_SUITE_P(Recompute, Search, testing::Values("none", "full"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace plait::verify::test
