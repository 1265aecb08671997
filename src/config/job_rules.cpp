#include "config/job_rules.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <utility>

#include "config/schedule_file.h"
#include "config/schema.h"
#include "core/batch_split.h"

namespace plait {

KnownNumber JobFacts::along(Axis axis) const {
  const std::int64_t known = size[axis] != 0 ? size[axis] : sizes()[axis];
  return known == 0 ? KnownNumber() : known;
}

KnownNumber JobFacts::batch_ranks() const {
  const std::int64_t known = product(sizes(), batch_axes);
  return known == 0 ? KnownNumber() : known;
}

KnownNumber JobFacts::micro_batch_count() const {
  if (micro_batches) return micro_batches;
  if (!global_batch || !micro_batch) return {};
  const BatchSplit split{*global_batch, *micro_batch, batch_ranks().value_or(0)};
  return split.is_whole() ? split.micro_batches() : KnownNumber();
}

KnownNumber JobFacts::stages_per_rank() const {
  if (!schedule) return {};
  const ScheduleRow& row = schedule_row(*schedule);
  return row.takes_any_chunks() ? virtual_stages : row.chunks;
}

KnownNumber JobFacts::stage_count() const {
  if (stages) return stages;
  if (file != nullptr) return std::ssize(file->rank_of_stage);
  const KnownNumber ranks = along(stage_axis), per_rank = stages_per_rank();
  return ranks && per_rank ? *ranks * *per_rank : KnownNumber();
}

Known<bool> JobFacts::has_partners() const {
  const KnownNumber pipeline = along(stage_axis), count = micro_batch_count();
  if (!pipeline) return {};
  if (*pipeline == 1) return count ? *count > 1 : Known<bool>();
  return file != nullptr && std::ranges::any_of(file->ranks, [](const std::vector<StagePass>& passes) {
           return std::ranges::any_of(passes, &StagePass::braided);
         });
}

namespace {

std::string value_text(std::int64_t value) { return std::to_string(value); }
std::string value_text(const std::string& value) { return value; }
std::string value_text(DType type) {
  return type == DType::f32 ? "fp32" : type == DType::f64 ? "fp64" : std::string(to_string(type));
}
template <Named E>
std::string value_text(E value) {
  return to_string(value);
}

Known<DType> type_named(const std::string& name) {
  for (const DType type : {DType::bf16, DType::f32, DType::f64}) {
    if (value_text(type) == name) return type;
  }
  return {};
}

// Neither `auto` nor what a user typed and is refused.
KnownNumber positive(const Auto<std::int64_t>& number) {
  const std::int64_t value = number.value_or(0);
  return value > 0 ? value : KnownNumber();
}

// Of data.tokenizer, where it says it.
KnownNumber tokens_of(const DataConfig& data) {
  if (data.tokenizer == "bytes") return 256;
  return data.tokenizer == "sentencepiece" ? positive(data.sentencepiece.vocab) : KnownNumber();
}

const RuleAnswer holds{RuleVerdict::holds}, not_known{RuleVerdict::not_known};
RuleAnswer broken(std::string why) { return {RuleVerdict::broken, std::move(why)}; }

// A rule whose first key has the value that `first` finds in the facts.
template <typename First>
JobRule judged(std::vector<std::string> keys, std::string words, std::function<RuleAnswer(const JobFacts&)> answer,
               First first) {
  return {std::move(keys), std::move(words), std::move(answer),
          [first](const JobFacts& facts) { return value_text(std::invoke(first, facts).value()); }};
}

// The same of a rule over the facts that `first` and `rest` find, once all are known: `judge` takes their values, and returns
// the message where the rule is broken, else nothing.
template <typename Judge, typename First, typename... Rest>
JobRule over(std::vector<std::string> keys, std::string words, Judge judge, First first, Rest... rest) {
  const auto answer = [=](const JobFacts& facts) {
    const auto of_known = [&](const auto&... known) {
      if (!(known.has_value() && ...)) return not_known;
      std::string why = judge(*known...);
      return why.empty() ? holds : broken(std::move(why));
    };
    return of_known(std::invoke(first, facts), std::invoke(rest, facts)...);
  };
  return judged(std::move(keys), std::move(words), answer, first);
}

// What the rules are about, beside members of JobFacts.
KnownNumber segment_size(const JobFacts& facts) { return facts.along(segment_axis); }
KnownNumber stage_size(const JobFacts& facts) { return facts.along(stage_axis); }
Known<const ScheduleFile*> file_of(const JobFacts& facts) { return facts.file; }
Known<std::string> schedule_text(const JobFacts& facts) {
  if (facts.file != nullptr) return facts.file->path;
  return facts.schedule ? to_string(*facts.schedule) : Known<std::string>();
}

const std::string of_segments = axis_key(segment_axis), of_stages = axis_key(stage_axis);

// Keys of a rule that depends on these and on the sizes of all axes.
std::vector<std::string> and_axes(std::vector<std::string> first) {
  for (std::string& key : axis_keys()) first.push_back(std::move(key));
  return first;
}

std::int64_t segments_of(std::int64_t layers) { return 2 * layers + 2; }

RuleAnswer batch_is_whole(const JobFacts& facts) {
  if (!facts.global_batch || !facts.micro_batch) return not_known;
  const std::int64_t ranks = facts.batch_ranks().value_or(1), micro_batch = *facts.micro_batch;
  if (!BatchSplit{*facts.global_batch, micro_batch, ranks}.is_whole()) {
    std::string why = fmt::format("must be a multiple of train.micro_batch={}", micro_batch);
    if (ranks > 1) why += fmt::format(" times the data-parallel size {}", ranks);
    return broken(std::move(why));
  }
  return facts.batch_ranks() ? holds : not_known;
}

std::string too_many_passes(std::int64_t /*global_batch*/, std::int64_t micro_batch, std::int64_t micro_batches,
                            std::int64_t layers) {
  const std::int64_t segments = segments_of(layers);
  if (micro_batches <= limits::passes / segments) return "";
  return fmt::format(
      "makes {} micro-batches on each data-parallel rank, through {} segments (2 * model.layers + 2) each: {} passes in a "
      "step, which must be at most {}; a larger train.micro_batch={} makes fewer",
      micro_batches, segments, micro_batches * segments, limits::passes, micro_batch);
}

std::vector<JobRule> rules_of_batch() {
  return {
      judged(and_axes({"train.global_batch", "train.micro_batch", "launch.ranks"}),
             "is a multiple of `train.micro_batch` times the data-parallel size", batch_is_whole, &JobFacts::global_batch),
      over(and_axes({"train.global_batch", "train.micro_batch", "model.layers", "launch.ranks"}),
           fmt::format("makes at most {} passes in a step: `train.global_batch` / (`train.micro_batch` * data-parallel size) "
                       "micro-batches, each through 2 * `model.layers` + 2 segments",
                       limits::passes),
           too_many_passes, &JobFacts::global_batch, &JobFacts::micro_batch, &JobFacts::micro_batch_count, &JobFacts::layers),
  };
}

std::vector<JobRule> rules_of_model() {
  return {
      over(
          {"model.vocab", "data.tokenizer", "data.sentencepiece.vocab"}, "is at least the tokenizer's vocabulary",
          [](std::int64_t vocab, std::int64_t tokens) {
            return vocab >= tokens ? "" : fmt::format("must be at least the tokenizer's vocabulary, {}", tokens);
          },
          &JobFacts::vocab, &JobFacts::tokenizer_vocab),
      over(
          {"data.sequence_length", "model.max_sequence", "model.position"},
          "is at most `model.max_sequence` with learned positions",
          [](std::int64_t sequence, std::int64_t rows, Position position) {
            return position != Position::learned || sequence <= rows
                       ? ""
                       : fmt::format("must be at most model.max_sequence={}: the learned position table has no more rows",
                                     rows);
          },
          &JobFacts::sequence, &JobFacts::max_sequence, &JobFacts::position),
  };
}

// "none" to "six".
const char* count_word(int count) {
  constexpr std::array words{"none", "one", "two", "three", "four", "five", "six"};
  return words.at(static_cast<std::size_t>(count));
}

RuleAnswer ranks_make_the_mesh(const JobFacts& facts) {
  if (!facts.ranks) return not_known;
  const AxisSizes sizes = facts.sizes();
  const AxisSet given = axes_where([&](const AxisRow& row) { return sizes[row.axis] > 0; });
  const bool all = given == AxisSet::all();
  const std::int64_t made = product(sizes, given);
  if (all ? *facts.ranks == made : *facts.ranks % made == 0) return all ? holds : not_known;
  if (!all) return broken(fmt::format("must be a multiple of {} = {}", axis_product(given), made));
  const auto size_text = [&](const AxisRow& row) { return std::to_string(sizes[row.axis]); };
  return broken(fmt::format("must be {}, {}", axis_product(), axes_text(given, " * ", size_text)));
}

std::vector<JobRule> rules_of_mesh() {
  return {
      over(
          {of_segments, "model.heads"}, "divides `model.heads`",
          [](std::int64_t ranks, std::int64_t heads) {
            return heads % ranks == 0 ? "" : fmt::format("must divide model.heads={}", heads);
          },
          segment_size, &JobFacts::heads),
      over(
          {of_segments, "model.kv_heads", "model.heads"}, "divides `model.kv_heads`",
          [](std::int64_t ranks, std::int64_t kv_heads, std::int64_t heads) {
            return kv_heads == heads || kv_heads % ranks == 0 ? "" : fmt::format("must divide model.kv_heads={}", kv_heads);
          },
          segment_size, &JobFacts::kv_heads, &JobFacts::heads),
      over(
          {of_segments, "model.ffn", "model.hidden"}, "divides `model.ffn`",
          [](std::int64_t ranks, std::int64_t ffn) {
            return ffn % ranks == 0 ? "" : fmt::format("must divide model.ffn={}", ffn);
          },
          segment_size, &JobFacts::ffn),
      over(
          {of_segments, "train.micro_batch", "data.sequence_length", "parallel.sequence_parallel"},
          "divides the tokens of a micro-batch with `parallel.sequence_parallel`",
          [](std::int64_t ranks, std::int64_t micro_batch, std::int64_t sequence, bool sequence_parallel) {
            return !sequence_parallel || micro_batch * sequence % ranks == 0
                       ? ""
                       : fmt::format(
                             "must divide the tokens of a micro-batch, train.micro_batch={} times "
                             "data.sequence_length={}, with parallel.sequence_parallel",
                             micro_batch, sequence);
          },
          segment_size, &JobFacts::micro_batch, &JobFacts::sequence, &JobFacts::sequence_parallel),
      judged(and_axes({"launch.ranks"}),
             fmt::format("is `{}`, or a multiple of the last {} where `{}` is `auto`", axis_product(),
                         count_word(axis_count - 1), axis_key(rest_axis)),
             ranks_make_the_mesh, &JobFacts::ranks),
  };
}

bool takes_any_stages(const ScheduleRow& row) { return row.takes_any_chunks(); }
bool has_rounds(const ScheduleRow& row) { return row.in_rounds; }
bool takes_any_micro_batches(const ScheduleRow& row) { return row.is_candidate && !row.in_rounds; }

// "2 with `zb-v`", of the schedules that always have several stages per rank.
std::string fixed_stages() {
  std::vector<std::string> list;
  for (const ScheduleRow& row : built_in_schedules) {
    if (row.chunks > 1) list.push_back(fmt::format("{} with `{}`", row.chunks, row.name));
  }
  return config::listed(list);
}

std::string wrong_virtual_stages(std::int64_t virtual_stages, ScheduleKind schedule, const std::string& name) {
  const ScheduleRow& row = schedule_row(schedule);
  if (virtual_stages == 1 || row.takes_any_chunks() || virtual_stages == row.chunks) return "";
  return fmt::format("must be {} with parallel.schedule={}; parallel.schedule={} takes any number", row.chunks, name,
                     config::listed_schedules(takes_any_stages, ""));
}

std::string too_many_stages(std::int64_t pipeline, std::int64_t stages, std::int64_t layers, const ScheduleFile* file) {
  const std::int64_t segments = segments_of(layers);
  if (stages <= segments) return "";
  if (file != nullptr) {
    return fmt::format(
        "the {} stages of {} are too many: a stage holds at least half of one of model.layers={} blocks, the "
        "embedding or the head",
        stages, file->path, layers);
  }
  const std::int64_t per_rank = stages / pipeline;
  return fmt::format(
      "must be at most {}: a stage holds at least half of one of model.layers={} blocks, the embedding or the "
      "head, and a rank has {} of the stages",
      segments / per_rank, layers, per_rank);
}

// A smaller round would leave a gap in every chunk.
std::string no_whole_rounds(const std::string& /*name*/, ScheduleKind schedule, std::int64_t stages_per_rank,
                            std::int64_t micro_batches, std::int64_t pipeline) {
  if (!schedule_row(schedule).in_rounds || stages_per_rank == 1 || micro_batches % pipeline == 0) return "";
  return fmt::format(
      "takes a multiple of {}={} micro-batches, not {}: change train.global_batch or train.micro_batch ({} micro-batches would "
      "do), or use parallel.schedule {}, which take any number",
      of_stages, pipeline, micro_batches, (micro_batches / pipeline + 1) * pipeline,
      config::listed_schedules(takes_any_micro_batches, ""));
}

std::vector<JobRule> rules_of_schedule() {
  return {
      over({"parallel.virtual_stages", "parallel.schedule"},
           "is more than 1 with " + config::listed_schedules(takes_any_stages) + " only, or " + fixed_stages(),
           wrong_virtual_stages, &JobFacts::virtual_stages, &JobFacts::schedule, schedule_text),
      over({of_stages, "parallel.virtual_stages", "parallel.schedule", "model.layers"},
           "times the stages per rank is at most 2 * `model.layers` + 2", too_many_stages, stage_size, &JobFacts::stage_count,
           &JobFacts::layers, file_of),
      over(
          and_axes({"parallel.schedule", "parallel.virtual_stages", "train.global_batch", "train.micro_batch", "launch.ranks"}),
          fmt::format("{} with several stages per rank takes a multiple of `{}` micro-batches: `train.global_batch` / "
                      "(`train.micro_batch` * data-parallel size)",
                      config::listed_schedules(has_rounds), of_stages),
          no_whole_rounds, schedule_text, &JobFacts::schedule, &JobFacts::stages_per_rank, &JobFacts::micro_batch_count,
          stage_size),
  };
}

std::vector<JobRule> rules_of_schedule_files() {
  const auto wrong_ranks = [](const std::string& /*name*/, const ScheduleFile* file, std::int64_t pipeline) {
    return file == nullptr || std::ssize(file->ranks) == pipeline
               ? ""
               : fmt::format("has passes of {0} ranks, but {1}={2}: set it to {0}, or give another file", file->ranks.size(),
                             of_stages, pipeline);
  };
  const auto micro_batches = [](const JobFacts& facts) {
    if (facts.file == nullptr) return holds;
    const KnownNumber count = facts.micro_batch_count(), data = facts.batch_ranks();
    if (!count) return not_known;
    const std::int64_t has = facts.file->micro_batches;
    if (has == *count) return holds;
    std::string why = fmt::format("has {} micro-batches, but a step has {}", has, *count);
    if (facts.global_batch && facts.micro_batch && data) {
      why += fmt::format(
          ": train.global_batch={0} / (train.micro_batch={1} * data-parallel size {2}); train.global_batch must be {3} * {1} "
          "* {2}",
          *facts.global_batch, *facts.micro_batch, *data, has);
    }
    return broken(std::move(why));
  };
  return {
      over({"parallel.schedule", of_stages}, fmt::format("from a file is for `{}` ranks", of_stages), wrong_ranks,
           schedule_text, file_of, stage_size),
      judged(and_axes({"parallel.schedule", "train.global_batch", "train.micro_batch", "launch.ranks"}),
             "from a file has as many micro-batches as a step: `train.global_batch` / (`train.micro_batch` * data-parallel "
             "size)",
             micro_batches, schedule_text),
  };
}

RuleAnswer can_be_halved(const JobFacts& facts) {
  const KnownNumber ranks = facts.along(segment_axis), count = facts.micro_batch_count();
  const Known<bool> has_partners = facts.has_partners();
  if (facts.braid.value_or(Braid::halves) != Braid::halves || ranks == 1 || has_partners == true) return holds;
  if (!facts.braid || !ranks || !has_partners || !facts.micro_batch) return not_known;
  const std::int64_t micro_batch = *facts.micro_batch, half = micro_batch / 2;
  if (micro_batch % 2 != 0) {
    return broken(
        fmt::format("halves need an even number of sequences, but train.micro_batch={}: take an even one, or comm.braid=passes",
                    micro_batch));
  }
  if (facts.sequence_parallel == true && facts.sequence && half * *facts.sequence % *ranks != 0) {
    return broken(
        fmt::format("{}={} does not divide the tokens of half a micro-batch, {} times data.sequence_length={}, with "
                    "parallel.sequence_parallel: take a larger train.micro_batch, or comm.braid=passes",
                    of_segments, *ranks, half, *facts.sequence));
  }
  if (facts.layers && count && *count > limits::passes / segments_of(*facts.layers) / 2) {
    return broken(
        fmt::format("halves of {} micro-batches through {} segments each make more than {} passes in a step: take a "
                    "larger train.micro_batch={}, or comm.braid=passes",
                    *count, segments_of(*facts.layers), limits::passes, micro_batch));
  }
  const bool rows_known = facts.sequence_parallel && (!*facts.sequence_parallel || facts.sequence);
  return facts.layers && count && rows_known ? holds : not_known;
}

RuleAnswer can_begin_ahead(const JobFacts& facts) {
  const KnownNumber ranks = facts.along(segment_axis), pipeline = facts.along(stage_axis);
  if (facts.braid.value_or(Braid::ahead) != Braid::ahead || ranks == 1) return holds;
  if (!facts.braid || !ranks || !pipeline) return not_known;
  if (*pipeline > 1) {
    return broken(
        fmt::format("ahead is for ranks that have all stages, but {}={}, whose ranks begin with several forwards as "
                    "it is: take comm.braid=passes",
                    of_stages, *pipeline));
  }
  if (facts.file == nullptr) return holds;
  return broken(
      "ahead changes the order of passes, which parallel.schedule has from a file: change it there, and take "
      "comm.braid=passes");
}

std::vector<JobRule> rules_of_braids() {
  return {
      judged(and_axes({"comm.braid", "train.micro_batch", "train.global_batch", "data.sequence_length", "model.layers",
                       "parallel.schedule", "parallel.sequence_parallel", "launch.ranks"}),
             fmt::format(
                 "`halves` needs an even `train.micro_batch`, halves whose tokens `{}` divides with "
                 "`parallel.sequence_parallel`, and half as many micro-batches as a step may have, where tensor-parallel ranks "
                 "compute forwards that have nothing else to be braided with",
                 of_segments),
             can_be_halved, &JobFacts::braid),
      judged({"comm.braid", of_segments, of_stages, "parallel.schedule"},
             "`ahead` is for tensor-parallel ranks that have all stages, and no schedule file", can_begin_ahead,
             &JobFacts::braid),
  };
}

std::vector<JobRule> rules_of_arithmetic() {
  // Refused until the device is known to be right, the one answer that more facts may change: `auto` does not leave GPUs aside
  // silently.
  const auto fp64 = [](const JobFacts& facts) {
    if (!facts.compute) return not_known;
    const bool runs = *facts.compute != DType::f64 || facts.device == DeviceKind::host;
    return runs ? holds : broken("fp64 runs on CPUs only: it needs launch.device=cpu");
  };
  return {
      judged({"precision.compute", "launch.device"}, "`fp64` needs `launch.device: cpu`", fp64, &JobFacts::compute),
      over(
          {"precision.matmul", "precision.compute", "launch.device"},
          "`bf16` needs `precision.compute: bf16`, or `auto` on GPUs",
          [](MatmulType matmul, DType compute) {
            return matmul != MatmulType::bf16 || compute == DType::bf16 ? "" : "bf16 products need precision.compute=bf16";
          },
          &JobFacts::matmul, &JobFacts::compute),
      over(
          {"precision.matmul", "precision.compute", "launch.device"}, "`fp8` on GPUs needs `precision.compute: bf16` or `auto`",
          [](MatmulType matmul, DeviceKind device, DType compute) {
            const bool fits = matmul != MatmulType::fp8 || device != DeviceKind::cuda || compute == DType::bf16;
            return fits ? "" : "FP8 products on GPUs need precision.compute=bf16";
          },
          &JobFacts::matmul, &JobFacts::device, &JobFacts::compute),
      over(
          {"precision.gradients", "precision.compute", "launch.device"},
          "`bf16` needs `precision.compute: bf16`, or `auto` on GPUs",
          [](DType gradients, DType compute) {
            const bool fits = gradients != DType::bf16 || compute == DType::bf16;
            return fits ? "" : "bf16 gradients need precision.compute=bf16";
          },
          &JobFacts::gradients, &JobFacts::compute),
  };
}

}  // namespace

JobFacts facts_of(const Config& c, Known<DeviceKind> device) {
  if (!device && c.launch.device != "auto") device = c.launch.device == "cpu" ? DeviceKind::host : DeviceKind::cuda;
  JobFacts facts{.size = c.parallel.known_sizes(), .ranks = positive(c.launch.ranks), .device = device};
  facts.compute = type_named(c.precision.compute);
  if (c.precision.compute == "auto" && device) facts.compute = *device == DeviceKind::cuda ? DType::bf16 : DType::f32;
  facts.gradients = type_named(c.precision.gradients);
  facts.matmul = c.precision.matmul.given();
  facts.layers = c.model.layers, facts.heads = c.model.heads;
  facts.kv_heads = positive(c.model.kv_heads).value_or(c.model.heads);
  facts.ffn = positive(c.model.ffn);
  // A number that a user typed may be any; four times such a one may overflow.
  if (!facts.ffn && c.model.hidden > 0 && c.model.hidden <= limits::hidden.most) facts.ffn = 4 * c.model.hidden;
  facts.vocab = positive(c.model.vocab);
  facts.max_sequence = positive(c.model.max_sequence).value_or(c.data.sequence_length);
  facts.position = c.model.position;
  facts.tokenizer_vocab = tokens_of(c.data);
  facts.sequence = c.data.sequence_length;
  facts.global_batch = c.train.global_batch, facts.micro_batch = positive(c.train.micro_batch);
  facts.sequence_parallel = c.parallel.sequence_parallel;
  facts.schedule = c.parallel.schedule.given();
  if (facts.schedule == ScheduleKind::file) facts.file = c.parallel.schedule_file.get();
  facts.virtual_stages = positive(c.parallel.virtual_stages);
  facts.braid = c.comm.braid.given();
  return facts;
}

const std::vector<JobRule>& job_rules() {
  static const std::vector<JobRule> all = [] {
    std::vector<JobRule> rules;
    // Files come last: first is told what is wrong whatever the passes are.
    for (auto* part : {rules_of_batch, rules_of_model, rules_of_mesh, rules_of_schedule, rules_of_braids, rules_of_arithmetic,
                       rules_of_schedule_files}) {
      for (JobRule& rule : part()) rules.push_back(std::move(rule));
    }
    return rules;
  }();
  return all;
}

std::vector<ConfigProblem> broken_rules(const JobFacts& facts) {
  std::vector<ConfigProblem> problems;
  for (const JobRule& rule : job_rules()) {
    RuleAnswer answer = rule.answer(facts);
    if (answer.verdict == RuleVerdict::broken)
      problems.push_back({rule.keys.front(), rule.value(facts), std::move(answer.why), "", 0});
  }
  return problems;
}

void require_rules(const JobFacts& facts) {
  if (std::vector<ConfigProblem> problems = broken_rules(facts); !problems.empty()) throw ConfigError(std::move(problems));
}

}  // namespace plait
