#include "checkpoint/weights_reader.h"

#include <spdlog/fmt/fmt.h>
#include <sys/stat.h>

#include <set>

#include "checkpoint/checksum.h"
#include "core/error.h"
#include "core/file.h"

namespace plait::checkpoint {
namespace {

std::string describe(const TensorSpec& spec) {
  std::string text(to_string(spec.dtype));
  text += " [";
  for (std::size_t i = 0; i < spec.shape.size(); ++i) text += (i ? ", " : "") + std::to_string(spec.shape[i]);
  return text + "]";
}

}  // namespace

const TensorSpec& WeightsReader::tensor(std::string_view name) const {
  const auto found = specs_.find(name);
  if (found == specs_.end()) throw ConfigError(directory_.string() + ": there is no tensor '" + std::string(name) + "'");
  return found->second;
}

void WeightsReader::expect(const std::vector<FileSpec>& files, const std::vector<FileSpec>& others) const {
  std::vector<ConfigProblem> problems;
  const auto differs = [&](const std::string& tensor, const std::string& how) {
    problems.push_back({directory_.string() + ": tensor '" + tensor + "'", "", how, "", 0});
  };
  std::set<std::string_view> expected;
  for (const FileSpec& file : files) {
    for (const TensorSpec& spec : file.tensors) {
      expected.insert(spec.name);
      if (!contains(spec.name)) {
        differs(spec.name, "missing; the model needs " + describe(spec));
      } else if (!(tensor(spec.name) == spec)) {
        differs(spec.name, "is " + describe(tensor(spec.name)) + ", the model needs " + describe(spec));
      }
    }
  }
  for (const FileSpec& file : others) {
    for (const TensorSpec& spec : file.tensors) expected.insert(spec.name);
  }
  for (const auto& [name, spec] : specs_) {
    if (!expected.contains(name)) differs(name, "the model has no such tensor");
  }
  if (!problems.empty()) throw ConfigError(first_problems(std::move(problems), "tensors that are not as the model needs them"));
}

void WeightsReader::require_block(const TensorSpec& spec, const model::ElementBlock& block) {
  const std::int64_t rows = spec.rows(), columns = spec.columns();
  require(block.row >= 0 && block.rows >= 0 && block.row <= rows && block.rows <= rows - block.row && block.column >= 0 &&
              block.columns >= 0 && block.column <= columns && block.columns <= columns - block.column,
          "a block outside tensor '" + spec.name + "'");
}

std::string files_identity(const std::filesystem::path& directory) {
  std::set<std::string> files;  // in the same order on all hosts
  for (const std::filesystem::path& path : list_directory(directory)) {
    struct stat found{};
    // Links are followed: the weights have been opened, but other links may be broken. The device is left out, since its number
    // differs between hosts.
    if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) continue;
    files.insert(fmt::format("{} {} {} {}.{:09} {}.{:09}\n", path.filename().string(), found.st_ino, found.st_size,
                             found.st_mtim.tv_sec, found.st_mtim.tv_nsec, found.st_ctim.tv_sec, found.st_ctim.tv_nsec));
  }
  std::string all;
  for (const std::string& file : files) all += file;
  return to_hex(xxh3(all));
}

std::string contents_digest(const std::filesystem::path& directory) {
  std::map<std::string, File> files;  // in the same order on all hosts
  for (const std::filesystem::path& path : list_directory(directory)) {
    if (path.extension() == ".safetensors") files.emplace(path.filename().string(), File::open_read(path));
  }
  std::vector<FileRange> ranges;
  for (const auto& [name, file] : files) ranges.push_back({&file, 0, file.size()});
  std::string all;
  for (const std::uint64_t hash : xxh3(ranges)) all += to_hex(hash);
  return to_hex(xxh3(all));
}

std::string exp_avg_name(const model::Parameter& parameter) { return parameter.name + ".exp_avg"; }
std::string exp_avg_sq_name(const model::Parameter& parameter) { return parameter.name + ".exp_avg_sq"; }

std::vector<FileSpec> training_tensors(const std::vector<model::Parameter>& parameters, DType dtype) {
  FileSpec weights{"model.safetensors", {}};
  FileSpec moments{"optimizer.safetensors", {}};
  for (const model::Parameter& parameter : parameters) {
    std::vector<std::int64_t> shape;
    for (int dim = 0; dim < parameter.stored_shape.rank(); ++dim) shape.push_back(parameter.stored_shape[dim]);
    weights.tensors.push_back({parameter.name, dtype, shape});
    moments.tensors.push_back({exp_avg_name(parameter), dtype, shape});
    moments.tensors.push_back({exp_avg_sq_name(parameter), dtype, shape});
  }
  return {weights, moments};
}

void expect_training_tensors(const WeightsReader& weights, const model::ModelShape& shape, DType dtype, Restored what) {
  std::vector<FileSpec> files = training_tensors(model::parameters(shape), dtype);
  if (what == Restored::everything) return weights.expect(files);
  weights.expect({files.front()}, {files.begin() + 1, files.end()});
}

}  // namespace plait::checkpoint
