// Small checkpoints for tests, and ways to damage them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/safetensors.h"
#include "core/config_error.h"
#include "core/error.h"
#include "core/error_of.h"

namespace plait::checkpoint::test {

namespace fs = std::filesystem;

// A directory of its own for each test, removed afterwards.
class InTemporaryDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "plait-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }
  fs::path directory_;
};

inline std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline void flip_bit(const fs::path& path, std::uint64_t byte, int bit = 0) {
  std::string bytes = read_file(path);
  bytes.at(byte) = static_cast<char>(bytes.at(byte) ^ (1 << bit));
  write_file(path, bytes);
}

inline std::string internal_error(const std::function<void()>& action) {
  const std::string text = error_of<InternalError>(action);
  EXPECT_NE(text, nothing_thrown);
  return text;
}

// Two files, f32 and f64, an odd number of elements, a scalar and an empty tensor.
inline std::vector<FileSpec> small_files() {
  return {{"model.safetensors", {{"tokens", DType::f32, {7, 3}}, {"scale", DType::f32, {}}, {"none", DType::f32, {0, 4}}}},
          {"optimizer.safetensors", {{"tokens.exp_avg", DType::f32, {7, 3}}, {"tokens.exp_avg_sq", DType::f64, {7, 3}}}}};
}

// The value of an element: differs between tensors, elements and steps.
inline double value_of(const std::string& tensor, std::int64_t element, std::int64_t step) {
  return static_cast<double>(step) + 0.25 * static_cast<double>(element) + 16.0 * static_cast<double>(tensor.size());
}

inline void write_elements(CheckpointWriter& writer, const TensorSpec& spec, std::int64_t first, std::int64_t count,
                           std::int64_t step) {
  std::vector<double> wide;
  for (std::int64_t i = first; i < first + count; ++i) wide.push_back(value_of(spec.name, i, step));
  if (spec.dtype == DType::f64) return writer.write(spec.name, first, count, wide.data());
  const std::vector<float> narrow(wide.begin(), wide.end());
  writer.write(spec.name, first, count, narrow.data());
}

inline void write_everything(CheckpointWriter& writer, std::int64_t step) {
  for (const FileSpec& file : small_files()) {
    for (const TensorSpec& spec : file.tensors) write_elements(writer, spec, 0, spec.elements(), step);
  }
}

// A whole checkpoint by one rank.
inline fs::path write_checkpoint(const fs::path& run_dir, std::int64_t step, std::int64_t keep = 100) {
  CheckpointWriter writer = CheckpointWriter::begin(run_dir, step, small_files());
  write_everything(writer, step);
  writer.finish();
  return writer.commit({{"seed", 1234}, {"step", step}}, keep).directory;
}

}  // namespace plait::checkpoint::test
