// Suggests the name probably meant by an unknown name: a key, an option, a command, a value.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

// The name of one of plait's configuration keys in transformers, Megatron-LM, nanoGPT, torchtitan or DeepSpeed.
struct ForeignName {
  std::string_view name, key;
  std::string_view note;  // a difference in the number's meaning; may be empty
};

std::span<const ForeignName> all_foreign_names();

// Looks up the last component of a path ("train.learning_rate"), in any case and with '-' or '_'; nullptr for other names.
const ForeignName* foreign_name(std::string_view path);

// The candidate probably meant by `word`: the key of a foreign name if it is among them, else the one with the smallest edit
// distance; empty if even that one has little in common with it. A path whose last component is the word's counts as a near
// miss ("train.lr" for "train.optimizer.lr").
std::string nearest_of(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace plait
