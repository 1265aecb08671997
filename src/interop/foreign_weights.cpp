#include "interop/foreign_weights.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/checksum.h"
#include "checkpoint/manifest.h"
#include "checkpoint/weights_reader.h"
#include "core/error.h"
#include "core/file.h"
#include "interop/weights.h"

namespace plait::interop {
namespace {

namespace fs = std::filesystem;

constexpr const char* config_file = "config.json";
constexpr std::int64_t most_at_once = std::int64_t{1} << 20;  // elements

std::string digest_of(const File& config, const ForeignTensors& tensors) {
  return checkpoint::to_hex(
      checkpoint::xxh3(checkpoint::to_hex(checkpoint::xxh3(config, 0, config.size())) + "\n" + tensors.identity()));
}

}  // namespace

bool is_model_directory(const fs::path& directory) {
  std::error_code ignored;
  const auto has = [&](const char* name) { return fs::exists(directory / name, ignored); };
  return has(config_file) && !has(checkpoint::Manifest::file_name) && !(has("config.yaml") && has("checkpoints"));
}

ForeignWeights::ForeignWeights(const fs::path& directory)
    : checkpoint::WeightsReader(directory),
      model_(read_model(directory)),
      shape_(model::resolve_shape(model_.model, model_.model.vocab, model_.positions)),
      tensors_(directory),
      form_(check_tensors(tensors_, model_, shape_)),
      digest_(digest_of(File::open_read(directory / config_file), tensors_)) {
  const std::vector<checkpoint::FileSpec> files = checkpoint::training_tensors(model::parameters(shape_), DType::f32);
  for (const checkpoint::TensorSpec& spec : files.front().tensors) add(spec);
  for (MappedParameter& mapped : map_stored(tensors_, model_.family, shape_, form_.prefix))
    pieces_.emplace(mapped.parameter.name, std::move(mapped.pieces));
}

void ForeignWeights::verify() const {
  if (!shape_.tie_embeddings || !tensors_.contains(head_tensor)) return;
  const std::string& table = pieces_.at(table_parameter).front().tensor;
  if (table == head_tensor) return;
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format("{}: tensor '{}' {} '{}', which it is by tie_word_embeddings in {}", directory().string(),
                                  head_tensor, why, table, config_file));
  };
  const std::int64_t elements = tensors_.tensor(table).elements();
  if (tensors_.tensor(head_tensor).shape != tensors_.tensor(table).shape) refuse("has not the shape of");
  for (std::int64_t done = 0; done < elements; done += most_at_once) {
    std::vector<float> head(static_cast<std::size_t>(std::min(most_at_once, elements - done))), tokens(head.size());
    tensors_.read(head_tensor, done, head);
    tensors_.read(table, done, tokens);
    // Compares bits, since a NaN equals nothing.
    if (std::memcmp(head.data(), tokens.data(), head.size() * sizeof(float)) != 0) refuse("differs from");
  }
}

void ForeignWeights::read(std::string_view parameter, const model::ElementBlock& block, void* data) const {
  const checkpoint::TensorSpec& spec = tensor(parameter);
  require_block(spec, block);
  auto* out = static_cast<float*>(data);
  for (const Piece& piece : pieces_.find(parameter)->second) {
    const std::int64_t first = std::max(block.row, piece.first),
                       end = std::min(block.row + block.rows, piece.first + piece.rows);
    if (first >= end) continue;
    model::ElementBlock part = block;
    part.row = first - piece.first, part.rows = end - first;
    read_piece(piece, spec.columns(), part, out + (first - block.row) * block.columns);
  }
}

// `block`: within the piece.
void ForeignWeights::read_piece(const Piece& piece, std::int64_t width, const model::ElementBlock& block, float* out) const {
  if (piece.transposed) return read_transposed(piece, block, out);
  const bool whole_rows = block.columns == width;
  const std::int64_t run = whole_rows ? block.elements() : block.columns;
  for (std::int64_t row = 0; row < (whole_rows ? 1 : block.rows); ++row) {
    for (std::int64_t done = 0; done < run; done += most_at_once) {
      const std::int64_t count = std::min(most_at_once, run - done);
      tensors_.read(piece.tensor, (block.row + row) * width + block.column + done,
                    {out + row * run + done, static_cast<std::size_t>(count)});
    }
  }
}

// The file holds column after column, each piece.rows long.
void ForeignWeights::read_transposed(const Piece& piece, const model::ElementBlock& block, float* out) const {
  for (std::int64_t row = 0; row < block.rows; row += most_at_once) {
    const std::int64_t rows = std::min(most_at_once, block.rows - row),
                       at_once = std::max<std::int64_t>(1, most_at_once / rows);
    for (std::int64_t column = 0; column < block.columns; column += at_once) {
      const std::int64_t columns = std::min(at_once, block.columns - column);
      std::vector<float> values(static_cast<std::size_t>(rows * columns));
      const std::int64_t run = rows == piece.rows ? rows * columns : rows;
      for (std::int64_t done = 0; done < rows * columns; done += run) {
        tensors_.read(piece.tensor, (block.column + column + done / rows) * piece.rows + block.row + row,
                      std::span(values).subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(run)));
      }
      transpose(values, rows, columns, out + row * block.columns + column, block.columns);
    }
  }
}

checkpoint::FoundCheckpoint find_weights(const std::filesystem::path& path) {
  if (!checkpoint::is_lone_checkpoint(path) && !is_model_directory(path)) return checkpoint::find_checkpoint(path);
  const std::filesystem::path directory = std::filesystem::canonical(path);
  const auto reader = open_weights(directory);
  reader->verify();
  return {directory, directory, reader->step()};
}

std::unique_ptr<checkpoint::WeightsReader> open_weights(const std::filesystem::path& directory) {
  if (is_model_directory(directory)) return std::make_unique<ForeignWeights>(directory);
  return std::make_unique<checkpoint::CheckpointReader>(directory);
}

}  // namespace plait::interop
