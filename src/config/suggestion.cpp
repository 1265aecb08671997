#include "config/suggestion.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <utility>

namespace plait {
namespace {

constexpr auto foreign_names = std::to_array<ForeignName>({
    {"learning_rate", "train.optimizer.lr", ""},
    {"max_lr", "train.optimizer.lr", ""},
    {"min_lr", "train.optimizer.min_lr_fraction", "here it is a fraction of train.optimizer.lr"},
    {"min_lr_ratio", "train.optimizer.min_lr_fraction", ""},
    {"warmup_steps", "train.optimizer.warmup", ""},
    {"warmup_iters", "train.optimizer.warmup", ""},
    {"lr_warmup_iters", "train.optimizer.warmup", ""},
    {"lr_warmup_steps", "train.optimizer.warmup", ""},
    {"warmup_ratio", "train.optimizer.warmup", "here it is a number of steps"},
    {"lr_scheduler_type", "train.optimizer.schedule", ""},
    {"lr_scheduler", "train.optimizer.schedule", ""},
    {"lr_decay_style", "train.optimizer.schedule", ""},
    {"lr_schedule", "train.optimizer.schedule", ""},
    {"adam_beta1", "train.optimizer.beta1", ""},
    {"adam_beta2", "train.optimizer.beta2", ""},
    {"adam_epsilon", "train.optimizer.epsilon", ""},
    {"adam_eps", "train.optimizer.epsilon", ""},
    {"eps", "train.optimizer.epsilon", ""},
    {"max_grad_norm", "train.clip", ""},
    {"clip_grad", "train.clip", ""},
    {"grad_clip", "train.clip", ""},
    {"gradient_clipping", "train.clip", ""},
    {"max_norm", "train.clip", ""},
    {"max_steps", "train.steps", ""},
    {"max_iters", "train.steps", ""},
    {"train_iters", "train.steps", ""},
    {"num_steps", "train.steps", ""},
    {"training_steps", "train.steps", ""},
    {"iterations", "train.steps", ""},
    {"num_train_epochs", "train.steps", "here it is a number of steps"},
    {"num_epochs", "train.steps", "here it is a number of steps"},
    {"epochs", "train.steps", "here it is a number of steps"},
    {"batch_size", "train.global_batch",
     "train.global_batch is of a step, train.micro_batch of a pass of one rank, both in sequences"},
    {"global_batch_size", "train.global_batch", "here it is a number of sequences"},
    {"train_batch_size", "train.global_batch", "here it is a number of sequences"},
    {"total_batch_size", "train.global_batch", "here it is a number of sequences"},
    {"micro_batch_size", "train.micro_batch", ""},
    {"per_device_train_batch_size", "train.micro_batch", ""},
    {"device_batch_size", "train.micro_batch", ""},
    {"local_batch_size", "train.micro_batch", ""},
    {"gradient_accumulation_steps", "train.global_batch",
     "it follows, as train.global_batch / (train.micro_batch x parallel.data)"},
    {"grad_accumulation_steps", "train.global_batch",
     "it follows, as train.global_batch / (train.micro_batch x parallel.data)"},
    {"eval_steps", "train.eval_every", ""},
    {"eval_interval", "train.eval_every", ""},
    {"val_check_interval", "train.eval_every", ""},
    {"eval_iters", "train.eval_batches", ""},
    {"seq_len", "data.sequence_length", ""},
    {"seq_length", "data.sequence_length", ""},
    {"sequence_len", "data.sequence_length", ""},
    {"max_seq_len", "data.sequence_length", ""},
    {"max_seq_length", "data.sequence_length", ""},
    {"max_length", "data.sequence_length", ""},
    {"context_length", "data.sequence_length", ""},
    {"block_size", "data.sequence_length", ""},
    {"dataset", "data.train", ""},
    {"dataset_path", "data.train", ""},
    {"data_path", "data.train", ""},
    {"train_data", "data.train", ""},
    {"train_files", "data.train", ""},
    {"train_file", "data.train", ""},
    {"validation_file", "data.validation", ""},
    {"val_data", "data.validation", ""},
    {"tokenizer_name", "data.tokenizer", ""},
    {"tokenizer_path", "data.tokenizer", ""},
    {"tokenizer_type", "data.tokenizer", ""},
    {"n_layer", "model.layers", ""},
    {"n_layers", "model.layers", ""},
    {"num_layers", "model.layers", ""},
    {"num_hidden_layers", "model.layers", ""},
    {"n_embd", "model.hidden", ""},
    {"d_model", "model.hidden", ""},
    {"hidden_size", "model.hidden", ""},
    {"n_head", "model.heads", ""},
    {"n_heads", "model.heads", ""},
    {"num_heads", "model.heads", ""},
    {"num_attention_heads", "model.heads", ""},
    {"n_kv_heads", "model.kv_heads", ""},
    {"num_kv_heads", "model.kv_heads", ""},
    {"num_key_value_heads", "model.kv_heads", ""},
    {"num_query_groups", "model.kv_heads", ""},
    {"n_inner", "model.ffn", ""},
    {"d_ff", "model.ffn", ""},
    {"intermediate_size", "model.ffn", ""},
    {"ffn_hidden_size", "model.ffn", ""},
    {"vocab_size", "model.vocab", ""},
    {"n_positions", "model.max_sequence", ""},
    {"max_position_embeddings", "model.max_sequence", ""},
    {"rope_theta", "model.rope_base", ""},
    {"rotary_base", "model.rope_base", ""},
    {"rms_norm_eps", "model.norm_epsilon", ""},
    {"layer_norm_epsilon", "model.norm_epsilon", ""},
    {"tie_word_embeddings", "model.tie_embeddings", ""},
    {"sliding_window", "model.window", ""},
    {"model_name", "model.preset", ""},
    {"model_name_or_path", "model.from", ""},
    {"tp", "parallel.tensor", ""},
    {"tp_size", "parallel.tensor", ""},
    {"tensor_parallel_size", "parallel.tensor", ""},
    {"tensor_parallel_degree", "parallel.tensor", ""},
    {"tensor_model_parallel_size", "parallel.tensor", ""},
    {"pp", "parallel.pipeline", ""},
    {"pp_size", "parallel.pipeline", ""},
    {"pipeline_parallel_size", "parallel.pipeline", ""},
    {"pipeline_parallel_degree", "parallel.pipeline", ""},
    {"pipeline_model_parallel_size", "parallel.pipeline", ""},
    {"dp", "parallel.data", ""},
    {"dp_size", "parallel.data", ""},
    {"data_parallel_size", "parallel.data", ""},
    {"zero_stage", "parallel.zero", ""},
    {"zero_optimization", "parallel.zero", ""},
    {"virtual_pipeline_model_parallel_size", "parallel.virtual_stages", ""},
    {"gradient_checkpointing", "parallel.recompute", ""},
    {"activation_checkpointing", "parallel.recompute", ""},
    {"recompute_granularity", "parallel.recompute", ""},
    {"dtype", "precision.compute", ""},
    {"torch_dtype", "precision.compute", ""},
    {"mixed_precision", "precision.compute", ""},
    {"bf16", "precision.compute", ""},
    {"save_steps", "checkpoint.every", ""},
    {"save_interval", "checkpoint.every", ""},
    {"save_every", "checkpoint.every", ""},
    {"save_total_limit", "checkpoint.keep", ""},
    {"logging_steps", "log.every", ""},
    {"log_interval", "log.every", ""},
    {"log_every", "log.every", ""},
    {"output_dir", "run.dir", ""},
    {"out_dir", "run.dir", ""},
    {"nproc_per_node", "launch.ranks", ""},
    {"num_gpus", "launch.ranks", ""},
    {"world_size", "launch.ranks", ""},
});

// Levenshtein distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string_view first_component(std::string_view path) { return path.substr(0, path.find('.')); }
std::string_view last_component(std::string_view path) { return path.substr(path.rfind('.') + 1); }

}  // namespace

std::span<const ForeignName> all_foreign_names() { return foreign_names; }

const ForeignName* foreign_name(std::string_view path) {
  std::string name(last_component(path));
  std::ranges::transform(name, name.begin(), [](char c) {
    return c == '-' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  const auto row = std::ranges::find(foreign_names, name, &ForeignName::name);
  return row == foreign_names.end() ? nullptr : &*row;
}

std::string nearest_of(const std::string& word, const std::vector<std::string>& candidates) {
  static constexpr std::size_t longest_word = 100;  // no key is longer; bounds the work on hostile input
  if (word.size() > longest_word) return "";
  if (const ForeignName* foreign = foreign_name(word)) {
    if (const auto known = std::ranges::find(candidates, foreign->key); known != candidates.end()) return *known;
  }
  const std::string_view section = first_component(word);
  std::string best;
  std::size_t best_score = std::max<std::size_t>(2, last_component(word).size() / 2) + 1;
  std::pair<bool, std::size_t> best_rest;  // in another section, distance
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    const std::size_t score = std::min(distance, 1 + edit_distance(last_component(word), last_component(candidate)));
    const std::pair rest(first_component(candidate) != section, distance);
    if (score < best_score || (score == best_score && !best.empty() && rest < best_rest)) {
      best = candidate;
      best_score = score;
      best_rest = rest;
    }
  }
  return best;
}

}  // namespace plait
