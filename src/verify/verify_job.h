// One launch of ranks for verification: the serial run that is written down, or a layout that is compared with it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launch/job_planning.h"
#include "launch/launch.h"
#include "verify/findings.h"
#include "verify/rank_parts.h"

namespace plait::verify {

struct VerifyJob {
  enum class Task {
    record,          // gradients of the first step with a target that counts, parameters of the last, losses of all
    record_tensors,  // those of every step, and every tensor that forward and backward write
    compare,         // with what `record` wrote
    search,          // for the first divergence from what `record_tensors` wrote
  };
  Task task = Task::compare;
  std::filesystem::path model;   // directory of the tokenizer and of serial runs; the same for all layouts of a model
  std::filesystem::path result;  // an existing directory in which ranks leave what they found, of this job alone
};
// The batches of all steps: the text is encoded once, however many ranks and layouts there are.
std::filesystem::path recorded_batches(const VerifyJob& job);

// Where in job.model the serial run is that the task writes or reads.
std::filesystem::path serial_run(const VerifyJob& job);
// As text for the command line of a rank's process.
std::string to_text(const VerifyJob& job);
VerifyJob verify_job_from(const std::string& text);

// Launches the ranks of the job, as `settled` says, and returns what all of them found. Throws what the rank that failed first
// threw, with the rank before its message: ConfigError, or Error for anything else; Interrupted when told to end. `argv`: how
// this program was started; a rank's process is started in the same way, with --job and the job's text added.
VerifyFindings run_verify_job(const VerifyJob& job, const launch::SettledJob& settled, const RankParts& parts,
                              const std::vector<std::string>& argv);

// What such a process does, which has been passed what was settled. The exit status says whether it failed; why is in the job's
// files.
int run_verify_rank(const VerifyJob& job);

}  // namespace plait::verify
