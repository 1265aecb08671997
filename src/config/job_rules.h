// The rules over what a job is made of: its mesh, model, batch, arithmetic and schedule.
//
// A rule is stated once, over facts that may not be known yet, and is asked wherever more of them are: when a configuration is
// read, whose `auto`s are open; when ranks, devices or a tokenizer are found; when a layout is planned; and by functions that
// anybody may call with sizes. Rules over keys alone are in config/rules.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/schedule_table.h"
#include "core/axis.h"
#include "core/choices.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/error.h"

namespace plait {

struct Config;
struct ScheduleFile;

// Nothing: not known yet.
template <typename T>
using Known = std::optional<T>;
using KnownNumber = Known<std::int64_t>;

struct JobFacts {
  AxisSizes size = {};  // of the mesh; 0: not known yet
  KnownNumber ranks = {};

  Known<DeviceKind> device = {};
  Known<DType> compute = {}, gradients = {};
  Known<MatmulType> matmul = {};

  KnownNumber layers = {}, heads = {}, kv_heads = {}, ffn = {};
  KnownNumber vocab = {}, max_sequence = {};
  Known<Position> position = {};
  KnownNumber tokenizer_vocab = {};  // tokens of the tokenizer, which `vocab` holds

  KnownNumber sequence = {};                        // tokens
  KnownNumber global_batch = {}, micro_batch = {};  // sequences
  KnownNumber micro_batches = {};                   // of a pipeline in a step, where the batch does not say it
  Known<bool> sequence_parallel = {};

  Known<ScheduleKind> schedule = {};
  const ScheduleFile* file = nullptr;  // with the passes of the schedule; null: it has no file
  KnownNumber virtual_stages = {};
  KnownNumber stages = {};  // of the whole pipeline, where the schedule does not say it
  Known<Braid> braid = {};

  // With what the other axes leave of the ranks.
  AxisSizes sizes() const { return ranks ? with_rest(size, *ranks) : size; }
  KnownNumber along(Axis axis) const;
  KnownNumber batch_ranks() const;  // that see other sequences
  KnownNumber micro_batch_count() const;
  KnownNumber stages_per_rank() const;  // with a schedule that has a name
  KnownNumber stage_count() const;
  // Forwards can be braided with other passes than halves of their micro-batches (comm.braid): where one rank has all stages
  // and several micro-batches, and where a schedule file pairs them.
  Known<bool> has_partners() const;
};

// The facts that a configuration gives: `auto` is not known, except where it follows from other keys. `device`: what the ranks
// are known to be on, whatever launch.device says.
JobFacts facts_of(const Config& config, Known<DeviceKind> device = {});

enum class RuleVerdict { holds, broken, not_known };

struct RuleAnswer {
  RuleVerdict verdict = RuleVerdict::not_known;
  std::string why = {};  // if broken: what would have been right, with the figures
};

struct JobRule {
  std::vector<std::string> keys;                      // all that the facts come from; the first is the one at fault
  std::string words;                                  // for the documentation, after that key
  std::function<RuleAnswer(const JobFacts&)> answer;  // once not `not_known`, more facts do not change it
  std::function<std::string(const JobFacts&)> value;  // of the first key, in messages; asked of facts that break the rule
};
const std::vector<JobRule>& job_rules();

// Every rule that these facts break, in the order of the rules.
std::vector<ConfigProblem> broken_rules(const JobFacts& facts);
// ConfigError of all of them.
void require_rules(const JobFacts& facts);

}  // namespace plait
