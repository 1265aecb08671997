#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <barrier>
#include <csignal>
#include <random>
#include <thread>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/weights_reader.h"
#include "model/parameters.h"

namespace plait::checkpoint {
namespace {

using namespace test;
using ::testing::HasSubstr;

class Checkpoint : public InTemporaryDirectory {};

const nlohmann::ordered_json no_state = nlohmann::ordered_json::object();

void expect_values(const CheckpointReader& reader, std::int64_t step) {
  for (const FileSpec& file : small_files()) {
    for (const TensorSpec& spec : file.tensors) {
      const auto elements = static_cast<std::size_t>(spec.elements());
      std::vector<float> narrow(elements);
      std::vector<double> wide(elements);
      reader.read(spec.name, 0, spec.elements(), spec.dtype == DType::f64 ? static_cast<void*>(wide.data()) : narrow.data());
      if (spec.dtype == DType::f32) wide.assign(narrow.begin(), narrow.end());
      for (std::size_t i = 0; i < elements; ++i) {
        ASSERT_EQ(wide[i], value_of(spec.name, static_cast<std::int64_t>(i), step)) << spec.name << " " << i;
      }
    }
  }
}

// Cuts every tensor into small runs and deals them to the ranks at random.
std::vector<std::vector<std::function<void(CheckpointWriter&)>>> deal(int ranks, std::int64_t step) {
  std::mt19937 random(11);
  std::vector<std::vector<std::function<void(CheckpointWriter&)>>> work(static_cast<std::size_t>(ranks));
  for (const FileSpec& file : small_files()) {
    for (const TensorSpec& spec : file.tensors) {
      for (std::int64_t first = 0; first < spec.elements();) {
        const std::int64_t count = std::min<std::int64_t>(1 + random() % 4, spec.elements() - first);
        work[random() % work.size()].push_back([=](CheckpointWriter& w) { write_elements(w, spec, first, count, step); });
        first += count;
      }
    }
  }
  for (auto& list : work) std::shuffle(list.begin(), list.end(), random);
  return work;
}

TEST_F(Checkpoint, RanksAsThreadsWriteInterleavedPieces) {
  constexpr int ranks = 4;
  const auto work = deal(ranks, 100);
  std::barrier barrier(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::optional<CheckpointWriter> writer;
      if (rank == 0) writer.emplace(CheckpointWriter::begin(directory_, 100, small_files()));
      barrier.arrive_and_wait();
      if (rank != 0) writer.emplace(CheckpointWriter::open(directory_, 100, rank));
      for (const auto& write : work[static_cast<std::size_t>(rank)]) write(*writer);
      writer->finish();
      barrier.arrive_and_wait();
      if (rank == 0) writer->commit({{"note", "as given"}, {"position", 0.1}}, 2);
    });
  }
  for (auto& thread : threads) thread.join();

  const CheckpointReader reader(directory_ / "checkpoints" / "step-00000100");
  reader.verify();
  EXPECT_EQ(reader.step(), 100);
  EXPECT_EQ(reader.state().dump(), R"({"note":"as given","position":0.1})");
  expect_values(reader, 100);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(reader.directory())) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"model.safetensors", "optimizer.safetensors", "state.json"}));
}

TEST_F(Checkpoint, RanksAsProcesses) {
  const auto work = deal(2, 3);
  CheckpointWriter writer = CheckpointWriter::begin(directory_, 3, small_files());
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      CheckpointWriter other = CheckpointWriter::open(directory_, 3, 1);
      for (const auto& write : work[1]) write(other);
      other.finish();
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  for (const auto& write : work[0]) write(writer);
  writer.finish();
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  writer.commit(no_state, 1);
  const CheckpointReader reader(checkpoint_directory(directory_, 3));
  reader.verify();
  expect_values(reader, 3);
}

TEST_F(Checkpoint, ReadsAnyRun) {
  const CheckpointReader reader(write_checkpoint(directory_, 5));
  std::vector<double> run(4);
  reader.read("tokens.exp_avg_sq", 9, 4, run.data());
  for (int i = 0; i < 4; ++i) EXPECT_EQ(run[static_cast<std::size_t>(i)], value_of("tokens.exp_avg_sq", 9 + i, 5));
  EXPECT_THROW(reader.read("tokens.exp_avg_sq", 18, 4, run.data()), InternalError);
  EXPECT_THROW(reader.read("tokens.exp_avg_sq", -1, 1, run.data()), InternalError);
  EXPECT_THAT(config_error([&] { reader.read("bias", 0, 1, run.data()); }), HasSubstr("no tensor 'bias'"));
}

TEST_F(Checkpoint, MissingElementsAreNamed) {
  CheckpointWriter writer = CheckpointWriter::begin(directory_, 7, small_files());
  for (const FileSpec& file : small_files()) {
    for (const TensorSpec& spec : file.tensors) {
      if (spec.name == "tokens") {
        write_elements(writer, spec, 0, 9, 7);
        write_elements(writer, spec, 11, 10, 7);
      } else {
        write_elements(writer, spec, 0, spec.elements(), 7);
      }
    }
  }
  writer.finish();
  const std::string error = internal_error([&] { writer.commit(no_state, 1); });
  EXPECT_THAT(error, HasSubstr("elements [9, 11) of tensor 'tokens' were written by no rank"));
  EXPECT_FALSE(fs::exists(checkpoint_directory(directory_, 7)));
}

TEST_F(Checkpoint, ARankThatDidNotFinishIsMissed) {
  CheckpointWriter writer = CheckpointWriter::begin(directory_, 7, small_files());
  {
    CheckpointWriter other = CheckpointWriter::open(directory_, 7, 1);
    write_everything(other, 7);
  }
  writer.finish();
  EXPECT_THAT(internal_error([&] { writer.commit(no_state, 1); }), HasSubstr("were written by no rank"));
}

TEST_F(Checkpoint, ElementsWrittenTwiceAreRefused) {
  CheckpointWriter writer = CheckpointWriter::begin(directory_, 7, small_files());
  write_everything(writer, 7);
  EXPECT_THAT(internal_error([&] { write_elements(writer, small_files()[0].tensors[0], 20, 1, 7); }),
              HasSubstr("tensor 'tokens' twice"));
  CheckpointWriter other = CheckpointWriter::open(directory_, 7, 1);
  write_elements(other, small_files()[0].tensors[0], 4, 2, 7);
  other.finish();
  writer.finish();
  EXPECT_THAT(internal_error([&] { writer.commit(no_state, 1); }), HasSubstr("of tensor 'tokens' were written by two ranks"));
}

TEST_F(Checkpoint, WritesOutsideATensorAreRefused) {
  CheckpointWriter writer = CheckpointWriter::begin(directory_, 7, small_files());
  const std::vector<float> values(64);
  EXPECT_THROW(writer.write("tokens", 20, 2, values.data()), InternalError);
  EXPECT_THROW(writer.write("tokens", -1, 2, values.data()), InternalError);
  EXPECT_THROW(writer.write("tokens", 22, 0, values.data()), InternalError);
  EXPECT_THROW(writer.write("nothing", 0, 1, values.data()), InternalError);
}

// A process that dies without any clean-up, after `dies_after` of the steps of writing.
void write_and_die(const fs::path& run_dir, std::int64_t step, int dies_after) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      CheckpointWriter writer = CheckpointWriter::begin(run_dir, step, small_files());
      if (dies_after >= 1) write_everything(writer, step);
      if (dies_after >= 2) writer.finish();
      ::_exit(0);
    } catch (...) {
      ::_exit(1);
    }
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
}

TEST_F(Checkpoint, ADeathLeavesThePreviousOneAndTheNextBeginCleansUp) {
  write_checkpoint(directory_, 100);
  for (int dies_after = 0; dies_after <= 2; ++dies_after) {
    write_and_die(directory_, 200, dies_after);
    EXPECT_TRUE(fs::exists(temporary_directory(directory_, 200)));
    EXPECT_EQ(find_checkpoint(directory_).step, 100);
  }
  write_checkpoint(directory_, 300);
  EXPECT_FALSE(fs::exists(temporary_directory(directory_, 200)));
  EXPECT_EQ(find_checkpoint(directory_).step, 300);
}

TEST_F(Checkpoint, AWriterThatIsNotCommittedFreesItsSpace) {
  {
    const CheckpointWriter writer = CheckpointWriter::begin(directory_, 100, small_files());
  }
  EXPECT_TRUE(fs::is_empty(checkpoints_directory(directory_)));
}

// Such a checkpoint would be one of a run without a configuration.
TEST_F(Checkpoint, ARunDirectoryThatIsGoneIsNotMadeAgain) {
  const fs::path gone = directory_ / "gone";
  EXPECT_THAT(error_of<Error>([&] { CheckpointWriter::begin(gone, 100, small_files()); }),
              AllOf(HasSubstr(gone.string()), HasSubstr("is gone")));
  EXPECT_FALSE(fs::exists(gone));
}

TEST_F(Checkpoint, AnExistingStepIsRefused) {
  write_checkpoint(directory_, 100);
  EXPECT_THAT(config_error([&] { CheckpointWriter::begin(directory_, 100, small_files()); }),
              AllOf(HasSubstr("step-00000100"), HasSubstr("exists already")));
}

TEST_F(Checkpoint, FilesAndDirectoriesArePrivate) {
  const ::mode_t before = ::umask(0);
  const fs::path checkpoint = write_checkpoint(directory_, 1);
  ::umask(before);
  const auto mode = [](const fs::path& path) { return static_cast<unsigned>(fs::status(path).permissions()); };
  EXPECT_EQ(mode(checkpoints_directory(directory_)), 0700u);
  EXPECT_EQ(mode(checkpoint), 0700u);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"})
    EXPECT_EQ(mode(checkpoint / name), 0600u);
}

// RLIMIT_FSIZE stands in for a full disk: writes beyond it fail, with EFBIG rather than ENOSPC.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST_F(Checkpoint, NoSpaceShowsAtTheStart) {
  write_checkpoint(directory_, 100);
  std::string error;
  {
    const FileSizeLimit limit(16);
    error = error_of<Error>([&] { CheckpointWriter::begin(directory_, 200, small_files()); });
  }
  EXPECT_THAT(error, AllOf(HasSubstr("model.safetensors"), HasSubstr("File too large")));
  EXPECT_FALSE(fs::exists(temporary_directory(directory_, 200)));
  EXPECT_EQ(find_checkpoint(directory_).step, 100);
}

TEST_F(Checkpoint, AFailedWriteNamesTheFile) {
  write_checkpoint(directory_, 100);
  std::string error;
  {
    CheckpointWriter writer = CheckpointWriter::begin(directory_, 200, small_files());
    const FileSizeLimit limit(16);
    error = error_of<Error>([&] { write_everything(writer, 200); });
  }
  EXPECT_THAT(error, AllOf(HasSubstr("cannot write"), HasSubstr("model.safetensors"), HasSubstr("File too large")));
  EXPECT_EQ(find_checkpoint(directory_).step, 100);
}

TEST_F(Checkpoint, ExpectListsEveryDifference) {
  const CheckpointReader reader(write_checkpoint(directory_, 1));
  reader.expect(small_files());
  std::vector<FileSpec> other = small_files();
  other[0].tensors[0].shape = {3, 7};
  other[0].tensors[1].name = "gain";
  other[1].tensors[1].dtype = DType::f32;
  const std::string error = config_error([&] { reader.expect(other); });
  EXPECT_THAT(error, HasSubstr("4 problems"));
  EXPECT_THAT(error, HasSubstr("tensor 'tokens': is f32 [7, 3], the model needs f32 [3, 7]"));
  EXPECT_THAT(error, HasSubstr("tensor 'gain': missing; the model needs f32 []"));
  EXPECT_THAT(error, HasSubstr("tensor 'tokens.exp_avg_sq': is f64 [7, 3], the model needs f32 [7, 3]"));
  EXPECT_THAT(error, HasSubstr("tensor 'scale': the model has no such tensor"));
}

// Another model.hidden makes every tensor another one.
TEST_F(Checkpoint, ExpectCountsTheDifferencesThatItDoesNotList) {
  const CheckpointReader reader(write_checkpoint(directory_, 1));
  std::vector<FileSpec> other = small_files();
  for (int i = 0; i < 30; ++i) other[0].tensors.push_back({"more" + std::to_string(i), DType::f32, {1}});
  EXPECT_THAT(config_error([&] { reader.expect(other); }),
              AllOf(HasSubstr("'more19'"), Not(HasSubstr("'more20'")),
                    HasSubstr("and 10 more: tensors that are not as the model needs them")));
}

TEST(TrainingTensors, WeightsAndMomentsByName) {
  model::Parameter parameter;
  parameter.name = "blocks.0.attention.qkv.weight";
  parameter.shape = {2304, 768};
  parameter.stored_shape = {2300, 768};
  const auto files = training_tensors({parameter}, DType::f64);
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].name, "model.safetensors");
  EXPECT_EQ(files[0].tensors, (std::vector<TensorSpec>{{"blocks.0.attention.qkv.weight", DType::f64, {2300, 768}}}));
  EXPECT_EQ(files[1].name, "optimizer.safetensors");
  EXPECT_EQ(files[1].tensors, (std::vector<TensorSpec>{{"blocks.0.attention.qkv.weight.exp_avg", DType::f64, {2300, 768}},
                                                       {"blocks.0.attention.qkv.weight.exp_avg_sq", DType::f64, {2300, 768}}}));
}

}  // namespace
}  // namespace plait::checkpoint
