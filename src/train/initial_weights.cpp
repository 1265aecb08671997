#include "train/initial_weights.h"

#include <spdlog/fmt/fmt.h>

#include <memory>
#include <optional>
#include <utility>

#include "checkpoint/run_directory.h"
#include "checkpoint/weights_reader.h"
#include "core/error.h"
#include "interop/foreign_weights.h"
#include "interop/trained_model.h"
#include "model/parameters.h"
#include "parallel/rank_plan.h"
#include "train/learning_rate.h"
#include "train/training_checkpoint.h"

namespace plait::train {
namespace {

using Json = nlohmann::ordered_json;

// Compares the configuration with the one that the weights were trained under.
class Comparison {
 public:
  explicit Comparison(std::string checkpoint) : checkpoint_(std::move(checkpoint)) {}

  template <typename T>
  void same(const std::string& key, const T& here, const T& there) {
    if (here == there) return;
    differs(key, text_of(here), rule(text_of(there)));
  }
  std::string rule(const std::string& there) const { return fmt::format("must be {}, as of {}", there, checkpoint_); }
  void differs(const std::string& key, std::string value, std::string rule) {
    problems_.push_back({key, std::move(value), std::move(rule), "", 0});
  }
  bool any() const { return !problems_.empty(); }
  void finish() const {
    if (any()) throw ConfigError(problems_);
  }

 private:
  static std::string text_of(bool value) { return value ? "true" : "false"; }
  static std::string text_of(std::int64_t value) { return std::to_string(value); }
  static std::string text_of(double value) { return fmt::format("{}", value); }
  static std::string text_of(const std::vector<std::int64_t>& values) { return fmt::format("[{}]", fmt::join(values, ", ")); }
  template <typename E>
    requires std::is_enum_v<E>
  static std::string text_of(E value) {
    return std::string(to_string(value));
  }

  std::string checkpoint_;
  std::vector<ConfigProblem> problems_;
};

void compare_shapes(const model::ModelShape& here, const model::ModelShape& there, Comparison& comparison) {
  comparison.same("model.layers", here.layers, there.layers);
  comparison.same("model.hidden", here.hidden, there.hidden);
  comparison.same("model.heads", here.heads, there.heads);
  comparison.same("model.kv_heads", here.kv_heads, there.kv_heads);
  comparison.same("model.head_dim", here.head_dim, there.head_dim);
  comparison.same("model.ffn", here.ffn, there.ffn);
  comparison.same("model.vocab", here.vocab, there.vocab);
  comparison.same("model.norm", here.norm, there.norm);
  comparison.same("model.mlp", here.mlp, there.mlp);
  comparison.same("model.position", here.position, there.position);
  // A table of positions fixes its length; rotary positions have none.
  if (here.position == Position::learned && there.position == Position::learned)
    comparison.same("model.max_sequence", here.max_sequence, there.max_sequence);
  comparison.same("model.tie_embeddings", here.tie_embeddings, there.tie_embeddings);
  comparison.same("model.bias", here.bias, there.bias);
  comparison.same("model.qkv_bias", here.qkv_bias, there.qkv_bias);
  comparison.same("model.qk_norm", here.qk_norm, there.qk_norm);
}

// Compares settings that no tensor's shape shows.
void compare_arithmetic(const ModelConfig& here, const ModelConfig& there, Comparison& comparison) {
  comparison.same("model.norm_epsilon", here.norm_epsilon, there.norm_epsilon);
  if (here.position == Position::rope) {
    const RopeScalingConfig &ours = here.rope_scaling, &theirs = there.rope_scaling;
    comparison.same("model.rope_base", here.rope_base, there.rope_base);
    comparison.same("model.rope_scaling.factor", ours.factor, theirs.factor);
    comparison.same("model.rope_scaling.low_freq_factor", ours.low_freq_factor, theirs.low_freq_factor);
    comparison.same("model.rope_scaling.high_freq_factor", ours.high_freq_factor, theirs.high_freq_factor);
    comparison.same("model.rope_scaling.original_max_position", ours.original_max_position, theirs.original_max_position);
  }
  if (here.window != there.window)
    comparison.differs("model.window", to_string(here.window), comparison.rule(to_string(there.window)));
  comparison.same("model.window_layers", here.window_layers, there.window_layers);
}

// The tokenizer of the new run; `theirs`: the tokenizer of the weights' training, null if unknown. Null if a difference was
// found.
std::shared_ptr<const data::Tokenizer> common_tokenizer(const Config& config,
                                                        const std::shared_ptr<const data::Tokenizer>& theirs,
                                                        const std::filesystem::path& run_dir, Comparison& comparison,
                                                        std::vector<std::string>& notes) {
  const DataConfig& data = config.data;
  const std::string model = (run_dir / "tokenizer.model").string(), file = (run_dir / "tokenizer.json").string();
  const bool trains = data.tokenizer == "sentencepiece" && !data.sentencepiece.vocab.is_auto();
  if (theirs && data::has_text(data.tokenizer) && data::has_text(theirs->kind()) && data.tokenizer != theirs->kind()) {
    const std::string how = theirs->kind() == "sentencepiece" ? "{sentencepiece: {model: " + model + "}}"
                            : theirs->kind() == "huggingface" ? "{file: " + file + "}"
                                                              : theirs->kind();
    comparison.differs("data.tokenizer", data.tokenizer,
                       fmt::format("must be {}, which the weights of {} were trained with: they know no other's tokens", how,
                                   run_dir.string()));
    return nullptr;
  }
  if (trains) {
    if (!theirs || !data::has_text(theirs->kind())) {
      comparison.differs("data.sentencepiece.vocab", std::to_string(data.sentencepiece.vocab),
                         "would train a tokenizer, whose tokens the weights do not know: give data.sentencepiece.model, the "
                         "one that they were trained with");
      return nullptr;
    }
    comparison.same("data.sentencepiece.vocab", data.sentencepiece.vocab.value(), theirs->vocab());
    if (data.sentencepiece.vocab != theirs->vocab()) return nullptr;
    notes.push_back("the tokenizer is that of " + run_dir.string() + "; none was trained");
    return theirs;
  }
  std::shared_ptr<const data::Tokenizer> ours = data::create_tokenizer(config);
  if (theirs && ours->kind() == theirs->kind() && data::has_text(ours->kind()) && ours->definition() != theirs->definition()) {
    const bool by_model = ours->kind() == "sentencepiece";
    comparison.differs(by_model ? "data.sentencepiece.model" : "data.huggingface.file",
                       by_model ? data.sentencepiece.model : data.huggingface.file,
                       fmt::format("is not the one that the weights were trained with, whose tokens they know: give {}",
                                   by_model ? model : file));
    return nullptr;
  }
  if (theirs && ours->kind() != theirs->kind()) {
    notes.push_back(
        fmt::format("data.tokenizer={} cannot be compared with that of the weights, {}: whether their tokens are the "
                    "same is for you to know",
                    ours->kind(), theirs->kind()));
  }
  return ours;
}

std::string learning_rates(const Config& before, const Config& after, std::int64_t step) {
  const double last = LearningRate(before.train.optimizer, before.train.steps).at(step - 1);
  const double next = LearningRate(after.train.optimizer, after.train.steps).at(step);
  return fmt::format("learning rate: {:.3g} at step {} of the run before, {:.3g} at step {} of this one", last, step, next,
                     step + 1);
}

// The recorded origin of the checkpoint, and of that origin. Another program may have written it, so nothing is taken for
// granted.
Json lineage_in(const Json& state) {
  Json lineage = Json::array();
  const auto found = state.is_object() ? state.find("init_from") : state.end();
  if (found == state.end() || !found->is_object()) return lineage;
  Json parent = *found;
  const Json older = parent.value("lineage", Json::array());
  parent.erase("lineage");
  lineage.push_back(std::move(parent));
  if (older.is_array()) lineage.insert(lineage.end(), older.begin(), older.end());
  return lineage;
}

// The weights, with the known facts about their training.
struct Origin {
  std::unique_ptr<checkpoint::WeightsReader> reader;
  std::optional<Config> config;
  std::shared_ptr<const data::Tokenizer> tokenizer;
  Json lineage = Json::array();
  std::vector<std::string> notes;
};

Origin origin_of(const checkpoint::FoundCheckpoint& found, const Config& config) {
  Origin origin;
  if (interop::is_model_directory(found.directory)) {
    origin.reader = interop::open_weights(found.directory);
    interop::FoundModel model = interop::find_model(found.directory);
    origin.config = interop::config_of_model(model, "model");
    if (model.no_tokenizer.empty()) origin.tokenizer = data::create_tokenizer(*origin.config);
    // A user who gives a tokenizer does not miss it.
    if (data::has_text(config.data.tokenizer)) model.no_tokenizer.clear();
    if (config.data.tokenizer != "sentencepiece") model.other_tokenizer.clear();
    origin.notes = model.notes();
    return origin;
  }
  auto reader = std::make_unique<checkpoint::CheckpointReader>(found.directory);
  origin.config = config_under(*reader);
  if (data::has_tokenizer(found.run_dir)) origin.tokenizer = data::load_tokenizer(found.run_dir);
  origin.lineage = lineage_in(reader->state());
  origin.reader = std::move(reader);
  return origin;
}

// The type of the stored weights.
DType stored_type(const checkpoint::WeightsReader& reader, const std::vector<model::Parameter>& parameters) {
  for (const model::Parameter& parameter : parameters) {
    if (reader.contains(parameter.name)) return reader.tensor(parameter.name).dtype;
  }
  return DType::f32;
}

void compare_widths(const Config& config, DType stored, const std::string& name, Comparison& comparison) {
  const bool wide = parallel::master_type(config) == DType::f64, stored_wide = stored == DType::f64;
  if (wide == stored_wide) return;
  comparison.differs("precision.compute", config.precision.compute,
                     fmt::format("must {}be fp64: the weights of {} are stored as {}", stored_wide ? "" : "not ", name,
                                 stored_wide ? "fp64" : "fp32"));
}

void compare_contents(const Config& config, const checkpoint::WeightsReader& reader,
                      const std::vector<model::Parameter>& parameters, Comparison& comparison) {
  const std::string name = reader.directory().string();
  compare_widths(config, stored_type(reader, parameters), name, comparison);
  if (!config.train.init_from.optimizer) return;
  if (!parameters.empty() && !reader.contains(checkpoint::exp_avg_name(parameters.front()))) {
    comparison.differs("train.init_from.optimizer", "true", "must be false: " + name + " holds weights and no moments");
  }
  if (config.train.steps <= reader.step()) {
    comparison.differs("train.steps", std::to_string(config.train.steps),
                       fmt::format("must be more than {}, the step of {}: with train.init_from.optimizer the run goes on from "
                                   "there, and the steps before count",
                                   reader.step(), name));
  }
}

}  // namespace

std::optional<Config> config_under(const checkpoint::CheckpointReader& reader) {
  const std::string* text = checkpoint::config_text(reader);
  if (text == nullptr) return std::nullopt;
  try {
    std::vector<std::string> overrides{"parallel.schedule=1f1b", "parallel.virtual_stages=1", "parallel.stages=[]",
                                       "parallel.zero=0", "launch.ranks=auto"};
    for (const AxisRow& row : axis_table) overrides.push_back(axis_key(row.axis) + (row.axis == rest_axis ? "=auto" : "=1"));
    return parse_config(*text, overrides);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

std::string changed_moments(const Config& before, const Config& now) {
  const std::string &was = before.precision.moments, &is = now.precision.moments;
  if (was == is) return "";
  return fmt::format("precision.moments is {}, and was {} before: moments are {}", is, was,
                     is == "bf16" ? "rounded to nearest once" : "read as they were");
}

void require_same_model(const Config& config, const checkpoint::CheckpointReader& reader,
                        const std::filesystem::path& run_dir) {
  Comparison comparison(reader.directory().string());
  std::shared_ptr<const data::Tokenizer> tokenizer;
  if (data::has_tokenizer(run_dir)) tokenizer = data::load_tokenizer(run_dir);
  std::vector<std::string> notes;  // about a run that already has a tokenizer
  const auto is_gone = [](const std::string& file) { return !file.empty() && !std::filesystem::exists(file); };
  const bool is_kept =
      is_gone(config.data.huggingface.file) || is_gone(config.data.sentencepiece.model);  // only the run has a copy
  const std::string& kind = config.data.tokenizer;
  const bool is_other = tokenizer && kind != tokenizer->kind();
  if (is_other && !(data::has_text(kind) && data::has_text(tokenizer->kind()))) {
    comparison.differs("data.tokenizer", kind,
                       fmt::format("must be {}, as of the run in {}; a new run may have another (--init-from)",
                                   tokenizer->kind(), run_dir.string()));
  } else if (is_other || (tokenizer && !is_kept)) {
    common_tokenizer(config, tokenizer, run_dir, comparison, notes);
  }
  if (const std::optional<Config> before = config_under(reader)) {  // else the tensors decide
    const std::int64_t vocab = tokenizer ? tokenizer->vocab() : 1;
    compare_shapes(model::resolve_shape(config.model, vocab, config.data.sequence_length),
                   model::resolve_shape(before->model, vocab, before->data.sequence_length), comparison);
    compare_widths(config, parallel::master_type(*before), reader.directory().string(), comparison);
    // A resumed run must keep the arithmetic it was started with; a new run may differ (--init-from).
    compare_arithmetic(config.model, before->model, comparison);
  }
  comparison.finish();
}

std::shared_ptr<const data::Tokenizer> same_tokenizer(const Config& config,
                                                      const std::shared_ptr<const data::Tokenizer>& theirs,
                                                      const std::filesystem::path& run_dir) {
  Comparison comparison(run_dir.string());
  std::vector<std::string> notes;  // about tokenizers that cannot be compared
  std::shared_ptr<const data::Tokenizer> tokenizer = common_tokenizer(config, theirs, run_dir, comparison, notes);
  comparison.finish();
  return tokenizer;
}

std::shared_ptr<const data::Tokenizer> trained_tokenizer(const Config& config, const fs::path& run_dir) {
  const DataConfig& data = config.data;
  const auto is_that_of = [&](const Config& own) {
    return data.tokenizer == own.data.tokenizer && data.huggingface.file == own.data.huggingface.file &&
           data.sentencepiece.model == own.data.sentencepiece.model && data.sentencepiece.vocab == own.data.sentencepiece.vocab;
  };
  if (interop::is_model_directory(run_dir)) {
    const Config own = interop::config_of_model(interop::find_model(run_dir), "model");
    if (!data::has_text(data.tokenizer) || !data::has_text(own.data.tokenizer) || is_that_of(own))
      return data::create_tokenizer(config);
    return same_tokenizer(config, data::create_tokenizer(own), run_dir);
  }
  if (data::has_tokenizer(run_dir)) {
    std::shared_ptr<const data::Tokenizer> own = data::load_tokenizer(run_dir);
    // For token ids, the run's own tokenizer gives the text.
    if (!data::has_text(data.tokenizer) || is_that_of(checkpoint::load_config_of(run_dir))) return own;
    return same_tokenizer(config, own, run_dir);
  }
  if (data.tokenizer == "sentencepiece" && data.sentencepiece.model.empty()) {
    throw ConfigError(
        {{run_dir.string(), "",
          "is a copy without its run, which keeps the tokenizer that it trained: give the run, or name a copy of its "
          "tokenizer.model (--set 'data.sentencepiece={model: FILE}')",
          "", 0}});
  }
  return data::create_tokenizer(config);
}

InitialWeights open_initial_weights(const Config& config) {
  const InitFromConfig& wanted = config.train.init_from;
  InitialWeights weights;
  weights.checkpoint = interop::find_weights(wanted.path);
  weights.checkpoint.directory = std::filesystem::canonical(weights.checkpoint.directory);
  const Origin origin = origin_of(weights.checkpoint, config);
  const checkpoint::WeightsReader& reader = *origin.reader;
  weights.notes = origin.notes;
  Comparison comparison(weights.checkpoint.directory.string());

  const std::filesystem::path& run_dir = weights.checkpoint.run_dir;
  const std::shared_ptr<const data::Tokenizer>& theirs = origin.tokenizer;
  weights.tokenizer = common_tokenizer(config, theirs, run_dir, comparison, weights.notes);
  const model::ModelShape shape =
      model::resolve_shape(config.model, weights.tokenizer ? weights.tokenizer->vocab() : 1, config.data.sequence_length);
  const std::optional<Config>& before = origin.config;
  if (before) {
    // If the vocabulary follows from the tokenizer and that is unknown, the tensors decide.
    const std::int64_t vocab = before->model.vocab.value_or(theirs ? theirs->vocab() : shape.vocab);
    model::ModelShape there = model::resolve_shape(before->model, vocab, before->data.sequence_length);
    if (!weights.tokenizer) there.vocab = shape.vocab;  // reported already
    compare_shapes(shape, there, comparison);
    const auto note = [&](const char* key, double now, double then) {
      if (now == then) return;
      weights.notes.push_back(fmt::format("{} is {}, and was {} when the weights were trained", key, now, then));
    };
    note("model.norm_epsilon", config.model.norm_epsilon, before->model.norm_epsilon);
    if (config.model.position == Position::rope) {
      note("model.rope_base", config.model.rope_base, before->model.rope_base);
      if (config.model.rope_scaling != before->model.rope_scaling)
        weights.notes.push_back("model.rope_scaling is not what it was when the weights were trained");
    }
    if (config.model.window != before->model.window || config.model.window_layers != before->model.window_layers)
      weights.notes.push_back("model.window, or which layers have it, is not what it was when the weights were trained");
  }
  const std::vector<model::Parameter> parameters = model::parameters(shape);
  compare_contents(config, reader, parameters, comparison);
  comparison.finish();
  // The tensors decide what no configuration says.
  checkpoint::expect_training_tensors(reader, shape, parallel::master_type(config),
                                      wanted.optimizer ? checkpoint::Restored::everything : checkpoint::Restored::weights);

  if (wanted.optimizer && before) {
    if (std::string changed = changed_moments(*before, config); !changed.empty()) weights.notes.push_back(std::move(changed));
  }
  if (wanted.optimizer && before && reader.step() > 0) weights.notes.push_back(learning_rates(*before, config, reader.step()));
  weights.record = {{"checkpoint", weights.checkpoint.directory.string()},
                    {"step", reader.step()},
                    {"optimizer", wanted.optimizer},
                    {"digest", reader.digest()},
                    {"lineage", origin.lineage}};
  return weights;
}

}  // namespace plait::train
