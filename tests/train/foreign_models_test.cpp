// What import and export tell while they copy.
#include "train/foreign_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/temporary_directory.h"
#include "test_paths.h"

namespace plait::train {
namespace {

class Told {
 public:
  ProgressCallback callback() {
    return [this](double done, const std::string& tensor) { done_.push_back(done), tensors_.push_back(tensor); };
  }
  const std::vector<std::string>& tensors() const { return tensors_; }
  void expect_parts() const {
    ASSERT_FALSE(done_.empty());
    EXPECT_EQ(done_.front(), 0);
    EXPECT_TRUE(std::ranges::is_sorted(done_, std::ranges::less_equal()));  // each tensor has bytes
    EXPECT_LT(done_.back(), 1);
    EXPECT_GT(done_.back(), 0.5);
  }

 private:
  std::vector<double> done_;
  std::vector<std::string> tensors_;
};

TEST(ForeignModels, TellEachTensorAndWhatIsDoneBeforeIt) {
  const test::TemporaryDirectory folder;
  const std::filesystem::path base(folder.path());
  Told imported, exported, in_files;
  import_model({.model = std::filesystem::path(test_paths::source) / "tests/app/transformers/llama",
                .out = base / "run",
                .progress = imported.callback()});
  imported.expect_parts();
  EXPECT_THAT(imported.tensors(), testing::Contains("blocks.1.mlp.up.weight"));
  export_model({.run_or_checkpoint = base / "run", .out = base / "out", .dtype = {}, .progress = exported.callback()});
  exported.expect_parts();
  EXPECT_THAT(exported.tensors(), testing::Contains("lm_head.weight"));
  export_model({.run_or_checkpoint = base / "run",
                .out = base / "files",
                .dtype = {},
                .most_bytes = 1000,
                .progress = in_files.callback()});
  in_files.expect_parts();
  EXPECT_EQ(in_files.tensors(), exported.tensors());
}

}  // namespace
}  // namespace plait::train
