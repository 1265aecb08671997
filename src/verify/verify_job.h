// One launch of ranks for verification: a serial run to record, or a layout to compare with it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launch/launch.h"
#include "launch/settled_job.h"
#include "verify/findings.h"
#include "verify/step_runner.h"

namespace plait::verify {

struct VerifyJob {
  enum class Task {
    record,          // gradients of the first step with a counted target, parameters of the last, losses of all
    record_tensors,  // these for every step, and every tensor that forward and backward write
    compare,         // with the result of `record`
    search,          // for the first divergence from the result of `record_tensors`
  };
  Task task = Task::compare;
  std::filesystem::path model;   // directory of the tokenizer and of serial runs; the same for all layouts of a model
  std::filesystem::path result;  // an existing directory for the ranks' findings, of this job alone
};
// The batches of all steps: the text is encoded once for all ranks and layouts.
std::filesystem::path recorded_batches(const VerifyJob& job);

// The place in job.model of the serial run that the task writes or reads.
std::filesystem::path serial_run(const VerifyJob& job);
// The job as text for the command line of a rank's process.
std::string to_text(const VerifyJob& job);
VerifyJob verify_job_from(const std::string& text);

// Launches the ranks of the job, as `settled` says, and returns the findings of all of them. Throws the exception of the rank
// that failed first, with the rank before its message: ConfigError, or Error for anything else; Interrupted when told to end.
// `argv`: how this program was started; a rank's process is started in the same way, with --job and the job's text added.
VerifyFindings run_verify_job(const VerifyJob& job, const launch::SettledJob& settled, const RankParts& parts,
                              const std::vector<std::string>& argv);

// The main function of such a process, which has been passed the settled job. The exit status says if it failed; the reason is
// in the job's files.
int run_verify_rank(const VerifyJob& job);

}  // namespace plait::verify
