#include "interop/foreign_models.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/manifest.h"
#include "checkpoint/run_directory.h"
#include "checkpoint/weights_reader.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "data/tokenizer.h"
#include "interop/foreign_weights.h"
#include "interop/trained_model.h"
#include "interop/weights.h"
#include "parallel/rank_plan.h"

namespace plait::interop {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr const char* kept_folder = "huggingface";
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

// Another program may have written it, so nothing is taken for granted.
std::vector<fs::path> origins(const OrderedJson& init_from) {
  std::vector<fs::path> paths;
  const auto add = [&](const OrderedJson& origin) {
    const auto path = origin.is_object() ? origin.find("checkpoint") : origin.end();
    if (origin.is_object() && path != origin.end() && path->is_string()) paths.emplace_back(path->get<std::string>());
  };
  add(init_from);
  if (!init_from.is_object() || !init_from.contains("lineage")) return paths;
  for (const OrderedJson& older : init_from["lineage"]) add(older);
  return paths;
}

// Copies those that exist in `from` and not in `to`.
void copy_side_files(const fs::path& from, const fs::path& to) {
  for (const char* name : side_files) {
    if (fs::is_regular_file(from / name) && !fs::exists(to / name))
      write_text_file(to / name, read_text(from / name, most_side_bytes));
  }
}

// A directory with these files for the model that a run's weights came from: the run's own copy, else the place where
// `init_from` says that the weights, or those that they came from, were, if it still exists. nullopt if there is none.
std::optional<fs::path> find_side_files(const fs::path& run_dir, const OrderedJson& init_from) {
  const auto kept_by = [](const fs::path& run) {
    std::error_code ignored;
    return fs::exists(run / kept_folder / "config.json", ignored);
  };
  if (kept_by(run_dir)) return run_dir / kept_folder;
  for (const fs::path& origin : origins(init_from)) {
    if (interop::is_model_directory(origin)) return origin;
    if (const fs::path run = checkpoint::run_directory_of(origin); kept_by(run)) return run / kept_folder;
  }
  return std::nullopt;
}

// The file in which an imported run keeps the stored form of its weights.
constexpr const char* kept_form = "form.json";
const std::string generic_tokenizer = R"({"tokenizer_class": "PreTrainedTokenizerFast"})";
constexpr std::uint64_t most_form_bytes = 1 << 16;
constexpr std::int64_t elements_at_once = std::int64_t{1} << 20;

// Removes a slash at the end.
fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

// Checked first, before work whose result would have nowhere to go.
void require_name(const fs::path& out) {
  if (without_slash(out).empty()) throw ConfigError({{"--out", "", "must be the name of a new directory", "", 0}});
}

// A directory under a temporary name until it is complete.
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

// True if a model of transformers describes what a run computes, weights aside.
bool describes(const ForeignModel& foreign, const model::ModelShape& shape) {
  const model::ModelShape theirs = model::resolve_shape(foreign.model, foreign.model.vocab, 1);
  const auto sizes = [](const model::ModelShape& s) {
    const std::int64_t positions = s.position == Position::learned ? s.max_sequence : 0;
    return std::tuple(s.layers, s.hidden, s.heads, s.kv_heads, s.head_dim, s.ffn, s.vocab, positions);
  };
  const auto kinds = [](const model::ModelShape& s) {
    const ops::RopeScaling& r = s.rope_scaling;
    return std::tuple(s.norm, s.norm_epsilon, s.mlp, s.position, s.rope_base, r.factor, r.low_freq_factor, r.high_freq_factor,
                      r.original_max_position, s.tie_embeddings, s.bias, s.qkv_bias, s.qk_norm, s.window, s.window_layers);
  };
  return sizes(theirs) == sizes(shape) && kinds(theirs) == kinds(shape);
}

// The files of the training weights, without moments.
std::vector<checkpoint::FileSpec> weight_files(const model::ModelShape& shape) {
  std::vector<checkpoint::FileSpec> files = checkpoint::training_tensors(model::parameters(shape), DType::f32);
  files.resize(1);
  return files;
}

void copy_tensor(const checkpoint::WeightsReader& from, const checkpoint::TensorSpec& spec, checkpoint::CheckpointWriter& to) {
  const std::int64_t columns = spec.columns(), at_once = std::max<std::int64_t>(1, elements_at_once / columns);
  for (std::int64_t row = 0; row < spec.rows(); row += at_once) {
    const model::ElementBlock block{.row = row, .rows = std::min(at_once, spec.rows() - row), .column = 0, .columns = columns};
    std::vector<float> values(static_cast<std::size_t>(block.elements()));
    from.read(spec.name, block, values.data());
    to.write(spec.name, row * columns, block.elements(), values.data());
  }
}

// The form in which an imported run came; nullopt for other runs.
std::optional<StoredForm> kept_form_of(const fs::path& run_dir) {
  const fs::path file = run_dir / kept_folder / kept_form;
  if (!fs::exists(file)) return std::nullopt;
  const nlohmann::json json = read_json_file(file.string(), most_form_bytes);
  const auto text = [&](const char* member) {
    if (!json.is_object() || !json.contains(member) || !json.at(member).is_string())
      throw ConfigError(file.string() + ": " + member + " is not text");
    return json.at(member).get<std::string>();
  };
  const auto type = [&](const std::string& place, const std::string& name) {
    const std::optional<DType> known = weight_type_named(name);
    if (!known) throw ConfigError({{file.string() + ": " + place, name, "must be f32, f16 or bf16", "", 0}});
    return *known;
  };
  StoredForm form{.prefix = text("prefix"), .dtype = type("dtype", text("dtype"))};
  if (!json.contains("dtypes")) return form;
  for (const auto& [tensor, name] : json.at("dtypes").items())
    form.others[tensor] = type("dtypes/" + tensor, name.is_string() ? name.get<std::string>() : name.dump());
  return form;
}

}  // namespace

void keep_side_files(const fs::path& run_dir, const OrderedJson& init_from) {
  const std::optional<fs::path> from = find_side_files(run_dir, init_from);
  if (!from) return;
  create_private_directory(run_dir / kept_folder);
  copy_side_files(*from, run_dir / kept_folder);
}

std::vector<std::string> import_model(const ImportRequest& request) {
  require_name(request.out);
  const auto has = [&](const char* name) { return fs::exists(request.model / name); };
  if (has(checkpoint::Manifest::file_name) || (has("config.yaml") && has("checkpoints"))) {
    throw ConfigError(
        request.model.string() +
        ": is of plait already, not of transformers: train --init-from, eval, sample and export take it as it is");
  }
  const ForeignWeights weights(request.model);
  weights.verify();
  const FoundModel found = find_model(request.model);
  UnfinishedDirectory unfinished(request.out);
  const fs::path& out = unfinished.path();
  Config config = config_of_model(found, without_slash(request.out).filename().string());
  data::create_tokenizer(config)->save(out);
  // Names the run's own copy, so that the run may be moved.
  if (!config.data.huggingface.file.empty())
    config.data.huggingface.file = (fs::absolute(request.out) / "tokenizer.json").string();
  if (!config.data.sentencepiece.model.empty())
    config.data.sentencepiece.model = (fs::absolute(request.out) / "tokenizer.model").string();
  checkpoint::keep_config(out, config);
  create_private_directory(out / kept_folder);
  copy_side_files(request.model, out / kept_folder);
  nlohmann::ordered_json kept{{"prefix", weights.form().prefix}, {"dtype", to_string(weights.form().dtype)}};
  for (const auto& [tensor, type] : weights.form().others) kept["dtypes"][tensor] = to_string(type);
  write_text_file(out / kept_folder / kept_form, kept.dump(2) + "\n");

  const std::vector<checkpoint::FileSpec> files = weight_files(weights.shape());
  auto writer = checkpoint::CheckpointWriter::begin(out, 0, files);
  const std::vector<checkpoint::TensorSpec>& tensors = files.front().tensors;
  std::int64_t bytes = 0, done = 0;
  for (const checkpoint::TensorSpec& spec : tensors) bytes += spec.bytes();
  for (const checkpoint::TensorSpec& spec : tensors) {
    request.progress(static_cast<double>(done) / static_cast<double>(bytes), spec.name);
    copy_tensor(weights, spec, writer);
    done += spec.bytes();
  }
  writer.finish();
  writer.commit({{"config", to_yaml(config)}}, 1);
  unfinished.finish();
  return found.notes();
}

std::vector<std::string> export_model(const ExportRequest& request) {
  require_name(request.out);
  if (is_model_directory(request.run_or_checkpoint))
    throw ConfigError(request.run_or_checkpoint.string() + ": is a model of transformers already");
  const checkpoint::FoundCheckpoint found = find_weights(request.run_or_checkpoint);
  const checkpoint::CheckpointReader reader(found.directory);
  const Config config = checkpoint::load_config_of(found.directory);
  const std::optional<StoredForm> imported = kept_form_of(found.run_dir);
  const std::optional<fs::path> side_files =
      find_side_files(found.run_dir, reader.state().value("init_from", nlohmann::ordered_json()));

  ModelConfig model = config.model;
  std::vector<std::string> notes;
  if (model.vocab.is_auto())
    model.vocab = data::has_tokenizer(found.run_dir) ? data::load_tokenizer(found.run_dir)->vocab() : data::vocabulary(config);
  std::optional<ForeignModel> foreign;
  if (side_files) foreign = read_model(*side_files);
  // A run may train on longer sequences than the model was made for, though most use shorter ones.
  std::int64_t positions = model.max_sequence.value_or(config.data.sequence_length);
  if (foreign) positions = std::max(positions, foreign->positions);
  const model::ModelShape shape = model::resolve_shape(model, model.vocab, positions);
  const bool as_it_came = foreign && describes(*foreign, shape);
  const std::string family = as_it_came ? foreign->family : family_of(model);
  checkpoint::expect_training_tensors(reader, shape, parallel::master_type(config), checkpoint::Restored::weights);
  StoredForm form = imported.value_or(
      StoredForm{.prefix = usual_prefix(family), .dtype = config.precision.compute == "bf16" ? DType::bf16 : DType::f32});
  if (request.dtype) form.dtype = *request.dtype, form.others.clear();

  UnfinishedDirectory unfinished(request.out);
  const fs::path& out = unfinished.path();
  const std::string dtype = form.dtype == DType::bf16 ? "bfloat16" : form.dtype == DType::f16 ? "float16" : "float32";
  using Json = nlohmann::ordered_json;
  const Json theirs = foreign ? Json::parse(read_text(*side_files / "config.json", most_side_bytes)) : Json();
  Json json = as_it_came ? theirs : Json::parse(config_json(model, positions, dtype));
  if (as_it_came) {
    for (const char* field : {"torch_dtype", "dtype"}) {
      if (json.contains(field)) json[field] = dtype;
    }
    if (positions > foreign->positions) json["max_position_embeddings"] = positions;
  } else if (foreign) {
    for (const char* field : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
      if (theirs.contains(field)) json[field] = theirs[field];
    }
    notes.push_back("config.json is of the run's model section, which differs from " + (*side_files / "config.json").string());
  } else {
    // Written even as null; otherwise transformers uses its own class's tokens, which are different here.
    json["bos_token_id"] = json["eos_token_id"] = nullptr;
    if (config.data.document_token.id >= 0) {
      const bool begins = config.data.document_token.place == DocumentTokenPlace::begin;
      json["eos_token_id"] = config.data.document_token.id;
      if (begins) json["bos_token_id"] = config.data.document_token.id;
    }
  }
  write_text_file(out / "config.json", json.dump(2) + "\n");
  if (config.data.tokenizer == "huggingface" && fs::exists(found.run_dir / "tokenizer.json")) {
    write_text_file(out / "tokenizer.json", read_text(found.run_dir / "tokenizer.json", most_side_bytes));
    // Without this file AutoTokenizer uses the class of the model's type, with its own rules instead of the file's.
    if (!foreign) write_text_file(out / "tokenizer_config.json", generic_tokenizer + "\n");
    if (!foreign && family == "qwen2")
      notes.push_back(
          "AutoTokenizer of transformers 5 splits text by Qwen2's rules for a qwen2 model, regardless of tokenizer.json; "
          "PreTrainedTokenizerFast.from_pretrained() reads the file");
  } else if (!foreign) {
    notes.push_back("no tokenizer.json: the run's tokenizer is " + config.data.tokenizer);
  }
  if (foreign) copy_side_files(*side_files, out);
  write_tensors(reader, family, shape, form, request.most_bytes, out, request.progress);
  unfinished.finish();
  return notes;
}

}  // namespace plait::interop
