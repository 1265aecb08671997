#include "train/foreign_models.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/huggingface/weights.h"
#include "checkpoint/run_directory.h"
#include "checkpoint/training_tensors.h"
#include "core/config_schema.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json_file.h"
#include "data/tokenizer.h"
#include "parallel/rank_plan.h"
#include "train/training_checkpoint.h"

namespace plait::train {
namespace {

namespace fs = std::filesystem;
namespace hf = checkpoint::huggingface;

// What an imported run keeps of where it came from.
constexpr const char* kept_folder = "huggingface";
constexpr const char* kept_form = "form.json";
constexpr std::uint64_t most_form_bytes = 1 << 16;
constexpr std::uint64_t most_side_bytes = std::uint64_t{1} << 30;

constexpr std::array side_files{"config.json",
                                "generation_config.json",
                                "tokenizer.json",
                                "tokenizer_config.json",
                                "special_tokens_map.json",
                                "added_tokens.json",
                                "vocab.json",
                                "merges.txt",
                                "tokenizer.model",
                                "chat_template.jinja"};

// Without a slash at its end.
fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

// A directory under another name until it is whole.
class UnfinishedDirectory {
 public:
  explicit UnfinishedDirectory(const fs::path& target) : target_(without_slash(target)), path_(target_.string() + ".part") {
    if (fs::exists(fs::symlink_status(target_)))
      throw ConfigError(target_.string() + ": exists already; name a new directory (--out)");
    if (target_.has_parent_path()) create_private_directories(target_.parent_path());
    create_private_directory(path_);
  }
  UnfinishedDirectory(const UnfinishedDirectory&) = delete;
  UnfinishedDirectory& operator=(const UnfinishedDirectory&) = delete;
  ~UnfinishedDirectory() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  void finish() {
    rename_path(path_, target_);
    path_.clear();
  }

 private:
  fs::path target_, path_;
};

void copy_side_files(const fs::path& from, const fs::path& to) {
  for (const char* name : side_files) {
    if (fs::is_regular_file(from / name) && !fs::exists(to / name))
      write_text_file(to / name, read_text(from / name, most_side_bytes));
  }
}

// The configuration of the run that stands for the import: of its keys only the model and the tokenizer mean something.
std::string config_text(const hf::ForeignModel& foreign, const std::string& name, const std::string& tokenizer) {
  const ModelConfig& m = foreign.model;
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  // Long windows take memory: what is more is asked for (data.sequence_length).
  const std::int64_t sequence = std::min<std::int64_t>(foreign.positions, 1024);
  std::string text = fmt::format(
      "run: {{name: {}}}\n"
      "model: {{layers: {}, hidden: {}, heads: {}, kv_heads: {}, head_dim: {}, ffn: {}, vocab: {}, norm: {}, norm_epsilon: {}, "
      "mlp: {}, "
      "position: {}, rope_base: {}, tie_embeddings: {}, bias: {}, qkv_bias: {}, qk_norm: {}",
      config::yaml_text(name, {}), m.layers, m.hidden, m.heads, m.kv_heads, m.head_dim, m.ffn, m.vocab, to_string(m.norm),
      m.norm_epsilon, to_string(m.mlp), to_string(m.position), m.rope_base, flag(m.tie_embeddings), flag(m.bias),
      flag(m.qkv_bias), flag(m.qk_norm));
  const RopeScalingConfig& s = m.rope_scaling;
  text += fmt::format(", rope_scaling: {{factor: {}, low_freq_factor: {}, high_freq_factor: {}, original_max_position: {}}}",
                      s.factor, s.low_freq_factor, s.high_freq_factor, s.original_max_position);
  if (m.position == Position::learned) text += fmt::format(", max_sequence: {}", m.max_sequence);
  if (m.window > 0) text += fmt::format(", window: {}, window_layers: [{}]", m.window, fmt::join(m.window_layers, ", "));
  text += "}\n";
  text += fmt::format("data: {{train: [YOUR_TEXT], sequence_length: {}, tokenizer: {}}}\n", sequence, tokenizer);
  text += "train: {steps: 1, global_batch: 1, micro_batch: 1}\n";
  return text;
}

// As data.tokenizer names it; and why it is no better.
std::pair<std::string, std::string> find_tokenizer(const fs::path& model, std::int64_t vocab) {
  const auto fits = [&](const data::Tokenizer& tokenizer) { return tokenizer.vocab() <= vocab; };
  const fs::path file = model / "tokenizer.json", pieces = model / "tokenizer.model";
  std::string why = "there is none that plait knows";
  if (fs::exists(file)) {
    try {
      if (fits(*data::load_huggingface(file))) return {"{file: " + config::yaml_text(file.string(), {}) + "}", ""};
      why = "its tokenizer has more tokens than its vocabulary";
    } catch (const ConfigError& error) {
      why = error.what();
    }
  }
  if (fs::exists(pieces)) {
    try {
      if (fits(*data::load_sentencepiece(pieces)))
        return {"{sentencepiece: {model: " + config::yaml_text(pieces.string(), {}) + "}}", ""};
    } catch (const ConfigError& error) {
      why = error.what();
    }
  }
  return {"tokens", why};
}

// Of what plait trains with, and not with moments.
std::vector<checkpoint::FileSpec> weight_files(const model::ModelShape& shape) {
  std::vector<checkpoint::FileSpec> files = checkpoint::training_tensors(model::parameters(shape), DType::f32);
  files.resize(1);
  return files;
}

// The form in which an imported run came; nothing of other runs.
std::optional<hf::StoredForm> kept_form_of(const fs::path& run_dir) {
  const fs::path file = run_dir / kept_folder / kept_form;
  if (!fs::exists(file)) return std::nullopt;
  const nlohmann::json json = read_json_file(file.string(), most_form_bytes);
  const auto text = [&](const char* member) {
    if (!json.is_object() || !json.contains(member) || !json.at(member).is_string())
      throw ConfigError(file.string() + ": " + member + " is not text");
    return json.at(member).get<std::string>();
  };
  const std::string dtype = text("dtype");
  const std::optional<DType> known = hf::weight_type_named(dtype);
  if (!known) throw ConfigError({{file.string() + ": dtype", dtype, "must be f32, f16 or bf16", "", 0}});
  return hf::StoredForm{.prefix = text("prefix"), .dtype = *known};
}

}  // namespace

std::vector<std::string> import_model(const ImportRequest& request) {
  const hf::ForeignModel foreign = hf::read_model(request.model);
  const model::ModelShape shape = model::resolve_shape(foreign.model, foreign.model.vocab, foreign.positions);
  const hf::ForeignTensors tensors(request.model);
  const hf::StoredForm form = hf::check_tensors(tensors, foreign, shape);

  std::vector<std::string> notes;
  const auto [tokenizer, why] = find_tokenizer(request.model, foreign.model.vocab);
  if (!why.empty()) notes.push_back("no tokenizer was taken over, so data is token shards (data.tokenizer: tokens): " + why);
  if (foreign.has_dropout) notes.push_back("its dropout is left out: plait computes none");
  UnfinishedDirectory unfinished(request.out);
  const fs::path& out = unfinished.path();
  Config config = parse_config(config_text(foreign, without_slash(request.out).filename().string(), tokenizer));
  data::create_tokenizer(config)->save(out);
  // The run's own copy, so that it may be moved.
  if (!config.data.huggingface.file.empty())
    config.data.huggingface.file = (fs::absolute(request.out) / "tokenizer.json").string();
  if (!config.data.sentencepiece.model.empty())
    config.data.sentencepiece.model = (fs::absolute(request.out) / "tokenizer.model").string();
  checkpoint::keep_config(out, config);
  create_private_directory(out / kept_folder);
  copy_side_files(request.model, out / kept_folder);
  const nlohmann::ordered_json kept{{"prefix", form.prefix}, {"dtype", to_string(form.dtype)}};
  write_text_file(out / kept_folder / kept_form, kept.dump(2) + "\n");

  auto writer = checkpoint::CheckpointWriter::begin(out, 0, weight_files(shape));
  hf::read_parameters(tensors, foreign.family, shape, form,
                      [&](const std::string& name, std::int64_t first, std::span<const float> values) {
                        writer.write(name, first, std::ssize(values), values.data());
                      });
  writer.finish();
  writer.commit({{"config", to_yaml(config)}}, 1);
  unfinished.finish();
  return notes;
}

std::vector<std::string> export_model(const ExportRequest& request) {
  const checkpoint::FoundCheckpoint found = checkpoint::find_weights(request.run_or_checkpoint);
  const checkpoint::CheckpointReader reader(found.directory);
  const Config config = checkpoint::load_config_of(found.directory);
  const std::optional<hf::StoredForm> imported = kept_form_of(found.run_dir);
  const fs::path kept = found.run_dir / kept_folder;

  ModelConfig model = config.model;
  std::vector<std::string> notes;
  if (model.vocab == 0)
    model.vocab = data::has_tokenizer(found.run_dir) ? data::load_tokenizer(found.run_dir)->vocab() : data::vocabulary(config);
  std::string family;
  std::int64_t positions = model.max_sequence > 0 ? model.max_sequence : config.data.sequence_length;
  if (imported) {
    const hf::ForeignModel foreign = hf::read_model(kept);
    family = foreign.family, positions = foreign.positions;
  } else {
    family = hf::family_of(model);
  }
  const model::ModelShape shape = model::resolve_shape(model, model.vocab, positions);
  expect_training_tensors(reader, shape, parallel::master_type(config), Restored::weights);
  hf::StoredForm form = imported.value_or(hf::StoredForm{
      .prefix = hf::usual_prefix(family), .dtype = config.precision.compute == "bf16" ? DType::bf16 : DType::f32});
  if (request.dtype) form.dtype = *request.dtype;

  UnfinishedDirectory unfinished(request.out);
  const fs::path& out = unfinished.path();
  const std::string dtype = form.dtype == DType::bf16 ? "bfloat16" : form.dtype == DType::f16 ? "float16" : "float32";
  if (imported) {
    copy_side_files(kept, out);
    nlohmann::ordered_json json = nlohmann::ordered_json::parse(read_text(out / "config.json", most_side_bytes));
    for (const char* field : {"torch_dtype", "dtype"}) {
      if (json.contains(field)) json[field] = dtype;
    }
    write_text_file(out / "config.json", json.dump(2) + "\n");
  } else {
    write_text_file(out / "config.json", hf::config_json(model, positions, dtype));
    if (config.data.tokenizer == "huggingface" && fs::exists(found.run_dir / "tokenizer.json")) {
      write_text_file(out / "tokenizer.json", read_text(found.run_dir / "tokenizer.json", most_side_bytes));
    } else {
      notes.push_back("no tokenizer.json: the run's tokenizer is " + config.data.tokenizer);
    }
  }
  hf::write_tensors(reader, family, shape, form, request.most_bytes, out);
  unfinished.finish();
  return notes;
}

}  // namespace plait::train
