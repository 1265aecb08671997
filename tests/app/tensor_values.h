// Tensors of a file, as tests compare them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/file.h"

namespace plait::app {

// Of type float32. Empty, and a failure, where there is none of that name.
inline std::vector<float> values_of(const std::filesystem::path& file, const std::string& name = "logits") {
  const File in = File::open_read(file);
  for (const checkpoint::PlacedTensor& tensor : checkpoint::read_safetensors_layout(in).tensors) {
    if (tensor.spec.name != name) continue;
    std::vector<float> values(static_cast<std::size_t>(tensor.spec.elements()));
    in.read_at(tensor.offset, values.data(), values.size() * sizeof(float));
    return values;
  }
  ADD_FAILURE() << file << " has no tensor " << name;
  return {};
}

}  // namespace plait::app
