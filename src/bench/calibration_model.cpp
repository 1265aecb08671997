#include "bench/calibration_model.h"

#include <algorithm>
#include <chrono>

#include "data/tokenizer.h"
#include "model/segment_work.h"

namespace plait::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t fewest_blocks = 2;        // the second has a block on both sides, like most blocks of a model
constexpr std::int64_t blocks_without_head = 8;  // with fewer, caches hold more than in training
constexpr double share_tolerance = 0.1;          // the head's share of all products
constexpr int warm_up_steps = 2;
constexpr std::int64_t steps_of_data = 1'000'000'000;  // more than any calibration runs
constexpr std::chrono::milliseconds settling{250};     // power limits act within a tenth of a second
constexpr int steps_ahead = 2;                         // enqueued, so that the GPU never waits and its clock does not rise
constexpr double most_of_memory = 0.9;
constexpr float learning_rate = 1e-6f;

// `blocks`: of the timed stage.
Config small_model(const Config& config, std::int64_t vocab, const CalibrationCase& c, std::int64_t blocks,
                   CalibrationModel::Stage stage) {
  const bool with_head = stage == CalibrationModel::Stage::with_head;
  Config small = config;
  small.model.layers = with_head ? blocks : blocks + 1;
  // Makes all blocks alike: if only some see the whole sequence, all do.
  if (!small.model.window_layers.empty()) {
    if (std::ssize(config.model.window_layers) < config.model.layers) small.model.window = automatic;
    small.model.window_layers.clear();
  }
  small.model.vocab = vocab;
  small.data.tokenizer = "random";
  small.data.train.clear(), small.data.sources.clear(), small.data.validation.clear(), small.data.sentencepiece = {};
  small.train.graph = GraphUse::instructions;  // no trial
  small.train.micro_batch = c.micro_batch;
  small.train.global_batch = c.micro_batch * CalibrationModel::micro_batches;
  small.parallel = ParallelConfig{};
  small.parallel.size = single_rank;
  small.parallel.size[segment_axis] = c.tensor;
  small.parallel.sequence_parallel = config.parallel.sequence_parallel;
  small.parallel.recompute = c.recompute;
  if (!with_head) {
    small.parallel.size[stage_axis] = 2;
    small.parallel.stages = {static_cast<double>(blocks), 1};
  }
  return small;
}

double flops(const model::SegmentSizes& sizes, int segment) {
  const model::SegmentWork work = model::segment_work(sizes, segment);
  double all = 0;
  for (const model::PassWork* pass : {&work.forward, &work.backward_input, &work.backward_weight})
    all += pass->matrix_flops + pass->attention_flops;
  return all;
}

// `sizes`: for any number of blocks.
std::int64_t blocks_to_time(const model::SegmentSizes& sizes, std::int64_t all_blocks) {
  const double head = flops(sizes, sizes.shape.segments() - 1), block = flops(sizes, 1) + flops(sizes, 2);
  const auto share = [&](std::int64_t blocks) { return head / (head + static_cast<double>(blocks) * block); };
  std::int64_t blocks = fewest_blocks;
  while (blocks < all_blocks && share(blocks) > share(all_blocks) + share_tolerance) ++blocks;
  return blocks;
}

bool fits(const parallel::RankPlan& plan, Device device) {
  if (!device.is_cuda()) return true;
  return static_cast<double>(plan.memory.total_bytes()) <= most_of_memory * static_cast<double>(memory_info(device).free_bytes);
}

}  // namespace

std::unique_ptr<CalibrationModel> CalibrationModel::make(const Config& config, std::int64_t vocab, const CalibrationCase& c,
                                                         Device device, Stage stage) {
  const bool with_head = stage == Stage::with_head;
  const auto config_of = [&](std::int64_t blocks) { return small_model(config, vocab, c, blocks, stage); };
  Config small = config_of(fewest_blocks);
  const parallel::Layout layout = parallel::make_layout(small.parallel.size);
  const auto plan_of = [&](const Config& of) {
    return parallel::make_rank_plan(of, parallel::Decision{}, vocab, layout, 0, device.kind);
  };
  parallel::RankPlan plan = plan_of(small);
  if (!fits(plan, device)) return nullptr;
  const std::int64_t most = with_head ? blocks_to_time(plan.sizes, config.model.layers) : blocks_without_head;
  std::int64_t timed = fewest_blocks;
  for (std::int64_t blocks = most; blocks > fewest_blocks; blocks /= 2) {
    const Config larger = config_of(blocks);
    parallel::RankPlan larger_plan = plan_of(larger);
    if (!fits(larger_plan, device)) continue;
    small = larger, plan = std::move(larger_plan), timed = blocks;
    break;
  }
  std::unique_ptr<CalibrationModel> model(new CalibrationModel(small, std::move(plan), device));
  model->short_of_blocks_ = timed < most;
  return model;
}

CalibrationModel::CalibrationModel(const Config& small, parallel::RankPlan plan, Device device)
    : memory_(device),
      host_memory_(device),
      absent_(absent_groups(plan, memory_)),
      interpreter_(std::move(plan), memory_, absent_, std::make_shared<runtime::RankLife>()) {
  interpreter_.initialize(small.run.seed);
  interpreter_.synchronize_warm_up();
  const std::unique_ptr<data::Tokenizer> tokenizer = data::create_tokenizer(small);
  const auto dataset = data::open_dataset(small, *tokenizer, small.model.vocab);
  batches_ = std::make_unique<train::TrainingBatches>(host_memory_, this->plan(), dataset, 1, steps_of_data);
  for (int step = 0; step < warm_up_steps; ++step) enqueue_step();
  synchronize();
}

void CalibrationModel::settle() {
  const Clock::time_point start = Clock::now();
  do {
    enqueue_step();
    if (interpreter_.pending_results() > steps_ahead) static_cast<void>(interpreter_.synchronize_result());
  } while (Clock::now() - start < settling);
}

std::vector<float> CalibrationModel::synchronize_profile() {
  if (memory_.device().is_cuda()) settle();  // a host's clock cannot be settled
  std::vector<float> ms = interpreter_.synchronize_profile(*batches_, {.update = ++updates_, .lr = learning_rate});
  finite_ = !synchronize().halted && finite_;
  return ms;
}

void CalibrationModel::enqueue_step() {
  if (interpreter_.pending_results() == runtime::Interpreter::results_in_flight)
    static_cast<void>(interpreter_.synchronize_result());
  interpreter_.run_step(*batches_, {.update = ++updates_, .lr = learning_rate});
}

runtime::StepResult CalibrationModel::synchronize() {
  runtime::StepResult latest;
  while (interpreter_.pending_results() > 0) latest = interpreter_.synchronize_result();
  return latest;
}

}  // namespace plait::bench
