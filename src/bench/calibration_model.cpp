#include "bench/calibration_model.h"

#include "data/tokenizer.h"

namespace plait::bench {
namespace {

constexpr int warm_up_steps = 2;
constexpr double most_of_memory = 0.9;
constexpr float learning_rate = 1e-6f;

Config small_model(const Config& config, std::int64_t vocab, const CalibrationCase& c) {
  Config small = config;
  small.model.layers = CalibrationModel::layers;
  small.model.vocab = vocab;
  small.data.tokenizer = "random";
  small.data.train.clear(), small.data.validation.clear(), small.data.sentencepiece = {};
  small.train.micro_batch = c.micro_batch;
  small.train.global_batch = c.micro_batch * CalibrationModel::micro_batches;
  small.parallel = ParallelConfig{};
  small.parallel.data = 1, small.parallel.tensor = c.tensor,
  small.parallel.sequence_parallel = config.parallel.sequence_parallel;
  small.parallel.recompute = c.recompute;
  return small;
}

}  // namespace

std::unique_ptr<CalibrationModel> CalibrationModel::make(const Config& config, std::int64_t vocab, const CalibrationCase& c,
                                                         Device device, std::int64_t steps) {
  const Config small = small_model(config, vocab, c);
  const parallel::Layout layout{.pipeline = 1, .data = 1, .tensor = c.tensor};
  parallel::RankPlan plan = parallel::make_rank_plan(small, vocab, layout, 0, device.kind);
  if (device.is_cuda()) {
    const MemoryInfo memory = memory_info(device);
    if (static_cast<double>(plan.memory.total_bytes()) > most_of_memory * static_cast<double>(memory.free_bytes))
      return nullptr;
  }
  return std::unique_ptr<CalibrationModel>(new CalibrationModel(small, std::move(plan), device, steps));
}

CalibrationModel::CalibrationModel(const Config& small, parallel::RankPlan plan, Device device, std::int64_t steps)
    : memory_(device),
      host_memory_(device),
      absent_(absent_groups(plan, memory_)),
      interpreter_(std::move(plan), memory_, absent_.groups, std::make_shared<runtime::RankLife>()) {
  interpreter_.initialize(small.run.seed);
  interpreter_.synchronize_warm_up();
  const std::unique_ptr<data::Tokenizer> tokenizer = data::create_tokenizer(small);
  const auto dataset = data::open_dataset(small, *tokenizer, small.model.vocab);
  batches_ = std::make_unique<train::TrainingBatches>(host_memory_, this->plan(), dataset, 1, warm_up_steps + steps);
  for (int step = 0; step < warm_up_steps; ++step) enqueue_step();
  synchronize();
  for (const auto& communicator : absent_.communicators) communicator->set_copying(false);
}

std::vector<float> CalibrationModel::synchronize_profile() {
  return interpreter_.synchronize_profile(*batches_, {.update = ++updates_, .lr = learning_rate});
}

void CalibrationModel::enqueue_step() {
  if (interpreter_.pending_results() == runtime::Interpreter::results_in_flight)
    static_cast<void>(interpreter_.synchronize_result());
  interpreter_.run_step(*batches_, {.update = ++updates_, .lr = learning_rate});
}

void CalibrationModel::synchronize() {
  while (interpreter_.pending_results() > 0) static_cast<void>(interpreter_.synchronize_result());
}

}  // namespace plait::bench
