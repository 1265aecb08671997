// What was probably meant by a name that there is not: a key, an option, a command, a value.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

// What transformers, Megatron-LM, nanoGPT, torchtitan or DeepSpeed call what a key of plait's configuration says.
struct ForeignName {
  std::string_view name, key;
  std::string_view note;  // where the key means something else by its number; may be empty
};

std::span<const ForeignName> all_foreign_names();

// By the last component of a path ("train.learning_rate"), in any case and with '-' or '_'; nullptr for other names.
const ForeignName* foreign_name(std::string_view path);

// The candidate that was probably meant by `word`: what a foreign name stands for if it is among them, else the one with the
// smallest edit distance; empty when even that one has little in common with it. A path whose last component is the word's
// counts as a near miss ("train.lr" for "train.optimizer.lr").
std::string nearest_of(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace plait
