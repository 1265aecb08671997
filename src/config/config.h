// The configuration as plain structs, and reading it from YAML.
//
// A key is a member, and beneath it a line of declare(): its name, the member, what a value must satisfy
// (config/schema.cpp has the rules) and what it means. Reading, `--set`, validation, writing and docs/configuration.md
// follow from that line.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/auto.h"
#include "config/data_config.h"
#include "config/schedule_table.h"
#include "config/study_config.h"
#include "core/axis.h"
#include "core/choices.h"
#include "core/limits.h"

namespace plait {

struct ScheduleFile;  // config/schedule_file.h

struct RunConfig {
  std::string name = "run";
  std::string dir = "runs";
  std::uint64_t seed = 1234;

  template <typename Keys>
  static void declare(Keys& k) {
    k.key("name", &RunConfig::name, k.folder_name(limits::file_name), "Name of the run; its directory is `run.dir/run.name`.");
    k.key("dir", &RunConfig::dir, k.not_empty(limits::path), "Folder that holds the run directories.");
    k.key("seed", &RunConfig::seed, k.any("an integer from 0 to 2^64 - 1"),
          "Seed of everything random: initial weights, samples, generated text. Neither the number of ranks nor the layout "
          "changes what a seed gives.");
  }
};

struct RopeScalingConfig {
  double factor = 1.0, low_freq_factor = 1.0, high_freq_factor = 4.0;
  std::int64_t original_max_position = 8192;
  friend bool operator==(const RopeScalingConfig&, const RopeScalingConfig&) = default;

  template <typename Keys>
  static void declare(Keys& k) {
    k.key("factor", &RopeScalingConfig::factor, k.real(1, 1e6, "a thousand times the largest factor published, 64"),
          "Slow frequencies are divided by this. 1: no scaling.");
    k.key("low_freq_factor", &RopeScalingConfig::low_freq_factor,
          k.real(1e-6, 1e6, "a million turns are many times what is published, 4"),
          "Frequencies with fewer turns than this in `original_max_position` are slow.");
    k.key("high_freq_factor", &RopeScalingConfig::high_freq_factor,
          k.real(1e-6, 1e6, "a million turns are many times what is published, 4"),
          "Those with more turns than this are left alone; in between the division fades out. More than `low_freq_factor`.");
    k.key("original_max_position", &RopeScalingConfig::original_max_position, k.whole(1, limits::sequence),
          "The longest sequence before scaling.");
  }
};

struct ModelConfig {
  std::string preset;  // fills the fields below that are not given; empty: all of them come from the file
  std::string from;    // empty once a configuration has been read: it is filled in then
  std::int64_t layers = 0, hidden = 0, heads = 0;
  Auto<std::int64_t> kv_heads, head_dim, ffn, vocab;
  NormKind norm = NormKind::layer_norm;
  double norm_epsilon = 1e-5;
  Mlp mlp = Mlp::gelu;
  Position position = Position::learned;
  double rope_base = 10000.0;
  RopeScalingConfig rope_scaling;
  bool tie_embeddings = true;
  bool bias = true;                         // biases in attention output and MLP linears (and the norms' beta for layer_norm)
  bool qkv_bias = true;                     // bias in the query/key/value projection
  bool qk_norm = false;                     // RMSNorm of query and key heads
  Auto<std::int64_t> max_sequence;          // rows of the learned position table; auto: data.sequence_length
  Auto<std::int64_t> window;                // keys that a token sees; auto: all before it
  std::vector<std::int64_t> window_layers;  // from 0; empty: all have the window

  template <typename Keys>
  static void declare(Keys& k) {
    k.key("preset", &ModelConfig::preset, k.preset_name(),
          "A published shape (table below). It fills the keys of this section that are not given; a given key wins.");
    k.shorthand(
        k.key("from", &ModelConfig::from, k.any("a path, or empty"),
              "Directory of a model of Hugging Face transformers (docs/huggingface.md). It stands for the other keys of this "
              "section, of which none may be given another value; for `train.init_from.path`, where that is not given; and for "
              "`data.tokenizer`, where no tokenizer is. They are filled in as the configuration is read: a run keeps them, and "
              "goes on without the directory. Not together with `preset`."));
    k.required(k.key("layers", &ModelConfig::layers, k.whole(1, limits::layers), "Transformer blocks. A preset gives it."));
    k.required(
        k.key("hidden", &ModelConfig::hidden, k.whole(1, limits::hidden), "Width of the residual stream. A preset gives it."));
    k.required(k.key("heads", &ModelConfig::heads, k.whole(1, limits::heads), "Query heads. A preset gives it."));
    k.auto_key("kv_heads", &ModelConfig::kv_heads, k.whole(1, limits::heads),
               "Key/value heads; fewer than `heads` is grouped-query attention. `auto`: as many as `heads`.");
    k.auto_key("head_dim", &ModelConfig::head_dim, k.whole(1, limits::head_width),
               "Width of one head. `auto`: `hidden / heads`.");
    k.auto_key("ffn", &ModelConfig::ffn, k.whole(1, limits::ffn),
               "Inner width of the MLP (of each of gate and up for `swiglu`). `auto`: `4 * hidden`.");
    k.auto_key("vocab", &ModelConfig::vocab, k.whole(1, limits::vocab),
               "Size of the vocabulary. `auto`: the tokenizer's (256 for `bytes`). At least the tokenizer's; the embedding "
               "table has it rounded up to a multiple of 128.");
    k.choice("norm", &ModelConfig::norm, "Normalisation before attention, before the MLP and at the end.");
    k.key("norm_epsilon", &ModelConfig::norm_epsilon, k.real(1e-30, 1, limits::normal_float),
          "Added to the variance (mean square for `rms_norm`).");
    k.choice("mlp", &ModelConfig::mlp, "`gelu`: up, GELU (tanh form), down. `swiglu`: SiLU(gate) * up, down.");
    k.choice("position", &ModelConfig::position, "Learned position table, or rotary embedding of queries and keys.");
    k.key("rope_base", &ModelConfig::rope_base, k.real(1, 1e12, "a thousand times the largest base published, a billion"),
          "Base of the rotary frequencies; read with `position: rope` only.");
    k.section(
        "rope_scaling", &ModelConfig::rope_scaling,
        "Rotary frequencies for longer sequences, as Llama 3.1 has them (`rope_type: llama3` in Hugging Face's files); read "
        "with `position: rope` only.");
    k.key("tie_embeddings", &ModelConfig::tie_embeddings, k.yes_or_no(),
          "Use the token embedding as the output projection too.");
    k.key("bias", &ModelConfig::bias, k.yes_or_no(),
          "Biases in the attention output and the MLP, and the shift of `layer_norm`.");
    k.key("qkv_bias", &ModelConfig::qkv_bias, k.yes_or_no(), "Bias in the query/key/value projection.");
    k.key("qk_norm", &ModelConfig::qk_norm, k.yes_or_no(),
          "RMSNorm (with `norm_epsilon`) of every query and key head by itself, before the rotation. All query heads have one "
          "gain, all key heads another (Qwen 3).");
    k.auto_key("max_sequence", &ModelConfig::max_sequence, k.whole(1, limits::sequence),
               "Rows of the learned position table: the longest sequence the model can take. `auto`: `data.sequence_length`.");
    k.auto_key(
        "window", &ModelConfig::window, k.whole(1, limits::sequence),
        "Sliding window of attention: a token sees itself and the `window - 1` tokens before it. `auto`: all before it.");
    k.key("window_layers", &ModelConfig::window_layers, k.each("a list of layers", 0, limits::layers),
          "Layers with the window, counted from 0; the others see all before. Empty: all of them have it.");
  }
};

struct OptimizerConfig {
  double lr = 6e-4;
  double min_lr_fraction = 0.1;  // final learning rate of cosine and linear, as a fraction of lr
  std::int64_t warmup = 0;       // steps
  Decay schedule = Decay::cosine;
  double decay_fraction = 0.2;     // wsd: last fraction of the steps in which lr falls to min_lr_fraction
  Auto<std::int64_t> decay_steps;  // the same in steps; auto: by decay_fraction
  DecayShape decay_shape = DecayShape::linear;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;

  template <typename Keys>
  static void declare(Keys& k) {
    k.key("lr", &OptimizerConfig::lr, k.real(1e-30, 1e30, limits::normal_float), "Peak learning rate of AdamW.");
    k.key("min_lr_fraction", &OptimizerConfig::min_lr_fraction, k.fraction(),
          "Learning rate at the end of `cosine`, `linear` and `wsd`, as a fraction of `lr`.");
    k.key("warmup", &OptimizerConfig::warmup, k.whole(0, limits::steps),
          "Steps in which the learning rate rises linearly from 0 to `lr`.");
    k.choice("schedule", &OptimizerConfig::schedule,
             "Learning rate after the warm-up. `wsd` (warm-up, stable, decay) stays at `lr` until its last `decay_steps`.");
    k.key("decay_fraction", &OptimizerConfig::decay_fraction, k.fraction(),
          "`wsd` only: share of all steps, at the end, in which the learning rate falls; read while `decay_steps` is `auto`.");
    k.auto_key("decay_steps", &OptimizerConfig::decay_steps, k.whole(1, limits::steps),
               "`wsd` only: steps, at the end, in which the learning rate falls. `auto`: `decay_fraction` of all steps.");
    k.choice(
        "decay_shape", &OptimizerConfig::decay_shape,
        "`wsd` only: how the learning rate falls, with the share x of the decay that is done: `linear`: 1 - x. `cosine`: half "
        "a cosine. `minus_sqrt`: 1 - sqrt(x), quickly at first (Hägele et al. 2024).");
    k.key("beta1", &OptimizerConfig::beta1, k.fraction_below_one(), "Decay of the first moment.");
    k.key("beta2", &OptimizerConfig::beta2, k.fraction_below_one(), "Decay of the second moment.");
    k.key("epsilon", &OptimizerConfig::epsilon, k.real(1e-30, 1, limits::normal_float),
          "Added to the root of the second moment.");
    k.key("weight_decay", &OptimizerConfig::weight_decay, k.real(0, 1000, "more than 1 / `lr` would turn weights around"),
          "Decoupled weight decay; applies to matrices, not to norms, biases and learned positions.");
  }
};

struct InitFromConfig {
  std::string path;        // a run directory, a checkpoint or a model of transformers; empty: weights from the seed
  bool optimizer = false;  // moments and step count too: the run goes on at the checkpoint's step

  template <typename Keys>
  static void declare(Keys& k) {
    k.key("path", &InitFromConfig::path, k.any("a path, or empty"),
          "A run directory, whose newest checkpoint is taken, a checkpoint, or a directory of a model of Hugging Face "
          "transformers. `plait train --init-from PATH` is short for it. Empty: weights are drawn from `run.seed`.");
    k.key("optimizer", &InitFromConfig::optimizer, k.yes_or_no(),
          "Take the moments and the step count as well (`--with-optimizer`): steps, samples and learning rate go on where the "
          "checkpoint is, and `train.steps` counts the steps before it too. Off: a new run at step 0 with fresh moments. A "
          "model of transformers has none.");
  }
};

struct TrainConfig {
  std::int64_t steps = 0;
  std::int64_t global_batch = 0;       // sequences
  Auto<std::int64_t> micro_batch = 0;  // sequences; auto: the planner's choice
  OptimizerConfig optimizer;
  InitFromConfig init_from;
  double clip = 1.0;  // 0: off
  GraphUse graph = GraphUse::automatic;
  std::int64_t eval_every = 0;     // steps; 0: only at the end (if there is validation data)
  std::int64_t eval_batches = 8;   // global batches per evaluation
  std::int64_t sample_tokens = 0;  // tokens of sample text printed at the end; 0: none
  std::string sample_prompt = "\n";

  template <typename Keys>
  static void declare(Keys& k) {
    k.required(k.key("steps", &TrainConfig::steps, k.whole(1, limits::steps), "Optimizer steps."));
    k.required(k.key("global_batch", &TrainConfig::global_batch, k.whole(1, limits::sequences),
                     "Sequences in one optimizer step, over all ranks."));
    k.required(k.planned(k.auto_key(
        "micro_batch", &TrainConfig::micro_batch, k.whole(1, limits::sequences),
        "Sequences one data-parallel rank computes at a time; gradients accumulate over `global_batch / (micro_batch * data)` "
        "of them. Larger is faster and takes more memory; the result is the same. `auto`: the planner's choice.")));
    k.section("optimizer", &TrainConfig::optimizer, "AdamW and its learning rate.");
    k.section("init_from", &TrainConfig::init_from,
              "A new run from the weights of another (docs/checkpoints.md): fine-tuning, and forks of one trunk. Only `plait "
              "train` reads it, and not with `--resume`.");
    k.key("clip", &TrainConfig::clip, k.real(0, 1e30, limits::normal_float),
          "Largest global norm of the gradient; a larger gradient is scaled down to it. 0: off.");
    k.choice(
        "graph", &TrainConfig::graph,
        "What is launched at once, as a CUDA graph, rather than kernel by kernel: small models and small micro-batches "
        "otherwise wait for launches (docs/performance.md). Changes the time, not one bit of the result. `instructions`: each "
        "forward and backward of a segment that takes the device 0.2 ms or less, which is measured before the first step. "
        "`on`: whole steps, from the third on; an error where messages or exchanges "
        "go by links (`parallel.pipeline` above 1, `comm.exchanges`, `comm.reductions`). `auto`: as `instructions`, and in a "
        "run of one rank whole steps where they are faster, which the first 39 steps try. Without effect on CPUs.");
    k.key("eval_every", &TrainConfig::eval_every, k.whole(0, limits::steps),
          "Steps between evaluations. 0: only at the end, if there is validation data.");
    k.key("eval_batches", &TrainConfig::eval_batches, k.whole(1, limits::batches),
          "Global batches in one evaluation, at fixed, evenly spaced positions.");
    k.key("sample_tokens", &TrainConfig::sample_tokens, k.whole(0, limits::sampled),
          "Tokens of sample text printed at the end. 0: none.");
    k.key("sample_prompt", &TrainConfig::sample_prompt, k.not_empty(), "Text the sample continues.");
  }
};

struct ParallelConfig {
  AxisArray<Auto<std::int64_t>> size = usual_sizes();
  // `auto` of these is the planner's choice.
  Auto<ScheduleKind> schedule = ScheduleKind::one_f_one_b;
  // The file of ScheduleKind::file, as it was when the configuration was read.
  std::shared_ptr<const ScheduleFile> schedule_file;
  Auto<std::int64_t> virtual_stages = 1;  // chunks of the model per pipeline rank (interleaved)
  std::vector<double> stages;             // transformer blocks of each stage, in model order; empty: split by cost
  Auto<std::int64_t> zero = 0;            // 0 | 1 | 2
  bool sequence_parallel = true;
  Auto<Recompute> recompute = Recompute::none;

  // As a configuration has them that says nothing.
  static AxisArray<Auto<std::int64_t>> usual_sizes() {
    return AxisArray<Auto<std::int64_t>>::of_rows([](const AxisRow& row) { return Auto<std::int64_t>(row.usual); });
  }
  // 0 where `auto`.
  AxisSizes known_sizes() const {
    return AxisSizes::of_rows([this](const AxisRow& row) { return size[row.axis].value_or(0); });
  }

  template <typename Keys>
  static void declare(Keys& k) {
    for (const AxisRow& row : axis_table) k.size_along(row, &ParallelConfig::size, k.whole(1, limits::ranks));
    k.planned(
        k.schedule("schedule", &ParallelConfig::schedule,
                   "Order of the micro-batches in a pipeline, by name or from a file (docs/schedules.md); `planned`: listed "
                   "for what the passes of this model take on this machine. By name without effect while `pipeline` is "
                   "1."));
    k.planned(
        k.auto_key("virtual_stages", &ParallelConfig::virtual_stages, k.whole(1, limits::ranks), k.virtual_stages_meaning()));
    k.key("stages", &ParallelConfig::stages, k.each_half("a list of numbers of blocks", limits::layers),
          "Transformer blocks of each stage, in the order of the model: `pipeline` numbers, times the stages per rank. A half "
          "stands for one of a block's two halves: 2.5 and then 1.5 cut the third block between attention and MLP. The "
          "embedding is on the first stage, the head on the last. Empty: split so that the most loaded rank has the least to "
          "compute, embedding and head counted: by FLOPs, or where the planner decides something else too by seconds, if that "
          "is faster.");
    k.planned(
        k.auto_key("zero", &ParallelConfig::zero, k.up_to(0, 2, "sharding parameters (ZeRO-3)"),
                   "1: optimizer states and master weights are sharded over the data-parallel ranks (ZeRO-1). 2: gradients "
                   "too, which are then reduced after every micro-batch (ZeRO-2). 0: every rank has all of them."));
    k.key("sequence_parallel", &ParallelConfig::sequence_parallel, k.yes_or_no(),
          "Shard norms and the residual stream over the tensor-parallel ranks (Korthikanti et al. 2022): same communication, "
          "less memory. Without effect while `tensor` is 1.");
    k.planned(k.choice("recompute", &ParallelConfig::recompute,
                       "What backward computes again instead of keeping it: nothing, what is cheap to compute and large to "
                       "keep, or whole segments from their input. Saves memory, costs time, changes no result."));
  }
};

// "zb-v", "auto"; of a file its path.
std::string schedule_name(const ParallelConfig& parallel);

struct CommConfig {
  Auto<Backend> backend;               // auto: by device
  Auto<Transport> p2p;                 // auto: the best that works, pair by pair
  std::vector<std::string> p2p_pairs;  // "0-1=host": transports of single pairs (config/pair_transport.h)
  Auto<Mover> mover;                   // auto: the fastest
  PeerAccessUse peer_access = PeerAccessUse::automatic;
  RequiredPath require = RequiredPath::none;
  Auto<CollectiveWay> exchanges, reductions;
  Auto<double> bucket_mb;  // auto: a sixteenth of the gradients but 25 to 200
  bool overlap = true;
  Auto<Braid> braid;  // auto: see parallel::choose_braids
  double timeout_s = 60;
  Auto<std::int64_t> max_ctas;          // NCCL: bound on SMs per collective; auto: NCCL's choice
  std::string interface = "127.0.0.1";  // address, network interface or subnet that host communication listens on

  // What collectives along an axis go by, as asked; nothing: auto, or messages only.
  std::optional<CollectiveWay> way_along(Axis axis) const {
    switch (row_of(axis).way) {
      case WayKey::none: break;
      case WayKey::exchanges: return exchanges.given();
      case WayKey::reductions: return reductions.given();
    }
    return std::nullopt;
  }

  template <typename Keys>
  static void declare(Keys& k) {
    k.choice("backend", &CommConfig::backend, "Collectives: NCCL between GPUs, Gloo between CPUs. `auto`: by device.");
    k.choice("p2p", &CommConfig::p2p,
             "How messages between pipeline stages travel, and collectives by links (`comm.exchanges`, `comm.reductions`). " +
                 std::string(transport_meanings) +
                 " `auto`: pair by pair the first of these that works there. Without effect where there is neither.");
    k.key(
        "p2p_pairs", &CommConfig::p2p_pairs, k.pairs(),
        "What goes by links (`comm.p2p`) between single pairs of GPUs (CPUs: ranks) goes by these: `[0-2=host, 0-3=host]`. To "
        "see what slower links do to a layout. The planner takes `host` pairs for that slow.");
    k.choice(
        "mover", &CommConfig::mover,
        "Who moves the bytes between pipeline stages: `copy_engine` takes nothing from compute, `sm_write` is a kernel of the "
        "sender, `sm_read` one of the receiver. `auto`: the fastest at the size of the messages, tried out at start-up; a "
        "kernel only where it is at least 10 % faster. Kernels need GPUs. Exchanges by links (`comm.exchanges`), between GPUs "
        "that reach each other's memory: up to 64 KiB to each other rank always go by a kernel of the sender, more by copy "
        "engines or, with `sm_write`, by that kernel too; `auto`: by the kernel among three ranks and more where little "
        "is computed beside an exchange, up to 68 GFLOP of products a rank, with FP8 136; "
        "`sm_read`: as `copy_engine`. The log says which. Reductions by links: up to 64 KiB by the kernel, more by copy "
        "engines.");
    k.choice(
        "peer_access", &CommConfig::peer_access,
        "Whether GPUs reach each other's memory. `auto`: where the machine permits it. `off`: not even there, so that a run "
        "shows what it is worth: mailboxes go by `host` or `nccl` only, between CPUs too, and NCCL is told so "
        "(NCCL_P2P_DISABLE=1, NCCL_NVLS_ENABLE=0), which it reads once in a process. The planner then takes all GPUs of a "
        "host for as far apart as the way through host memory is.");
    k.choice(
        "require", &CommConfig::require,
        "What the run does not start without (status 3, with the pair, what it got, and why). `p2p`: within a host all that "
        "ranks send to each other, in messages and collectives, goes from GPU to GPU, not through host memory. `rdma`: "
        "between hosts all goes by GPUDirect RDMA. `none`: it starts with what there is, and says what that is.");
    k.choice(
        "exchanges", &CommConfig::exchanges,
        "What the sums and gathers between tensor-parallel ranks go by. `links`: each rank pushes to each other what that "
        "one needs, as messages between stages travel (`comm.p2p`), short pushes by a kernel and long ones by copy engines "
        "(`comm.mover`), beside which only adding up what arrived, or copying it to where it belongs, takes SMs from "
        "compute; an error where some pair has no such link. `library`: "
        "collectives of `comm.backend`. `auto`: links among up to four ranks where all GPUs are of one host and every two of "
        "them joined by NVLink, `comm.p2p` is `auto` and `train.graph` is not `on`; else the library. Without effect while "
        "`parallel.tensor` is 1.");
    k.choice(
        "reductions", &CommConfig::reductions,
        "What the sums of gradients over data-parallel ranks go by, and with `parallel.zero` the gathers of weights: `links` "
        "or `library`, as for `comm.exchanges`. By links a sum is taken in the order of the ranks, in fp32, and rounded once. "
        "`auto`: as there, but the library where `parallel.zero` is 0. Without effect while `parallel.data` is 1.");
    k.auto_key("bucket_mb", &CommConfig::bucket_mb, k.real(0.001, 1e6, "a kilobyte to a terabyte"),
               "Gradients are reduced in buckets of about this many MiB. Smaller starts earlier, larger takes fewer "
               "collectives and disturbs the products beside it less. `auto`: a sixteenth of the gradients, but 25 to 200.");
    k.key("overlap", &CommConfig::overlap, k.yes_or_no(),
          "Let sums, gradients and messages go on beside computing. Changes the time, not one bit of the result.");
    k.choice(
        "braid", &CommConfig::braid,
        "Which two passes a rank computes segment by segment by turns where tensor-parallel ranks share the segments, so "
        "that the sums of one go on behind the other (docs/overlap.md). `passes`: where one rank has all stages, each "
        "forward and the pass beside it, which holds one more micro-batch for the length of a pass; elsewhere the pairs of "
        "a schedule file, or, in pipelines with several stages to a rank, each forward and a backward beside it, where that is "
        "estimated to end sooner. It changes the time, not one bit of the result. `ahead`, where one rank has all stages: the "
        "same, and a step begins with two forwards, so that the first has a partner too; that takes the activations of one "
        "more micro-batch. `halves`: as `passes`, and where forwards have no such partner, in pipelines and with a single "
        "micro-batch, the two halves of each micro-batch, which must then have "
        "an even number of sequences; the job is that of twice as many micro-batches of half the size, and its schedule "
        "stays. `none`: no two. `auto`: `passes`. Without effect while `parallel.tensor` is 1.");
    k.key("timeout_s", &CommConfig::timeout_s, k.real(0.01, 1e6, "timers count milliseconds; the most is 12 days"),
          "Seconds after which a rank that does not join a collective, or does not answer the others, is an error.");
    k.auto_key("max_ctas", &CommConfig::max_ctas, k.whole(1, limits::thread_blocks),
               "Thread blocks (SMs) an NCCL collective may take from compute. `auto`: NCCL's choice.");
    k.per_host(k.key(
        "interface", &CommConfig::interface, k.not_empty(),
        "Where communication between CPUs listens: an address of this host; or, so that one file serves all hosts, the name "
        "of a network interface (`eth0`) or a subnet (`10.1.0.0/16`), of which each host takes its own address. Loopback "
        "reaches only ranks of the same host (and network namespace)."));
  }
};

struct PlacementConfig {
  PlacementStrategy strategy = PlacementStrategy::automatic;
  std::string topology = "live";      // live, or a file (topology/import.h)
  std::vector<std::int64_t> devices;  // PlacementStrategy::given: GPU of each rank

  template <typename Keys>
  static void declare(Keys& k) {
    k.choice(
        "strategy", &PlacementConfig::strategy,
        "Which rank gets which GPU. `auto`: as the planner finds best for what the ranks send one another (docs/planner.md). "
        "`order`: rank r gets GPU r. `worst`, for comparison: the opposite of `auto`. `explicit`: `placement.devices`.");
    k.key("topology", &PlacementConfig::topology, k.not_empty(),
          "Machine to place the ranks on: `live`, the one the program runs on; or a file that `plait topo --from` reads, for "
          "plans.");
    k.key("devices", &PlacementConfig::devices, k.different_gpus(),
          "`strategy: explicit` only: the GPU of each rank, in the order of ranks.");
  }
};

struct LaunchConfig {
  Auto<LaunchMode> mode;        // auto: by whether an outside launcher has started this process
  Auto<std::int64_t> ranks;     // auto: all GPUs, or on CPUs parallel.data * tensor * pipeline (2 when that is auto)
  std::string device = "auto";  // auto | cpu | cuda
  Auto<std::int64_t> ranks_per_device = 1;  // auto: as few as the ranks need
  std::string rendezvous;  // external: a directory all ranks share, or a place in the network (config/tcp_place.h)
  RankBinding bind = RankBinding::automatic;
  std::string token_file;  // of a rendezvous over TCP; empty: PLAIT_TOKEN
  Auto<double> memory_gib;

  bool may_share_devices() const { return ranks_per_device != 1; }

  template <typename Keys>
  static void declare(Keys& k) {
    k.per_host(k.choice(
        "mode", &LaunchConfig::mode,
        "Ranks are threads of one process, processes started by plait, or processes that torchrun, Slurm, MPI or "
        "Kubernetes started. `auto`: `external` where one of these has started this process and others, else `threads`."));
    k.auto_key("ranks", &LaunchConfig::ranks, k.whole(1, limits::ranks),
               "Number of ranks. `auto`: all GPUs; on CPUs `data * tensor * pipeline`, or 2 where `data` is `auto` too.");
    k.key("device", &LaunchConfig::device, k.one_of({"auto", "cpu", "cuda"}), "`auto`: GPUs if there are any, else CPUs.");
    k.auto_key(
        "ranks_per_device", &LaunchConfig::ranks_per_device, k.whole(1, limits::host_ranks),
        "Ranks that share a GPU, as threads of one process (docs/verification.md): any layout then runs on one GPU, to prove "
        "what it computes; its speed says nothing. Rank r is on GPU r / ranks_per_device. `auto`: as few as the ranks "
        "need. Above 1 and with `auto` all collectives go by links, between CPUs too, and messages by `direct`.");
    k.per_host(k.choice("bind", &LaunchConfig::bind,
                        "`auto`: the rank of a GPU runs on the processors of its GPU's NUMA node, unless the process is bound "
                        "from outside. `none`: ranks run wherever the process may."));
    k.per_host(k.key(
        "rendezvous", &LaunchConfig::rendezvous, k.rendezvous(),
        "Where an outside launcher starts the ranks: how they find each other. A directory that all of them share, fresh for "
        "each job; or, where there is none, `tcp`: rank 0 listens at MASTER_ADDR:MASTER_PORT, which torchrun and Kubernetes "
        "give. `tcp://:PORT` for another port, `tcp://HOST:PORT` without those variables. Needs a token."));
    k.per_host(k.key(
        "token_file", &LaunchConfig::token_file, k.any("a path, or empty"),
        "`rendezvous: tcp` only: a file that only its owner and group can read, with a secret of at least 16 characters, the "
        "same for all ranks (`openssl rand -hex 32`), by which ranks know each other. Empty: the environment variable "
        "PLAIT_TOKEN holds "
        "it. It does not travel."));
    k.auto_key(
        "memory_gib", &LaunchConfig::memory_gib, k.real(1e-6, 1e6, limits::device_gib),
        "GiB of its device that a rank may have: the planner plans with it, and a rank that asks for more ends with `out of "
        "memory`. `auto`: what the device has; on CPUs the memory of the machine, divided by the ranks.");
  }
};

struct PrecisionConfig {
  std::string compute = "auto";    // auto (bf16 on GPUs, fp32 on CPUs) | bf16 | fp32 | fp64 (CPU only)
  Auto<MatmulType> matmul;         // auto: as `compute`
  std::string gradients = "fp32";  // fp32 | bf16 (bf16 compute only)
  std::string master = "fp32";
  std::string moments = "fp32";  // fp32 | bf16 (not with fp64 compute)
  bool deterministic = false;    // same bits on every run on GPUs as well (slower attention backward, untimed GEMM choice)

  template <typename Keys>
  static void declare(Keys& k) {
    k.key("compute", &PrecisionConfig::compute, k.one_of({"auto", "bf16", "fp32", "fp64"}),
          "Type of weights and activations in forward and backward. `auto`: bf16 on GPUs, fp32 on CPUs.");
    k.choice("matmul", &PrecisionConfig::matmul,
             "Operands of the matrix products of attention and MLP, forward and backward; embedding, head, attention itself, "
             "norms and the residual stream stay as `compute` says. `fp8`: e4m3 with one scale per tensor, found from the "
             "tensor as it is (docs/fp8.md). `auto`: as `compute`.");
    k.key("gradients", &PrecisionConfig::gradients, k.one_of({"fp32", "bf16"}),
          "Type in which gradients are accumulated and reduced.");
    k.key("master", &PrecisionConfig::master, k.one_of({"fp32"}), "Type of the weights the optimizer updates.");
    k.key("moments", &PrecisionConfig::moments, k.one_of({"fp32", "bf16"}),
          "Type in which AdamW's moments are kept between updates. `bf16` saves 4 bytes a parameter and is rounded "
          "stochastically, by random numbers that are the same on every run and layout (docs/performance.md). Updates are "
          "computed in fp32 all the same, and checkpoints hold moments in fp32.");
    k.key(
        "deterministic", &PrecisionConfig::deterministic, k.yes_or_no(),
        "Same bits on every run on GPUs as well: a slower attention backward, and matrix products chosen without timing them.");
  }
};

struct CheckpointConfig {
  std::int64_t every = 0;  // steps; 0: only at the end
  std::int64_t keep = 2;   // newest ones kept
  bool final = true;       // write one after the last step

  template <typename Keys>
  static void declare(Keys& k) {
    k.key("every", &CheckpointConfig::every, k.whole(0, limits::steps), "Steps between checkpoints. 0: only at the end.");
    k.key("keep", &CheckpointConfig::keep, k.whole(1, limits::steps), "Newest checkpoints kept; older ones are deleted.");
    k.key("final", &CheckpointConfig::final, k.yes_or_no(), "Write one after the last step.");
  }
};

struct LogConfig {
  std::int64_t every = 10;
  bool tensorboard = true;
  std::vector<std::int64_t> trace_steps;
  Auto<double> peak_tflops;  // for MFU; auto: from the table of known devices

  template <typename Keys>
  static void declare(Keys& k) {
    k.key("every", &LogConfig::every, k.whole(1, limits::steps), "Steps between lines on screen and in `metrics.jsonl`.");
    k.key("tensorboard", &LogConfig::tensorboard, k.yes_or_no(), "Write TensorBoard event files too.");
    k.key("trace_steps", &LogConfig::trace_steps, k.each("a list of steps", 1, limits::steps),
          "Steps to trace into `trace.json` in the run directory, all ranks together (docs/overlap.md; open it in Perfetto).");
    k.auto_key("peak_tflops", &LogConfig::peak_tflops,
               k.real(1e-6, 1e9, "a CPU core has 1e-2, the largest machine there is 1e7"),
               "TFLOP/s of one device that count as 100 % for MFU. `auto`: from a table of known devices.");
  }
};

// What `plait verify` compares with the serial run of the same model.
struct VerifyConfig {
  std::int64_t steps = 3;                       // optimizer steps
  double lr = 1e-5, epsilon = 1e-5;             // of those steps, instead of train.optimizer's
  std::vector<std::int64_t> ranks = {1, 2, 4};  // of `layouts: [all]`
  std::vector<std::string> layouts = {"all"};   // "all", or "pipeline=2 tensor=2 schedule=zb-h1 zero=1": keys of `parallel`
  std::vector<std::string> variants;            // "llama: model.norm=rms_norm model.mlp=swiglu": name and overrides

  template <typename Keys>
  static void declare(Keys& k) {
    k.key("steps", &VerifyConfig::steps, k.whole(1, limits::verified_steps),
          "Optimizer steps that each layout and the serial run take.");
    k.key("lr", &VerifyConfig::lr, k.real(1e-30, 1e30, limits::normal_float),
          "Learning rate of those steps, constant. `train.optimizer` has no say in it: how far rounding errors carry from one "
          "step to the next grows with the learning rate, so that the bounds of large steps are weak (docs/verification.md).");
    k.key("epsilon", &VerifyConfig::epsilon, k.real(1e-30, 1, limits::normal_float),
          "AdamW's epsilon in those steps: larger than the rounding errors of gradients, which else decide the updates of "
          "elements with small gradients.");
    k.key("ranks", &VerifyConfig::ranks, k.each("a list of numbers of ranks", 1, limits::host_ranks),
          "Numbers of ranks for which `all` lists the layouts.");
    k.key("layouts", &VerifyConfig::layouts, k.not_empty_list("a list of layouts, not empty"),
          "`all`: every valid mesh, schedule and ZeRO stage for `verify.ranks`, the schedule from a file that "
          "`parallel.schedule` names too. Else layouts one by one, as keys of `parallel`: "
          "`\"pipeline=2 tensor=2 schedule=zb-h1 zero=1\"`; what is not given is as in `parallel`, and `data` is 1.");
    k.key("variants", &VerifyConfig::variants, k.list_of_at_most(limits::variants, "a list of `name: path=value ...`"),
          "Further models to verify beside the one of this file: `\"llama: model.norm=rms_norm model.mlp=swiglu\"` is this "
          "file with these keys set. Empty: only the model of this file.");
  }
};

// How much of a step any rank may lose: "5%" of its time, or "none" for no bound (read by percentage()). For `plait bench step`
// and `plait verify`.
struct BoundsConfig {
  std::string exposed_dp = "none";   // communication of gradients and weights that compute waited for
  std::string exposed_p2p = "none";  // the same for messages between pipeline stages
  std::string exposed_tp = "none";   // and for exchanges between tensor-parallel ranks
  std::string exposed = "none";      // of all of them
  std::string bubble = "none";       // waiting for ranks that were late

  template <typename Keys>
  static void declare(Keys& k) {
    k.key("exposed_dp", &BoundsConfig::exposed_dp, k.bound(), "Waiting for reductions of gradients and gathers of weights.");
    k.key("exposed_p2p", &BoundsConfig::exposed_p2p, k.bound(),
          "Waiting for messages between pipeline stages that were on their way; not for senders that were late.");
    k.key("exposed_tp", &BoundsConfig::exposed_tp, k.bound(), "Waiting for sums and gathers between tensor-parallel ranks.");
    k.key("exposed", &BoundsConfig::exposed, k.bound(), "All three together.");
    k.key("bubble", &BoundsConfig::bubble, k.bound(),
          "Waiting for ranks that were late: the schedule's bubble, and stages of unequal cost.");
  }
};

struct Config {
  RunConfig run;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  ParallelConfig parallel;
  CommConfig comm;
  PlacementConfig placement;
  LaunchConfig launch;
  PrecisionConfig precision;
  CheckpointConfig checkpoint;
  LogConfig log;
  VerifyConfig verify;
  StudyConfig study;
  BoundsConfig bounds;

  template <typename Keys>
  static void declare(Keys& k) {
    k.section("run", &Config::run, "Where results go, and the seed.");
    k.section("model", &Config::model,
              "The transformer. The defaults are the GPT-2 family's; the Llama and Qwen family is `norm: rms_norm`, `mlp: "
              "swiglu`, `position: rope`, `bias: false`.");
    k.section("data", &Config::data, "What it learns from.");
    k.section("train", &Config::train, "How long and how.");
    k.section("parallel", &Config::parallel, "The layout: how many ranks share the work, and how.");
    k.section("comm", &Config::comm, "Communication between ranks.");
    k.section("placement", &Config::placement, "Which rank runs where.");
    k.section("launch", &Config::launch, "How ranks are started, and on what.");
    k.section("precision", &Config::precision, "Number formats.");
    k.section("checkpoint", &Config::checkpoint, "Checkpoints go to `checkpoints/` in the run directory.");
    k.section("log", &Config::log, "What is reported.");
    k.section("verify", &Config::verify, "What `plait verify` compares with the serial run. Nothing else reads it.");
    k.section("study", &Config::study, "What `plait study` measures (docs/studies.md). Nothing else reads it.");
    k.section("bounds", &Config::bounds,
              "How much of a step each rank's compute may lose to communication, by the ledger (docs/overlap.md). `plait bench "
              "step` and `plait verify` fail where it is more; nothing else reads it.");
  }
};

// What a directory that `model.from` names stands for, in keys of the configuration.
struct ModelDirectory {
  std::string file;       // that says what the model is, for messages
  ModelConfig model;      // every key of its shape
  std::string tokenizer;  // data.tokenizer, and what goes with it
  SentencePieceConfig sentencepiece;
  HuggingFaceConfig huggingface;
  std::string no_tokenizer;  // why it is `tokens`, for messages; else empty
};
// Reads one: interop/trained_model.h has it. Throws ConfigError.
using ModelDirectoryReader = std::function<ModelDirectory(const std::string& directory)>;

// Reads `path`, applies `overrides` ("train.steps=10"; values are YAML), fills the preset and validates. Throws ConfigError
// listing the problems found (unknown key, wrong type, broken rule, missing key), never only the first: up to a hundred, and
// how many more there are. `path` is a regular file; it and what it says are bounded (core/limits.h), so that a file of
// any size and content is refused within a second and a hundred megabytes. `model.from` is refused without a `reader`.
Config load_config(const std::string& path, const std::vector<std::string>& overrides = {},
                   const ModelDirectoryReader& reader = nullptr);

// The same from text; `origin` names it in messages.
Config parse_config(const std::string& yaml, const std::vector<std::string>& overrides = {},
                    const std::string& origin = "config", const ModelDirectoryReader& reader = nullptr);

// Every field but those that stand for others, in the order of the structs; parse_config(to_yaml(c)) gives c back, and the text
// again the same text.
std::string to_yaml(const Config& config);

struct ConfigValue {
  std::string path;   // "train.optimizer.lr"
  std::string value;  // as to_yaml() writes it
};

// What all ranks of a job have to have in common: what to_yaml() writes, but for fields that name something of a host (which
// the schema says).
std::vector<ConfigValue> shared_values(const Config& config);

// The Markdown of docs/configuration.md: every key with default, rule and meaning.
std::string configuration_markdown();

// Keys that this configuration leaves to the planner with `auto`; empty: it can run as it is.
std::vector<std::string> keys_left_to_planner(const Config& config);

// The problems that reading these values from a file would report; empty if there are none.
std::vector<ConfigProblem> problems_of(const Config& config);

// Those of the rules that ask for launch.device alone, were it `device`.
std::vector<ConfigProblem> problems_on(Config config, const std::string& device);

// Names accepted by model.preset.
std::vector<std::string> preset_names();

}  // namespace plait
