#include "train/batch_file.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/file.h"

namespace plait::train {
namespace {

namespace fs = std::filesystem;

std::vector<checkpoint::TensorSpec> tensors_of(const Config& config, std::int64_t steps) {
  const std::vector<std::int64_t> shape = {steps, config.train.global_batch, config.data.sequence_length};
  std::vector<checkpoint::TensorSpec> tensors = {{"tokens", DType::i32, shape}, {"targets", DType::i32, shape}};
  if (config.data.documents == Documents::separate) tensors.push_back({"starts", DType::i32, shape});
  return tensors;
}

class FileBatches final : public data::Dataset {
 public:
  FileBatches(const fs::path& path, const Config& config)
      : Dataset(config.data.sequence_length), file_(File::open_read(path)), batch_(config.train.global_batch) {
    std::vector<checkpoint::PlacedTensor> held = checkpoint::read_safetensors_layout(file_).tensors;
    for (const checkpoint::TensorSpec& wanted : tensors_of(config, 0)) {
      const auto found = std::ranges::find(held, wanted.name, [](const auto& tensor) { return tensor.spec.name; });
      checkpoint::TensorSpec of_any_steps = found == held.end() ? checkpoint::TensorSpec() : found->spec;
      if (!of_any_steps.shape.empty()) steps_ = std::exchange(of_any_steps.shape.front(), 0);
      if (of_any_steps != wanted)
        throw ConfigError(path.string() + ": its '" + wanted.name + "' was not made for this configuration; make it anew");
      offsets_.push_back(found->offset);
    }
  }

  std::int64_t train_tokens() const override { return steps_ * batch_ * sequence_length(); }
  std::int64_t validation_tokens() const override { return 0; }
  data::SampleOrder sample_order() const override { return {{"order of samples", "of a file"}}; }
  std::vector<data::SourceUse> sources_used(std::int64_t) const override { return {}; }

  void train_sample(std::int64_t step, std::int64_t sample, const data::SampleSpans& out) const override {
    require(step >= 1 && step <= steps_ && sample >= 0 && sample < batch_, "train_sample: of no step in the file");
    const auto row = static_cast<std::uint64_t>((step - 1) * batch_ + sample);
    const std::array<std::span<std::int32_t>, 3> spans = {out.tokens, out.targets, out.starts};
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      if (!spans[i].empty()) file_.read_at(offsets_[i] + row * spans[i].size_bytes(), spans[i].data(), spans[i].size_bytes());
    }
  }

  void validation_sample(std::int64_t, std::int64_t, const data::SampleSpans&) const override {
    throw InternalError("a file of batches has no validation split");
  }

 private:
  const File file_;
  const std::int64_t batch_;
  std::int64_t steps_ = 0;
  std::vector<std::uint64_t> offsets_;  // of tokens, targets, starts
};

}  // namespace

void write_batches(const fs::path& path, const data::Dataset& dataset, const Config& config, std::int64_t steps,
                   const ProgressCallback& progress) {
  const checkpoint::SafetensorsLayout layout = checkpoint::layout_safetensors(tensors_of(config, steps));
  if (fs::exists(fs::symlink_status(path))) throw ConfigError(path.string() + ": exists already; name a new file");
  const fs::path unfinished = path.string() + ".part";
  File file = File::create(unfinished);
  const UnfinishedFile ours(unfinished);
  file.allocate(layout.file_bytes);
  file.write_at(0, layout.header.data(), layout.header.size());
  std::vector<std::vector<std::int32_t>> rows(3,
                                              std::vector<std::int32_t>(static_cast<std::size_t>(dataset.sequence_length())));
  const std::size_t bytes = rows.front().size() * sizeof(std::int32_t);
  const std::int64_t batch = config.train.global_batch;
  for (std::int64_t step = 1; step <= steps; ++step) {
    progress(static_cast<double>(step - 1) / static_cast<double>(steps), "");
    for (std::int64_t sample = 0; sample < batch; ++sample) {
      dataset.train_sample(step, sample, {rows[0], rows[1], rows[2]});
      const std::uint64_t at = static_cast<std::uint64_t>((step - 1) * batch + sample) * bytes;
      for (std::size_t i = 0; i < layout.tensors.size(); ++i)
        file.write_at(layout.tensors[i].offset + at, rows[i].data(), bytes);
    }
  }
  file.sync();
  file.close();
  rename_path(unfinished, path);
}

std::shared_ptr<const data::Dataset> open_batches(const fs::path& path, const Config& config) {
  return std::make_shared<FileBatches>(path, config);
}

}  // namespace plait::train
