#include "train/training_checkpoint.h"

#include <algorithm>
#include <array>
#include <span>

#include "core/error.h"
#include "core/record.h"

namespace plait::train {
namespace {

using checkpoint::Restored;

constexpr std::int64_t staging_elements = std::int64_t{8} << 20;
constexpr std::size_t most_choices = 100'000;

struct StateTensor {
  View state;
  std::string (*name)(const model::Parameter&);
};

std::array<StateTensor, 3> state_tensors(const runtime::Interpreter& interpreter) {
  return {StateTensor{interpreter.master(), [](const model::Parameter& p) { return p.name; }},
          StateTensor{interpreter.exp_avg(), checkpoint::exp_avg_name},
          StateTensor{interpreter.exp_avg_sq(), checkpoint::exp_avg_sq_name}};
}

// Calls transfer(piece, name, first element of this rank's part, device memory) for every piece of state this rank keeps, in
// runs that fit the staging memory.
template <typename Transfer>
void for_each_run(const runtime::Interpreter& interpreter, Restored what, Transfer transfer) {
  const parallel::RankPlan& plan = interpreter.plan();
  const std::array<StateTensor, 3> all = state_tensors(interpreter);
  for (const StateTensor& tensor : std::span(all).first(what == Restored::weights ? 1 : all.size())) {
    for (const auto& piece : plan.flat.state_pieces()) {
      const model::Parameter& parameter = plan.parameters[piece.parameter];
      for (std::int64_t done = 0; done < piece.count; done += staging_elements) {
        const std::int64_t count = std::min(staging_elements, piece.count - done);
        transfer(parameter, tensor.name(parameter), piece.parameter_first + done,
                 tensor.state.rows(piece.state_first + done, count));
      }
    }
  }
}

// Elements of the longest of these runs.
std::size_t longest_run(const parallel::RankPlan& plan) {
  std::int64_t longest = 0;
  for (const auto& piece : plan.flat.state_pieces()) longest = std::max(longest, piece.count);
  return static_cast<std::size_t>(std::min(longest, staging_elements));
}

// Host memory between the device's state and files, which hold all state in one type: bf16 moments as f32.
class Staging {
 public:
  Staging(StreamRef stream, const parallel::RankPlan& plan)
      : stream_(stream), stored_(plan.master_type), values_(longest_run(plan) * size_of(stored_)) {}

  // The value in the files' type.
  std::byte* at(std::int64_t element) { return values_.data() + static_cast<std::size_t>(element) * size_of(stored_); }

  void synchronize_take(const View& memory) {
    stream_.copy(place_for(memory), memory.data, memory.bytes());
    stream_.synchronize();
    if (memory.dtype == stored_) return;
    auto* wide = reinterpret_cast<float*>(values_.data());
    for (std::int64_t i = 0; i < memory.elements(); ++i) wide[i] = static_cast<float>(narrow_[static_cast<std::size_t>(i)]);
  }

  void synchronize_put(const View& memory) {
    void* const from = place_for(memory);
    if (memory.dtype != stored_) {
      const auto* wide = reinterpret_cast<const float*>(values_.data());
      for (std::int64_t i = 0; i < memory.elements(); ++i) narrow_[static_cast<std::size_t>(i)] = BFloat16(wide[i]);
    }
    stream_.copy(memory.data, from, memory.bytes());
    stream_.synchronize();
  }

 private:
  void* place_for(const View& memory) {
    if (memory.dtype == stored_) return values_.data();
    require(memory.dtype == DType::bf16 && stored_ == DType::f32, "Staging: of two types only as bf16 and f32");
    narrow_.resize(values_.size() / size_of(stored_));
    return narrow_.data();
  }

  StreamRef stream_;
  DType stored_;
  std::vector<std::byte> values_;
  std::vector<BFloat16> narrow_;
};

std::vector<checkpoint::FileSpec> whole_tensors(const parallel::RankPlan& plan) {
  return checkpoint::training_tensors(model::parameters(plan.sizes.shape), plan.master_type);
}

}  // namespace

std::optional<checkpoint::CommittedCheckpoint> synchronize_save(runtime::Interpreter& interpreter,
                                                                const std::filesystem::path& run_dir, std::int64_t step,
                                                                const nlohmann::ordered_json& state, std::int64_t keep,
                                                                const std::function<void(const std::string&)>& barrier,
                                                                runtime::RankLife& life) {
  const parallel::RankPlan& plan = interpreter.plan();
  const std::string name = "checkpoint-" + std::to_string(step);
  interpreter.synchronize();
  // Declared here to outlive the work that may fail: rank 0's writer removes the directory that others write to, so they must
  // know the reason first.
  std::optional<checkpoint::CheckpointWriter> writer;
  const auto write = [&] {
    if (plan.rank == 0) writer.emplace(checkpoint::CheckpointWriter::begin(run_dir, step, whole_tensors(plan)));
    barrier(name + "-begin");
    if (plan.rank != 0) writer.emplace(checkpoint::CheckpointWriter::open(run_dir, step, plan.rank));
    // Without ZeRO, data-parallel ranks hold equal state: the first one writes. Likewise one rank writes each parameter that
    // more than one tensor-parallel or pipeline rank holds.
    if (plan.zero > 0 || plan.is_first_replica()) {
      Staging staging(interpreter.compute_stream(), plan);
      for_each_run(interpreter, Restored::everything,
                   [&](const model::Parameter& parameter, const std::string& tensor, std::int64_t first, View memory) {
                     if (parameter.replica) return;
                     life.check();
                     staging.synchronize_take(memory);
                     for (const model::ElementRun& run : model::whole_runs(parameter.part, first, memory.elements())) {
                       writer->write(tensor, run.whole_first, run.count, staging.at(run.first - first));
                     }
                   });
    }
    writer->finish();
    life.check();
    barrier(name + "-written");
    std::optional<checkpoint::CommittedCheckpoint> committed;
    if (plan.rank == 0) committed = writer->commit(state, keep);
    barrier(name + "-committed");
    return committed;
  };
  // A failure to write a running job's state is not a fault of its input.
  const auto save = [&] {
    try {
      return write();
    } catch (const ConfigError& error) {
      throw Error("cannot write the checkpoint of step " + std::to_string(step) + ": " + error.what());
    }
  };
  return life.run(save, [&] { interpreter.synchronize_aborted(); });
}

std::vector<std::string> kernel_choices(const checkpoint::CheckpointReader& checkpoint) {
  const JsonSource source = checkpoint.state_source();
  const JsonField choices = JsonField(checkpoint.state(), source, "state")["kernel_choices"];
  return record_from<std::vector<std::string>>(choices, record::at_most(most_choices));
}

void synchronize_load(runtime::Interpreter& interpreter, const checkpoint::WeightsReader& weights, Restored what) {
  const parallel::RankPlan& plan = interpreter.plan();
  checkpoint::expect_training_tensors(weights, plan.sizes.shape, plan.master_type, what);
  Staging staging(interpreter.compute_stream(), plan);
  for_each_run(interpreter, what,
               [&](const model::Parameter& parameter, const std::string& tensor, std::int64_t first, View memory) {
                 for (const model::ElementBlock& block : model::whole_blocks(parameter.part, first, memory.elements()))
                   weights.read(tensor, block, staging.at(block.first - first));
                 staging.synchronize_put(memory);
               });
  interpreter.publish_weights();
}

bool is_saved(const Config& config, std::int64_t step) {
  const std::int64_t every = config.checkpoint.every;
  return (every > 0 && step % every == 0) || (config.checkpoint.final && step == config.train.steps);
}

}  // namespace plait::train
