// Ranks compare their inputs before anything else. Two ranks with different learning rates would silently train wrongly; with
// different layouts they would wait for each other.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "launch/rank_context.h"
#include "parallel/decision.h"

namespace plait::launch {

// A fact that all ranks of a job must share.
struct Fact {
  std::string name;   // "train.optimizer.lr", or "data.train" and a file
  std::string value;  // "0.0006", or the file's size and the time of its last change
};

// The facts of this process:
//   every key of the configuration, except those that name something of a host (shared_values() in config/config.h);
//   every file of data.train, data.validation and the tokenizer: its name, size and modification time in whole seconds, which
//   copies between hosts keep (cp -p, rsync -t, tar);
//   for a schedule from a file, and for the passes of a planned one, a checksum of its contents;
//   the kind of device, the versions of plait and of the libraries that it computes and communicates with.
// It does not fail: a fault of a file or a device is a fact too, so that the others hear of it. Weights that a run starts from
// are compared where they are loaded (train/run_start.h).
std::vector<Fact> facts_of(const Config& config, const parallel::Decision& decision);

// Collective over all ranks of the job. Ranks exchange a checksum of their facts, and the facts themselves only if checksums
// differ. Then every rank throws the same ConfigError, which names the differences, ranks and both values; also if the store
// already holds this rank's word (`place` says where the store is: a directory that an earlier job has left). CommError on
// every rank that has come if some do not within `timeout`, which names those.
void agree(const RankContext& rank, const std::vector<Fact>& own, std::chrono::milliseconds timeout, const std::string& place);

// Opens the rendezvous of the job and agrees, if this process is one rank of a job with more processes: launch.mode external or
// a child of processes. Otherwise null: ranks share one configuration. It comes before settle() and plan_launch(), which may
// refuse an input of one rank while the others wait for it; and once in a job. plan_launch() takes the result.
std::shared_ptr<comm::Rendezvous> join_job(const Config& config, const parallel::Decision& decision);

// A failure of one rank between join_job() and launch() ends the others too, with its words: they do not wait for it. Runs
// `work` and rethrows its exception. `joined`: the result of join_job().
void end_job(const std::shared_ptr<comm::Rendezvous>& joined, const Config& config, const std::exception& error) noexcept;
template <typename Work>
auto or_end_job(const std::shared_ptr<comm::Rendezvous>& joined, const Config& config, Work&& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    end_job(joined, config, error);
    throw;
  }
}

}  // namespace plait::launch
