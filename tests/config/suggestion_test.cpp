#include "config/suggestion.h"

#include <gmock/gmock.h>

#include "config/schema.h"

namespace plait {
namespace {

std::vector<std::string> all_keys() {
  std::vector<std::string> keys;
  for (const config::Field& field : config::fields()) keys.push_back(field.path);
  return keys;
}

TEST(Suggestion, KnowsWhatOtherProgramsCallAKey) {
  const std::vector<std::string> keys = all_keys();
  EXPECT_EQ(nearest_of("learning_rate", keys), "train.optimizer.lr");
  EXPECT_EQ(nearest_of("train.learning-rate", keys), "train.optimizer.lr");
  EXPECT_EQ(nearest_of("optimizer.Learning_Rate", keys), "train.optimizer.lr");
  EXPECT_EQ(nearest_of("model.num_hidden_layers", keys), "model.layers");
  EXPECT_EQ(nearest_of("seq_len", keys), "data.sequence_length");
  EXPECT_EQ(nearest_of("tensor_model_parallel_size", keys), "parallel.tensor");
}

TEST(Suggestion, EveryForeignNameStandsForAKeyThatThereIs) {
  const std::vector<std::string> keys = all_keys();
  for (const char* name :
       {"batch_size", "max_steps", "gradient_accumulation_steps", "block_size", "dtype", "save_steps", "tp"}) {
    const ForeignName* foreign = foreign_name(name);
    ASSERT_NE(foreign, nullptr) << name;
    EXPECT_THAT(keys, testing::Contains(foreign->key));
  }
  for (const ForeignName& foreign : all_foreign_names()) EXPECT_THAT(keys, testing::Contains(foreign.key)) << foreign.name;
}

// A key of that name is not foreign.
TEST(Suggestion, NoForeignNameIsTheNameOfAKey) {
  for (const std::string& key : all_keys()) EXPECT_EQ(foreign_name(key), nullptr) << key;
}

TEST(Suggestion, TakesAForeignNameOnlyForWhatCanBeMeant) {
  EXPECT_EQ(nearest_of("learning_rate", {"train", "bench"}), "");
  EXPECT_EQ(nearest_of("trian", {"train", "bench"}), "train");
}

}  // namespace
}  // namespace plait
