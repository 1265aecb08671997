// What ranks find out about each other's view of files before a run starts.
#include "train/run_start.h"

#include <gmock/gmock.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/weights_reader.h"
#include "comm/rendezvous.h"
#include "core/error_of.h"
#include "interop/foreign_weights.h"
#include "test_paths.h"
#include "train/trainer_fixture.h"

namespace plait::train {
namespace {

using testing::HasSubstr;

class RunStartTest : public TrainerTest {
 protected:
  comm::Meeting meeting(int rank, int size = 2) { return {*store_, "run", rank, size, std::chrono::milliseconds(60'000)}; }
  // What rank 1 makes of what rank 0 says.
  std::string refusal_of_rank_1(const RunStart& told) {
    store_ = comm::make_thread_rendezvous();
    meeting(0).say("start", word_of(told));
    comm::Meeting one = meeting(1);
    std::optional<checkpoint::RunLock> lock;
    RunOrigin origin;
    return error_of<ConfigError>([&] { return agree_on_start(parse_config(yaml()), {}, one, lock, origin).step; });
  }

  std::shared_ptr<comm::Rendezvous> store_ = comm::make_thread_rendezvous();
};

TEST_F(RunStartTest, ADirectoryThatTheHostsDoNotShareIsRefused) {
  const fs::path here = directory_ / "here", elsewhere = directory_ / "elsewhere";
  fs::create_directory(here);
  const auto own = [](const fs::path& path) { return checkpoint::RunLock::own(path, std::chrono::milliseconds(0), {}); };
  const checkpoint::RunLock mine = own(here);
  RunStart start;
  start.run_dir = here;
  start.owner = mine.owner();
  EXPECT_EQ(refusal_of_rank_1(start), nothing_thrown);
  const std::string why = " is not the directory that rank 0 has: all ranks need it on a file system that their hosts share";
  start.owner = "process 1 on another-host, since 2026-01-01T00:00:00Z";
  EXPECT_THAT(refusal_of_rank_1(start), HasSubstr("run.dir=" + (directory_ / "runs").string() + ":" + why));
  start.owner = mine.owner();
  start.run_dir = elsewhere;
  EXPECT_THAT(refusal_of_rank_1(start), HasSubstr("run.dir=" + (directory_ / "runs").string() + ":" + why)) << "nothing there";
  EXPECT_FALSE(fs::exists(elsewhere));
  start.resumed = true;
  EXPECT_THAT(refusal_of_rank_1(start), HasSubstr("--resume=" + elsewhere.string() + ":" + why));
}

// They are told as text.
TEST_F(RunStartTest, PathsThatCannotBeToldAreRefusedWhereThereAreSeveralRanks) {
  const auto refusal = [&](const Config& config, int ranks, const fs::path& resume = {}) {
    store_ = comm::make_thread_rendezvous();
    comm::Meeting zero = meeting(0, ranks);
    std::optional<checkpoint::RunLock> lock;
    RunOrigin origin;
    return error_of<ConfigError>([&] { return agree_on_start(config, resume, zero, lock, origin).step; });
  };
  const std::string rule = ": a path that several ranks are told must be UTF-8 without control characters";
  const Config usual = parse_config(yaml());
  Config config = usual;
  config.run.name = "a\tb";
  EXPECT_THAT(refusal(config, 2), HasSubstr("run.name=a?b: has control characters" + rule));
  EXPECT_EQ(refusal(config, 1), nothing_thrown);
  config = usual;
  config.run.dir = (directory_ / "lat\xe9").string();
  EXPECT_THAT(refusal(config, 2), HasSubstr("run.dir=" + (directory_ / "lat?").string() + ": is not UTF-8" + rule));
  config.run.dir = (directory_ / "lat\u00e9").string();
  EXPECT_EQ(refusal(config, 2), nothing_thrown);
  EXPECT_THAT(refusal(usual, 2, directory_ / "lat\xe9"), HasSubstr("--resume=" + (directory_ / "lat?").string() + ": is not"));
  config = usual;
  config.train.init_from.path = (directory_ / "link").string();
  fs::create_directory(directory_ / "line\nend");
  fs::create_symlink("line\nend", directory_ / "link");
  EXPECT_THAT(refusal(config, 2), HasSubstr("train.init_from.path=" + (fs::canonical(directory_) / "line?end").string() +
                                            ": has control characters"))
      << "where it leads to";
  EXPECT_FALSE(fs::exists(directory_ / "lat\xe9"));
  EXPECT_FALSE(fs::exists(run_dir("run")));
}

// What each rank that loads from its directory meets; "" where it goes on.
class CopiesOfWeights : public RunStartTest {
 protected:
  std::vector<std::string> outcomes(const std::vector<fs::path>& directories) {
    const auto store = store_ = comm::make_thread_rendezvous();
    std::vector<std::string> errors(directories.size());
    {
      std::vector<std::jthread> ranks;
      for (std::size_t r = 0; r < directories.size(); ++r) {
        ranks.emplace_back([&, r] {
          comm::Meeting mine = meeting(static_cast<int>(r), static_cast<int>(directories.size()));
          try {
            verify_copies(*interop::open_weights(directories[r]), mine);
          } catch (const ConfigError& error) {
            errors[r] = error.what();
            store->abort("refused");
          } catch (const CommError&) {
            errors[r] = "aborted";
          }
        });
      }
    }
    return errors;
  }
  fs::path copy(const fs::path& of, const char* name) const {
    fs::copy(of, directory_ / name, fs::copy_options::recursive);
    return directory_ / name;
  }
  // One bit of the last element of its tensors.
  static void flip(const fs::path& copy) {
    std::fstream file(copy / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-2, std::ios::end);
    const char byte = static_cast<char>(file.peek() ^ 0x01);
    file.seekp(-2, std::ios::end);
    file.put(byte);
  }
};

TEST_F(CopiesOfWeights, AreVerifiedByOneRankEach) {
  ASSERT_EQ(train(request({"train.steps=3"})), 0);
  const fs::path original = checkpoint::checkpoint_directory(run_dir(), 3), good = copy(original, "good"),
                 damaged = copy(original, "damaged");
  flip(damaged);
  const auto is_damaged =
      testing::AllOf(HasSubstr((damaged / "model.safetensors").string()), HasSubstr("is damaged: checksum"));
  EXPECT_THAT(outcomes({original, good, original, good}), testing::Each(""));
  EXPECT_THAT(outcomes({original, original, damaged, damaged}),
              testing::ElementsAre("aborted", "aborted", is_damaged, "aborted"));
  EXPECT_THAT(outcomes({damaged, damaged}), testing::Each("")) << "rank 0 has verified that: nothing is read twice";
}

TEST_F(CopiesOfWeights, WithoutChecksumsAreComparedWithRank0s) {
  const fs::path original = fs::path(test_paths::source) / "tests/app/transformers/gpt2", good = copy(original, "good"),
                 other = copy(original, "other");
  flip(other);
  EXPECT_THAT(outcomes({original, good, original, good}), testing::Each(""));
  const auto is_other = HasSubstr(other.string() + ": its files of tensors hold other bytes here than on rank 0");
  const std::vector<std::string> errors = outcomes({good, good, other, other});
  EXPECT_THAT(errors[2], testing::AnyOf(is_other, "aborted"));
  EXPECT_THAT(errors, testing::Contains(is_other));
}

}  // namespace
}  // namespace plait::train
