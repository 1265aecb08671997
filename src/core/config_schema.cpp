#include "core/config_schema.h"

#include <algorithm>
#include <set>
#include <type_traits>

#include <spdlog/fmt/fmt.h>

#include "core/pair_transport.h"
#include "core/percentage.h"
#include "core/schedule_file.h"

namespace plait::config {
namespace {

template <typename... Members>
auto at(Members... members) {
  // clang-format off
  return [=](auto& config) -> auto& { return (config .* ... .* members); };
  // clang-format on
}

const std::string automatic_name = "auto";

std::string list(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

Rule one_of(std::vector<std::string> names) {
  const std::string words = names.size() == 1 ? names[0] : "one of " + list(names);
  auto broken = [names, words](const Value& value) {
    return std::ranges::find(names, std::get<std::string>(value)) != names.end() ? "" : "must be " + words;
  };
  return {words, std::move(broken), std::move(names)};
}

template <typename Access>
Field key(std::string path, Access access, Rule rule, std::string meaning) {
  using T = std::remove_cvref_t<decltype(access(std::declval<Config&>()))>;
  return {std::move(path),
          [access](const Config& config) { return Value(access(config)); },
          [access](Config& config, const Value& value) { access(config) = std::get<T>(value); },
          Presence::optional,
          std::move(rule),
          std::move(meaning)};
}

template <typename T>
struct Optional : std::false_type {
  using Type = T;
};
template <typename T>
struct Optional<std::optional<T>> : std::true_type {
  using Type = T;
};

// A key whose values have names (core/names.h); `auto` is one of them where it is an optional in the struct.
template <typename Access>
Field choice(std::string path, Access access, std::string meaning) {
  using Member = Optional<std::remove_cvref_t<decltype(access(std::declval<Config&>()))>>;
  using E = Member::Type;
  std::vector<std::string> valid;
  if (Member::value) valid.push_back(automatic_name);
  for (const Name<E>& name : names<E>) valid.emplace_back(name.text);
  return {std::move(path),
          [access](const Config& config) {
            const std::optional<E> value = access(config);
            return Value(value ? to_string(*value) : automatic_name);
          },
          // A name that there is not leaves the value as it is: the rule has told.
          [access](Config& config, const Value& value) {
            const auto& name = std::get<std::string>(value);
            const std::optional<E> known = named<E>(name);
            if (known) {
              access(config) = *known;
            } else if constexpr (Member::value) {
              if (name == automatic_name) access(config) = std::nullopt;
            }
          },
          Presence::optional, one_of(std::move(valid)), std::move(meaning)};
}

Field required(Field field) {
  field.presence = Presence::required;
  return field;
}

template <typename Access>
Field required_key(std::string path, Access access, Rule rule, std::string meaning) {
  return required(key(std::move(path), access, std::move(rule), std::move(meaning)));
}

// A number that may be `auto`, which is `automatic` in the struct.
template <typename Access>
Field auto_key(std::string path, Access access, Rule rule, std::string meaning, std::int64_t automatic = 0) {
  Field field = key(std::move(path), access, {}, std::move(meaning));
  field.automatic = automatic;
  field.rule = {"auto or " + rule.words,
                [number = rule.broken, automatic](const Value& value) {
                  const auto* integer = std::get_if<std::int64_t>(&value);
                  const auto* real = std::get_if<double>(&value);
                  const bool is_auto = (integer != nullptr && *integer == automatic) ||
                                       (real != nullptr && *real == static_cast<double>(automatic));
                  std::string why = is_auto ? std::string() : number(value);
                  if (why.starts_with("must be ")) why.insert(8, "auto or ");
                  return why;
                },
                rule.names};
  return field;
}

// parallel.schedule: a built-in schedule, or one from a file.
Field schedule_choice(std::string meaning) {
  Field field = choice("parallel.schedule", at(&Config::parallel, &ParallelConfig::schedule), std::move(meaning));
  std::erase(field.rule.names, to_string(ScheduleKind::file));
  Rule by_name = one_of(field.rule.names);
  field.rule.words = by_name.words + ", or {file: PATH}";
  field.rule.broken = [by_name, words = field.rule.words](const Value& value) {
    const auto* file = std::get_if<FileValue>(&value);
    if (file != nullptr) return file->content ? std::string() : file->problem;
    return by_name.broken(value).empty() ? "" : "must be " + words;
  };
  field.get = [get_name = field.get](const Config& config) {
    const ParallelConfig& p = config.parallel;
    return p.schedule == ScheduleKind::file ? Value(FileValue{schedule_name(p), p.schedule_file, "has not been read"})
                                            : get_name(config);
  };
  field.set = [set_name = field.set](Config& config, const Value& value) {
    const auto* file = std::get_if<FileValue>(&value);
    config.parallel.schedule_file = file != nullptr ? file->content : nullptr;
    if (file == nullptr) return set_name(config, value);
    config.parallel.schedule = ScheduleKind::file;
  };
  field.open = [](const std::string& path) {
    FileValue value{path, nullptr, ""};
    value.content = read_schedule_file(path, value.problem);
    return value;
  };
  return field;
}

// A key whose `auto` the planner decides.
Field planned(Field field) {
  field.planned = true;
  return field;
}

Rule any(std::string words) {
  return {std::move(words), [](const Value&) { return std::string(); }, {}};
}

template <typename T, typename Holds>
Rule rule(std::string words, Holds holds) {
  return {
      words, [words, holds](const Value& value) { return holds(std::get<T>(value)) ? std::string() : "must be " + words; }, {}};
}

Rule at_least(std::int64_t bound) {
  return rule<std::int64_t>(fmt::format("at least {}", bound), [bound](std::int64_t v) { return v >= bound; });
}

// Sizes of mesh axes are bounded so that no product of them overflows.
Rule axis_size() {
  return rule<std::int64_t>("1 to 65536", [](std::int64_t v) { return v >= 1 && v <= 65536; });
}

Rule above(double bound) {
  return rule<double>(fmt::format("greater than {}", bound), [bound](double v) { return v > bound; });
}

Rule real_at_least(double bound) {
  return rule<double>(fmt::format("at least {}", bound), [bound](double v) { return v >= bound; });
}

Rule fraction() {
  return rule<double>("between 0 and 1", [](double v) { return v >= 0 && v <= 1; });
}

Rule fraction_below_one() {
  return rule<double>("at least 0 and less than 1", [](double v) { return v >= 0 && v < 1; });
}

Rule not_empty() {
  return rule<std::string>("not empty", [](const std::string& v) { return !v.empty(); });
}

Rule yes_or_no() { return any("true or false"); }

// An integer of which only values up to `supported` are implemented.
Rule up_to(std::int64_t first, std::int64_t supported, std::string feature) {
  auto broken = [=](const Value& value) -> std::string {
    const auto v = std::get<std::int64_t>(value);
    if (v < first) return fmt::format("must be at least {}", first);
    if (v > supported)
      return fmt::format("must be {}: {} is not supported yet",
                         first == supported ? std::to_string(first) : fmt::format("{} to {}", first, supported), feature);
    return "";
  };
  return {first == supported ? fmt::format("{} ({} is not supported yet)", first, feature)
                             : fmt::format("{} to {} ({} is not supported yet)", first, supported, feature),
          std::move(broken),
          {}};
}

Rule globs() {
  return rule<std::vector<std::string>>("a list of paths or globs, none of them empty", [](const auto& v) {
    return std::ranges::none_of(v, [](const std::string& glob) { return glob.empty(); });
  });
}

Rule preset_name() {
  std::vector<std::string> names = preset_names();
  auto broken = [names](const Value& value) {
    const auto& name = std::get<std::string>(value);
    return name.empty() || std::ranges::find(names, name) != names.end() ? "" : "must be one of " + list(names);
  };
  return {"empty or one of " + list(names), std::move(broken), std::move(names)};
}

std::vector<Field> run_fields() {
  return {
      key("run.name", at(&Config::run, &RunConfig::name), not_empty(), "Name of the run; its directory is `run.dir/run.name`."),
      key("run.dir", at(&Config::run, &RunConfig::dir), not_empty(), "Folder that holds the run directories."),
      key("run.seed", at(&Config::run, &RunConfig::seed), any("an integer from 0 to 2^64 - 1"),
          "Seed of everything random: initial weights, samples, generated text. Neither the number of ranks nor the layout "
          "changes what a seed gives."),
  };
}

std::vector<Field> model_fields() {
  const auto m = [](auto member) { return at(&Config::model, member); };
  using M = ModelConfig;
  return {
      key("model.preset", m(&M::preset), preset_name(),
          "A published shape (table below). It fills the keys of this section that are not given; a given key wins."),
      required_key("model.layers", m(&M::layers), at_least(1), "Transformer blocks. A preset gives it."),
      required_key("model.hidden", m(&M::hidden), at_least(1), "Width of the residual stream. A preset gives it."),
      required_key("model.heads", m(&M::heads), at_least(1), "Query heads. A preset gives it."),
      auto_key("model.kv_heads", m(&M::kv_heads), at_least(1),
               "Key/value heads; fewer than `heads` is grouped-query attention. `auto`: as many as `heads`."),
      auto_key("model.head_dim", m(&M::head_dim), at_least(1), "Width of one head. `auto`: `hidden / heads`."),
      auto_key("model.ffn", m(&M::ffn), at_least(1),
               "Inner width of the MLP (of each of gate and up for `swiglu`). `auto`: `4 * hidden`."),
      auto_key(
          "model.vocab", m(&M::vocab), at_least(1),
          "Size of the vocabulary. `auto`: the tokenizer's (256 for `bytes`). At least the tokenizer's; the embedding table "
          "has it rounded up to a multiple of 128."),
      choice("model.norm", m(&M::norm), "Normalisation before attention, before the MLP and at the end."),
      key("model.norm_epsilon", m(&M::norm_epsilon), above(0), "Added to the variance (mean square for `rms_norm`)."),
      choice("model.mlp", m(&M::mlp), "`gelu`: up, GELU (tanh form), down. `swiglu`: SiLU(gate) * up, down."),
      choice("model.position", m(&M::position), "Learned position table, or rotary embedding of queries and keys."),
      key("model.rope_base", m(&M::rope_base), above(0), "Base of the rotary frequencies; read with `position: rope` only."),
      key("model.tie_embeddings", m(&M::tie_embeddings), yes_or_no(), "Use the token embedding as the output projection too."),
      key("model.bias", m(&M::bias), yes_or_no(), "Biases in the attention output and the MLP, and the shift of `layer_norm`."),
      key("model.qkv_bias", m(&M::qkv_bias), yes_or_no(), "Bias in the query/key/value projection."),
      auto_key("model.max_sequence", m(&M::max_sequence), at_least(1),
               "Rows of the learned position table: the longest sequence the model can take. `auto`: `data.sequence_length`."),
  };
}

std::vector<Field> data_fields() {
  const auto d = [](auto member) { return at(&Config::data, member); };
  using D = DataConfig;
  const auto sp = [](auto member) { return at(&Config::data, &D::sentencepiece, member); };
  return {
      key("data.train", d(&D::train), globs(),
          "Files to train on. `*` and `?` match within a folder, `**` any depth. Text for `bytes` and `sentencepiece`, "
          "shards for "
          "`tokens`. Quote a glob that begins with `*`, which YAML reads as an alias."),
      key("data.validation", d(&D::validation), globs(),
          "Files to validate on. Empty: the last `validation_fraction` of each training file, which is then not trained "
          "on."),
      key("data.validation_fraction", d(&D::validation_fraction), fraction_below_one(),
          "Share of each training file that is kept for validation while `validation` is empty. 0: no validation."),
      key("data.tokenizer", d(&D::tokenizer), one_of({"bytes", "sentencepiece", "tokens", "random"}),
          "`bytes`: every byte is a token. `sentencepiece`: see `data.sentencepiece`; may be written "
          "`tokenizer: {sentencepiece: {vocab: 8192}}`. With both, a `*.bin` file that begins with a shard's magic number "
          "is a "
          "shard made with that tokenizer (`plait data pack`). `tokens`: all files are token shards, of llm.c and "
          "modded-nanogpt "
          "(header of 256 int32, magic 20240520 or 20240801), or of nanoGPT (raw uint16, named `train.bin`, `val.bin` or "
          "`*.u16.bin`); tokens are checked against `model.vocab` as they are used. `random`: uniform random tokens, no "
          "files, for "
          "benchmarks."),
      auto_key("data.sentencepiece.vocab", sp(&SentencePieceConfig::vocab), at_least(8),
               "Train a unigram model of this many pieces on the training text and keep it in the run directory. `auto`: "
               "use `model`."),
      key("data.sentencepiece.model", sp(&SentencePieceConfig::model), any("a path, or empty"),
          "An existing SentencePiece `.model` file."),
      key("data.sequence_length", d(&D::sequence_length), at_least(1),
          "Tokens in a sequence. Attention does not cross sequences."),
  };
}

std::vector<Field> train_fields() {
  const auto t = [](auto member) { return at(&Config::train, member); };
  using T = TrainConfig;
  const auto o = [](auto member) { return at(&Config::train, &T::optimizer, member); };
  using O = OptimizerConfig;
  return {
      required_key("train.steps", t(&T::steps), at_least(1), "Optimizer steps."),
      required_key("train.global_batch", t(&T::global_batch), at_least(1), "Sequences in one optimizer step, over all ranks."),
      required(planned(auto_key("train.micro_batch", t(&T::micro_batch), at_least(1),
                                "Sequences one data-parallel rank computes at a time; gradients accumulate over "
                                "`global_batch / (micro_batch * data)` of them. Larger is faster and takes more memory; the "
                                "result is the same. `auto`: "
                                "the planner's choice.",
                                -1))),
      key("train.optimizer.lr", o(&O::lr), above(0), "Peak learning rate of AdamW."),
      key("train.optimizer.min_lr_fraction", o(&O::min_lr_fraction), fraction(),
          "Learning rate at the end of `cosine`, `linear` and `wsd`, as a fraction of `lr`."),
      key("train.optimizer.warmup", o(&O::warmup), at_least(0),
          "Steps in which the learning rate rises linearly from 0 to `lr`."),
      choice("train.optimizer.schedule", o(&O::schedule),
             "Learning rate after the warm-up. `wsd` (warm-up, stable, decay) stays at `lr` until the last `decay_fraction`."),
      key("train.optimizer.decay_fraction", o(&O::decay_fraction), fraction(),
          "`wsd` only: share of all steps, at the end, in which the learning rate falls."),
      key("train.optimizer.beta1", o(&O::beta1), fraction_below_one(), "Decay of the first moment."),
      key("train.optimizer.beta2", o(&O::beta2), fraction_below_one(), "Decay of the second moment."),
      key("train.optimizer.epsilon", o(&O::epsilon), above(0), "Added to the root of the second moment."),
      key("train.optimizer.weight_decay", o(&O::weight_decay), real_at_least(0),
          "Decoupled weight decay; applies to matrices, not to norms and biases."),
      key("train.clip", t(&T::clip), real_at_least(0),
          "Largest global norm of the gradient; a larger gradient is scaled down to it. 0: off."),
      key("train.eval_every", t(&T::eval_every), at_least(0),
          "Steps between evaluations. 0: only at the end, if there is validation data."),
      key("train.eval_batches", t(&T::eval_batches), at_least(1),
          "Global batches in one evaluation, at fixed, evenly spaced positions."),
      key("train.sample_tokens", t(&T::sample_tokens), at_least(0), "Tokens of sample text printed at the end. 0: none."),
      key("train.sample_prompt", t(&T::sample_prompt), not_empty(), "Text the sample continues."),
  };
}

std::string virtual_stages_meaning() {
  std::string text = "Stages per pipeline rank: any number with " +
                     listed_schedules([](const ScheduleRow& row) { return row.chunks == ScheduleRow::any_number; });
  for (const ScheduleRow& row : built_in_schedules) {
    if (row.chunks > 1) text += fmt::format("; always {} with `{}`", row.chunks, row.name);
  }
  return text + ". A file says it by itself.";
}

std::vector<Field> parallel_fields() {
  const auto p = [](auto member) { return at(&Config::parallel, member); };
  using P = ParallelConfig;
  return {
      auto_key("parallel.data", p(&P::data), at_least(1),
               "Data-parallel size. `auto`: all ranks that `tensor` and `pipeline` leave."),
      planned(auto_key(
          "parallel.tensor", p(&P::tensor), axis_size(),
          "Tensor-parallel size: ranks that share every matrix. Attention is split by heads, the MLP by columns and rows, "
          "the embedding and the output projection by vocabulary. `auto`, here and in the keys that follow: the "
          "planner's choice (docs/planner.md).")),
      planned(auto_key("parallel.pipeline", p(&P::pipeline), axis_size(),
                       "Pipeline-parallel size: ranks that share the chain of blocks.")),
      planned(schedule_choice("Order of the micro-batches in a pipeline, by name or from a file (docs/schedules.md). By name "
                              "without effect while `pipeline` is 1.")),
      planned(auto_key("parallel.virtual_stages", p(&P::virtual_stages), axis_size(), virtual_stages_meaning())),
      key("parallel.stages", p(&P::stages),
          rule<std::vector<std::int64_t>>("a list of numbers of blocks, none negative",
                                          [](const auto& v) { return std::ranges::all_of(v, [](auto n) { return n >= 0; }); }),
          "Transformer blocks of each stage, in the order of the model: `pipeline` numbers, times the stages per rank. The "
          "embedding is on the first stage, the head on the last. Empty: split so that the most loaded rank has the least to "
          "compute, embedding and head counted: by FLOPs, or by seconds where the planner decides something else too."),
      planned(auto_key(
          "parallel.zero", p(&P::zero), up_to(0, 2, "sharding parameters (ZeRO-3)"),
          "1: optimizer states and master weights are sharded over the data-parallel ranks (ZeRO-1). 2: gradients too, "
          "which are then reduced after every micro-batch (ZeRO-2). 0: every rank has all of them.",
          -1)),
      key("parallel.sequence_parallel", p(&P::sequence_parallel), yes_or_no(),
          "Shard norms and the residual stream over the tensor-parallel ranks (Korthikanti et al. 2022): same communication, "
          "less memory. Without effect while `tensor` is 1."),
      planned(choice(
          "parallel.recompute", p(&P::recompute),
          "What backward computes again instead of keeping it: nothing, what is cheap to compute and large to keep, or whole "
          "blocks from their input. Saves memory, costs time, changes no result.")),
  };
}

std::vector<Field> comm_fields() {
  const auto c = [](auto member) { return at(&Config::comm, member); };
  using C = CommConfig;
  return {
      choice("comm.backend", c(&C::backend), "Collectives: NCCL between GPUs, Gloo between CPUs. `auto`: by device."),
      choice(
          "comm.p2p", c(&C::p2p),
          "How messages between pipeline stages travel. Mailboxes: `direct` (GPUs with peer access, or CPUs, in one process), "
          "`vmm` "
          "and `ipc` (GPUs of two processes), `relay` (through the memory of a third GPU), `host` (through pinned host memory; "
          "through shared memory between CPUs). `nccl`: send and receive of the communication library (Gloo's between CPUs), "
          "for "
          "comparison and between hosts. `auto`: pair by pair the first of these that works there. Without effect while "
          "`parallel.pipeline` is 1."),
      key("comm.p2p_pairs", c(&C::p2p_pairs),
          rule<std::vector<std::string>>(
              "a list of pairs as 0-1=host, each pair once: two GPUs and direct, ipc, vmm, relay, host or nccl",
              [](const auto& v) {
                std::set<std::pair<int, int>> seen;
                return std::ranges::all_of(v, [&](const std::string& text) {
                  const auto pair = pair_transport(text);
                  return pair && seen.insert({pair->a, pair->b}).second;
                });
              }),
          "How messages between single pairs of GPUs (CPUs: ranks) travel, instead of `comm.p2p`: `[0-2=host, 0-3=host]`. To "
          "see what "
          "slower links do to a layout. The planner takes `host` pairs for that slow, for collectives too, which do not go by "
          "these."),
      choice("comm.mover", c(&C::mover),
             "Who moves the bytes between pipeline stages: `copy_engine` takes nothing from compute, `sm_write` is a kernel of "
             "the "
             "sender, `sm_read` one of the receiver. `auto`: the fastest at the size of the messages, tried out at start-up; a "
             "kernel "
             "only where it is at least 10 % faster. Kernels need GPUs. Without effect while `parallel.pipeline` is 1."),
      auto_key(
          "comm.bucket_mb", c(&C::bucket_mb), above(0),
          "Gradients are reduced in buckets of about this many MiB. Smaller starts earlier, larger takes fewer collectives "
          "and disturbs the products beside it less. `auto`: a sixteenth of the gradients, but 25 to 200."),
      key("comm.overlap", c(&C::overlap), yes_or_no(),
          "Reduce a bucket while backward goes on. Changes the time, not one bit of the result."),
      key("comm.timeout_s", c(&C::timeout_s), above(0),
          "Seconds after which a rank that does not join a collective, or does not answer the others, is an error."),
      auto_key("comm.max_ctas", c(&C::max_ctas), at_least(1),
               "Thread blocks (SMs) an NCCL collective may take from compute. `auto`: NCCL's choice."),
      key("comm.interface", c(&C::interface), not_empty(),
          "Address that host communication listens on. Loopback unless ranks are on several hosts."),
  };
}

std::vector<Field> placement_and_launch_fields() {
  const auto l = [](auto member) { return at(&Config::launch, member); };
  using L = LaunchConfig;
  return {
      choice(
          "placement.strategy", at(&Config::placement, &PlacementConfig::strategy),
          "Which rank gets which GPU. `auto`: as the planner finds best for what the ranks send one another (docs/planner.md). "
          "`order`: rank r gets GPU r. `worst`, for comparison: the opposite of `auto`. `explicit`: `placement.devices`."),
      key("placement.topology", at(&Config::placement, &PlacementConfig::topology), not_empty(),
          "Machine to place the ranks on: `live`, the one the program runs on; or a file that `plait topo --from` reads, for "
          "plans."),
      key("placement.devices", at(&Config::placement, &PlacementConfig::devices),
          rule<std::vector<std::int64_t>>("a list of GPU numbers, each once, none negative",
                                          [](const auto& v) {
                                            const std::set<std::int64_t> once(v.begin(), v.end());
                                            return once.size() == v.size() && (v.empty() || *once.begin() >= 0);
                                          }),
          "`strategy: explicit` only: the GPU of each rank, in the order of ranks."),
      choice("launch.mode", l(&L::mode),
             "Ranks are threads of one process, processes started by plait, or processes that torchrun, Slurm or MPI started."),
      auto_key("launch.ranks", l(&L::ranks), at_least(1),
               "Number of ranks. `auto`: all GPUs; on CPUs `data * tensor * pipeline`, or 2 where `data` is `auto` too."),
      key("launch.device", l(&L::device), one_of({"auto", "cpu", "cuda"}), "`auto`: GPUs if there are any, else CPUs."),
      key("launch.rendezvous", l(&L::rendezvous), any("a path, or empty"),
          "`mode: external` only: a directory that all ranks share, by which they find each other."),
  };
}

std::vector<Field> precision_fields() {
  const auto p = [](auto member) { return at(&Config::precision, member); };
  using P = PrecisionConfig;
  return {
      key("precision.compute", p(&P::compute), one_of({"auto", "bf16", "fp32", "fp64"}),
          "Type of weights and activations in forward and backward. `auto`: bf16 on GPUs, fp32 on CPUs."),
      key("precision.gradients", p(&P::gradients), one_of({"fp32", "bf16"}),
          "Type in which gradients are accumulated and reduced."),
      key("precision.master", p(&P::master), one_of({"fp32"}), "Type of the weights the optimizer updates."),
      key("precision.deterministic", p(&P::deterministic), yes_or_no(),
          "Same bits on every run on GPUs as well: a slower attention backward, and matrix products chosen without timing "
          "them."),
  };
}

std::vector<Field> checkpoint_and_log_fields() {
  const auto c = [](auto member) { return at(&Config::checkpoint, member); };
  using C = CheckpointConfig;
  const auto l = [](auto member) { return at(&Config::log, member); };
  using L = LogConfig;
  return {
      key("checkpoint.every", c(&C::every), at_least(0), "Steps between checkpoints. 0: only at the end."),
      key("checkpoint.keep", c(&C::keep), at_least(1), "Newest checkpoints kept; older ones are deleted."),
      key("checkpoint.final", c(&C::final), yes_or_no(), "Write one after the last step."),
      key("log.every", l(&L::every), at_least(1), "Steps between lines on screen and in `metrics.jsonl`."),
      key("log.tensorboard", l(&L::tensorboard), yes_or_no(), "Write TensorBoard event files too."),
      key("log.trace_steps", l(&L::trace_steps),
          rule<std::vector<std::int64_t>>(
              "a list of steps, each at least 1",
              [](const auto& v) { return std::ranges::all_of(v, [](auto step) { return step >= 1; }); }),
          "Steps to trace into `trace.json` in the run directory, all ranks together (docs/overlap.md; open it in Perfetto)."),
      auto_key("log.peak_tflops", l(&L::peak_tflops), above(0),
               "TFLOP/s of one device that count as 100 % for MFU. `auto`: from a table of known devices."),
  };
}

std::vector<Field> verify_fields() {
  const auto v = [](auto member) { return at(&Config::verify, member); };
  using V = VerifyConfig;
  return {
      key("verify.steps", v(&V::steps), at_least(1), "Optimizer steps that each layout and the serial run take."),
      key("verify.ranks", v(&V::ranks),
          rule<std::vector<std::int64_t>>(
              "a list of numbers of ranks, each at least 1",
              [](const auto& list) { return std::ranges::all_of(list, [](auto n) { return n >= 1; }); }),
          "Numbers of ranks for which `all` lists the layouts."),
      key("verify.layouts", v(&V::layouts),
          rule<std::vector<std::string>>("a list of layouts, not empty", [](const auto& list) { return !list.empty(); }),
          "`all`: every valid mesh, schedule and ZeRO stage for `verify.ranks`. Else layouts one by one, as keys of "
          "`parallel`: "
          "`\"pipeline=2 tensor=2 schedule=zb-h1 zero=1\"`; what is not given is as in `parallel`, and `data` is 1."),
      key("verify.variants", v(&V::variants), any("a list of `name: path=value ...`"),
          "Further models to verify beside the one of this file: `\"llama: model.norm=rms_norm model.mlp=swiglu\"` is this "
          "file "
          "with these keys set. Empty: only the model of this file."),
  };
}

std::vector<Field> bounds_fields() {
  const auto bound = [](std::string path, auto member, std::string meaning) {
    return key(std::move(path), at(&Config::bounds, member),
               rule<std::string>("none, or a percentage from 0% to 100%",
                                 [](const std::string& v) { return v == "none" || percentage(v).has_value(); }),
               std::move(meaning));
  };
  using B = BoundsConfig;
  return {
      bound("bounds.exposed_dp", &B::exposed_dp, "Waiting for reductions of gradients and gathers of weights."),
      bound("bounds.exposed_p2p", &B::exposed_p2p,
            "Waiting for messages between pipeline stages that were on their way; not for senders that were late."),
      bound("bounds.exposed_tp", &B::exposed_tp, "In collectives within blocks."),
      bound("bounds.exposed", &B::exposed, "All three together."),
      bound("bounds.bubble", &B::bubble,
            "Waiting for ranks that were late: the schedule's bubble, and stages of unequal cost."),
  };
}

}  // namespace

const std::vector<Section>& sections() {
  static const std::vector<Section> all = {
      {"run", "Where results go, and the seed."},
      {"model",
       "The transformer. The defaults are the GPT-2 family's; the Llama and Qwen family is `norm: rms_norm`, `mlp: swiglu`, "
       "`position: rope`, `bias: false`."},
      {"data", "What it learns from."},
      {"data.sentencepiece", "For `data.tokenizer: sentencepiece`: exactly one of the two."},
      {"train", "How long and how."},
      {"train.optimizer", "AdamW and its learning rate."},
      {"parallel", "The layout: how many ranks share the work, and how."},
      {"comm", "Communication between ranks."},
      {"placement", "Which rank runs where."},
      {"launch", "How ranks are started, and on what."},
      {"precision", "Number formats."},
      {"checkpoint", "Checkpoints go to `checkpoints/` in the run directory."},
      {"log", "What is reported."},
      {"verify", "What `plait verify` compares with the serial run. Nothing else reads it."},
      {"bounds",
       "How much of a step each rank's compute may lose to communication, by the ledger (docs/overlap.md). `plait bench step` "
       "and "
       "`plait verify` fail where it is more; nothing else reads it."},
  };
  return all;
}

const std::vector<Field>& fields() {
  static const std::vector<Field> all = [] {
    std::vector<Field> table;
    for (auto* part :
         {run_fields, model_fields, data_fields, train_fields, parallel_fields, comm_fields, placement_and_launch_fields,
          precision_fields, checkpoint_and_log_fields, verify_fields, bounds_fields}) {
      std::ranges::move(part(), std::back_inserter(table));
    }
    return table;
  }();
  return all;
}

const Field* find_field(const std::string& path) {
  const auto found = std::ranges::find(fields(), path, &Field::path);
  return found == fields().end() ? nullptr : &*found;
}

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t n = 0; n < words.size(); ++n) text += (n == 0 ? "" : n + 1 < words.size() ? ", " : " and ") + words[n];
  return text;
}

std::string listed_schedules(bool (*holds)(const ScheduleRow&), const std::string& quote) {
  std::vector<std::string> list;
  for (const ScheduleRow& row : built_in_schedules) {
    if (holds(row)) list.push_back(quote + std::string(row.name) + quote);
  }
  return listed(list);
}

bool is_section(const std::string& path) { return std::ranges::find(sections(), path, &Section::path) != sections().end(); }

std::string type_name(const Field& field) {
  static constexpr const char* names[] = {"true or false", "integer",         "integer",          "number",
                                          "string",        "list of strings", "list of integers", "file"};
  return names[field.get(Config{}).index()];
}

}  // namespace plait::config
