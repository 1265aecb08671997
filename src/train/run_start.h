// The start of a run: with weights from the seed, with those of another run (train.init_from), or where it was left (--resume).
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/run_directory.h"
#include "checkpoint/run_lock.h"
#include "checkpoint/weights_reader.h"
#include "comm/meeting.h"
#include "comm/word.h"
#include "config/config.h"
#include "train/training_checkpoint.h"

namespace plait::train {

// The facts that all ranks need; rank 0 decides and tells them.
struct RunStart {
  std::filesystem::path run_dir;
  std::filesystem::path checkpoint;  // to load, or a model of transformers; empty: weights from the seed
  std::string owner;                 // RunLock::own()'s text there: not every host may see that directory
  std::string digest;                // of those weights (checkpoint/weights_reader.h), as found by rank 0
  bool resumed = false;              // the checkpoint belongs to this very run
  checkpoint::Restored restored = checkpoint::Restored::everything;  // the parts taken from the checkpoint
  std::int64_t step = 0;                                             // updates done
  std::int64_t samples = 0;                                          // used by those updates
  // True if the run continues at the step of the checkpoint, in any directory.
  bool continues() const { return !checkpoint.empty() && restored == checkpoint::Restored::everything; }
};

// What rank 0 knows beside that.
struct RunOrigin {
  // The origin of the weights of this run, or of the run that it continues; null: the seed. Kept in RUN_DIR/init_from.json and
  // in the state of every checkpoint (docs/checkpoints.md).
  nlohmann::ordered_json init_from;
  std::vector<std::string> notes;  // for the user
  // The directory of a new run, until its first step is next.
  std::unique_ptr<checkpoint::UncertainRunDirectory> uncertain;
};

// What rank 0 tells the others of it.
nlohmann::ordered_json word_of(const RunStart& start);

// Collective, before anything is launched on devices. Rank 0 finds and verifies the checkpoint, or makes the new run's
// directory with its configuration and tokenizer. Impossible requests fail before a directory is made: ConfigError, with every
// difference between the configuration and the run of the weights, and the remedy. After later failures, such as another rank
// that does not see this directory (ConfigError), `origin` removes the directory on rank 0. Leaves the rank's part of the
// directory's lock in `lock`, and on rank 0 the run's origin in `origin`.
RunStart agree_on_start(const Config& config, const std::filesystem::path& resume, comm::Meeting& meeting,
                        std::optional<checkpoint::RunLock>& lock, RunOrigin& origin);

// Collective: rank 0 has verified the weights that the run starts from; if others see copies of these files, the first rank of
// each copy verifies that copy. ConfigError on that rank, as for verify(); for a model of transformers, which has no checksums,
// on all ranks that see a copy with other bytes. `weights`: as this rank sees them.
void verify_copies(const checkpoint::WeightsReader& weights, comm::Meeting& meeting);

}  // namespace plait::train
