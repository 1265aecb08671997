#include "checkpoint/checkpoint_directory.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/run_directory.h"
#include "interop/foreign_weights.h"

namespace plait::checkpoint {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class CheckpointDirectory : public InTemporaryDirectory {
 protected:
  void damage(std::int64_t step) { flip_bit(checkpoint_directory(directory_, step) / "model.safetensors", 300); }
  std::vector<std::int64_t> steps() {
    std::vector<std::int64_t> found;
    for (const auto& status : list_checkpoints(directory_)) found.push_back(status.step);
    return found;
  }
};

TEST_F(CheckpointDirectory, Names) {
  EXPECT_EQ(checkpoint_directory("r", 100), "r/checkpoints/step-00000100");
  EXPECT_EQ(step_of("r/checkpoints/step-00000100"), 100);
  EXPECT_EQ(step_of(checkpoint_directory("r", 123'456'789'012)), 123'456'789'012);
  for (const char* other : {"step-100", "step-", "step-0000010x", ".tmp-step-00000100", "abandoned-step-00000100", "",
                            "step-99999999999999999999", "step--0000001"}) {
    EXPECT_EQ(step_of(other), std::nullopt) << other;
  }
}

TEST_F(CheckpointDirectory, ListsWithStatusNewestFirst) {
  for (const int step : {100, 300, 200}) write_checkpoint(directory_, step);
  damage(200);
  const auto all = list_checkpoints(directory_);
  ASSERT_EQ(steps(), (std::vector<std::int64_t>{300, 200, 100}));
  EXPECT_TRUE(all[0].good());
  EXPECT_THAT(all[1].problem, HasSubstr("model.safetensors"));
  EXPECT_TRUE(all[2].good());
  EXPECT_TRUE(list_checkpoints(directory_ / "nothing").empty());
}

TEST_F(CheckpointDirectory, FindsTheNewestGoodOne) {
  for (const int step : {100, 200}) write_checkpoint(directory_, step);
  const FoundCheckpoint found = find_checkpoint(directory_);
  EXPECT_EQ(found.step, 200);
  EXPECT_EQ(found.run_dir, directory_);
  EXPECT_EQ(found.directory, checkpoint_directory(directory_, 200));
}

TEST_F(CheckpointDirectory, RefusesADamagedNewestAndOffersTheGoodOneBefore) {
  for (const int step : {100, 200, 300}) write_checkpoint(directory_, step);
  damage(200);
  damage(300);
  const std::string error = config_error([&] { find_checkpoint(directory_); });
  EXPECT_THAT(error, HasSubstr("step-00000300 cannot be used"));
  EXPECT_THAT(error, HasSubstr("newest good one before it is step 100"));
  EXPECT_THAT(error, HasSubstr("give " + checkpoint_directory(directory_, 100).string()));
  damage(100);
  EXPECT_THAT(config_error([&] { find_checkpoint(directory_); }), HasSubstr("no good checkpoint before it"));
}

TEST_F(CheckpointDirectory, AcceptsAnExplicitCheckpoint) {
  for (const int step : {100, 200}) write_checkpoint(directory_, step);
  damage(200);
  for (const char* suffix : {"", "/", "/."}) {
    const FoundCheckpoint found = find_checkpoint(checkpoint_directory(directory_, 100).string() + suffix);
    EXPECT_EQ(found.step, 100);
    EXPECT_EQ(fs::canonical(found.run_dir), fs::canonical(directory_));
  }
  EXPECT_THAT(config_error([&] { find_checkpoint(checkpoint_directory(directory_, 200)); }), HasSubstr("is step 100"));
}

// checkpoints/ may be a link to another disk, and a run or a checkpoint have links to them.
TEST_F(CheckpointDirectory, ACheckpointIsOfTheRunThatItsPathNamesOrThatLinksLeadTo) {
  const fs::path run = directory_ / "run", disk = directory_ / "disk", elsewhere = directory_ / "elsewhere";
  for (const fs::path& made : {run, disk, elsewhere}) fs::create_directory(made);
  write_file(run / "config.yaml", "");
  fs::create_directory_symlink(disk, checkpoints_directory(run));
  const fs::path checkpoint = write_checkpoint(run, 100);
  for (const char* suffix : {"", "/", "/.", "/../step-00000100"}) {
    const fs::path named = checkpoint.string() + suffix;
    EXPECT_EQ(run_directory_of(named), run) << named;
    EXPECT_FALSE(is_lone_checkpoint(named)) << named;
    const FoundCheckpoint found = find_checkpoint(named);
    EXPECT_EQ(found.run_dir, run) << named;
    EXPECT_EQ(found.directory, checkpoint) << named;
    EXPECT_EQ(found.step, 100) << named;
  }
  EXPECT_EQ(run_directory_of(checkpoint_directory(run, 200)), run) << "of one that is not there";
  EXPECT_TRUE(is_lone_checkpoint(disk / "step-00000100")) << "no run is around it";
  fs::create_directory_symlink(run, directory_ / "latest");
  EXPECT_EQ(run_directory_of(directory_ / "latest"), directory_ / "latest");
  EXPECT_EQ(find_checkpoint(checkpoint_directory(directory_ / "latest", 100)).run_dir, directory_ / "latest");

  const fs::path original = write_checkpoint(elsewhere, 7), link = directory_ / "link";
  fs::create_directory_symlink(original, link);
  EXPECT_EQ(run_directory_of(link), fs::canonical(elsewhere));
  EXPECT_EQ(find_checkpoint(link).step, 7);
}

TEST_F(CheckpointDirectory, WeightsMayLieAnywhere) {
  fs::create_directory(directory_ / "run");
  const fs::path original = write_checkpoint(directory_ / "run", 100), copy = directory_ / "copy";
  fs::copy(original, copy, fs::copy_options::recursive);
  EXPECT_FALSE(is_lone_checkpoint(original));
  EXPECT_EQ(fs::canonical(interop::find_weights(original).run_dir), fs::canonical(directory_ / "run"));
  EXPECT_EQ(interop::find_weights(directory_ / "run").step, 100) << "a run's newest";
  ASSERT_TRUE(is_lone_checkpoint(copy));
  EXPECT_EQ(interop::find_weights(copy).step, 100);
  EXPECT_EQ(interop::find_weights(copy).run_dir, fs::canonical(copy));
  EXPECT_EQ(CheckpointReader(copy).digest(), CheckpointReader(original).digest());
  EXPECT_NE(CheckpointReader(write_checkpoint(directory_ / "run", 200)).digest(), CheckpointReader(original).digest());
  flip_bit(copy / "model.safetensors", 300);
  EXPECT_THAT(config_error([&] { interop::find_weights(copy); }), HasSubstr("model.safetensors"));
  EXPECT_THAT(config_error([&] { find_checkpoint(copy); }), HasSubstr("no checkpoints/step-")) << "a run cannot go on in it";
}

TEST_F(CheckpointDirectory, SaysWhatIsNotARun) {
  EXPECT_THAT(config_error([&] { find_checkpoint(directory_ / "nothing"); }), HasSubstr("no such directory"));
  EXPECT_THAT(config_error([&] { find_checkpoint(directory_); }), HasSubstr("no checkpoints/step-"));
}

TEST_F(CheckpointDirectory, CommitKeepsTheNewest) {
  for (const int step : {100, 200, 300}) write_checkpoint(directory_, step, 2);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{300, 200}));
  write_checkpoint(directory_, 400, 1);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{400}));
  EXPECT_EQ(std::distance(fs::directory_iterator(checkpoints_directory(directory_)), {}), 1);
}

// Meanwhile root may do no more than any other user.
class WithoutRights {
 public:
  WithoutRights() : before_(::geteuid()) {
    if (before_ == 0 && ::seteuid(65534) != 0) ADD_FAILURE() << "root cannot become nobody";
  }
  ~WithoutRights() {
    if (before_ == 0 && ::seteuid(0) != 0) std::abort();
  }

 private:
  uid_t before_;
};

TEST_F(CheckpointDirectory, ALeftoverThatCannotBeRemovedIsAWarning) {
  const fs::path leftover = temporary_directory(directory_, 100);
  fs::create_directories(leftover);
  write_file(leftover / "model.safetensors", "x");
  for (const fs::path& open : {directory_, checkpoints_directory(directory_)}) fs::permissions(open, fs::perms::all);
  fs::permissions(leftover, fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read | fs::perms::others_exec);
  {
    const WithoutRights here;
    for (const int step : {200, 300}) {
      CheckpointWriter writer = CheckpointWriter::begin(directory_, step, small_files());
      write_everything(writer, step);
      writer.finish();
      EXPECT_THAT(writer.commit({{"step", step}}, 100).prune_problems,
                  ElementsAre(AllOf(HasSubstr("cannot remove " + leftover.string()), HasSubstr("Permission denied"))));
    }
    EXPECT_THAT(config_error([&] { CheckpointWriter::begin(directory_, 100, small_files()); }),
                AllOf(HasSubstr("cannot remove " + leftover.string()), HasSubstr("; remove it")));
  }
  fs::permissions(leftover, fs::perms::all);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{300, 200}));
}

TEST_F(CheckpointDirectory, KeepIsAtLeastOne) {
  write_checkpoint(directory_, 100);
  EXPECT_THROW(prune_checkpoints(directory_, 0), InternalError);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{100}));
}

TEST_F(CheckpointDirectory, SetsAsideWhatIsNewerThanTheResumedStep) {
  for (const int step : {100, 200, 300}) write_checkpoint(directory_, step);
  EXPECT_EQ(set_aside_after(directory_, 100).size(), 2u);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{100}));
  write_checkpoint(directory_, 200, 1);  // would have been refused, or pruned in favour of 300
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{200}));
  EXPECT_EQ(set_aside_after(directory_, 100),
            (std::vector<fs::path>{checkpoints_directory(directory_) / "abandoned-step-00000200.2"}));
  EXPECT_TRUE(fs::exists(checkpoints_directory(directory_) / "abandoned-step-00000300" / "state.json"));
}

}  // namespace
}  // namespace plait::checkpoint
