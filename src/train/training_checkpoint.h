// Moves state between an interpreter and a checkpoint, and decides which rank writes which elements.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/weights_reader.h"
#include "config/config.h"
#include "runtime/interpreter.h"
#include "runtime/rank_life.h"

namespace plait::train {

// Collective: every rank of the job calls it between steps. `barrier(name)` returns when all ranks have called it with that
// name. `life` is this rank's: if it is aborted the writing ends, and if the writing fails it is aborted before any part of the
// checkpoint is removed. The result is rank 0's. Without ZeRO the replicas hold equal state and those of data coordinate 0
// write it. Files hold moments in the type of the master weights, bf16 ones too. Refusals by the file system are an Error,
// never a ConfigError.
std::optional<checkpoint::CommittedCheckpoint> synchronize_save(runtime::Interpreter& interpreter,
                                                                const std::filesystem::path& run_dir, std::int64_t step,
                                                                const nlohmann::ordered_json& state, std::int64_t keep,
                                                                const std::function<void(const std::string&)>& barrier,
                                                                runtime::RankLife& life);

// The `kernel_choices` in a checkpoint's state, for OpContext::adopt_choices. ConfigError naming file and member unless it is a
// list of strings.
std::vector<std::string> kernel_choices(const checkpoint::CheckpointReader& checkpoint);

// Reads this rank's share of the master weights, and of the moments unless `what` is only the weights (moments then stay as
// they are), and publishes the weights; reads nothing else of the tensors. Numbers are rounded to nearest for bf16 moments, so
// those that were bf16 when they were written come back exactly. Collective over the data group.
void synchronize_load(runtime::Interpreter& interpreter, const checkpoint::WeightsReader& weights,
                      checkpoint::Restored what = checkpoint::Restored::everything);

// True if the run saves this step in any case.
bool is_saved(const Config& config, std::int64_t step);

}  // namespace plait::train
