// Ranks compare what they were started with before anything else. Two ranks with different learning rates would train on and be
// wrong; with different layouts they would wait for each other.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "core/config.h"
#include "launch/rank_context.h"

namespace plait::launch {

// Something that all ranks of a job have to have in common.
struct Fact {
  std::string name;   // "train.optimizer.lr", or "data.train" and a file
  std::string value;  // "0.0006", or the file's size and the time of its last change
};

// What this process brings into a job:
//   every key of the configuration, but those that name something of a host (shared_values() in core/config.h);
//   every file of data.train, data.validation and the tokenizer: its name, size and time of last change in whole seconds, which
//   is what copies between hosts keep (cp -p, rsync -t, tar);
//   of a schedule from a file, a checksum of what it says;
//   the kind of device, the versions of plait and of the libraries that it computes and communicates with.
// Does not fail: what is wrong with a file or a device is a fact too, so that the others hear of it. Weights that a run starts
// from are compared where they are loaded (train/run_start.h).
std::vector<Fact> facts_of(const Config& config);

// Collective over all ranks of the job. Ranks exchange a checksum of their facts, and the facts themselves only where checksums
// differ. Then it is a ConfigError on every rank, the same one, that names what differs, ranks and both values; also where the
// store holds this rank's word already (`place` says where the store is: a directory that an earlier job has left). CommError
// on every rank that has come if some do not within `timeout`, which names those.
void agree(const RankContext& rank, const std::vector<Fact>& own, std::chrono::milliseconds timeout, const std::string& place);

// Opens the rendezvous of the job and agrees, where this process is one rank of several processes: launch.mode external or a
// child of processes. Nothing elsewhere: ranks share one configuration. Comes before settle() and plan_launch(), which may
// refuse what only one rank was given while the others wait for it; and once in a job. plan_launch() takes the result.
std::shared_ptr<comm::Rendezvous> join_job(const Config& config);

// What one rank fails at between join_job() and launch() ends the others too, with its words: they do not wait for it. Runs
// `work` and throws what that throws. `joined`: what join_job() gave.
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
