#include "interop/weights.h"

#include <spdlog/fmt/fmt.h>

#include <array>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/checksum.h"
#include "core/error.h"
#include "core/json.h"
#include "core/message.h"

namespace plait::interop {
namespace {

namespace fs = std::filesystem;

constexpr const char* single_file = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";
constexpr std::uint64_t most_index_bytes = std::uint64_t{64} << 20;
constexpr std::int64_t converted_at_once = std::int64_t{1} << 20;
constexpr float least_infinite_f16 = 65520;  // larger magnitudes round to infinity
constexpr const char* type_rule = "must be F32, F16 or BF16";
constexpr std::array weight_types{DType::f32, DType::f16, DType::bf16};

// Names are untrusted.
std::string shown(const std::string& name) { return printable(name, 256); }

bool is_weight_type(DType type) { return std::ranges::find(weight_types, type) != weight_types.end(); }

// True for a file of the same directory.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

std::vector<std::int64_t> stored_shape(const MappedParameter& mapped, const Piece& piece) {
  const Shape& shape = mapped.parameter.stored_shape;
  if (shape.rank() == 1) return {piece.rows};
  return piece.transposed ? std::vector{shape[1], piece.rows} : std::vector{piece.rows, shape[1]};
}

std::int64_t columns_of(const MappedParameter& mapped) {
  return mapped.parameter.stored_shape.rank() == 1 ? 1 : mapped.parameter.stored_shape[1];
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::vector<float> read_stored(const checkpoint::CheckpointReader& checkpoint, const std::string& parameter, std::int64_t first,
                               std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  if (checkpoint.tensor(parameter).dtype == DType::f64) {
    std::vector<double> wide(values.size());
    checkpoint.read(parameter, first, count, wide.data());
    std::ranges::transform(wide, values.begin(), [](double value) { return static_cast<float>(value); });
  } else {
    checkpoint.read(parameter, first, count, values.data());
  }
  return values;
}

template <typename T>
void put_rounded(const File& file, std::uint64_t at, std::span<const float> values) {
  std::vector<T> narrow(values.size());
  std::ranges::transform(values, narrow.begin(), [](float value) { return T(value); });
  file.write_at(at, narrow.data(), narrow.size() * sizeof(T));
}

template <typename T>
void read_widened(const File& file, std::uint64_t at, std::span<float> out) {
  std::vector<T> narrow(out.size());
  file.read_at(at, narrow.data(), narrow.size() * sizeof(T));
  std::ranges::transform(narrow, out.begin(), [](T value) { return static_cast<float>(value); });
}

// Writes elements from `first` on.
void put(const File& file, const checkpoint::PlacedTensor& tensor, std::int64_t first, std::span<const float> values) {
  const std::uint64_t at = tensor.offset + static_cast<std::uint64_t>(first) * size_of(tensor.spec.dtype);
  if (tensor.spec.dtype == DType::f32) return file.write_at(at, values.data(), values.size_bytes());
  if (tensor.spec.dtype == DType::bf16) return put_rounded<BFloat16>(file, at, values);
  const auto too_large = [](float value) { return std::isfinite(value) && std::abs(value) >= least_infinite_f16; };
  if (const auto found = std::ranges::find_if(values, too_large); found != values.end()) {
    throw ConfigError(
        fmt::format("{}: tensor '{}' has {}, which f16 cannot hold (at most 65504): export with --dtype bf16 or f32",
                    file.path().string(), tensor.spec.name, *found));
  }
  put_rounded<Float16>(file, at, values);
}

[[noreturn]] void refuse_type(const fs::path& where, const std::string& tensor, std::string_view type) {
  throw ConfigError(fmt::format("{}: tensor '{}' is {}; weights {}", where.string(), shown(tensor), type, type_rule));
}

struct Stored {
  const MappedParameter* parameter;
  const Piece* piece;
  checkpoint::TensorSpec spec;
};

void write_file(const fs::path& path, const std::vector<Stored>& tensors, const checkpoint::CheckpointReader& checkpoint,
                const std::function<void(const checkpoint::TensorSpec&)>& begins) {
  std::vector<checkpoint::TensorSpec> specs;
  for (const Stored& stored : tensors) specs.push_back(stored.spec);
  const checkpoint::SafetensorsLayout layout = layout_safetensors(specs);
  File file = File::create(path);
  file.allocate(layout.file_bytes);
  file.write_at(0, layout.header.data(), layout.header.size());
  for (const Stored& stored : tensors) {
    begins(stored.spec);
    const checkpoint::PlacedTensor& placed =
        *std::ranges::find_if(layout.tensors, [&](const auto& t) { return t.spec.name == stored.spec.name; });
    const std::int64_t columns = columns_of(*stored.parameter), begin = stored.piece->first * columns,
                       count = stored.piece->rows * columns;
    const std::string& name = stored.parameter->parameter.name;
    if (stored.piece->transposed) {
      const std::vector<float> values = read_stored(checkpoint, name, begin, count);
      std::vector<float> turned(values.size());
      transpose(values, columns, stored.piece->rows, turned.data(), stored.piece->rows);
      put(file, placed, 0, turned);
      continue;
    }
    for (std::int64_t done = 0; done < count; done += converted_at_once)
      put(file, placed, done, read_stored(checkpoint, name, begin + done, std::min(converted_at_once, count - done)));
  }
  file.sync();
  file.close();
}

}  // namespace

void transpose(std::span<const float> from, std::int64_t rows, std::int64_t columns, float* to, std::int64_t stride) {
  constexpr std::int64_t tile = 32;
  for (std::int64_t r0 = 0; r0 < rows; r0 += tile) {
    for (std::int64_t c0 = 0; c0 < columns; c0 += tile) {
      for (std::int64_t r = r0; r < std::min(rows, r0 + tile); ++r) {
        for (std::int64_t c = c0; c < std::min(columns, c0 + tile); ++c)
          to[r * stride + c] = from[static_cast<std::size_t>(c * rows + r)];
      }
    }
  }
}

ForeignTensors::ForeignTensors(const fs::path& directory) : directory_(directory) {
  // The single file comes first, as in transformers: an index next to it is left from other weights.
  if (fs::exists(directory / single_file)) {
    add_file(single_file);
    return;
  }
  const fs::path index = directory / index_file;
  if (!fs::exists(index)) {
    refuse_dangling_link(directory / single_file);
    refuse_dangling_link(index);
    throw ConfigError(
        fmt::format("{}: holds neither {} nor {}; weights in other formats are converted by transformers: "
                    "save_pretrained()",
                    directory.string(), single_file, index_file));
  }
  const auto refuse = [&](const std::string& why) { throw ConfigError(index.string() + ": " + why); };
  const nlohmann::json json =
      parse_json(read_text(index, most_index_bytes), refuse,
                 unique_keys([&](const std::string& key, int) { refuse("names '" + shown(key) + "' twice"); }));
  if (!json.is_object() || !json.contains("weight_map") || !json.at("weight_map").is_object())
    refuse("holds no object called weight_map");
  std::set<std::string> files;
  for (const auto& [tensor, file] : json.at("weight_map").items()) {
    if (!file.is_string() || !is_plain_name(file.get<std::string>()))
      refuse("weight_map: '" + shown(tensor) + "' is not in a file of this directory");
    files.insert(file.get<std::string>());
  }
  for (const std::string& file : files) add_file(file);
  for (const auto& [tensor, file] : json.at("weight_map").items()) {
    const auto found = file_of(tensor);
    if (!found || files_[*found].path().filename() != file.get<std::string>())
      refuse("weight_map: '" + shown(tensor) + "' is not in " + shown(file.get<std::string>()));
  }
  for (const std::string& tensor : names()) {
    if (!json.at("weight_map").contains(tensor)) refuse("weight_map: lacks '" + shown(tensor) + "', which a file holds");
  }
}

void ForeignTensors::add_file(const std::string& name) {
  refuse_dangling_link(directory_ / name);
  files_.push_back(File::open_read(directory_ / name));
  checkpoint::SafetensorsLayout layout = checkpoint::read_safetensors_layout(files_.back());
  identity_ += fmt::format("{} {} {} {}\n", name, layout.file_bytes, files_.back().changed_at(),
                           checkpoint::to_hex(checkpoint::xxh3(layout.header)));
  const auto require_new = [&](const std::string& tensor) {
    if (contains(tensor))
      throw ConfigError(files_.back().path().string() + ": tensor '" + shown(tensor) + "' is in another file too");
  };
  for (checkpoint::PlacedTensor& tensor : layout.tensors) {
    const std::string its_name = tensor.spec.name;
    require_new(its_name);
    tensors_.emplace(its_name, std::pair(files_.size() - 1, std::move(tensor)));
  }
  for (checkpoint::OtherTensor& tensor : layout.others) {
    require_new(tensor.name);
    others_.emplace(std::move(tensor.name), std::pair(files_.size() - 1, std::move(tensor.type)));
  }
}

std::optional<std::size_t> ForeignTensors::file_of(const std::string& tensor) const {
  if (const auto found = tensors_.find(tensor); found != tensors_.end()) return found->second.first;
  if (const auto found = others_.find(tensor); found != others_.end()) return found->second.first;
  return std::nullopt;
}

std::optional<std::string> ForeignTensors::unusable_type(const std::string& name) const {
  const auto found = others_.find(name);
  return found == others_.end() ? std::nullopt : std::optional(found->second.second);
}

std::vector<std::string> ForeignTensors::names() const {
  std::vector<std::string> list;
  for (const auto& [name, unused] : tensors_) list.push_back(name);
  for (const auto& [name, unused] : others_) list.push_back(name);
  return list;
}

const checkpoint::TensorSpec& ForeignTensors::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (const auto type = unusable_type(name)) refuse_type(directory_, name, *type);
  if (found == tensors_.end()) throw ConfigError(directory_.string() + ": there is no tensor '" + shown(name) + "'");
  return found->second.second.spec;
}

void ForeignTensors::read(const std::string& name, std::int64_t first, std::span<float> out) const {
  const checkpoint::TensorSpec& spec = tensor(name);
  const auto& [file, placed] = tensors_.at(name);
  require(first >= 0 && first + std::ssize(out) <= spec.elements(), "ForeignTensors::read: outside the tensor");
  const std::uint64_t at = placed.offset + static_cast<std::uint64_t>(first) * size_of(spec.dtype);
  bytes_read_ += out.size() * size_of(spec.dtype);
  if (spec.dtype == DType::f32) return files_[file].read_at(at, out.data(), out.size_bytes());
  if (spec.dtype == DType::bf16) return read_widened<BFloat16>(files_[file], at, out);
  if (spec.dtype == DType::f16) return read_widened<Float16>(files_[file], at, out);
  refuse_type(files_[file].path(), name, to_string(spec.dtype));
}

std::optional<DType> weight_type_named(std::string_view name) {
  const auto found = std::ranges::find(weight_types, name, [](DType type) { return to_string(type); });
  return found == weight_types.end() ? std::nullopt : std::optional(*found);
}

std::string ForeignTensors::place_of(const std::string& tensor) const {
  const auto file = file_of(tensor);
  return (file ? files_[*file].path() : directory_).string() + ": " + shown(tensor);
}

DType StoredForm::type_of(const std::string& tensor) const {
  const auto found = others.find(tensor);
  return found == others.end() ? dtype : found->second;
}

std::vector<MappedParameter> map_stored(const ForeignTensors& tensors, const std::string& family,
                                        const model::ModelShape& shape, const std::string& prefix) {
  std::vector<MappedParameter> mapped = map_parameters(family, shape, prefix);
  if (!shape.tie_embeddings || !tensors.contains(head_tensor)) return mapped;
  for (MappedParameter& parameter : mapped) {
    std::string& tensor = parameter.pieces.front().tensor;
    if (parameter.parameter.name == table_parameter && !tensors.contains(tensor)) tensor = head_tensor;
  }
  return mapped;
}

StoredForm check_tensors(const ForeignTensors& tensors, const ForeignModel& model, const model::ModelShape& shape) {
  StoredForm form;
  // transformers writes a prefix; files of the model without its head have none.
  const bool gpt2 = model.family == "gpt2";
  const std::string first = gpt2 ? "wte.weight" : "embed_tokens.weight", last = gpt2 ? "ln_f.weight" : "norm.weight";
  form.prefix = tensors.contains(first) || tensors.contains(last) ? "" : usual_prefix(model.family);
  form.dtype = DType::f32;
  std::vector<ConfigProblem> problems;
  std::set<std::string> known;
  bool is_first = true;
  for (const MappedParameter& mapped : map_stored(tensors, model.family, shape, form.prefix)) {
    for (const Piece& piece : mapped.pieces) {
      known.insert(piece.tensor);
      if (!tensors.contains(piece.tensor)) {
        problems.push_back({tensors.place_of(piece.tensor), "", "is missing", "", 0});
        continue;
      }
      if (const auto type = tensors.unusable_type(piece.tensor)) {
        problems.push_back({tensors.place_of(piece.tensor), *type, type_rule, "", 0});
        continue;
      }
      const checkpoint::TensorSpec& spec = tensors.tensor(piece.tensor);
      if (const std::vector<std::int64_t> expected = stored_shape(mapped, piece); spec.shape != expected)
        problems.push_back({tensors.place_of(piece.tensor), shape_text(spec.shape),
                            "must be " + shape_text(expected) + " by config.json", "", 0});
      if (!is_weight_type(spec.dtype))
        problems.push_back({tensors.place_of(piece.tensor), std::string(to_string(spec.dtype)), type_rule, "", 0});
      if (std::exchange(is_first, false)) form.dtype = spec.dtype;
      if (spec.dtype != form.dtype) form.others[piece.tensor] = spec.dtype;
    }
  }
  for (const std::string& name : tensors.names()) {
    // A tied head may be stored in addition to the table it is tied to.
    const bool tied_head = shape.tie_embeddings && name == head_tensor;
    if (!known.contains(name) && !tied_head && !is_buffer(model.family, name))
      problems.push_back({tensors.place_of(name), "", "is no tensor of a " + model.family + " of this shape", "", 0});
  }
  if (!problems.empty()) throw ConfigError(first_problems(std::move(problems), "tensors that are not as they should be"));
  return form;
}

void write_tensors(const checkpoint::CheckpointReader& checkpoint, const std::string& family, const model::ModelShape& shape,
                   const StoredForm& form, std::uint64_t most_bytes, const fs::path& directory,
                   const ProgressCallback& progress) {
  const std::vector<MappedParameter> parameters = map_parameters(family, shape, form.prefix);
  std::vector<std::vector<Stored>> files(1);
  std::uint64_t bytes = 0, total = 0;
  for (const MappedParameter& mapped : parameters) {
    for (const Piece& piece : mapped.pieces) {
      const checkpoint::TensorSpec spec{piece.tensor, form.type_of(piece.tensor), stored_shape(mapped, piece)};
      const auto its_bytes = static_cast<std::uint64_t>(spec.bytes());
      if (!files.back().empty() && bytes + its_bytes > most_bytes) files.emplace_back(), bytes = 0;
      files.back().push_back({&mapped, &piece, spec});
      bytes += its_bytes, total += its_bytes;
    }
  }
  std::uint64_t written = 0;
  const auto begins = [&](const checkpoint::TensorSpec& spec) {
    progress(static_cast<double>(written) / static_cast<double>(total), spec.name);
    written += static_cast<std::uint64_t>(spec.bytes());
  };
  if (files.size() == 1) return write_file(directory / single_file, files.front(), checkpoint, begins);
  nlohmann::ordered_json index{{"metadata", {{"total_size", total}}}, {"weight_map", nlohmann::ordered_json::object()}};
  for (std::size_t n = 0; n < files.size(); ++n) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", n + 1, files.size());
    write_file(directory / name, files[n], checkpoint, begins);
    for (const Stored& stored : files[n]) index["weight_map"][stored.spec.name] = name;
  }
  write_text_file(directory / index_file, index.dump(2) + "\n");
}

}  // namespace plait::interop
