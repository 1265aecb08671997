// The configuration as plain structs, and reading it from YAML.
//
// docs/configuration.md is generated from the same table that reads and validates these fields (core/config_schema.cpp);
// a test keeps the two equal.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/choices.h"
#include "core/schedule_table.h"

namespace plait {

struct ScheduleFile;  // core/schedule_file.h

struct RunConfig {
  std::string name = "run";
  std::string dir = "runs";
  std::uint64_t seed = 1234;
};

struct ModelConfig {
  std::string preset;  // fills the fields below that are not given; empty: all of them come from the file
  std::int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0;
  NormKind norm = NormKind::layer_norm;
  double norm_epsilon = 1e-5;
  Mlp mlp = Mlp::gelu;
  Position position = Position::learned;
  double rope_base = 10000.0;
  bool tie_embeddings = true;
  bool bias = true;               // biases in attention output and MLP linears (and the norms' beta for layer_norm)
  bool qkv_bias = true;           // bias in the query/key/value projection
  std::int64_t max_sequence = 0;  // rows of the learned position table; 0: data.sequence_length
};

struct SentencePieceConfig {
  std::int64_t vocab = 0;  // > 0: train a model of this size on data.train
  std::string model;       // else: path of an existing .model file
};

struct DataConfig {
  std::vector<std::string> train;       // globs: text files, or token shards (*.bin)
  std::vector<std::string> validation;  // empty: `validation_fraction` of each training file's end
  double validation_fraction = 0.1;
  std::string tokenizer = "bytes";  // bytes | sentencepiece | tokens (data is token shards already) | random (for benchmarks)
  SentencePieceConfig sentencepiece;
  std::int64_t sequence_length = 256;
};

struct OptimizerConfig {
  double lr = 6e-4;
  double min_lr_fraction = 0.1;  // final learning rate of cosine and linear, as a fraction of lr
  std::int64_t warmup = 0;       // steps
  Decay schedule = Decay::cosine;
  double decay_fraction = 0.2;  // wsd: last fraction of the steps in which lr falls linearly to min_lr_fraction
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
};

struct TrainConfig {
  std::int64_t steps = 0;
  std::int64_t global_batch = 0;  // sequences
  std::int64_t micro_batch = 0;   // sequences; -1: auto, the planner's choice
  OptimizerConfig optimizer;
  double clip = 1.0;               // 0: off
  std::int64_t eval_every = 0;     // steps; 0: only at the end (if there is validation data)
  std::int64_t eval_batches = 8;   // global batches per evaluation
  std::int64_t sample_tokens = 0;  // tokens of sample text printed at the end; 0: none
  std::string sample_prompt = "\n";
};

struct ParallelConfig {
  std::int64_t data = 0;    // 0: auto, all ranks
  std::int64_t tensor = 1;  // 0: auto, the planner's choice; so are 0, -1 and nothing below
  std::int64_t pipeline = 1;
  std::optional<ScheduleKind> schedule = ScheduleKind::one_f_one_b;
  std::shared_ptr<const ScheduleFile> schedule_file;  // of ScheduleKind::file, as it was when the configuration was read
  std::int64_t virtual_stages = 1;                    // chunks of the model per pipeline rank (interleaved); 0: auto
  std::vector<std::int64_t> stages;                   // transformer blocks of each stage, in model order; empty: split by cost
  std::int64_t zero = 0;                              // 0 | 1 | 2; -1: auto
  bool sequence_parallel = true;
  std::optional<Recompute> recompute = Recompute::none;
};

// "zb-v", "auto"; of a file its path.
std::string schedule_name(const ParallelConfig& parallel);

struct CommConfig {
  std::optional<Backend> backend;      // nothing: auto, by device
  std::optional<Transport> p2p;        // nothing: auto, the best that works, pair by pair
  std::vector<std::string> p2p_pairs;  // "0-1=host": transports of single pairs (core/pair_transport.h)
  std::optional<Mover> mover;          // nothing: auto, the fastest
  double bucket_mb = 0;                // 0: auto, a sixteenth of the gradients but 25 to 200
  bool overlap = true;
  double timeout_s = 60;
  std::int64_t max_ctas = 0;            // NCCL: bound on SMs per collective; 0: NCCL's choice
  std::string interface = "127.0.0.1";  // address that host communication listens on
};

struct PlacementConfig {
  PlacementStrategy strategy = PlacementStrategy::automatic;
  std::string topology = "live";      // live, or a file (topology/import.h)
  std::vector<std::int64_t> devices;  // PlacementStrategy::given: GPU of each rank
};

struct LaunchConfig {
  LaunchMode mode = LaunchMode::threads;
  std::int64_t ranks = 0;       // 0: auto: all GPUs, or on CPUs parallel.data * tensor * pipeline (2 when that is auto)
  std::string device = "auto";  // auto | cpu | cuda
  std::string rendezvous;       // external: a directory all ranks share
};

struct PrecisionConfig {
  std::string compute = "auto";    // auto (bf16 on GPUs, fp32 on CPUs) | bf16 | fp32 | fp64 (CPU only)
  std::string gradients = "fp32";  // fp32 | bf16 (bf16 compute only)
  std::string master = "fp32";
  bool deterministic = false;  // same bits on every run on GPUs as well (slower attention backward, untimed GEMM choice)
};

struct CheckpointConfig {
  std::int64_t every = 0;  // steps; 0: only at the end
  std::int64_t keep = 2;   // newest ones kept
  bool final = true;       // write one after the last step
};

struct LogConfig {
  std::int64_t every = 10;
  bool tensorboard = true;
  std::vector<std::int64_t> trace_steps;
  double peak_tflops = 0;  // for MFU; 0: from the table of known devices
};

// What `plait verify` compares with the serial run of the same model.
struct VerifyConfig {
  std::int64_t steps = 3;                       // optimizer steps
  std::vector<std::int64_t> ranks = {1, 2, 4};  // of `layouts: [all]`
  std::vector<std::string> layouts = {"all"};   // "all", or "pipeline=2 tensor=2 schedule=zb-h1 zero=1": keys of `parallel`
  std::vector<std::string> variants;            // "llama: model.norm=rms_norm model.mlp=swiglu": name and overrides
};

// How much of a step any rank may lose: "5%" of its time, or "none" for no bound (read by percentage()). For `plait bench step`
// and `plait verify`.
struct BoundsConfig {
  std::string exposed_dp = "none";   // communication of gradients and weights that compute waited for
  std::string exposed_p2p = "none";  // the same for messages between pipeline stages
  std::string exposed_tp = "none";   // and for collectives within blocks
  std::string exposed = "none";      // of all of them
  std::string bubble = "none";       // waiting for ranks that were late
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
  BoundsConfig bounds;
};

// Reads `path`, applies `overrides` ("train.steps=10"; values are YAML), fills the preset and validates. Throws ConfigError
// listing every problem found (unknown key, wrong type, broken rule, missing key), never only the first.
Config load_config(const std::string& path, const std::vector<std::string>& overrides = {});

// The same from text; `origin` names it in messages.
Config parse_config(const std::string& yaml, const std::vector<std::string>& overrides = {},
                    const std::string& origin = "config");

// Every field, in the order of the structs; parse_config(to_yaml(c)) gives c back, and the text again the same text.
std::string to_yaml(const Config& config);

// The Markdown of docs/configuration.md: every key with default, rule and meaning.
std::string configuration_markdown();

// Keys that this configuration leaves to the planner with `auto`; empty: it can run as it is.
std::vector<std::string> keys_left_to_planner(const Config& config);

// The problems that reading these values from a file would report; empty if there are none.
std::vector<ConfigProblem> problems_of(const Config& config);

// Names accepted by model.preset.
std::vector<std::string> preset_names();

}  // namespace plait
